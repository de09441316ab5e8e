//! Stored objects that cannot be read. They are never hidden: whoever asks for one, or for a list it
//! belongs to, is told which it is, and its name stays taken until it is deleted unread.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use api::Resource;
use api::{Cause, Details, Reason, Status};

use super::keys::storage_key;

/// Told of at most in one answer.
const MOST_TOLD: usize = 100;

/// An object that the store has and that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub revision: u64,
    pub problem: String,
}

/// By key inside the kind.
pub(crate) type AllUnreadable = BTreeMap<Arc<str>, Unreadable>;

impl Unreadable {
    fn message(&self, resource: &Resource, key: &str) -> String {
        format!(
            "StorageError: corrupt object, Code: 7, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={}: {}",
            String::from_utf8_lossy(&storage_key(resource, key)),
            self.revision,
            self.problem
        )
    }

    /// The answer to whoever asks for the object itself.
    pub fn status(&self, resource: &Resource, key: &str) -> Status {
        let message = self.message(resource, key);
        let name = key.rsplit('/').next().unwrap_or_default();
        Status::new(
            Reason::StoreReadError,
            format!("Internal error occurred: {message}"),
        )
        .with_details(details(resource, name, vec![cause(resource, key, message)]))
    }
}

/// The answer to whoever asks for a list with these in it, if there are any.
pub(super) fn check_list<'a>(
    resource: &Resource,
    found: impl Iterator<Item = (&'a Arc<str>, &'a Unreadable)>,
) -> Result<(), Status> {
    let mut causes: Vec<Cause> = found
        .take(MOST_TOLD + 1)
        .map(|(key, unreadable)| cause(resource, key, unreadable.message(resource, key)))
        .collect();
    if causes.is_empty() {
        return Ok(());
    }
    if causes.len() > MOST_TOLD {
        causes[MOST_TOLD] = Cause {
            reason: "FieldValueTooMany",
            message: "too many errors, the list is truncated".to_string(),
            field: String::new(),
        };
    }
    let message = format!(
        "failed to read one or more {} from the storage",
        resource.qualified()
    );
    let details = details(resource, "list", causes);
    Err(Status::new(Reason::StoreReadError, message).with_details(details))
}

fn cause(resource: &Resource, key: &str, message: String) -> Cause {
    Cause {
        reason: "UnexpectedServerResponse",
        message,
        field: String::from_utf8_lossy(&storage_key(resource, key)).into_owned(),
    }
}

fn details(resource: &Resource, name: &str, causes: Vec<Cause>) -> Details {
    Details {
        group: resource.group.to_string(),
        kind: resource.plural.to_string(),
        name: name.to_string(),
        causes,
        ..Details::default()
    }
}

/// Those whose key begins with `prefix`, from `start` on and up to `end`.
pub(super) fn range<'a>(
    all: &'a AllUnreadable,
    prefix: &'a str,
    start: &str,
    end: Option<&'a str>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Unreadable)> {
    let from = if start.is_empty() { prefix } else { start };
    all.range::<str, _>((Bound::Included(from), Bound::Unbounded))
        .take_while(move |(key, _)| {
            key.starts_with(prefix) && end.is_none_or(|end| key.as_ref() <= end)
        })
}
