//! IPAddresses: who uses an address of a ServiceCIDR.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names::{self, NameRule};
use crate::metadata::{all_invalid, immutable};
use crate::resource::{MetadataChecks, Strategy};

pub struct IpAddress;

impl Strategy for IpAddress {
    fn namespaced(&self) -> bool {
        false
    }

    fn name_rule(&self) -> NameRule {
        NameRule::IpAddress
    }

    fn generates_names(&self) -> bool {
        false
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec").child("parentRef");
        let parent = object.at(&["spec", "parentRef"]);
        let Some(parent) = parent.filter(|value| !value.is_null()) else {
            return vec![FieldError::required(&path, "")];
        };
        let mut errors = Vec::new();
        let group = parent.str_at(&["group"]);
        if !group.is_empty() {
            let wrong = names::dns_subdomain(group);
            errors.extend(all_invalid(&path.child("group"), group, wrong));
        }
        for (name, required) in [("resource", true), ("name", true), ("namespace", false)] {
            let text = parent.str_at(&[name]);
            let at = path.child(name);
            match text {
                "" if required => errors.push(FieldError::required(&at, "")),
                "" => {}
                _ => errors.extend(all_invalid(&at, text, names::path_segment(text, false))),
            }
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        let at = ["spec", "parentRef"];
        let path = Path::new("spec").child("parentRef");
        errors.extend(immutable(new.at(&at), old.at(&at), &path));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    /// Upstream fills a third cell, the age, for which it defines no column.
    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            parent(object).into(),
            object_age(object, now).into(),
        ]
    }
}

/// The parent as `resource.group/namespace/name`.
fn parent(object: &Value) -> String {
    let text = |name: &str| object.str_at(&["spec", "parentRef", name]);
    if !object.has(&["spec", "parentRef"]) {
        return "<none>".to_string();
    }
    let mut parent = text("resource").to_string();
    if !text("group").is_empty() {
        parent = format!("{parent}.{}", text("group"));
    }
    parent = parent.to_lowercase();
    if !text("namespace").is_empty() {
        parent = format!("{parent}/{}", text("namespace"));
    }
    format!("{parent}/{}", text("name"))
}
