//! Which tokens are old and unused. Pure.

use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};

use crate::meta;

pub const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// A token that was not used for this long is marked, and deleted when that is as long ago.
const UNUSED_DAYS: i64 = 365;

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Keep,
    /// No longer believed, since this day.
    Mark(String),
    Delete,
}

/// The name of the account that a Secret's token is for.
pub fn account_of(secret: &Secret) -> Option<&str> {
    let name = meta::annotation(&secret.metadata, "kubernetes.io/service-account.name");
    name.filter(|name| !name.is_empty())
}

/// Whether a token was made by the cluster itself: its account, of the UID it is for, lists it.
pub fn may_be_forgotten(secret: &Secret, account: Option<&ServiceAccount>) -> bool {
    let uid = meta::annotation(&secret.metadata, "kubernetes.io/service-account.uid");
    let uid = uid.filter(|uid| !uid.is_empty());
    let account = account
        .filter(|account| uid.is_none_or(|uid| account.metadata.uid.as_deref() == Some(uid)));
    let listed = account.and_then(|account| account.secrets.as_ref());
    secret.metadata.deletion_timestamp.is_none()
        && listed
            .into_iter()
            .flatten()
            .any(|listed| listed.name == secret.metadata.name)
}

/// `since` is the day from which on uses are noted, `pods` those of the Secret's namespace.
pub fn step(secret: &Secret, pods: &[Arc<Pod>], since: &str, now: Timestamp) -> Step {
    let today = now.to_zoned(TimeZone::UTC).date();
    let horizon = today.saturating_sub(UNUSED_DAYS.days());
    // A whole year of uses must be known, and a token must be a year old, to judge it.
    let is_tracked = day(since).is_some_and(|since| since < horizon);
    let created = meta::created(&secret.metadata);
    let is_old = created + UNUSED_DAYS * 86_400 < now.as_second();
    let used = meta::label(&secret.metadata, LAST_USED);
    let is_unused = used.is_none_or(|used| day(used).is_some_and(|used| used < horizon));
    if !is_tracked || !is_old || !is_unused || is_mentioned(secret, pods) {
        return Step::Keep;
    }
    let invalid = meta::label(&secret.metadata, INVALID_SINCE).and_then(day);
    match invalid {
        None => Step::Mark(today.to_string()),
        Some(since) if since < horizon => Step::Delete,
        Some(_) => Step::Keep,
    }
}

fn day(text: &str) -> Option<Date> {
    text.parse().ok()
}

/// Whether a pod's spec has the Secret's name anywhere: rather once too often than a token taken
/// from a pod that uses it.
fn is_mentioned(secret: &Secret, pods: &[Arc<Pod>]) -> bool {
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    pods.iter().any(|pod| {
        let spec = serde_json::to_value(&pod.spec);
        spec.is_ok_and(|spec| mentions(&spec, name))
    })
}

fn mentions(value: &serde_json::Value, name: &str) -> bool {
    match value {
        serde_json::Value::String(text) => text == name,
        serde_json::Value::Array(list) => list.iter().any(|item| mentions(item, name)),
        serde_json::Value::Object(fields) => fields.values().any(|field| mentions(field, name)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(created: &str, labels: serde_json::Value) -> Secret {
        serde_json::from_value(serde_json::json!({"metadata": {
            "name": "s", "creationTimestamp": created, "labels": labels}}))
        .unwrap()
    }

    #[test]
    fn a_year_without_use_marks_and_another_removes() {
        let now: Timestamp = "2026-06-15T12:00:00Z".parse().unwrap();
        let old = "2020-01-01T00:00:00Z";
        let check = |created: &str, labels: serde_json::Value, since: &str, expected: Step| {
            let secret = secret(created, labels.clone());
            assert_eq!(step(&secret, &[], since, now), expected, "{labels}");
        };
        let none = serde_json::json!({});
        let mark = || Step::Mark("2026-06-15".to_string());
        check(old, none.clone(), "2025-01-01", mark());
        check(old, none.clone(), "2025-06-15", Step::Keep);
        check(old, none.clone(), "", Step::Keep);
        check("2026-01-01T00:00:00Z", none, "2025-01-01", Step::Keep);
        for (used, invalid, expected) in [
            ("2026-06-01", "", Step::Keep),
            ("2025-06-15", "", Step::Keep),
            ("2025-06-14", "", mark()),
            ("yesterday", "", Step::Keep),
            ("2024-01-01", "2026-06-01", Step::Keep),
            ("2024-01-01", "2025-06-14", Step::Delete),
        ] {
            let labels = serde_json::json!({LAST_USED: used, INVALID_SINCE: invalid});
            check(old, labels, "2023-01-01", expected);
        }
    }

    #[test]
    fn only_what_an_account_lists_and_no_pod_names_is_old() {
        let account = |uid: &str, listed: &str| -> ServiceAccount {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "a", "uid": uid}, "secrets": [{"name": listed}]}))
            .unwrap()
        };
        let mut secret = secret("2020-01-01T00:00:00Z", serde_json::json!({}));
        secret.metadata.annotations = Some(
            [(
                "kubernetes.io/service-account.uid".to_string(),
                "1".to_string(),
            )]
            .into(),
        );
        assert!(may_be_forgotten(&secret, Some(&account("1", "s"))));
        assert!(!may_be_forgotten(&secret, Some(&account("1", "t"))));
        assert!(!may_be_forgotten(&secret, Some(&account("2", "s"))));
        assert!(!may_be_forgotten(&secret, None));
        let now: Timestamp = "2026-06-15T12:00:00Z".parse().unwrap();
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {"containers": [],
            "volumes": [{"name": "v", "secret": {"secretName": "s"}}]}}))
        .unwrap();
        let step = step(&secret, &[Arc::new(pod)], "2023-01-01", now);
        assert_eq!(step, Step::Keep);
    }
}
