//! Tests of policies without a server.

use std::time::Duration;

use super::*;
use crate::document::Value;
use crate::expressions::admission::AdmissionInput;
use crate::status::Reason;

fn input<'a>(object: &'a Value, request: &'a Value) -> AdmissionInput<'a> {
    AdmissionInput {
        object: Some(object),
        old_object: None,
        request,
        namespace: None,
        params: None,
        authorizer: None,
    }
}

fn judged(spec: Value, object: &Value) -> Judged {
    let mut policy = Value::object();
    policy.set(&["spec"], spec);
    let policy = ValidatingPolicy::of_document(&policy);
    let request = Value::object();
    policy.judge(&input(object, &request), &|| Duration::ZERO)
}

/// What each validation said, with its words.
fn said(spec: Value, object: &Value) -> Vec<(Said, String)> {
    let decisions = judged(spec, object).decisions.into_iter();
    decisions.map(|one| (one.said, one.message)).collect()
}

fn widget() -> Value {
    crate::document!({"metadata": {"name": "w"}, "spec": {"replicas": 3, "color": "red"}})
}

#[test]
fn each_validation_decides_and_has_its_words() {
    let spec = crate::document!({"validations": [
        {"expression": "object.spec.replicas <= 5"},
        {"expression": " object.spec.replicas <= 2 "},
        {"expression": "object.spec.replicas <= 2", "message": " too many "},
        {
            "expression": "object.spec.replicas <= 2", "message": "too many",
            "messageExpression": "'at most 2, not ' + string(object.spec.replicas)",
            "reason": "Forbidden",
        },
        {"expression": "object.spec.missing == 1"},
    ]});
    let judged = judged(spec, &widget());
    let reasons: Vec<_> = judged.decisions.iter().map(|one| one.reason).collect();
    assert_eq!(
        reasons,
        [
            None,
            Some(Reason::Invalid),
            Some(Reason::Invalid),
            Some(Reason::Forbidden),
            None
        ]
    );
    let said: Vec<_> = judged.decisions.iter().map(|one| one.said).collect();
    assert_eq!(
        said,
        [Said::Admit, Said::Deny, Said::Deny, Said::Deny, Said::Error]
    );
    let words: Vec<_> = judged.decisions.iter().map(|one| &*one.message).collect();
    assert_eq!(
        words,
        [
            "",
            "failed expression: object.spec.replicas <= 2",
            "too many",
            "at most 2, not 3",
            "expression 'object.spec.missing == 1' resulted in error: no such key: missing",
        ]
    );
}

#[test]
fn messages_that_are_empty_long_or_broken_count_as_none() {
    let validation = |message: &str| {
        crate::document!({"validations": [{
            "expression": "false", "message": "plain", "messageExpression": message,
        }]})
    };
    for message in [
        "'  '",
        "'a\\nb'",
        "object.spec.missing",
        "['0123456789', '0123456789'].map(x, x.replace('0', '0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789')).map(x, x.replace('1', x)).map(x, x.replace('2', x)).join('')",
    ] {
        assert_eq!(
            said(validation(message), &widget()),
            [(Said::Deny, "plain".to_string())],
            "{message}"
        );
    }
    assert_eq!(
        said(validation("' trimmed '"), &widget()),
        [(Said::Deny, "trimmed".to_string())]
    );
}

#[test]
fn variables_are_typed_known_to_those_behind_them_and_evaluated_when_read() {
    let spec = crate::document!({
        "variables": [
            {"name": "broken", "expression": "object.spec.missing"},
            {"name": "count", "expression": "int(object.spec.replicas)"},
            {"name": "twice", "expression": "variables.count * 2"},
        ],
        "validations": [
            {"expression": "variables.twice == 6"},
            {"expression": "variables.twice == 'six'"},
            {"expression": "variables.broken == 1"},
            {"expression": "true || variables.broken == 1"},
            {"expression": "variables.later == 1"},
        ],
    });
    let said = said(spec, &widget());
    assert_eq!(said[0], (Said::Admit, String::new()));
    assert_eq!(said[1].0, Said::Error);
    assert!(
        said[1].1.starts_with("compilation error: compilation failed: ERROR: <input>:1:17: found no matching overload for '_==_' applied to '(int, string)'"),
        "{said:?}"
    );
    assert_eq!(
        said[2].1,
        "expression 'variables.broken == 1' resulted in error: composited variable \"broken\" fails to evaluate: no such key: missing"
    );
    assert_eq!(said[3], (Said::Admit, String::new()));
    assert!(said[4].1.contains("undefined field 'later'"), "{said:?}");
}

#[test]
fn a_variable_that_does_not_compile_fails_where_it_is_read() {
    let spec = crate::document!({
        "variables": [{"name": "bad", "expression": "nothing.at.all"}],
        "validations": [{"expression": "true"}, {"expression": "variables.bad == 1"}],
    });
    let said = said(spec, &widget());
    assert_eq!(said[0].0, Said::Admit);
    assert!(
        said[1]
            .1
            .contains("composited variable \"bad\" fails to compile: compilation failed: "),
        "{said:?}"
    );
}

#[test]
fn a_long_chain_of_variables_does_not_use_up_the_stack() {
    let mut variables = vec![crate::document!({"name": "v0", "expression": "1"})];
    for index in 1..5000 {
        let before = index - 1;
        variables.push(crate::document!({
            "name": format!("v{index}"), "expression": format!("variables.v{before} + 1"),
        }));
    }
    let mut spec = crate::document!({"validations": [
        {"expression": "variables.v4999 == 5000 && variables.v2500 == 2501"},
    ]});
    spec.set(&["variables"], Value::Array(variables));
    assert_eq!(said(spec, &widget()), [(Said::Admit, String::new())]);
}

#[test]
fn the_types_of_variables_do_not_deepen_without_end() {
    let mut variables = vec![crate::document!({"name": "v0", "expression": "[1]"})];
    for index in 1..100 {
        let before = index - 1;
        variables.push(crate::document!({
            "name": format!("v{index}"), "expression": format!("[variables.v{before}]"),
        }));
    }
    let mut spec = crate::document!({"validations": [{"expression": "size(variables.v99) == 1"}]});
    spec.set(&["variables"], Value::Array(variables));
    assert_eq!(said(spec, &widget()), [(Said::Admit, String::new())]);
}

#[test]
fn a_variable_is_evaluated_once_for_all_validations() {
    // Each evaluation costs nearly as much as one call may; 20 of them would be over the budget.
    let expensive = "[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, [1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4].all(e, a + b + c + d + e >= 0)))))";
    let validations: Vec<Value> = (0..20)
        .map(|_| crate::document!({"expression": "variables.expensive"}))
        .collect();
    let mut spec =
        crate::document!({"variables": [{"name": "expensive", "expression": expensive}]});
    spec.set(&["validations"], Value::Array(validations));
    let said = said(spec, &widget());
    assert_eq!(said.len(), 20);
    assert!(
        said.iter().all(|(said, _)| *said == Said::Admit),
        "{said:?}"
    );
}

#[test]
fn what_costs_more_than_the_budget_is_one_error() {
    let expensive = "[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, [1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4,5,6,7,8,9,0].all(e, a + b + c + d + e >= 0)))))";
    let validations: Vec<Value> = (0..12)
        .map(|_| crate::document!({"expression": expensive}))
        .collect();
    let mut spec = Value::object();
    spec.set(&["validations"], Value::Array(validations));
    assert_eq!(
        said(spec, &widget()),
        [(
            Said::Error,
            "validation failed due to running out of cost budget, no further validation rules will be run".to_string()
        )]
    );
}

#[test]
fn one_expression_that_costs_too_much_fails_alone() {
    let too_much = "[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, [1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4,5,6,7,8,9,0].all(e, [1,2,3,4,5,6,7,8,9,0].all(f, a + b + c + d + e + f >= 0))))))";
    let spec =
        crate::document!({"validations": [{"expression": too_much}, {"expression": "true"}]});
    let said = said(spec, &widget());
    assert_eq!(said[0].0, Said::Error);
    assert!(
        said[0]
            .1
            .ends_with("operation cancelled: actual cost limit exceeded"),
        "{said:?}"
    );
    assert_eq!(said[1].0, Said::Admit);
}

#[test]
fn audit_annotations_are_published_left_out_or_fail() {
    let spec = crate::document!({
        "validations": [],
        "auditAnnotations": [
            {"key": "color", "valueExpression": "' ' + object.spec.color"},
            {"key": "nothing", "valueExpression": "null"},
            {"key": "empty", "valueExpression": "''"},
            {"key": "broken", "valueExpression": "object.spec.missing + ''"},
        ],
    });
    assert_eq!(
        judged(spec, &widget()).annotations,
        [
            Annotation::Publish {
                key: "color".to_string(),
                value: "red".to_string()
            },
            Annotation::Error {
                message:
                    "expression 'object.spec.missing + ''' resulted in error: no such key: missing"
                        .to_string(),
                took: Duration::ZERO
            },
        ]
    );
}

#[test]
fn match_conditions_hold_or_not_or_fail() {
    let matched = |conditions: &[&str]| {
        let documents: Vec<Value> = conditions
            .iter()
            .map(|text| crate::document!({"name": "c", "expression": *text}))
            .collect();
        let compiler = Compiler::new(&[], false);
        let conditions = MatchConditions::of_documents(&documents, &compiler);
        let (object, request) = (widget(), Value::object());
        conditions.evaluate(&compiler.done(), &input(&object, &request))
    };
    assert_eq!(
        matched(&["true", "object.spec.replicas == 3"]),
        Matched::Yes
    );
    assert_eq!(matched(&["object.spec.missing == 1", "false"]), Matched::No);
    let failed = matched(&["object.spec.missing == 1", "true", "object.other == 1"]);
    assert_eq!(
        failed.error().unwrap(),
        "[expression 'object.spec.missing == 1' resulted in error: no such key: missing, expression 'object.other == 1' resulted in error: no such key: other]"
    );
}

#[test]
fn what_no_expression_reads_is_not_asked_for() {
    let uses = |expression: &str| {
        let policy = crate::document!({"spec": {"validations": [{"expression": expression}]}});
        ValidatingPolicy::of_document(&policy).uses
    };
    assert_eq!(uses("object.spec.replicas > 1"), Uses::default());
    assert!(uses("request.name == 'x'").request);
    assert!(uses("authorizer.requestResource.check('get').allowed()").request);
    assert!(uses("namespaceObject.metadata.name == 'x'").namespace);
}
