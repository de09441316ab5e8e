//! Types and type errors. The answers are those that Kubernetes' environment gave.

use std::sync::Arc;

use crate::ast::Name;
use crate::environment::Environment;
use crate::types::{Type, TypeProvider};

/// An expression, and its type or its errors.
const ANSWERS: &[(&str, &str)] = &[
    (r#"1 + "a""#, r#"ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'
 | 1 + "a"
 | ..^"#),
    ("x", "ERROR: <input>:1:1: undeclared reference to 'x' (in container '')
 | x
 | ^"),
    ("a.x.y", "dyn"),
    (r#"[1, "a"]"#, r#"ERROR: <input>:1:5: expected type 'int' but found 'string'
 | [1, "a"]
 | ....^"#),
    (r#"{1: 2, "b": 3}"#, r#"ERROR: <input>:1:8: expected type 'int' but found 'string'
 | {1: 2, "b": 3}
 | .......^"#),
    ("1 < 1.5", "bool"),
    ("size(1)", "ERROR: <input>:1:5: found no matching overload for 'size' applied to '(int)'
 | size(1)
 | ....^"),
    (r#""a".contains(1)"#, r#"ERROR: <input>:1:13: found no matching overload for 'contains' applied to 'string.(int)'
 | "a".contains(1)
 | ............^"#),
    ("[1].all(x, x)", "ERROR: <input>:1:12: expected type 'bool' but found 'int'
 | [1].all(x, x)
 | ...........^"),
    ("1.all(x, true)", "ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)
 | 1.all(x, true)
 | ^"),
    (r#"{"a": [1]}.a[0]"#, "int"),
    ("[[]][0]", "list(dyn)"),
    (r#"optional.of(1).orValue("a")"#, r#"ERROR: <input>:1:23: found no matching overload for 'orValue' applied to 'optional_type(int).(string)'
 | optional.of(1).orValue("a")
 | ......................^"#),
    ("m.a.b", "ERROR: <input>:1:4: type 'list(int)' does not support field selection
 | m.a.b
 | ...^"),
    (r#"m["a"]"#, "list(int)"),
    (r#"duration("x")"#, r#"ERROR: <input>:1:10: invalid duration argument
 | duration("x")
 | .........^"#),
    (r#"timestamp("y")"#, r#"ERROR: <input>:1:11: invalid timestamp argument
 | timestamp("y")
 | ..........^"#),
    (r#""a".matches("[")"#, r#"ERROR: <input>:1:13: invalid matches argument
 | "a".matches("[")
 | ............^"#),
    (r#""%d".format(["a"])"#, r#"ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string
 | "%d".format(["a"])
 | .............^"#),
    (r#""%s %s".format(["a"])"#, r#"ERROR: <input>:1:15: index 1 out of range
 | "%s %s".format(["a"])
 | ..............^"#),
    ("[dyn(1), 2]", "ERROR: <input>:1:10: expected type 'dyn' but found 'int'
 | [dyn(1), 2]
 | .........^"),
    ("type(1) == int", "bool"),
    ("a{b: 1}", "ERROR: <input>:1:2: 'dyn' is not a type
 | a{b: 1}
 | .^
ERROR: <input>:1:4: unexpected failed resolution of 'a'
 | a{b: 1}
 | ...^"),
    ("int{}", "ERROR: <input>:1:4: 'int' is not a message type
 | int{}
 | ...^"),
    (r#"null == duration("1s")"#, "bool"),
    ("true && 1", "ERROR: <input>:1:9: expected type 'bool' but found 'int'
 | true && 1
 | ........^"),
    ("a.b(1)", "ERROR: <input>:1:4: undeclared reference to 'b' (in container '')
 | a.b(1)
 | ...^"),
    ("f(1)", "ERROR: <input>:1:2: undeclared reference to 'f' (in container '')
 | f(1)
 | .^"),
    (r#"quantity("1").x"#, r#"ERROR: <input>:1:14: unexpected failed resolution of 'kubernetes.Quantity'
 | quantity("1").x
 | .............^"#),
    ("[1, 2].sum() + 1u", "ERROR: <input>:1:14: found no matching overload for '_+_' applied to '(int, uint)'
 | [1, 2].sum() + 1u
 | .............^"),
    ("a.transformMap(i, v, b) && c.distinct()", "ERROR: <input>:1:15: expected type 'bool' but found 'map(dyn, dyn)'
 | a.transformMap(i, v, b) && c.distinct()
 | ..............^
ERROR: <input>:1:38: expected type 'bool' but found 'list(_var6)'
 | a.transformMap(i, v, b) && c.distinct()
 | .....................................^"),
    (r#""%b".format(["%q".format([1])])"#, r#"ERROR: <input>:1:25: could not parse formatting clause: unrecognized formatting clause "q"
 | "%b".format(["%q".format([1])])
 | ........................^
ERROR: <input>:1:25: error during formatting: only integers and bools can be formatted as binary, was given string
 | "%b".format(["%q".format([1])])
 | ........................^"#),
];

fn environment() -> Environment {
    let mut extension = Environment::for_new_expressions().extend();
    for name in ["a", "b", "c", "d", "e"] {
        extension = extension.variable(name, Type::Dyn);
    }
    let lists = Type::map(Type::String, Type::list(Type::Int));
    extension.variable("m", lists).done()
}

fn answer(environment: &Environment, source: &str) -> String {
    match environment.compile(source) {
        Ok(checked) => checked.result_type().to_string(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn types_and_errors_are_those_of_kubernetes() {
    let environment = environment();
    for (source, expected) in ANSWERS {
        assert_eq!(answer(&environment, source), *expected, "{source}");
    }
}

#[test]
fn versions_differ_in_what_they_allow() {
    let allows = |minor, source| Environment::of_version(minor).compile(source).is_ok();
    assert!(!allows(27, "1 < 1.5") && allows(28, "1 < 1.5"));
    assert!(!allows(27, "[?optional.of(1)]") && allows(28, "[?optional.of(1)]"));
    assert!(allows(28, "duration('x') == duration('y')"));
    assert!(!allows(29, "duration('x') == duration('y')"));
    assert!(!allows(31, "[1].all(i, v, i < v)") && allows(32, "[1].all(i, v, i < v)"));
    assert!(!allows(33, "[2, 1].sort() == [1, 2]") && allows(34, "[2, 1].sort() == [1, 2]"));
    assert!(
        Environment::for_stored_expressions()
            .compile("[2, 1].sort()")
            .is_ok()
    );
}

#[test]
fn after_a_comprehension_numbers_may_be_mixed_in_old_versions_too() {
    let old = Environment::of_version(27);
    assert!(old.compile("[1].all(x, x < 1.5)").is_ok());
    assert!(old.compile("[1].all(x, x < 2) && 1 < 1.5").is_ok());
    assert!(old.compile("1 < 1.5 && [1].all(x, x < 2)").is_err());
}

/// Declares `Object` with a field `spec`, whose type has a field `replicas`.
struct Objects;

impl TypeProvider for Objects {
    fn has_type(&self, name: &str) -> bool {
        matches!(name, "Object" | "Object.spec")
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        match (type_name, field) {
            ("Object", "spec") => Some(Type::Object(Name::from("Object.spec"))),
            ("Object.spec", "replicas") => Some(Type::Int),
            _ => None,
        }
    }

    fn fields(&self, type_name: &str) -> Vec<Name> {
        match type_name {
            "Object" => vec![Name::from("spec")],
            _ => vec![Name::from("replicas")],
        }
    }
}

#[test]
fn fields_of_declared_objects_are_checked() {
    let environment = Environment::for_new_expressions()
        .extend()
        .provider(Arc::new(Objects))
        .variable("self", Type::Object(Name::from("Object")))
        .done();
    let last_line = |source: &str| {
        let answer = answer(&environment, source);
        answer.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(last_line("self.spec.replicas"), "int");
    assert_eq!(last_line("self.?spec.?replicas"), "optional_type(int)");
    assert_eq!(
        last_line("self.spec.size"),
        "ERROR: <input>:1:10: undefined field 'size'"
    );
    assert_eq!(
        last_line("Object{spec: Object.spec{replicas: 1}}"),
        "Object"
    );
    assert_eq!(
        last_line("Object{spec: Object.spec{replicas: 'a'}}"),
        "ERROR: <input>:1:34: expected type of field 'replicas' is 'int' but provided type is 'string'"
    );
    assert_eq!(
        last_line("Object{status: 1}"),
        "ERROR: <input>:1:14: undefined field 'status'"
    );
    assert_eq!(
        last_line("Thing{}"),
        "ERROR: <input>:1:6: undeclared reference to 'Thing' (in container '')"
    );
}

#[test]
fn bindings_are_there_where_they_were_added() {
    let plain = Environment::for_new_expressions();
    assert!(plain.compile("cel.bind(x, 1, x + x)").is_err());
    let with_bindings = plain.extend().bindings().done();
    assert_eq!(answer(&with_bindings, "cel.bind(x, 1, x + x)"), "int");
}

#[test]
fn names_are_looked_up_in_the_namespace_first() {
    let environment = Environment::for_new_expressions()
        .extend()
        .container("a.b")
        .variable("a.b.x", Type::Int)
        .variable("x", Type::String)
        .done();
    assert_eq!(answer(&environment, "x"), "int");
    assert_eq!(answer(&environment, ".x"), "string");
    assert_eq!(answer(&environment, "b.x"), "int");
}

#[test]
fn types_that_grow_exponentially_are_refused() {
    let mut source = "[1]".to_owned();
    for _ in 0..100 {
        source.push_str(".map(x, {x: x})");
    }
    let errors = answer(&Environment::for_new_expressions(), &source);
    assert_eq!(
        errors,
        "ERROR: <input>:-1:0: the types of the expression are too complex"
    );
}
