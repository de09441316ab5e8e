//! Estimates. The answers are those that Kubernetes' estimator gave.

use super::Unbounded;
use crate::ast::Name;
use crate::environment::Environment;
use crate::function::{SizeBounds, SizeEstimate};
use crate::types::Type;

const ANSWERS: &[(&str, u64, u64)] = &[
    ("a == b", 3, 1844674407370955266),
    ("m.all(k, m[k].all(i, i > 0))", 2, u64::MAX),
    (r#""abc".contains("b") || "a".matches("x+")"#, 1, 2),
    ("[1, 2, 3].map(i, i * 2).filter(j, j > 2).size()", 84, 120),
    ("m.a + m.b", 5, 5),
    (r#"a.b.c == "x" ? [1] : [2, 3]"#, 12, 12),
    (r#""a" + string(b)"#, 2, 3689348814741910529),
    (
        r#"m.exists(k, k.startsWith("a") && "b" in ["a", "b"])"#,
        2,
        u64::MAX,
    ),
    ("has(a.b) && a.b == 1", 1, 3),
    ("[1, 2].transformList(i, v, i + v)", 51, 51),
    ("[[1], [2]].flatten()", 43, 43),
    ("m.?a.orValue([])", 13, 13),
];

fn environment() -> Environment {
    let lists = Type::map(Type::String, Type::list(Type::Int));
    Environment::for_new_expressions()
        .extend()
        .variable("a", Type::Dyn)
        .variable("b", Type::Dyn)
        .variable("m", lists)
        .done()
}

fn estimate(source: &str, bounds: &dyn SizeBounds) -> (u64, u64) {
    let environment = environment();
    let checked = environment.compile(source);
    let estimate = checked.map(|checked| environment.estimate(&checked, bounds));
    let estimate = estimate.expect(source);
    (estimate.min, estimate.max)
}

#[test]
fn estimates_are_those_of_kubernetes() {
    for (source, min, max) in ANSWERS {
        assert_eq!(estimate(source, &Unbounded), (*min, *max), "{source}");
    }
}

/// At most three entries in `m`, with four items each.
struct Bounds;

impl SizeBounds for Bounds {
    fn size(&self, path: &[Name], _: &Type) -> Option<SizeEstimate> {
        let max = match path {
            [m] if &**m == "m" => 3,
            [m, values] if &**m == "m" && &**values == "@values" => 4,
            _ => return None,
        };
        Some(SizeEstimate { min: 0, max })
    }
}

#[test]
fn bounds_of_the_host_limit_the_estimate() {
    let source = "m.all(k, m[k].all(i, i > 0))";
    let (_, unbounded) = estimate(source, &Unbounded);
    let (_, bounded) = estimate(source, &Bounds);
    assert_eq!(unbounded, u64::MAX);
    // The inner fold costs 3 for its range, 4 times 5 for its items and 1 for its result; the outer
    // one 3 times that with 3 of its own, and 2 for its range and result.
    assert_eq!(bounded, 83);
}
