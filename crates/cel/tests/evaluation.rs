//! Expressions from their text to their value, cost and limits.

use std::cell::Cell;

use cel::{Environment, EvalError, Limits, Outcome, Program, Type, Value};

/// Kubernetes' limit of one evaluation.
const PER_CALL: Limits<'static> = Limits {
    cost: Some(1_000_000),
    interrupted: None,
};

fn program(source: &str) -> Program {
    let environment = Environment::for_new_expressions()
        .extend()
        .variable("x", Type::Dyn)
        .bindings()
        .done();
    let checked = environment
        .compile(source)
        .unwrap_or_else(|errors| panic!("{source}: {errors}"));
    Program::new(&checked).unwrap_or_else(|error| panic!("{source}: {error}"))
}

/// What comes out of an expression in which `x` is 7, as text, and what it costs.
fn check(source: &str, expected: &str, cost: u64) {
    let program = program(source);
    let Outcome {
        value,
        cost: actual,
    } = program.evaluate(&[("x", Value::Int(7))], PER_CALL);
    let text = match value {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error: {error}"),
    };
    assert_eq!((text.as_str(), actual), (expected, cost), "{source}");
}

#[test]
fn errors_are_absorbed_by_what_decides_without_them() {
    check("1 / 0 == 1 || x == 7", "Bool(true)", 4);
    check("1 / 0 == 1 && x == 8", "Bool(false)", 4);
    check("1 / 0 == 1 || x == 8", "error: division by zero", 4);
    check("[0, 1].exists(i, 1 / i == 1)", "Bool(true)", 15);
    check("[1].all(i, i / 0 == 1)", "error: division by zero", 7);
}

#[test]
fn branches_that_are_not_taken_cost_nothing() {
    check("x == 7 || x == 8 || x == 9", "Bool(true)", 2);
    check("x == 7 ? 'a' : 'b' + 'c'", "String(Owned(\"a\"))", 2);
    check("optional.of(1).orValue(1 / 0)", "Int(1)", 1);
}

#[test]
fn constant_parts_cost_nothing() {
    check("x in [1, 7]", "Bool(true)", 1);
    check("size([1, 2, 3]) == 3", "Bool(true)", 2);
    check(
        "string(timestamp('2023-01-01T00:00:00+02:00'))",
        "String(Owned(\"2023-01-01T00:00:00+02:00\"))",
        0,
    );
}

#[test]
fn presence_tests_cost_their_qualifiers_only() {
    check("has({'a': 1}.a)", "Bool(true)", 1);
    check("has((x == 7 ? {'a': 1} : {'b': 2}).a)", "Bool(true)", 2);
    check("{'a': {'b': 1}}.?a.?c.hasValue()", "Bool(false)", 3);
}

#[test]
fn bindings_are_computed_when_they_are_first_used_and_once() {
    check("cel.bind(a, [x].map(i, i + 1), 1)", "Int(1)", 0);
    let twice = program("cel.bind(a, x * 2, a + a)");
    let once = program("cel.bind(a, x * 2, a + 1)");
    let variables = [("x", Value::Int(7))];
    let cost = |program: &Program| program.evaluate(&variables, PER_CALL).cost;
    assert_eq!(cost(&twice), cost(&once) + 1);
}

#[test]
fn messages_name_what_was_not_found() {
    check("dyn({'a': 1}).b", "error: no such key: b", 2);
    check("[1, 2][5]", "error: index out of bounds: 5", 2);
    check("{'a': 1}[dyn('c')]", "error: no such key: c", 2);
    check("dyn(1) + 'a'", "error: no such overload", 1);
    check("dyn(null) + 'a'", "error: no such overload: _+_", 1);
    check("9223372036854775807 + x", "error: integer overflow", 2);
}

#[test]
fn the_cost_limit_ends_an_evaluation_whatever_would_absorb_an_error() {
    let program = program("true || [1, 2, 3].all(i, i > 0) || x == 7");
    let limits = Limits {
        cost: Some(0),
        interrupted: None,
    };
    assert_eq!(
        program.evaluate(&(), limits).value.ok().map(|_| ()),
        Some(())
    );
    let long = self::program("[1, 2, 3].all(i, i > 5) || x == 7");
    let outcome = long.evaluate(&[("x", Value::Int(7))], limits);
    assert_eq!(outcome.value.err(), Some(EvalError::CostExceeded));
}

#[test]
fn the_host_is_asked_every_hundred_iterations_whether_to_stop() {
    let program = program("lists.range(1000).all(i, i >= 0)");
    let asked = Cell::new(0);
    let interrupted = || {
        asked.set(asked.get() + 1);
        asked.get() == 3
    };
    let limits = Limits {
        cost: None,
        interrupted: Some(&interrupted),
    };
    let outcome = program.evaluate(&(), limits);
    assert_eq!(outcome.value.err(), Some(EvalError::Interrupted));
    assert_eq!(asked.get(), 3);
}

#[test]
fn a_variable_without_a_value_is_an_error() {
    let outcome = program("x == 1").evaluate(&(), PER_CALL);
    let message = outcome.value.err().map(|error| error.to_string());
    assert_eq!(message.as_deref(), Some("no such attribute(s): x"));
}

#[test]
fn expressions_that_explode_end_with_an_error_before_they_take_much_memory() {
    let doubled = |operand: &str| {
        let mut source = format!("a{0}.size()", 40);
        for level in (1..=40).rev() {
            source = format!("cel.bind(a{level}, a{0} + a{0}, {source})", level - 1);
        }
        format!("cel.bind(a0, {operand}, {source}) > 0")
    };
    let range = "lists.range(1000000000).size() > 0".to_owned();
    let replaced = "lists.range(300).map(i, 'aaaaaaaaaa').join().replace('', \
                    lists.range(30000).map(i, 'bbbbbbbbbb').join())\
                    .replace('', lists.range(300).map(i, 'cccccccccc').join()).size() > 0"
        .to_owned();
    let repeated = doubled("'abcdefghij'");
    let sources = [range, replaced, repeated, doubled("[1, 2, 3]")];
    for source in sources {
        let outcome = program(&source).evaluate(&(), PER_CALL);
        assert!(outcome.value.is_err(), "{source}");
    }
}

#[test]
fn an_expression_as_deep_as_the_parser_allows_is_evaluated() {
    let source = format!("x{}", " + 1".repeat(200));
    let outcome = program(&source).evaluate(&[("x", Value::Int(0))], PER_CALL);
    assert!(matches!(outcome.value, Ok(Value::Int(200))));
}
