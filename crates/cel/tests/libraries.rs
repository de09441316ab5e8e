//! The functions of all libraries beside answers that upstream gave: value or error, estimate, cost.

use std::sync::{Arc, Mutex};

use cel::estimate::Unbounded;
use cel::libraries::authorizer::{
    Attributes, Authorizer, AuthorizerValue, Decision, ResourceAttributes, Subject, Target,
    authorizer_type, overloads as authorizer_overloads,
};
use cel::libraries::jsonpatch;
use cel::{Environment, Limits, Program, Value};

const LIMITS: Limits<'static> = Limits {
    cost: Some(1_000_000),
    interrupted: None,
};

#[test]
fn functions_answer_and_cost_what_upstream_answers_and_counts() {
    let environment = Environment::for_new_expressions();
    let mut wrong = Vec::new();
    for line in include_str!("libraries.txt").lines() {
        let Some((expression, expected)) = line.split_once('\t') else {
            continue;
        };
        let answer = answer(&environment, expression);
        if answer != expected {
            wrong.push(format!(
                "{expression}\n  upstream {expected}\n  ours     {answer}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn answer(environment: &Environment, expression: &str) -> String {
    let checked = match environment.compile(expression) {
        Ok(checked) => checked,
        Err(errors) => return format!("does not compile: {errors}"),
    };
    let estimate = environment.estimate(&checked, &Unbounded);
    let estimate = format!("{}-{}", estimate.min, estimate.max);
    let program = match Program::new(&checked) {
        Ok(program) => program,
        Err(error) => return format!("! program: {error}\t{estimate}\t-"),
    };
    let outcome = program.evaluate(&[], LIMITS);
    let value = match outcome.value {
        Ok(value) => format!("= {}", text(&value)),
        Err(error) => format!("! {error}"),
    };
    format!("{value}\t{estimate}\t{}", outcome.cost)
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(value) => {
            format!("double({})", cel::numbers::go_double_from(*value, i32::MIN))
        }
        Value::String(text) => serde_json::Value::from(&**text).to_string(),
        Value::Duration(nanoseconds) => format!("duration({nanoseconds})"),
        Value::Timestamp(at) => format!("timestamp({at})"),
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("optional({})", text(value)),
        Value::Type(of) => format!("type({of})"),
        value if value.list_len().is_some() => {
            let items: Vec<String> = value.items().map(|item| text(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        value if value.map_len().is_some() => {
            let mut entries: Vec<String> = value
                .entries()
                .map(|(key, value)| format!("{}: {}", text(&key), text(&value)))
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Opaque(value) => format!("{value:?}"),
        other => format!("{other:?}"),
    }
}

/// Calls that would take all memory or hours before their cost is counted.
#[test]
fn calls_that_would_exhaust_memory_or_time_are_refused() {
    let environment = Environment::of_version(36).extend().bindings().done();
    for expression in [
        "lists.range(9223372036854775807)",
        "lists.range(10000000)",
        "lists.range(200000).distinct()",
        "sets.contains(lists.range(200000), lists.range(200000).reverse())",
        "cel.bind(l, lists.range(10000), l.map(x, l).flatten()).size()",
        "cel.bind(a, lists.range(9999).map(x, 'x').join(), cel.bind(b, a.replace('', a), b.replace('', b))).size()",
        "cel.bind(a, lists.range(9999).map(x, 'x').join(), cel.bind(b, a.replace('', a), [b, b].join())).size()",
        "cel.bind(a, lists.range(9999).map(x, 'x').join(), cel.bind(b, a.replace('', a.substring(0, 6000)), '%s%s'.format([b, b]))).size()",
    ] {
        let checked = environment.compile(expression).expect(expression);
        let program = Program::new(&checked).expect(expression);
        let outcome = program.evaluate(&[], LIMITS);
        assert!(outcome.value.is_err(), "{expression}");
    }
}

struct Recorder(Mutex<Vec<Attributes>>);

impl Authorizer for Recorder {
    fn check(&self, attributes: &Attributes) -> Decision {
        self.0.lock().expect("no panic").push(attributes.clone());
        Decision {
            allowed: attributes.verb == "get",
            reason: "because".to_owned(),
            error: (attributes.verb == "fail").then(|| "broken".to_owned()),
        }
    }
}

#[test]
fn authorization_checks_reach_the_host_with_what_was_built() {
    let recorder = Arc::new(Recorder(Mutex::default()));
    let environment = Environment::for_new_expressions();
    let environment = environment
        .extend()
        .variable("authorizer", authorizer_type())
        .done();
    let ask = |expression: &str| {
        let checked = environment.compile(expression).expect(expression);
        let authorizer = AuthorizerValue::new(recorder.clone());
        let variables = [("authorizer", Value::from(authorizer))];
        let program = Program::new(&checked).expect(expression);
        let outcome = program.evaluate(&variables, LIMITS);
        match outcome.value {
            Ok(value) => (text(&value), outcome.cost),
            Err(error) => (error.to_string(), outcome.cost),
        }
    };
    let answer = ask(
        "authorizer.serviceAccount('ns', 'sa').group('apps').resource('deployments').subresource('scale').namespace('a').name('b').fieldSelector('x=1').labelSelector('k').check('get').allowed()",
    );
    assert_eq!(answer, ("true".to_owned(), 350_180));
    assert_eq!(
        recorder.0.lock().expect("no panic").pop(),
        Some(Attributes {
            user: Subject::ServiceAccount {
                namespace: "ns".to_owned(),
                name: "sa".to_owned(),
            },
            verb: "get".to_owned(),
            target: Target::Resource(ResourceAttributes {
                group: "apps".to_owned(),
                resource: "deployments".to_owned(),
                subresource: "scale".to_owned(),
                namespace: "a".to_owned(),
                name: "b".to_owned(),
                field_selector: "x=1".to_owned(),
                label_selector: "k".to_owned(),
            }),
        })
    );
    let check = |expression: &str, expected: &str| assert_eq!(ask(expression).0, expected);
    check(
        "authorizer.path('/healthz').check('post').reason()",
        "\"because\"",
    );
    check(
        "authorizer.path('/healthz').check('fail').errored()",
        "true",
    );
    check(
        "authorizer.path('/healthz').check('fail').error()",
        "\"broken\"",
    );
    check("authorizer.path('/healthz').check('get').error()", "\"\"");
    check(
        "authorizer.path(' ').check('get').allowed()",
        "path must not be empty",
    );
    check(
        "authorizer.group('').resource('').check('get').allowed()",
        "resource must not be empty",
    );
    check(
        "authorizer.serviceAccount('ns', 'S').path('/').check('get').allowed()",
        "Invalid service account name",
    );
    check(
        "authorizer.serviceAccount('n.s', 's').path('/').check('get').allowed()",
        "Invalid service account namespace",
    );
    check("authorizer == authorizer", "no such overload");
    assert!(
        authorizer_overloads()
            .iter()
            .all(|overload| overload.is_member)
    );
}

#[test]
fn keys_are_escaped_for_json_patches() {
    let environment = Environment::for_new_expressions();
    let environment = environment
        .extend()
        .overloads(jsonpatch::overloads())
        .done();
    let answer = answer(&environment, "jsonpatch.escapeKey('k8s.io/my~label')");
    assert_eq!(answer, "= \"k8s.io~1my~0label\"\t2-2\t2");
}

#[test]
fn functions_exist_since_the_version_that_brought_them() {
    for (expression, since) in [
        (
            "'a'.find('a') == 'a' && url('/a').getHost() == '' && [1].sum() == 1",
            1,
        ),
        ("'a'.charAt(0) == 'a' && ['a'].join() == 'a'", 1),
        ("quantity('1').isInteger() && optional.of(1).hasValue()", 28),
        ("'%d'.format([1]) == '1' && sets.contains([1], [1])", 29),
        ("isIP('::1') && isCIDR('::/0')", 30),
        ("format.named('uri').hasValue()", 31),
        ("[1].all(i, v, i < v)", 32),
        ("isSemver('1.0.0') && isSemver('v1.0', true)", 33),
        ("lists.range(1).sortBy(x, x) == [0]", 34),
    ] {
        let compiles = |minor: u32| Environment::of_version(minor).compile(expression).is_ok();
        assert!(compiles(since), "{expression}");
        assert!(since == 1 || !compiles(since - 1), "{expression}");
    }
}
