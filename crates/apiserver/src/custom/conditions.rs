//! The conditions of a CustomResourceDefinition, and what decides them. Pure.

use api::Value;
use api::field::Path;
use api::strategy::custom_resource_definition::{Approval, approval, bundle_error, is_protected};

use super::names::{Names, UsedNames, accept};

/// The kind of definitions.
pub(super) const GROUP: &str = "apiextensions.k8s.io";
pub(super) const PLURAL: &str = "customresourcedefinitions";

pub(crate) const ESTABLISHED: &str = "Established";
pub(crate) const NAMES_ACCEPTED: &str = "NamesAccepted";
const TERMINATING: &str = "Terminating";
const NON_STRUCTURAL: &str = "NonStructuralSchema";
const APPROVED: &str = "KubernetesAPIApprovalPolicyConformant";

/// Deletes the instances before the definition goes.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn new(
        kind: &'static str,
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Condition {
        Condition {
            kind,
            status,
            reason,
            message: message.into(),
        }
    }

    /// Of a definition whose instances are being deleted, or were.
    pub fn terminating(
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Condition {
        Condition::new(TERMINATING, status, reason, message)
    }

    /// Puts it into a definition's status. The time of the last transition changes with the status.
    pub fn set(&self, definition: &mut Value, now: &str) {
        if !matches!(definition.at(&CONDITIONS), Some(Value::Array(_))) {
            definition.set(&CONDITIONS, Vec::new());
        }
        let Some(conditions) = definition.at_mut(&CONDITIONS).and_then(Value::as_array_mut) else {
            return;
        };
        let known = conditions
            .iter_mut()
            .find(|condition| condition.str_at(&["type"]) == self.kind);
        let condition = match known {
            Some(condition) => condition,
            None => {
                conditions.push(api::document!({"type": self.kind}));
                let Some(last) = conditions.last_mut() else {
                    return;
                };
                last
            }
        };
        if condition.str_at(&["status"]) != self.status
            || condition.str_at(&["lastTransitionTime"]).is_empty()
        {
            condition.set(&["lastTransitionTime"], now);
        }
        condition.set(&["status"], self.status);
        condition.set(&["reason"], self.reason);
        condition.set(&["message"], self.message.as_str());
    }
}

const CONDITIONS: [&str; 2] = ["status", "conditions"];

fn find<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = definition.list_at(&CONDITIONS).iter();
    let mut found = conditions.filter(|condition| condition.str_at(&["type"]) == kind);
    found.next()
}

/// Whether the definition has a condition with the status `True`.
pub(crate) fn is_true(definition: &Value, kind: &str) -> bool {
    find(definition, kind).is_some_and(|condition| condition.str_at(&["status"]) == "True")
}

pub(crate) fn is_terminating(definition: &Value) -> bool {
    is_true(definition, TERMINATING)
}

fn remove(definition: &mut Value, kind: &str) {
    if let Some(conditions) = definition.at_mut(&CONDITIONS).and_then(Value::as_array_mut) {
        conditions.retain(|condition| condition.str_at(&["type"]) != kind);
    }
}

/// A definition whose status says all that can be said about it now. `used` are the names that the
/// kinds of its group have, its own included.
pub(crate) fn settle(definition: &mut Value, used: &UsedNames, now: &str) {
    let requested = Names::read(definition.at(&["spec", "names"]));
    let accepted = Names::read(definition.at(&["status", "acceptedNames"]));
    if requested != accepted {
        settle_names(definition, &requested, &accepted, used, now);
    }
    if is_true(definition, NAMES_ACCEPTED) && !is_true(definition, ESTABLISHED) {
        established(definition).set(definition, now);
    }
    match approval_of(definition) {
        Some(condition) => condition.set(definition, now),
        None => remove(definition, APPROVED),
    }
    match non_structural(definition) {
        Some(condition) => condition.set(definition, now),
        None => remove(definition, NON_STRUCTURAL),
    }
}

fn settle_names(
    definition: &mut Value,
    requested: &Names,
    accepted: &Names,
    used: &UsedNames,
    now: &str,
) {
    let (names, conflict) = accept(requested, accepted, used);
    let condition = match &conflict {
        None => Condition::new(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found"),
        Some(conflict) => {
            let message = conflict.message.as_str();
            Condition::new(NAMES_ACCEPTED, "False", conflict.reason, message)
        }
    };
    definition.set(&["status", "acceptedNames"], names.to_document());
    condition.set(definition, now);
    if conflict.is_some() && find(definition, ESTABLISHED).is_none() {
        let message = "not all names are accepted";
        Condition::new(ESTABLISHED, "False", "NotAccepted", message).set(definition, now);
    }
}

fn established(definition: &Value) -> Condition {
    let config = definition.at(&["spec", "conversion", "webhook", "clientConfig"]);
    let config = config.unwrap_or(&Value::Null);
    match bundle_error(config, &Path::new("")) {
        None => Condition::new(
            ESTABLISHED,
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
        Some(_) => Condition::new(
            ESTABLISHED,
            "False",
            "InvalidCABundle",
            "The conversion webhook CABundle is invalid",
        ),
    }
}

/// Whether a group of the Kubernetes community may have the kind.
fn approval_of(definition: &Value) -> Option<Condition> {
    if !is_protected(definition.str_at(&["spec", "group"])) {
        return None;
    }
    let (state, words) = approval(definition);
    let (status, reason) = match state {
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
    };
    Some(Condition::new(APPROVED, status, reason, words))
}

/// Definitions of the first version could have schemas that say nothing about unknown fields.
fn non_structural(definition: &Value) -> Option<Condition> {
    let preserves = definition.at(&["spec", "preserveUnknownFields"]);
    (preserves == Some(&Value::Bool(true))).then(|| {
        Condition::new(
            NON_STRUCTURAL,
            "True",
            "Violations",
            "spec.preserveUnknownFields: Invalid value: true: must be false",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPROVAL: &str = "api-approved.kubernetes.io";

    fn definition() -> Value {
        api::document!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {
                "plural": "widgets", "singular": "widget", "kind": "Widget",
                "listKind": "WidgetList",
            }},
            "status": {"storedVersions": ["v1"]},
        })
    }

    fn check(definition: &Value, kind: &str, expected: (&str, &str, &str)) {
        let found = find(definition, kind).unwrap();
        let text = |field| found.str_at(&[field]);
        assert_eq!((text("status"), text("reason"), text("message")), expected);
    }

    #[test]
    fn a_new_definition_is_established_in_one_step() {
        let mut one = definition();
        settle(&mut one, &UsedNames::default(), "now");
        check(
            &one,
            NAMES_ACCEPTED,
            ("True", "NoConflicts", "no conflicts found"),
        );
        check(
            &one,
            ESTABLISHED,
            (
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
        );
        assert_eq!(
            one.str_at(&["status", "acceptedNames", "plural"]),
            "widgets"
        );
        let mut again = one.clone();
        settle(&mut again, &UsedNames::default(), "later");
        assert_eq!(again, one, "nothing is left to say");
    }

    #[test]
    fn a_definition_in_conflict_is_not_established_until_the_name_is_free() {
        let mut used = UsedNames::default();
        let other = Names {
            kind: "Widget".to_string(),
            ..Names::default()
        };
        used.add(&other);
        let mut one = definition();
        settle(&mut one, &used, "now");
        check(
            &one,
            NAMES_ACCEPTED,
            ("False", "KindConflict", "\"Widget\" is already in use"),
        );
        check(
            &one,
            ESTABLISHED,
            ("False", "NotAccepted", "not all names are accepted"),
        );
        used.remove(&other);
        settle(&mut one, &used, "later");
        assert!(is_true(&one, ESTABLISHED));
    }

    #[test]
    fn an_established_definition_stays_so_when_it_asks_for_a_used_name() {
        let mut one = definition();
        settle(&mut one, &UsedNames::default(), "now");
        one.set(&["spec", "names", "shortNames"], vec!["w".into()]);
        let mut used = UsedNames::default();
        used.add(&Names {
            plural: "w".to_string(),
            ..Names::default()
        });
        settle(&mut one, &used, "later");
        check(
            &one,
            NAMES_ACCEPTED,
            ("False", "ShortNamesConflict", "\"w\" is already in use"),
        );
        assert!(is_true(&one, ESTABLISHED));
    }

    #[test]
    fn a_group_of_the_community_needs_an_approval() {
        let approved = |annotation: &str| {
            let mut one = definition();
            one.set(&["spec", "group"], "stable.k8s.io");
            one.set(&["metadata", "annotations", APPROVAL], annotation);
            settle(&mut one, &UsedNames::default(), "now");
            find(&one, APPROVED)
                .unwrap()
                .str_at(&["reason"])
                .to_string()
        };
        assert_eq!(approved(""), "MissingAnnotation");
        assert_eq!(approved("unapproved, a test"), "UnapprovedAnnotation");
        assert_eq!(approved("https://example.com/1"), "ApprovedAnnotation");
        assert_eq!(approved("yes"), "InvalidAnnotation");
        let mut other = definition();
        settle(&mut other, &UsedNames::default(), "now");
        assert!(find(&other, APPROVED).is_none());
    }

    #[test]
    fn a_bundle_that_is_no_certificate_keeps_a_definition_from_being_established() {
        let mut one = definition();
        let bundle = ["spec", "conversion", "webhook", "clientConfig", "caBundle"];
        one.set(&bundle, "bm9uc2Vuc2U=");
        settle(&mut one, &UsedNames::default(), "now");
        check(
            &one,
            ESTABLISHED,
            (
                "False",
                "InvalidCABundle",
                "The conversion webhook CABundle is invalid",
            ),
        );
    }
}
