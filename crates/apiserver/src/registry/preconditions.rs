//! What a client demands of the object that it updates: its name, UID and resourceVersion.

use api::{Cause, Reason, Resource, Status, Value};

use super::Target;
use super::guarded_write::MODIFIED;
use crate::storage::store_key;

/// Compares the resourceVersion and UID that the client named with those of the stored object. A UID
/// in a patch is no condition but a change, which validation refuses.
pub(super) fn check(
    target: &Target<'_>,
    new: &mut Value,
    old: &Value,
    is_patch: bool,
) -> Result<(), Status> {
    let (resource, name) = (target.requested, target.name);
    let (given, uid) = (
        new.str_at(&["metadata", "uid"]),
        old.str_at(&["metadata", "uid"]),
    );
    if !is_patch && !given.is_empty() && given != uid {
        let namespace = old.str_at(&["metadata", "namespace"]);
        let key = store_key(target.resource, namespace, name);
        return Err(resource.conflict(
            name,
            format_args!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {uid}",
                String::from_utf8_lossy(&key)
            ),
        ));
    }
    let version = old.str_at(&["metadata", "resourceVersion"]);
    match new.str_at(&["metadata", "resourceVersion"]) {
        "" | "0" => {
            if !resource.strategy().allow_unconditional_update() {
                return Err(unconditional(resource, name));
            }
            new.set(&["metadata", "resourceVersion"], version);
        }
        given if given == version => {}
        // Upstream hands the parser's error on as it is.
        given if given.parse::<u64>().is_err() => {
            return Err(Status::new(
                Reason::Unknown,
                format!("strconv.ParseUint: parsing {given:?}: invalid syntax"),
            ));
        }
        _ => return Err(resource.conflict(name, MODIFIED)),
    }
    Ok(())
}

/// The storage says it, which knows the resource, not the kind.
fn unconditional(resource: &Resource, name: &str) -> Status {
    Status::invalid(
        &resource.group,
        &resource.plural,
        name,
        vec![Cause {
            reason: "FieldValueInvalid",
            message: "Invalid value: 0: must be specified for an update".to_string(),
            field: "metadata.resourceVersion".to_string(),
        }],
    )
}

/// Refuses an object whose name is not that of the path.
pub(crate) fn check_name(object: &Value, name: &str) -> Result<(), Status> {
    match object.str_at(&["metadata", "name"]) {
        given if given == name => Ok(()),
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given => Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}
