//! Objects as the store has them: their keys and bytes, and what the store's failures are answered
//! with.

use api::{Cause, Details, Reason, Resource, Status, Value};
use bytes::Bytes;

use crate::cache::{key_of, storage_key};

/// Where an object lies in the store.
pub(crate) fn store_key(resource: &Resource, namespace: &str, name: &str) -> Bytes {
    storage_key(resource, &key_of(namespace, name))
}

/// As [`stored_bytes`], of an object that takes the place of `old`. One that is nested more deeply
/// than can be read again is refused, unless it was before: then it can at least be let go.
pub(crate) fn checked_bytes(object: &Value, old: Option<&Value>) -> Result<Bytes, Status> {
    if let Err(problem) = object.check_depth()
        && old.is_none_or(|old| old.check_depth().is_ok())
    {
        return Err(problem.into());
    }
    Ok(stored_bytes(object))
}

/// An object as it is put into the store, with no room to spare: it stays for long.
pub(crate) fn stored_bytes(object: &Value) -> Bytes {
    // A copy of exactly its length: the allocator shrinks a block only when less than half of it is
    // used, and these bytes stay as long as the object.
    Bytes::copy_from_slice(&object.to_json())
}

/// RFC 3339 in UTC with whole seconds.
pub(crate) fn seconds_text(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second())
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_string()
}

/// The cache is not as far as was asked.
pub(crate) fn too_large(requested: u64, newest: u64) -> Status {
    Status::new(
        Reason::Timeout,
        format!("Timeout: Too large resource version: {requested}, current: {newest}"),
    )
    .with_details(Details {
        causes: vec![Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_string(),
            field: String::new(),
        }],
        retry_after_seconds: 1,
        ..Details::default()
    })
}

pub(crate) fn store_failure(problem: store::Error) -> Status {
    match problem {
        store::Error::Closed(_) => Status::new(
            Reason::ServiceUnavailable,
            format!("the store is not available: {problem}"),
        ),
        store::Error::Unavailable(_) => {
            Status::new(Reason::ServiceUnavailable, problem.to_string())
        }
        // Perhaps done, perhaps not: the client has to look.
        store::Error::OutcomeUnknown(_) => Status::new(Reason::Timeout, problem.to_string()),
        // Upstream hands etcd's own error on, which has no reason.
        store::Error::TooLarge => Status::new(Reason::Unknown, problem.to_string()),
        other => Status::internal(other),
    }
}
