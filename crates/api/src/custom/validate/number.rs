//! Bounds of numbers: compared as whole numbers where the value is one, as floats otherwise.

use super::outcome::{Outcome, Problem, What};
use crate::custom::format::Format;
use crate::custom::go;
use crate::custom::kind::Kind;
use crate::custom::node::Node;
use crate::document::Value;

pub(super) fn check(node: &Node, value: &Value, path: &str, outcome: &mut Outcome) {
    let number = match value {
        Value::Integer(number) => *number as f64,
        Value::Float(number) => *number,
        _ => return,
    };
    let add = |what: What, outcome: &mut Outcome| outcome.add(Problem::new(path, what));
    if let Some(what) = out_of_range(node, value, "Checked", path) {
        add(what, outcome);
    }
    if let Some(factor) = node.multiple_of() {
        let range = out_of_range(node, &Value::Float(factor), "MultipleOf", path);
        let what = match (value, &range) {
            (Value::Integer(number), None) => multiple_of_whole(*number, factor as i64),
            _ => multiple_of(number, factor),
        };
        outcome.add_all(
            [range, what]
                .into_iter()
                .flatten()
                .map(|w| Problem::new(path, w)),
        );
    }
    let bounds = [
        (
            node.minimum(),
            node.excludes_minimum(),
            "Minimum boundary",
            false,
        ),
        (
            node.maximum(),
            node.excludes_maximum(),
            "Maximum boundary",
            true,
        ),
    ];
    for (bound, exclusive, name, is_maximum) in bounds {
        let Some(bound) = bound else { continue };
        let range = out_of_range(node, &Value::Float(bound), name, path);
        let words = match (is_maximum, exclusive) {
            (true, false) => "less than or equal to",
            (true, true) => "less than",
            (false, false) => "greater than or equal to",
            (false, true) => "greater than",
        };
        let beyond = |ordering: Option<std::cmp::Ordering>| match ordering {
            Some(std::cmp::Ordering::Equal) => exclusive,
            Some(std::cmp::Ordering::Greater) => is_maximum,
            Some(std::cmp::Ordering::Less) => !is_maximum,
            None => false,
        };
        let what = match (value, &range) {
            (Value::Integer(number), None) => {
                let bound = bound as i64;
                beyond(number.partial_cmp(&bound))
                    .then(|| What::Bound(format!("{words} {bound}"), value.clone()))
            }
            _ => beyond(number.partial_cmp(&bound)).then(|| {
                let bound = go::float(bound);
                What::Bound(format!("{words} {bound}"), Value::Float(number))
            }),
        };
        outcome.add_all(
            [range, what]
                .into_iter()
                .flatten()
                .map(|w| Problem::new(path, w)),
        );
    }
}

/// Says that a value or a bound is none of its type.
fn out_of_range(node: &Node, value: &Value, prefix: &str, path: &str) -> Option<What> {
    if node.is_int_or_string() {
        return None;
    }
    let fits = match (node.kind(), node.format) {
        (Kind::Integer, format) => {
            let whole = match value {
                Value::Integer(number) => Some(*number),
                // Written without an exponent, a float is whole if it has no fraction.
                Value::Float(number) => (number.fract() == 0.0
                    && *number >= i64::MIN as f64
                    && *number < i64::MAX as f64)
                    .then_some(*number as i64),
                _ => None,
            };
            match format {
                Some(Format::Int32) => whole.is_some_and(|number| i32::try_from(number).is_ok()),
                _ => whole.is_some(),
            }
        }
        (Kind::Number, Some(Format::Float)) => {
            let number = match value {
                Value::Integer(number) => *number as f64,
                Value::Float(number) => *number,
                _ => return None,
            };
            (number as f32).is_finite()
        }
        _ => true,
    };
    (!fits).then(|| {
        let kind = node.kind().name();
        What::Range(match node.format {
            Some(_) => format!(
                "{prefix} value must be of type {kind} with format {} in {path}",
                node.format()
            ),
            None => format!("{prefix} value must be of type {kind} (default format) in {path}"),
        })
    })
}

fn multiple_of_whole(number: i64, factor: i64) -> Option<What> {
    if factor <= 0 {
        return Some(What::FactorNotPositive(factor.into(), factor.to_string()));
    }
    (number % factor != 0).then(|| What::MultipleOf(factor.to_string(), number.into()))
}

fn multiple_of(number: f64, factor: f64) -> Option<What> {
    if factor <= 0.0 {
        return Some(What::FactorNotPositive(factor.into(), go::float(factor)));
    }
    let times = match factor < 1.0 {
        true => 1.0 / factor * number,
        false => number / factor,
    };
    (!is_whole(times)).then(|| {
        let value = Value::Float(number);
        What::MultipleOf(go::float(factor), value)
    })
}

/// Whether a float is a whole number that JSON can carry exactly, within rounding.
pub(super) fn is_whole(number: f64) -> bool {
    const LARGEST: f64 = ((1_u64 << 53) - 1) as f64;
    const EPSILON: f64 = 1e-9;
    if !number.is_finite() || number.abs() > LARGEST {
        return false;
    }
    if number.fract() == 0.0 {
        return true;
    }
    // Go truncates towards zero here, and compares what is lost with the sum of both.
    let whole = number.trunc();
    let lost = (number - whole).abs();
    whole != 0.0 && lost / (number.abs() + whole.abs()) < EPSILON
}
