//! Expressions that are made to explode: each is refused, or answered, within bounded time, memory and
//! stack. The tests run on threads with the stack that the server's threads have.

use std::any::Any;
use std::thread;

use cel::value::{HostKind, HostValue, Shape};
use cel::{Environment, Limits, Program, Type, Value};

const STACK: usize = 2 << 20;
const LIMIT: u64 = 1_000_000;

/// What an expression comes to: its errors, its error, or the word "value".
fn outcome(source: String) -> String {
    let thread = thread::Builder::new().stack_size(STACK).spawn(move || {
        let environment = Environment::for_new_expressions()
            .extend()
            .variable("self", Type::Dyn)
            .done();
        let checked = match environment.compile(&source) {
            Ok(checked) => checked,
            Err(errors) => return errors.to_string(),
        };
        environment.estimate(&checked, &cel::estimate::Unbounded);
        let program = match Program::new(&checked) {
            Ok(program) => program,
            Err(error) => return error.to_string(),
        };
        let limits = Limits {
            cost: Some(LIMIT),
            interrupted: None,
        };
        let text = "ab".repeat(500_000);
        let variables = [("self", Value::from(text.as_str()))];
        match program.evaluate(&variables, limits).value {
            Ok(_) => "value".to_owned(),
            Err(error) => error.to_string(),
        }
    });
    thread.unwrap().join().unwrap()
}

/// `base.map(v, …).map(v, …)`, as long as the grammar allows, with the body in many brackets.
fn chain(base: &str, steps: usize, brackets: usize, body: &str) -> String {
    let (open, close) = ("[".repeat(brackets), "]".repeat(brackets));
    format!(
        "{base}{}",
        format!(".map(v, {open}{body}{close})").repeat(steps)
    )
}

#[test]
fn macros_that_copy_their_operands_are_bounded_in_nodes() {
    let source = format!("optional.of(1){}", ".optMap(v, v + 1)".repeat(200));
    let refused = outcome(source);
    assert!(
        refused.contains("the macros of the expression expand to too many parts"),
        "{refused}"
    );
    assert_eq!(
        outcome("optional.of(1).optMap(v, v + 1).optMap(v, v + 1)".to_owned()),
        "value"
    );
}

#[test]
fn types_that_are_too_deep_are_refused() {
    let refused = outcome(chain("[1]", 100, 100, "v"));
    assert!(
        refused.contains("the types of the expression are too complex"),
        "{refused}"
    );
}

#[test]
fn values_that_are_too_deep_are_refused() {
    let refused = outcome(chain("[1]", 100, 100, "dyn(v)"));
    assert_eq!(refused, "the value is nested more than 400 times");
    assert_eq!(outcome(chain("[1]", 100, 3, "dyn(v)")), "value");
}

#[test]
fn deep_values_are_compared_and_printed_on_a_small_stack() {
    let deep = chain("[1]", 95, 3, "dyn(v)");
    assert_eq!(outcome(format!("{deep} == {deep}")), "value");
    assert_eq!(outcome(format!("'%s'.format([{deep}])")), "value");
    assert_eq!(outcome(format!("{deep}.flatten(300)")), "value");
    assert_eq!(
        outcome(format!("[?dyn({deep})]")).len(),
        "cannot initialize optional list element from non-optional value ".len() + 2 * 286 + 1
    );
}

#[test]
fn values_that_double_are_refused() {
    let doubled = chain("[1]", 60, 0, "[v, v]");
    assert_eq!(outcome(doubled), "the value has more than 8000000 parts");
    let maps = chain("[dyn(1)]", 60, 0, "{'a': v, 'b': v}");
    assert_eq!(outcome(maps), "the value has more than 8000000 parts");
}

#[test]
fn comparisons_of_shared_parts_end_as_too_costly() {
    let large = chain("[1]", 18, 0, "[v, v]");
    assert_eq!(outcome(format!("{large} == {large}")), "value");
    let texts = "[[self, self, self, self]].all(x, lists.range(10000).all(i, x == x))";
    assert_eq!(
        outcome(texts.to_owned()),
        "operation cancelled: actual cost limit exceeded"
    );
}

#[test]
fn nesting_of_every_kind_is_refused_in_upstreams_words() {
    for (open, middle, close) in [
        ("[", "1", "]"),
        ("(", "1", ")"),
        ("{1: ", "1", "}"),
        ("dyn(", "1", ")"),
        ("[1].map(v, ", "1", ")"),
        ("[1].all(v, ", "true", ")"),
        ("true ? 1 : ", "1", ""),
        ("-(", "1", ")"),
        ("self[", "1", "]"),
        ("optional.of(", "1", ")"),
        ("Object{a: ", "1", "}"),
    ] {
        let source = format!("{}{middle}{}", open.repeat(5_000), close.repeat(5_000));
        let refused = outcome(source);
        assert!(
            refused.contains("expression recursion limit exceeded: 250")
                || refused.contains("max recursion depth exceeded"),
            "{open}: {refused}"
        );
    }
    for (operand, suffix) in [
        ("1", " + 1"),
        ("self", ".a"),
        ("self", "[0]"),
        ("true", " == true"),
    ] {
        let refused = outcome(format!("{operand}{}", suffix.repeat(5_000)));
        assert_eq!(refused, "ERROR: <input>:-1:0: max recursion depth exceeded");
    }
}

#[test]
fn the_deepest_expressions_that_are_allowed_fit_a_small_stack() {
    for (open, middle, close, count) in [
        ("[", "1", "]", 240),
        ("dyn(", "1", ")", 240),
        ("[1].map(v, ", "1", ")", 120),
        ("[1].exists(v, ", "true", ")", 120),
        ("[1].transformMap(i, v, ", "1", ")", 120),
        ("optional.of(1).optMap(v, ", "1", ")", 120),
        ("(1 + ", "1", ")", 120),
        ("[dyn(1) + ", "dyn(1)", "][0]", 80),
    ] {
        let source = format!("{}{middle}{}", open.repeat(count), close.repeat(count));
        let found = outcome(source);
        assert!(!found.contains("recursion"), "{open}: {found}");
    }
}

#[test]
fn long_texts_are_refused_before_they_are_made() {
    let limit = "operation cancelled: actual cost limit exceeded";
    for source in [
        "self.replace('', self)",
        "[self, self, self, self].map(x, [x, x, x, x].join(self)).join(self)",
        "lists.range(100000).map(i, self).join('')",
        "'%s'.format([lists.range(1000).map(i, self)])",
        "lists.range(1000000000000)",
        "lists.range(9223372036854775807)",
        "lists.range(100000).map(i, lists.range(100000))",
        "self.split('').map(x, self)",
        "lists.range(2000).map(i, lists.range(2000).map(j, j)).flatten()",
        "self.split('').distinct()",
        "sets.contains(self.split(''), self.split(''))",
        "self.findAll('a').map(x, self.findAll('b'))",
        "self.replace('a', 'b').replace('b', 'aa').replace('a', 'aaaaaaaaaaaaaaaaaaaa').replace('a', 'aaaaaaaaaaaaaa')",
    ] {
        let refused = outcome(source.to_owned());
        assert!(
            refused == limit
                || refused.contains("would be longer than")
                || refused.contains("would have more than")
                || refused.contains("precision"),
            "{source}: {refused}"
        );
    }
}

#[test]
fn patterns_that_are_too_large_are_refused() {
    for source in [
        "'a'.matches('((a{100}){100}' + '){100}')",
        "'a'.matches('(((((a{30}){30}){30}){30}' + '){30})')",
    ] {
        let refused = outcome(source.to_owned());
        assert!(
            refused.contains("invalid repeat count"),
            "{source}: {refused}"
        );
    }
    let nested = format!(
        "'a'.matches('{}a' + '{}')",
        "(".repeat(20_000),
        ")".repeat(20_000)
    );
    let refused = outcome(nested);
    assert!(refused.contains("expression nests too deeply"), "{refused}");
}

/// A list of the host that is a set of numbers.
struct Numbers(Vec<i64>);

struct SetShape;

impl Shape for SetShape {
    fn kind(&self, _: &(dyn Any + Send + Sync)) -> HostKind {
        HostKind::List
    }

    fn type_of(&self, _: &(dyn Any + Send + Sync)) -> Type {
        Type::list(Type::Dyn)
    }

    fn len(&self, data: &(dyn Any + Send + Sync)) -> usize {
        data.downcast_ref::<Numbers>()
            .map_or(0, |list| list.0.len())
    }

    fn at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<Value<'a>> {
        let list = data.downcast_ref::<Numbers>()?;
        list.0.get(index).copied().map(Value::Int)
    }

    fn key_at<'a>(&'a self, _: &'a (dyn Any + Send + Sync), _: usize) -> Option<&'a str> {
        None
    }

    fn get<'a>(&'a self, _: &'a (dyn Any + Send + Sync), _: &str) -> Option<Value<'a>> {
        None
    }

    fn list_type(&self) -> cel::value::ListType<'_> {
        cel::value::ListType::Set
    }
}

#[test]
fn large_sets_are_compared_and_added_by_their_keys() {
    let (up, down) = (
        Numbers((0..500_000).collect()),
        Numbers((0..500_000).rev().collect()),
    );
    let set = |data| {
        Value::Host(HostValue {
            data,
            shape: &SetShape,
        })
    };
    let environment = Environment::for_new_expressions()
        .extend()
        .variable("a", Type::list(Type::Int))
        .variable("b", Type::list(Type::Int))
        .done();
    let checked = environment
        .compile(
            "a == b && (a + b).size() == 500000 && a + [-1] != b && (a + [-1]).size() == 500001",
        )
        .unwrap();
    let program = Program::new(&checked).unwrap();
    let variables = [("a", set(&up)), ("b", set(&down))];
    let value = program.evaluate(&variables, Limits::default()).value;
    assert!(matches!(value, Ok(Value::Bool(true))), "{value:?}");
}
