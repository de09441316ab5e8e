//! Names of a kind, and the approval that groups of the community need.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names::dns_1035_label;

/// Checks the names in `spec.names` and `status.acceptedNames`; those that are missing are checked
/// elsewhere.
pub fn validate(names: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |text: &str, lower: bool, path: Path| {
        let wrong = match lower {
            true => dns_1035_label(&text.to_lowercase()),
            false => dns_1035_label(text),
        };
        if !wrong.is_empty() {
            let prefix = match lower {
                true => "may have mixed case, but should otherwise match: ",
                false => "",
            };
            let detail = format!("{prefix}{}", wrong.join(","));
            errors.push(FieldError::invalid(&path, text, detail));
        }
    };
    for (name, lower) in [
        ("plural", false),
        ("singular", false),
        ("kind", true),
        ("listKind", true),
    ] {
        let text = names.str_at(&[name]);
        if !text.is_empty() {
            check(text, lower, path.child(name));
        }
    }
    for (index, name) in names.list_at(&["shortNames"]).iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        check(name, false, path.child("shortNames").index(index));
    }
    let (kind, list) = (names.str_at(&["kind"]), names.str_at(&["listKind"]));
    let same = (!kind.is_empty() && kind == list).then(|| {
        let detail = "kind and listKind may not be the same";
        FieldError::invalid(&path.child("listKind"), list, detail)
    });
    let mut categories = Vec::new();
    for (index, name) in names.list_at(&["categories"]).iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        let wrong = dns_1035_label(name);
        if !wrong.is_empty() {
            let path = path.child("categories").index(index);
            categories.push(FieldError::invalid(&path, name, wrong.join(",")));
        }
    }
    errors.extend(same);
    errors.extend(categories);
    errors
}

const APPROVED: &str = "api-approved.kubernetes.io";

/// What the annotation about approval says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    Invalid,
    Approved,
    Bypassed,
    Missing,
}

/// The state of a definition's approval, and the words for it.
pub fn approval(definition: &Value) -> (Approval, String) {
    let annotation = definition.str_at(&["metadata", "annotations", APPROVED]);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    if annotation.is_empty() {
        let words = format!("protected groups must have approval annotation {APPROVED:?}, {see}");
        return (Approval::Missing, words);
    }
    if annotation.starts_with("unapproved") {
        return (Approval::Bypassed, format!("not approved: {annotation:?}"));
    }
    match crate::custom::request_uri(annotation) {
        Some((scheme, host)) if !scheme.is_empty() && !host.is_empty() => {
            (Approval::Approved, format!("approved in {annotation}"))
        }
        _ => {
            let words = format!(
                "protected groups must have approval annotation {APPROVED:?} with either a URL or a \
                 reason starting with \"unapproved\", {see}"
            );
            (Approval::Invalid, words)
        }
    }
}

/// Whether a group is the community's own, so that its kinds need approval.
pub fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].into_iter().any(|domain| {
        let before = group.strip_suffix(domain);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}

/// Checks the approval; one that an update does not change is left alone.
pub fn validate_approval(new: &Value, old: Option<&Value>) -> Option<FieldError> {
    if !is_protected(new.str_at(&["spec", "group"])) {
        return None;
    }
    let (state, why) = approval(new);
    if old.is_some_and(|old| approval(old).0 == state) {
        return None;
    }
    let path = Path::new("metadata").child("annotations").key(APPROVED);
    match state {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(FieldError::required(&path, why)),
        Approval::Invalid => {
            let annotation = new.str_at(&["metadata", "annotations", APPROVED]);
            Some(FieldError::invalid(&path, annotation, why))
        }
    }
}
