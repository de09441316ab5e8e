//! What the two kinds fill in, and what they refuse.

use super::*;
use crate::resource::Strategy;

fn errors(strategy: &dyn Strategy, mut object: Value) -> Vec<String> {
    strategy.default(&mut object);
    let errors = strategy.validate_content(&object);
    errors.iter().map(ToString::to_string).collect()
}

fn schema(spec: Value) -> Value {
    let mut object = crate::document!({"metadata": {"name": "s"}});
    object.set(&["spec"], spec);
    object
}

#[test]
fn a_schema_without_a_precedence_gets_one() {
    let mut object = schema(crate::document!({"priorityLevelConfiguration": {"name": "l"}}));
    FlowSchema.default(&mut object);
    assert_eq!(object.i64_at(&["spec", "matchingPrecedence"]), Some(1000));
    assert_eq!(errors(&FlowSchema, object), Vec::<String>::new());
}

#[test]
fn rules_of_a_schema_are_checked_field_by_field() {
    let spec = crate::document!({
        "matchingPrecedence": 1,
        "priorityLevelConfiguration": {"name": ""},
        "distinguisherMethod": {"type": "ByMood"},
        "rules": [{
            "subjects": [{"kind": "User", "group": {"name": "g"}}],
            "resourceRules": [{"verbs": ["*", "get"], "apiGroups": [""], "resources": [], "namespaces": ["A"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a*"]}],
        }],
    });
    let found = errors(&FlowSchema, schema(spec));
    let expected = [
        "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
        "spec.distinguisherMethod.type: Unsupported value: {\"Type\":\"ByMood\"}: supported values: \"ByNamespace\", \"ByUser\"",
        "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
        "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
        "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
        "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
        "spec.rules[0].resourceRules[0].resources: Required value: resource rules must supply at least one resource",
        "spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: \"A\": each member of this list must be '*' or a DNS-1123 label; ",
        "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"/a*\": wildcard can only do suffix matching",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn the_mandatory_schemas_stay_as_they_are() {
    let subjects = crate::document!([{"kind": "Group", "group": {"name": "system:masters"}}]);
    let spec = crate::document!({
        "matchingPrecedence": 1,
        "priorityLevelConfiguration": {"name": "exempt"},
        "rules": [{
            "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
            "resourceRules": [{
                "apiGroups": ["*"], "clusterScope": true, "namespaces": ["*"],
                "resources": ["*"], "verbs": ["*"],
            }],
            "subjects": subjects,
        }],
    });
    let mut object = schema(spec);
    object.set(&["metadata", "name"], "exempt");
    assert_eq!(errors(&FlowSchema, object.clone()), Vec::<String>::new());
    object.set(&["spec", "matchingPrecedence"], 2);
    let found = errors(&FlowSchema, object);
    assert!(found[0].ends_with("spec of 'exempt' must equal the fixed value"));
}

#[test]
fn a_level_that_queues_gets_the_numbers_of_its_queues() {
    let mut level = schema(crate::document!({
        "type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}},
    }));
    PriorityLevelConfiguration.default(&mut level);
    let expected = crate::document!({
        "lendablePercent": 0,
        "limitResponse": {
            "queuing": {"handSize": 8, "queueLengthLimit": 50, "queues": 64},
            "type": "Queue",
        },
        "nominalConcurrencyShares": 30,
    });
    assert_eq!(level.at(&["spec", "limited"]), Some(&expected));
    assert_eq!(
        errors(&PriorityLevelConfiguration, level),
        Vec::<String>::new()
    );
}

#[test]
fn numbers_of_a_level_are_checked() {
    let level = schema(crate::document!({
        "type": "Limited",
        "limited": {
            "lendablePercent": 101,
            "borrowingLimitPercent": -1,
            "nominalConcurrencyShares": -1,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 512, "handSize": 8}},
        },
    }));
    assert_eq!(
        errors(&PriorityLevelConfiguration, level),
        [
            "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60",
            "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
            "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
        ]
    );
}

#[test]
fn only_the_exempt_level_is_exempt() {
    let mut level = schema(crate::document!({"type": "Exempt", "exempt": {}}));
    assert_eq!(
        errors(&PriorityLevelConfiguration, level.clone()),
        [
            "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'"
        ]
    );
    level.set(&["metadata", "name"], "exempt");
    level.set(&["spec", "exempt", "lendablePercent"], 50);
    assert_eq!(
        errors(&PriorityLevelConfiguration, level),
        Vec::<String>::new()
    );
}

#[test]
fn conditions_have_different_types() {
    let mut level = schema(crate::document!({"type": "Exempt"}));
    level.set(&["metadata", "name"], "exempt");
    level.set(
        &["status", "conditions"],
        crate::document!([{"type": "A"}, {"type": "A"}, {"status": "True"}]),
    );
    assert_eq!(
        errors(&PriorityLevelConfiguration, level),
        [
            "status.conditions[1].type: Duplicate value: \"A\"",
            "status.conditions[2].type: Required value",
        ]
    );
}
