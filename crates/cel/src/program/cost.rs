//! What calls cost when they run, as cel-go's cost tracker counts it.

use super::operation::{Call, CallCost};
use crate::function::{Function, Implementation, Overload};
use crate::libraries;
use crate::value::Value;

pub const LIST: u32 = 10;
pub const MAP: u32 = 30;
pub const OBJECT: u32 = 40;

const TRAVERSAL: f64 = 0.1;
const PATTERN: f64 = 0.25;

/// The size that costs are computed from: one for values without a size.
pub fn size(value: &Value<'_>) -> u64 {
    match value {
        Value::Optional(Some(value)) => size(value),
        _ => value.size().unwrap_or(1),
    }
}

/// The cost of `==` and `!=`, without what libraries say of their own types. A comparison with
/// something empty is free.
pub fn of_comparison(left: &Value<'_>, right: &Value<'_>) -> u64 {
    match (left, right) {
        (Value::Int(_), Value::Int(_)) | (Value::Bool(_), Value::Bool(_)) => 1,
        _ => traversal(size(left).min(size(right))),
    }
}

/// The cost of a call. Errors among the arguments are given as null.
pub fn of_call(call: &Call, arguments: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
    if call.asks_library {
        let overload = call.overload.as_ref().map_or("", |overload| overload.id);
        let said = libraries::cost::actual(call.function.name, overload, arguments, result);
        if let Some(cost) = said {
            return cost;
        }
    }
    let (first, second) = (arguments.first(), arguments.get(1));
    let sizes = || (first.map_or(1, size), second.map_or(1, size));
    match call.cost {
        CallCost::One => 1,
        CallCost::FirstSize => traversal(sizes().0),
        CallCost::SecondItems => sizes().1,
        CallCost::SmallerSize => {
            let (first, second) = sizes();
            traversal(first.min(second))
        }
        CallCost::BothSizes => {
            let (first, second) = sizes();
            traversal(first + second)
        }
        CallCost::Matches => {
            let (first, second) = sizes();
            let text = ((1.0 + first as f64) * TRAVERSAL).ceil() as u64;
            text * (second as f64 * PATTERN).ceil() as u64
        }
        CallCost::Contains => {
            let (first, second) = sizes();
            traversal(first) * traversal(second)
        }
    }
}

/// How the language itself counts an overload; one unit where the overload is not known.
pub fn of_overload(id: &str) -> CallCost {
    match id {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => CallCost::FirstSize,
        "in_list" => CallCost::SecondItems,
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes"
        | "equals"
        | "not_equals" => CallCost::SmallerSize,
        "add_string" | "add_bytes" => CallCost::BothSizes,
        "matches_string" => CallCost::Matches,
        "contains_string" => CallCost::Contains,
        _ => CallCost::One,
    }
}

/// Whether a library may have something to say about the cost of a function.
pub fn is_of_library(function: &str) -> bool {
    !function.starts_with(['_', '!', '-'])
        && !matches!(
            function,
            "@in"
                | "size"
                | "contains"
                | "startsWith"
                | "endsWith"
                | "matches"
                | "string"
                | "int"
                | "uint"
                | "double"
                | "bool"
                | "bytes"
                | "dyn"
                | "type"
                | "duration"
                | "timestamp"
        )
}

/// Whether cel-go stops at the first argument that is an error, and then neither computes the others
/// nor counts the call. It does so with three arguments and more, and where the values decide between
/// several overloads, and in `format`.
pub fn ends_at_error(function: &Function, overload: Option<&Overload>, arguments: usize) -> bool {
    let is_singleton = function
        .overloads
        .iter()
        .any(|overload| matches!(overload.implementation, Implementation::Singleton(_)));
    let is_format = overload.is_some_and(|overload| overload.id == "string_format");
    arguments > 2
        || is_format
        || (overload.is_none() && !is_singleton && function.overloads.len() > 1)
}

fn traversal(size: u64) -> u64 {
    (size as f64 * TRAVERSAL).ceil() as u64
}
