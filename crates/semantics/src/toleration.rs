//! Whether a toleration matches a taint.
//!
//! Upstream decides in `ToleratesTaint` (`k8s.io/api/core/v1`, `toleration.go`). An empty key
//! matches every key and an empty effect every effect; the operator then looks at the value alone,
//! so that an empty key with `Equal` tolerates every taint of that value. The operators `Lt` and
//! `Gt` are behind a feature gate that v1.36 has off: they match nothing.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether one of the tolerations matches the taint.
pub fn any_tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations
        .iter()
        .any(|toleration| tolerates(toleration, taint))
}

/// Whether the toleration matches the taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let value = taint.value.as_deref().unwrap_or_default();
    tolerates_parts(toleration, &taint.key, value, &taint.effect)
}

/// As [`tolerates`], for a taint that is given by its parts.
pub fn tolerates_parts(toleration: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let tolerated_effect = toleration.effect.as_deref().unwrap_or_default();
    let tolerated_key = toleration.key.as_deref().unwrap_or_default();
    if !tolerated_effect.is_empty() && tolerated_effect != effect
        || !tolerated_key.is_empty() && tolerated_key != key
    {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => toleration.value.as_deref().unwrap_or_default() == value,
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(toleration: &str, taint: &str, expected: bool) {
        let parsed: Toleration = serde_json::from_str(toleration).expect("a toleration");
        let taint: Taint = serde_json::from_str(taint).expect("a taint");
        assert_eq!(tolerates(&parsed, &taint), expected, "{toleration}");
        assert_eq!(any_tolerates(&[parsed], &taint), expected, "{toleration}");
    }

    #[test]
    fn key_value_and_effect_must_match_where_they_are_given() {
        let taint = r#"{"key":"foo","value":"bar","effect":"NoSchedule"}"#;
        for (toleration, expected) in [
            (
                r#"{"key":"foo","operator":"Exists","effect":"NoSchedule"}"#,
                true,
            ),
            (r#"{"key":"foo","operator":"Exists"}"#, true),
            (
                r#"{"key":"foo2","operator":"Exists","effect":"NoSchedule"}"#,
                false,
            ),
            (
                r#"{"key":"foo","operator":"Equal","value":"bar","effect":"NoSchedule"}"#,
                true,
            ),
            (r#"{"key":"foo","value":"bar","effect":"NoSchedule"}"#, true),
            (r#"{"key":"foo","operator":"","value":"bar"}"#, true),
            (
                r#"{"key":"foo","value":"bar1","effect":"NoSchedule"}"#,
                false,
            ),
            (r#"{"key":"foo","value":"bar","effect":"NoExecute"}"#, false),
            (
                r#"{"key":"foo","operator":"Nonsense","value":"bar"}"#,
                false,
            ),
        ] {
            check(toleration, taint, expected);
        }
    }

    #[test]
    fn an_empty_key_matches_every_key() {
        let taint = r#"{"key":"foo","value":"bar","effect":"NoExecute"}"#;
        check(r#"{"operator":"Exists"}"#, taint, true);
        check(
            r#"{"operator":"Exists","effect":"NoSchedule"}"#,
            taint,
            false,
        );
        // The value decides alone, as upstream has it.
        check(r#"{"operator":"Equal","value":"bar"}"#, taint, true);
        check(r#"{"operator":"Equal","value":"other"}"#, taint, false);
        check("{}", taint, false);
        check("{}", r#"{"key":"foo","effect":"NoExecute"}"#, true);
    }

    #[test]
    fn comparison_operators_are_switched_off() {
        let taint = r#"{"key":"level","value":"5","effect":"NoSchedule"}"#;
        check(
            r#"{"key":"level","operator":"Gt","value":"3"}"#,
            taint,
            false,
        );
        check(
            r#"{"key":"level","operator":"Lt","value":"9"}"#,
            taint,
            false,
        );
    }
}
