//! Which labels a label selector of a typed object matches.
//!
//! Upstream decides in `LabelSelectorAsSelector` (`k8s.io/apimachinery/pkg/apis/meta/v1`): a
//! missing selector matches nothing, an empty one everything, and one that cannot be read nothing.
//! What is read once and used often is parsed into [`api::selector::LabelSelector`]; for a single
//! question [`matches`] needs no memory. It does not check the form of keys and values, which the
//! API server has done.

use std::collections::BTreeMap;

use api::selector::{Operator, Requirement};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

type Labels = BTreeMap<String, String>;

/// The selector in the form that matches fast.
pub fn parse(selector: Option<&LabelSelector>) -> api::selector::LabelSelector {
    read(selector).unwrap_or_else(api::selector::LabelSelector::nothing)
}

/// Whether the selector matches the labels. An empty selector matches everything.
pub fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    let mut exact = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    exact.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|expression| expression_matches(expression, labels))
}

/// Whether the selector has no requirement.
pub fn is_empty(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.as_ref();
    let expressions = selector.match_expressions.as_ref();
    labels.is_none_or(BTreeMap::is_empty) && expressions.is_none_or(Vec::is_empty)
}

/// As [`matches`], but an empty selector matches nothing: a workload must select something.
pub fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    !is_empty(selector) && matches(selector, labels)
}

fn expression_matches(expression: &LabelSelectorRequirement, labels: &Labels) -> bool {
    let value = labels.get(&expression.key);
    let values = expression.values.as_deref().unwrap_or_default();
    match expression.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => !values.is_empty() && value.is_none_or(|value| !values.contains(value)),
        "Exists" => values.is_empty() && value.is_some(),
        "DoesNotExist" => values.is_empty() && value.is_none(),
        _ => false,
    }
}

fn read(selector: Option<&LabelSelector>) -> Option<api::selector::LabelSelector> {
    let selector = selector?;
    let exact = selector.match_labels.iter().flatten();
    let exact = exact.map(|(key, value)| {
        let values = vec![value.clone()];
        Requirement::new(key, Operator::Equals, values).ok()
    });
    let expressions = selector.match_expressions.iter().flatten();
    let expressions = expressions.map(|expression| {
        let operator = match expression.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return None,
        };
        let values = expression.values.clone().unwrap_or_default();
        Requirement::new(&expression.key, operator, values).ok()
    });
    let requirements = exact.chain(expressions).collect::<Option<Vec<_>>>()?;
    Some(api::selector::LabelSelector::of(requirements))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(selector: serde_json::Value, expected: bool) {
        let labels = Labels::from([("app".to_owned(), "web".to_owned())]);
        let typed: LabelSelector =
            serde_json::from_value(selector.clone()).expect("a label selector");
        assert_eq!(matches(&typed, &labels), expected, "{selector}");
        let parsed = parse(Some(&typed));
        let found = parsed.matches(|key| labels.get(key).map(String::as_str));
        assert_eq!(found, expected, "{selector}, parsed");
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> serde_json::Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn every_requirement_must_hold() {
        check(json!({}), true);
        check(json!({"matchLabels": {"app": "web"}}), true);
        check(json!({"matchLabels": {"app": "db"}}), false);
        check(
            json!({"matchLabels": {"app": "web", "tier": "front"}}),
            false,
        );
        check(expression("app", "In", &["web", "db"]), true);
        check(expression("app", "NotIn", &["web"]), false);
        check(expression("tier", "NotIn", &["front"]), true);
        check(expression("app", "Exists", &[]), true);
        check(expression("app", "DoesNotExist", &[]), false);
        check(expression("tier", "DoesNotExist", &[]), true);
    }

    #[test]
    fn a_selector_that_cannot_be_read_matches_nothing() {
        check(expression("app", "In", &[]), false);
        check(expression("tier", "NotIn", &[]), false);
        check(expression("app", "Exists", &["web"]), false);
        check(expression("tier", "DoesNotExist", &["x"]), false);
        check(expression("app", "Gt", &["1"]), false);
    }

    #[test]
    fn a_missing_selector_matches_nothing_and_a_workload_needs_a_requirement() {
        assert_eq!(parse(None), api::selector::LabelSelector::nothing());
        let labels = Labels::from([("app".to_owned(), "web".to_owned())]);
        assert!(!selects(&LabelSelector::default(), &labels));
        let some: LabelSelector =
            serde_json::from_value(json!({"matchLabels": {"app": "web"}})).expect("a selector");
        assert!(selects(&some, &labels));
    }
}
