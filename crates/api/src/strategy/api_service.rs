//! APIServices: who serves a group in one version, this server or a Service of the cluster.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{NameRule, Rules, all_invalid, names};
use crate::resource::{MetadataChecks, Strategy, generic};

const MOST_GROUP_PRIORITY: i64 = 20_000;
const MOST_VERSION_PRIORITY: i64 = 1_000;
const DEFAULT_PORT: i64 = 443;
const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

pub struct ApiService;

impl Strategy for ApiService {
    fn namespaced(&self) -> bool {
        false
    }

    /// [`name_is_version_and_group`] has the rest of the rule.
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    /// Upstream checks it without the rules of the core group.
    fn metadata_rules(&self) -> Rules {
        Rules {
            known_finalizers: false,
            ..Rules::new(self.namespaced(), self.name_rule())
        }
    }

    fn has_status(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        if is_remote(object) {
            object.set_default(&["spec", "service", "port"], DEFAULT_PORT);
        }
    }

    /// What this server serves itself is available from its creation on.
    fn prepare_create_content(&self, object: &mut Value) {
        if !is_remote(object) {
            object.set(&["status", "conditions"], vec![local_available()]);
        }
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        if subresource == "status" {
            generic::keep_metadata(new, old);
        }
    }

    fn stamp(&self, new: &mut Value, old: Option<&Value>, _subresource: &str, now: &str) {
        if old.is_none() {
            for condition in new.list_at_mut(&["status", "conditions"]) {
                condition.set_default(&["lastTransitionTime"], now);
            }
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = name_is_version_and_group(object);
        errors.extend(crate::metadata::validate(object, self.metadata_rules()));
        errors.extend(self.validate_content(object));
        errors
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let path = Path::new("spec");
        group_and_version(object, &path, &mut errors);
        priorities(object, &path, &mut errors);
        match is_remote(object) {
            true => remote(object, &path, &mut errors),
            false => local(object, &path, &mut errors),
        }
        errors
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        MetadataChecks::both_of_object(subresource)
    }

    fn validate_update_content(
        &self,
        new: &Value,
        _old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource != "status" {
            let mut errors = name_is_version_and_group(new);
            errors.extend(self.validate_content(new));
            return errors;
        }
        let path = Path::new("status").child("conditions");
        let conditions = new.list_at(&["status", "conditions"]).iter().enumerate();
        conditions
            .filter(|(_, condition)| !STATUSES.contains(&condition.str_at(&["status"])))
            .map(|(index, condition)| {
                let at = path.index(index).child("status");
                FieldError::not_supported(&at, condition.str_at(&["status"]), &STATUSES)
            })
            .collect()
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        generic::metadata_fields(object, true)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let reference = |name: &str| object.str_at(&["spec", "service", name]);
        let service = match is_remote(object) {
            true => format!("{}/{}", reference("namespace"), reference("name")),
            false => "Local".to_string(),
        };
        let available = match condition(object, "Available") {
            None => "Unknown".to_string(),
            Some(condition) => {
                let status = condition.str_at(&["status"]);
                match condition.str_at(&["reason"]) {
                    reason if status != "True" && !reason.is_empty() => {
                        format!("{status} ({reason})")
                    }
                    _ => status.to_string(),
                }
            }
        };
        vec![
            object.str_at(&["metadata", "name"]).into(),
            service.into(),
            available.into(),
            object_age(object, now).into(),
        ]
    }
}

/// Whether a Service serves the group version, as opposed to this server.
pub fn is_remote(object: &Value) -> bool {
    object
        .at(&["spec", "service"])
        .is_some_and(|service| !service.is_null())
}

/// The condition of this type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = object.list_at(&["status", "conditions"]).iter();
    conditions.find(|condition| condition.str_at(&["type"]) == kind)
}

/// The condition of every APIService that this server serves itself, without its time.
pub fn local_available() -> Value {
    crate::document!({
        "type": "Available", "status": "True", "reason": "Local",
        "message": "Local APIServices are always available",
    })
}

/// The name is the version, a dot and the group, also where it would be generated.
fn name_is_version_and_group(object: &Value) -> Vec<FieldError> {
    let spec = |name: &str| object.str_at(&["spec", name]);
    let required = format!("{}.{}", spec("version"), spec("group"));
    let wrong = |field: &str| {
        let name = object.str_at(&["metadata", field]);
        let is_checked = !name.is_empty() && names::path_segment(name, false).is_empty();
        (is_checked && name != required).then(|| {
            let detail = format!("must be `spec.version+\".\"+spec.group`: {required:?}");
            FieldError::invalid(&Path::new("metadata").child(field), name, detail)
        })
    };
    ["generateName", "name"]
        .into_iter()
        .filter_map(wrong)
        .collect()
}

fn group_and_version(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let spec = |name: &str| object.str_at(&["spec", name]);
    let (group, version) = (spec("group"), spec("version"));
    let at = path.child("group");
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.push(FieldError::required(&at, detail));
    }
    if !group.is_empty() {
        errors.extend(all_invalid(&at, group, names::dns_subdomain(group)));
    }
    let wrong = names::dns_1035_label(version);
    errors.extend(all_invalid(&path.child("version"), version, wrong));
}

fn priorities(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (name, most) in [
        ("groupPriorityMinimum", MOST_GROUP_PRIORITY),
        ("versionPriority", MOST_VERSION_PRIORITY),
    ] {
        let priority = object.i64_at(&["spec", name]).unwrap_or(0);
        if priority <= 0 || priority > most {
            let detail = format!("must be positive and less than {most}");
            errors.push(FieldError::invalid(&path.child(name), priority, detail));
        }
    }
}

fn local(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let bundle = ca_bundle(object);
    if !bundle.is_empty() {
        let detail = "local APIServices may not have a caBundle";
        let size = format!("{} bytes", bundle.len());
        errors.push(FieldError::invalid(&path.child("caBundle"), size, detail));
    }
    if object.bool_at(&["spec", "insecureSkipTLSVerify"]) {
        let detail = "local APIServices may not have insecureSkipTLSVerify";
        let at = path.child("insecureSkipTLSVerify");
        errors.push(FieldError::invalid(&at, true, detail));
    }
}

fn remote(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let service = path.child("service");
    for name in ["namespace", "name"] {
        if object.str_at(&["spec", "service", name]).is_empty() {
            errors.push(FieldError::required(&service.child(name), ""));
        }
    }
    let port = object.i64_at(&["spec", "service", "port"]).unwrap_or(0);
    let wrong = names::port_number(port);
    if !wrong.is_empty() {
        let detail = format!("port is not valid: {}", wrong.join(", "));
        errors.push(FieldError::invalid(&service.child("port"), port, detail));
    }
    if object.bool_at(&["spec", "insecureSkipTLSVerify"]) && !ca_bundle(object).is_empty() {
        let at = path.child("insecureSkipTLSVerify");
        let detail = "may not be true if caBundle is present";
        errors.push(FieldError::invalid(&at, true, detail));
    }
}

/// The authorities that sign the Service's certificate, PEM.
pub fn ca_bundle(object: &Value) -> Vec<u8> {
    let text = object.str_at(&["spec", "caBundle"]);
    STANDARD.decode(text).unwrap_or_default()
}
