//! StorageVersionMigrations: orders to write all objects of a resource again. The controller that
//! carries them out is elsewhere.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names;
use crate::resource::{MetadataChecks, Strategy, generic};
use crate::resource_version;
use crate::strategy::conditions;

pub struct StorageVersionMigration;

/// The conditions of which at most one is ever true, and for good, with upstream's name for them.
const ENDS: [(&str, &str); 2] = [("Succeeded", "Success"), ("Failed", "Failed")];

impl Strategy for StorageVersionMigration {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_status(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        if subresource == "status" {
            generic::keep_metadata(new, old);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec").child("resource");
        let mut errors = Vec::new();
        let resource = object.str_at(&["spec", "resource", "resource"]);
        let at = path.child("resource");
        if resource.is_empty() {
            errors.push(FieldError::required(&at, "resource is required to be set"));
        } else {
            errors.extend(all_at_once(&at, resource, names::dns_1035_label(resource)));
        }
        let group = object.str_at(&["spec", "resource", "group"]);
        if !group.is_empty() {
            let wrong = names::dns_subdomain(group);
            errors.extend(all_at_once(&path.child("group"), group, wrong));
        }
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            return status_errors(new, old);
        }
        let mut errors = self.validate_content(new);
        let resource = |object: &Value| {
            let text = |name| object.str_at(&["spec", "resource", name]).to_string();
            (text("group"), text("resource"))
        };
        if resource(new) != resource(old) {
            let (group, resource) = resource(new);
            let value = crate::document!({"Resource": {"group": group, "resource": resource}});
            let path = Path::new("spec");
            errors.push(FieldError::invalid(&path, value, "field is immutable"));
        }
        errors
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        MetadataChecks::both_of_object(subresource)
    }

    fn cells(&self, object: &Value, _: jiff::Timestamp) -> Vec<Value> {
        let resource = object.str_at(&["spec", "resource", "resource"]);
        let resource = match object.str_at(&["spec", "resource", "group"]) {
            "" => resource.to_string(),
            group => format!("{resource}.{group}"),
        };
        let conditions = object.list_at(&["status", "conditions"]).iter();
        let mut shown = conditions.filter(|condition| {
            condition.str_at(&["status"]) == "True"
                && matches!(
                    condition.str_at(&["type"]),
                    "Running" | "Succeeded" | "Failed"
                )
        });
        let status = shown
            .next_back()
            .map(|condition| condition.str_at(&["type"]));
        vec![
            object.str_at(&["metadata", "name"]).into(),
            resource.into(),
            status.unwrap_or("Unknown").into(),
        ]
    }
}

/// One error with everything that is wrong with a name.
fn all_at_once(path: &Path, name: &str, wrong: Vec<String>) -> Option<FieldError> {
    (!wrong.is_empty()).then(|| FieldError::invalid(path, name, wrong.join(",")))
}

fn status_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("status");
    let mut errors = Vec::new();
    let version = new.str_at(&["status", "resourceVersion"]);
    let known = old.str_at(&["status", "resourceVersion"]);
    let at = path.child("resourceVersion");
    if !version.is_empty() && !resource_version::is_well_formed(version) {
        let why = format!("resource version is not well formed: {version}");
        errors.push(FieldError::invalid(&at, version, why));
    }
    let list = new.list_at(&["status", "conditions"]);
    let all = path.child("conditions");
    errors.extend(conditions::validate(list, &all));
    if !known.is_empty() && known != version {
        errors.push(FieldError::invalid(&at, version, "field is immutable"));
    }
    if ENDS.iter().all(|(kind, _)| is_true(new, kind)) {
        let why = "Both success and failed conditions cannot be true at the same time";
        errors.push(FieldError::invalid(&all, list.to_vec(), why));
    }
    for (kind, name) in ENDS {
        if is_true(old, kind) && !is_true(new, kind) {
            let why = format!("{name} condition cannot be set to false once it is true");
            errors.push(FieldError::invalid(&all, list.to_vec(), why));
        }
    }
    errors
}

/// Whether the first condition of that type is true.
fn is_true(object: &Value, kind: &str) -> bool {
    let mut conditions = object.list_at(&["status", "conditions"]).iter();
    let found = conditions.find(|condition| condition.str_at(&["type"]) == kind);
    found.is_some_and(|condition| condition.str_at(&["status"]) == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    const STRATEGY: StorageVersionMigration = StorageVersionMigration;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(FieldError::to_string).collect()
    }

    #[test]
    fn the_resource_is_named_by_labels() {
        let check = |resource: Value, expected: &[&str]| {
            let object = document!({"spec": {"resource": resource}});
            assert_eq!(texts(STRATEGY.validate_content(&object)), expected);
        };
        check(document!({"resource": "pods"}), &[]);
        check(
            document!({"group": "example.com", "resource": "widgets"}),
            &[],
        );
        check(
            document!({}),
            &["spec.resource.resource: Required value: resource is required to be set"],
        );
        check(
            document!({"group": "Example", "resource": "pods/status"}),
            &[
                r#"spec.resource.resource: Invalid value: "pods/status": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#,
                r#"spec.resource.group: Invalid value: "Example": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            ],
        );
    }

    #[test]
    fn the_resource_of_a_migration_cannot_be_changed() {
        let of = |resource: &str| document!({"spec": {"resource": {"resource": resource}}});
        let errors = STRATEGY.validate_update_content(&of("pods"), &of("nodes"), "");
        assert_eq!(
            texts(errors),
            [
                r#"spec: Invalid value: {"Resource":{"group":"","resource":"pods"}}: field is immutable"#
            ]
        );
    }

    fn status(version: &str, conditions: &[(&str, &str)]) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| {
                document!({"type": *kind, "status": *status, "reason": "Because", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let mut object = document!({"metadata": {"name": "a"}});
        object.set(&["spec", "resource", "resource"], "pods");
        object.set(&["status", "conditions"], conditions);
        object.set(&["status", "resourceVersion"], version);
        object
    }

    #[test]
    fn an_end_is_final_and_the_resource_version_is_set_once() {
        let check = |old: &Value, new: &Value, expected: &[&str]| {
            let errors = texts(STRATEGY.validate_update_content(new, old, "status"));
            assert_eq!(errors.len(), expected.len(), "{errors:?}");
            for (error, expected) in errors.iter().zip(expected) {
                assert!(error.ends_with(expected), "{error}");
            }
        };
        let running = status("7", &[("Running", "True")]);
        let succeeded = status("7", &[("Running", "True"), ("Succeeded", "True")]);
        check(&status("", &[]), &running, &[]);
        check(&running, &succeeded, &[]);
        check(&running, &status("8", &[]), &["\"8\": field is immutable"]);
        check(
            &status("", &[]),
            &status("07", &[]),
            &["\"07\": resource version is not well formed: 07"],
        );
        check(
            &succeeded,
            &status("7", &[("Failed", "True")]),
            &["Success condition cannot be set to false once it is true"],
        );
        check(
            &status("7", &[("Failed", "True")]),
            &status("7", &[("Succeeded", "True"), ("Failed", "True")]),
            &["Both success and failed conditions cannot be true at the same time"],
        );
        check(
            &status("7", &[("Failed", "True")]),
            &running,
            &["Failed condition cannot be set to false once it is true"],
        );
    }

    #[test]
    fn a_row_shows_the_last_true_condition() {
        let row = |conditions: &[(&str, &str)]| {
            let cells = STRATEGY.cells(&status("7", conditions), jiff::Timestamp::UNIX_EPOCH);
            cells
                .iter()
                .map(Value::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(row(&[]), r#""a" "pods" "Unknown""#);
        assert_eq!(row(&[("Running", "True")]), r#""a" "pods" "Running""#);
        assert_eq!(
            row(&[("Running", "False"), ("Succeeded", "True")]),
            r#""a" "pods" "Succeeded""#
        );
    }
}
