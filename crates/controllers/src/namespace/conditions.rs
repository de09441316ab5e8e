//! The conditions in a namespace's status about its deletion. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NamespaceCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Each condition with the reason and message of all being well.
const KINDS: [(&str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (
        "NamespaceContentRemaining",
        "ContentRemoved",
        "All content successfully removed",
    ),
    (
        "NamespaceFinalizersRemaining",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];

/// The findings of one pass over a namespace's content.
#[derive(Debug, Default)]
pub struct Findings {
    pub discovery_failure: Option<String>,
    pub deletion_failures: Vec<String>,
    /// Pods are left, so other kinds have not been looked at: the rest is not known yet.
    pub pods_first: bool,
    /// Objects left, by `plural.group`.
    pub remaining: BTreeMap<String, usize>,
    /// Objects left that have the finalizer.
    pub finalizers: BTreeMap<String, usize>,
}

impl Findings {
    pub fn is_clean(&self) -> bool {
        self.discovery_failure.is_none()
            && self.deletion_failures.is_empty()
            && self.remaining.is_empty()
            && !self.pods_first
    }

    /// Reason and message of a condition that is true now.
    fn problem(&self, kind: &str) -> Option<(&'static str, String)> {
        match kind {
            "NamespaceDeletionDiscoveryFailure" => {
                let message = self.discovery_failure.clone()?;
                Some(("DiscoveryFailed", message))
            }
            "NamespaceDeletionContentFailure" if !self.deletion_failures.is_empty() => {
                let mut failures = self.deletion_failures.clone();
                failures.sort();
                let message = format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    failures.len(),
                    failures.join(", ")
                );
                Some(("ContentDeletionFailed", message))
            }
            "NamespaceContentRemaining" if !self.remaining.is_empty() => {
                let each = self.remaining.iter();
                let each: Vec<String> = each
                    .map(|(kind, count)| format!("{kind} has {count} resource instances"))
                    .collect();
                let message = format!("Some resources are remaining: {}", each.join(", "));
                Some(("SomeResourcesRemain", message))
            }
            "NamespaceFinalizersRemaining" if !self.finalizers.is_empty() => {
                let each = self.finalizers.iter();
                let each: Vec<String> = each
                    .map(|(name, count)| format!("{name} in {count} resource instances"))
                    .collect();
                let message = format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    each.join(", ")
                );
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    }
}

/// The conditions after a pass; foreign ones stay. Times move only with the status.
pub fn updated(
    before: &[NamespaceCondition],
    findings: &Findings,
    now: &Time,
) -> Vec<NamespaceCondition> {
    let mut conditions = before.to_vec();
    for (kind, fine_reason, fine_message) in KINDS {
        let (status, reason, message) = match findings.problem(kind) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", fine_reason, fine_message.to_string()),
        };
        let known = conditions
            .iter()
            .position(|condition| condition.type_ == kind);
        let since = known
            .filter(|index| conditions[*index].status == status)
            .and_then(|index| conditions[index].last_transition_time.clone());
        let condition = NamespaceCondition {
            type_: kind.to_string(),
            status: status.to_string(),
            reason: Some(reason.to_string()),
            message: Some(message),
            last_transition_time: since.or_else(|| Some(now.clone())),
        };
        match known {
            Some(index) => conditions[index] = condition,
            None => conditions.push(condition),
        }
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn conditions_name_the_remaining_content_and_its_finalizers() {
        let findings = Findings {
            remaining: [("pods.".to_string(), 2)].into(),
            finalizers: [("a/b".to_string(), 1)].into(),
            ..Findings::default()
        };
        let first = updated(&[], &findings, &at(1));
        assert_eq!(first.len(), 5);
        assert_eq!(
            first[3].message.as_deref(),
            Some("Some resources are remaining: pods. has 2 resource instances")
        );
        assert_eq!(
            first[4].message.as_deref(),
            Some(
                "Some content in the namespace has finalizers remaining: a/b in 1 resource instances"
            )
        );
        assert_eq!(first[2].reason.as_deref(), Some("ContentDeleted"));
        assert_eq!(updated(&first, &findings, &at(2)), first);
        let clean = updated(&first, &Findings::default(), &at(3));
        assert_eq!(clean[3].status, "False");
        assert_eq!(clean[3].last_transition_time, Some(at(3)));
        assert_eq!(clean[0].last_transition_time, Some(at(1)));
    }
}
