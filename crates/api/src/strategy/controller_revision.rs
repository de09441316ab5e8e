//! ControllerRevisions.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::immutable;
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks;

pub struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = revision(object);
        let path = Path::new("data");
        match object.get("data") {
            None | Some(Value::Null) => {
                errors.push(FieldError::required(&path, "data is mandatory"));
            }
            Some(Value::Object(_)) => {}
            Some(_) => {
                let detail = "data must be a valid JSON object";
                errors.push(FieldError::required(&path, detail));
            }
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = revision(new);
        let path = Path::new("data");
        errors.extend(immutable(new.get("data"), old.get("data"), &path));
        errors
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        MetadataChecks::both_of_object(subresource)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let owners = object.list_at(&["metadata", "ownerReferences"]);
        let owner = owners.iter().find(|owner| owner.bool_at(&["controller"]));
        let owner = owner.map(|owner| {
            let (group, _) = crate::resource::split_api_version(owner.str_at(&["apiVersion"]));
            let kind = owner.str_at(&["kind"]).to_lowercase();
            let kind = match group {
                "" => kind,
                _ => format!("{kind}.{group}"),
            };
            format!("{kind}/{}", owner.str_at(&["name"]))
        });
        vec![
            object.str_at(&["metadata", "name"]).into(),
            owner.unwrap_or_else(|| "<none>".to_string()).into(),
            object.i64_at(&["revision"]).unwrap_or(0).into(),
            object_age(object, now).into(),
        ]
    }
}

fn revision(object: &Value) -> Vec<FieldError> {
    let number = object.i64_at(&["revision"]).unwrap_or(0);
    let error = checks::not_negative(number, &Path::new("revision"));
    error.into_iter().collect()
}
