//! The seam for rules, with a language of four words instead of the real one.

use std::sync::Arc;

use super::*;
use crate::document;

/// `true`, `false`, `changed` (which uses the old value), `dear`; anything else does not compile.
struct Words;

struct Word(&'static str);

impl Program for Word {
    fn run(&self, scope: &Scope<'_>) -> Run {
        let outcome = match (self.0, scope.old) {
            ("true", _) => Outcome::Bool(true),
            ("changed", OldSelf::Value(old)) => Outcome::Bool(scope.value != old),
            ("changed", OldSelf::Optional(old)) => Outcome::Bool(old.is_some()),
            ("text", _) => Outcome::Text("  made  ".to_string()),
            _ => Outcome::Bool(false),
        };
        Run {
            cost: Some(if self.0 == "dear" { 6_000_000 } else { 1 }),
            result: Ok(outcome),
        }
    }
}

impl Expressions for Words {
    fn compile(
        &self,
        node: &Arc<Node>,
        _is_root: bool,
        _is_stored: &dyn Fn(&str) -> bool,
    ) -> Compilation {
        let word = |text: &str| {
            let known = ["true", "false", "changed", "dear", "text"];
            known.into_iter().find(|known| *known == text)
        };
        let rules = node.rules().map_or(&[][..], |rules| rules.declared());
        let compiled = rules.iter().map(|rule| match word(&rule.rule) {
            None => CompiledRule {
                error: Some("no such word".to_string()),
                ..CompiledRule::default()
            },
            Some(text) => CompiledRule {
                program: Some(Arc::new(Word(text))),
                uses_old_self: text == "changed",
                max_cost: 1,
                message: word(&rule.message_expression)
                    .map(|text| Arc::new(Word(text)) as Arc<dyn Program>),
                ..CompiledRule::default()
            },
        });
        Compilation {
            rules: compiled.collect(),
            failure: None,
        }
    }
}

fn judged(schema: &Schema, object: &Value, old: Option<&Value>) -> Findings {
    schema.judge(Judged {
        object,
        old,
        status_only: false,
        scale: None,
        expressions: Some(&Words),
        errors: Vec::new(),
    })
}

#[test]
fn failed_rules_are_reported_with_their_message_reason_and_path() {
    let schema = schema(document!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "a": {"type": "string", "x-kubernetes-validations": [{"rule": "false"}]},
            "b": {"type": "integer", "x-kubernetes-validations": [
                {"rule": "true"}, {"rule": "false", "message": " too bad ", "reason": "FieldValueForbidden"}]},
        },
        "x-kubernetes-validations": [
            {"rule": "false", "messageExpression": "text", "fieldPath": ".a"}, {"rule": "nonsense"}],
    }}}));
    let object = document!({"spec": {"a": "x", "b": 1}});
    assert_eq!(
        texts(&judged(&schema, &object, None).errors),
        [
            "spec.a: Invalid value: made",
            "spec: Invalid value: \"object\": rule compile error: no such word",
            "spec.a: Invalid value: \"x\": failed rule: false",
            "spec.b: Forbidden: too bad",
        ]
    );
    assert_eq!(schema.rule_positions().len(), 3);
}

#[test]
fn transition_rules_need_an_old_value_unless_it_is_optional() {
    let schema = with_spec(document!({
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "changed"}]},
        "b": {"type": "string", "x-kubernetes-validations": [
            {"rule": "changed", "optionalOldSelf": true}]},
    }));
    let object = document!({"spec": {"a": "x", "b": "x"}});
    let errors = judged(&schema, &object, None).errors;
    assert_eq!(
        texts(&errors),
        ["spec.b: Invalid value: \"x\": failed rule: changed"]
    );
    let errors = judged(&schema, &object, Some(&object)).errors;
    assert_eq!(
        texts(&errors),
        ["spec.a: Invalid value: \"x\": failed rule: changed"]
    );
}

#[test]
fn rules_broken_by_unchanged_parts_are_only_warned_of() {
    let schema = with_spec(document!({
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "false"}]},
        "b": {"type": "string"},
    }));
    let old = document!({"spec": {"a": "x", "b": "x"}});
    let new = document!({"spec": {"a": "x", "b": "y"}});
    let findings = judged(&schema, &new, Some(&old));
    assert_eq!(findings.errors, []);
    assert_eq!(
        findings.warnings,
        ["spec.a: Invalid value: \"x\": failed rule: false"]
    );
}

#[test]
fn no_rule_runs_after_the_budget_is_spent() {
    let schema = with_spec(document!({
        "list": {"type": "array", "items": {"type": "string",
            "x-kubernetes-validations": [{"rule": "dear", "message": "no"}]}},
    }));
    let object = document!({"spec": {"list": ["a", "b", "c"]}});
    assert_eq!(
        texts(&judged(&schema, &object, None).errors),
        [
            "spec.list[0]: Invalid value: \"a\": no",
            "spec.list[1]: Invalid value: \"string\": validation failed due to running out of cost \
             budget, no further validation rules will be run",
        ]
    );
}

#[test]
fn rules_wait_for_types_to_be_right() {
    let schema = with_spec(document!({
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "false"}]},
        "b": {"type": "string"},
    }));
    let object = document!({"spec": {"a": "x", "b": 1}});
    let errors = texts(&judged(&schema, &object, None).errors);
    assert_eq!(errors.len(), 2);
    assert_eq!(
        errors[1],
        "<nil>: Invalid value: null: some validation rules were not checked because the object was \
         invalid; correct the existing errors to complete validation"
    );
}
