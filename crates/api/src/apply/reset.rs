//! Which fields a request never changes, regardless of its content, so that it can never own them: status on
//! the object itself, spec on its status, and what single kinds reset beyond that.

use super::element;
use super::field_set::FieldSet;
use crate::resource::Resource;

/// What of a set of fields a request may own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    /// All but these and what is below them.
    Except(&'static [&'static [&'static str]]),
    /// Only what begins like one of these; `*` stands for any element.
    Only(&'static [&'static [&'static str]]),
}

const STATUS: Reset = Reset::Except(&[&["status"]]);
const SPEC: Reset = Reset::Except(&[&["spec"]]);
const METADATA_AND_SPEC: Reset = Reset::Except(&[&["metadata"], &["spec"]]);

/// The rule of a resource's subresource; "" is the object itself.
pub(super) fn of(resource: &Resource, subresource: &str) -> Reset {
    if resource.is_custom() {
        return match subresource {
            "" if resource.has_status() => STATUS,
            "status" => METADATA_AND_SPEC,
            _ => Reset::Except(&[]),
        };
    }
    match (&*resource.group, &*resource.plural, subresource) {
        ("certificates.k8s.io", "certificatesigningrequests", "") => {
            Reset::Except(&[&["spec"], &["status"]])
        }
        ("certificates.k8s.io", "certificatesigningrequests", "status") => {
            Reset::Except(&[&["spec"], &["status", "conditions"]])
        }
        (_, _, "" | "finalize") => STATUS,
        (_, _, "approval") => Reset::Except(&[&["spec"], &["status", "certificate"]]),
        ("", "pods", "status") => Reset::Except(&[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ]),
        ("", "pods", "ephemeralcontainers") => Reset::Only(&[&["spec", "ephemeralContainers"]]),
        ("", "pods", "resize") => Reset::Only(&[
            &["spec", "containers", "*", "resources"],
            &["spec", "containers", "*", "resizePolicy"],
            &["spec", "initContainers", "*", "resources"],
            &["spec", "initContainers", "*", "resizePolicy"],
        ]),
        ("apps", "deployments", "status") => Reset::Except(&[&["spec"], &["metadata", "labels"]]),
        (
            "storage.k8s.io"
            | "resource.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "apiregistration.k8s.io"
            | "admissionregistration.k8s.io",
            _,
            "status",
        )
        | ("networking.k8s.io", "servicecidrs", "status") => METADATA_AND_SPEC,
        (_, _, "status") => SPEC,
        _ => Reset::Except(&[]),
    }
}

impl Reset {
    pub fn filter(self, fields: FieldSet) -> FieldSet {
        match self {
            _ if fields.is_empty() => fields,
            Reset::Except(paths) => fields.recursive_difference(&set_of(paths)),
            Reset::Only(patterns) => {
                let mut kept = FieldSet::default();
                for path in fields.paths() {
                    if patterns.iter().any(|pattern| matches(pattern, &path)) {
                        kept.insert(&path);
                    }
                }
                kept
            }
        }
    }
}

fn set_of(paths: &[&[&str]]) -> FieldSet {
    let mut set = FieldSet::default();
    for path in paths {
        let path: Vec<String> = path.iter().map(|name| element::field(name)).collect();
        set.insert(&path);
    }
    set
}

/// Whether a path lies below the pattern or on the way to it.
fn matches(pattern: &[&str], path: &[&str]) -> bool {
    pattern
        .iter()
        .zip(path)
        .all(|(wanted, step)| *wanted == "*" || element::field_name(step) == Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn a_request_owns_only_what_it_can_change() {
        let all = document!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:ownerReferences": {}},
            "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {
                ".": {}, "f:image": {}, "f:resources": {"f:limits": {}}}}},
            "f:status": {"f:phase": {}},
        });
        let pods = crate::catalogue::built_in().find("", "v1", "pods").unwrap();
        let owned = |subresource: &str| {
            let fields = FieldSet::from_fields(all.clone()).unwrap();
            of(pods, subresource).filter(fields).into_fields()
        };
        assert_eq!(owned("").at(&["f:status"]), None);
        assert!(owned("").at(&["f:spec"]).is_some());
        assert_eq!(
            owned("status"),
            document!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:status": {"f:phase": {}}})
        );
        assert_eq!(
            owned("resize"),
            document!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {
                ".": {}, "f:resources": {"f:limits": {}}}}}})
        );
        assert_eq!(owned("ephemeralcontainers"), document!({}));
    }
}
