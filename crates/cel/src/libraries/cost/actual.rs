//! The count of units of a call that has run.

use super::{
    CHECK, LIST_CREATION, PATTERN, PER_REQUIREMENT, REQUIREMENTS_PER_CHARACTER, SortedBy, TEXT,
    sorted_item,
};
use crate::libraries::format::NamedFormat;
use crate::value::Value;
use crate::work;

/// What a call cost, where a library says it. The overload is empty where it was chosen when the
/// expression ran; there is no result where the call failed.
pub fn actual(
    function: &str,
    overload: &str,
    arguments: &[Value<'_>],
    result: Option<&Value<'_>>,
) -> Option<u64> {
    extension(overload, arguments, result)
        .or_else(|| kubernetes(function, overload, arguments, result))
}

/// The costs that the language's extension libraries bring along.
fn extension(overload: &str, arguments: &[Value<'_>], result: Option<&Value<'_>>) -> Option<u64> {
    let sets = |factor: u64| {
        let product = size(arguments.first()?).wrapping_mul(size(arguments.get(1)?));
        Some(1 + truncated(product as f64 * factor as f64))
    };
    match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => sets(1),
        "list_sets_equivalent_list" => sets(2),
        "list_slice" | "lists_range" | "list_reverse" => {
            Some(new_list(1.0, result.map_or(1, size)))
        }
        "list_flatten" | "list_flatten_int" => {
            let depth = match arguments.get(1) {
                Some(Value::Int(depth)) => *depth as f64,
                _ => 1.0,
            };
            Some(new_list(depth, size(arguments.first()?)))
        }
        "list_distinct" => Some(compared_with_itself(arguments.first()?)),
        _ => match sorted_item(overload)? {
            (_, SortedBy::Items) => Some(compared_with_itself(arguments.first()?)),
            (_, SortedBy::Keys) => Some(compared_with_itself(arguments.get(1)?)),
        },
    }
}

fn compared_with_itself(list: &Value<'_>) -> u64 {
    let count = size(list);
    let is_text = list.item(0).as_ref().is_some_and(is_text);
    let factor = if is_text { 2.0 + TEXT } else { 2.0 };
    new_list(factor, count.wrapping_mul(count))
}

fn is_text(value: &Value<'_>) -> bool {
    matches!(value, Value::String(_) | Value::Bytes(_))
}

fn new_list(factor: f64, size: u64) -> u64 {
    truncated(size as f64 * factor)
        .wrapping_add(1)
        .wrapping_add(LIST_CREATION)
}

/// A number without its fraction as Go converts it: a negative one wraps around.
fn truncated(number: f64) -> u64 {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if number < TWO_TO_63 {
        number as i64 as u64
    } else if number < 2.0 * TWO_TO_63 {
        number as u64
    } else {
        1 << 63
    }
}

fn kubernetes(
    function: &str,
    overload: &str,
    arguments: &[Value<'_>],
    result: Option<&Value<'_>>,
) -> Option<u64> {
    let first = arguments.first();
    let second = arguments.get(1);
    match function {
        "check" => Some(CHECK),
        "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
        | "allowed" | "reason" | "error" | "errored" => Some(1),
        "fieldSelector" | "labelSelector" => {
            let length = size(second?);
            let requirements = text(length, REQUIREMENTS_PER_CHARACTER);
            Some(LIST_CREATION + text(length, TEXT) + text(requirements, PER_REQUIREMENT))
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            Some(first.map_or(0, traversal))
        }
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => Some(text(size(first?), TEXT)),
        "replace" | "split" | "ip.isCanonical" => Some(text(size(first?), 2.0 * TEXT)),
        "join" => first.map(|_| text(result.map_or(1, size), 2.0 * TEXT)),
        "find" | "findAll" => {
            let read = text_and_one(size(first?));
            Some(read.wrapping_mul(text(size(second?), PATTERN)))
        }
        "ip" if overload == "cidr_ip" => first.map(|_| 1),
        "ip" => Some(text(size(first?), TEXT)),
        "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => Some(1),
        "containsIP" => {
            let (range, other) = (size(first?), size(second?));
            let parsed = overload == "cidr_contains_ip_string";
            Some(text(range + range, TEXT) + if parsed { text(other, TEXT) } else { 0 })
        }
        "containsCIDR" => {
            let (range, other) = (size(first?), size(second?));
            let parsed = overload == "cidr_contains_cidr_string";
            let compared = text(range + range, TEXT) + text(range, TEXT) + 1;
            Some(compared + if parsed { text(other, TEXT) } else { 0 })
        }
        "validate" => {
            let (Value::Opaque(format), Some(second)) = (first?, second) else {
                return None;
            };
            let format = format.as_any().downcast_ref::<NamedFormat>()?;
            Some(text_and_one(size(second)) * text(format.pattern_size(), PATTERN))
        }
        // Values of Kubernetes' types are compared in one step.
        "_==_" => match arguments {
            [Value::Opaque(value), _] if value.is_compared_in_one_step() => Some(1),
            _ => None,
        },
        _ => None,
    }
}

fn text(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

fn text_and_one(size: u64) -> u64 {
    ((1.0 + size as f64) * TEXT).ceil() as u64
}

/// The size that costs are computed from: characters of a text, members of a list or map.
fn size(value: &Value<'_>) -> u64 {
    value.size().unwrap_or(1)
}

/// No limit is above this, so that counting can end here.
const TRAVERSAL_LIMIT: u64 = 100_000_000;

/// The cost of looking at every part of a value. Values are as deep as documents and expressions
/// may be, which bounds the recursion.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * TEXT) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TEXT) as u64,
        Value::List(_) | Value::Map(_) | Value::Host(_) => {
            // Parts that cost nothing are walked too.
            if !work::spend(value.size().unwrap_or(0)) {
                return TRAVERSAL_LIMIT;
            }
            let items = value.items().map(|item| traversal(&item));
            let entries = value
                .entries()
                .map(|(key, value)| traversal(&key) + traversal(&value));
            total(items.chain(entries))
        }
        _ => 1,
    }
}

fn total(costs: impl Iterator<Item = u64>) -> u64 {
    let mut sum = 0;
    for cost in costs {
        sum += cost;
        if sum > TRAVERSAL_LIMIT {
            break;
        }
    }
    sum
}
