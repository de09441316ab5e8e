//! The estimate of a call's units from what is known of its arguments.

use super::{
    CHECK, FORMAT_NAME, FORMAT_PATTERN, LIST_CREATION, PATTERN, PER_REQUIREMENT,
    REQUIREMENTS_PER_CHARACTER, SortedBy, TEXT, sorted_item,
};
use crate::ast::{Constant, Name};
use crate::function::{CallEstimate, Operand, SizeBounds, SizeEstimate};
use crate::types::Type;

/// What a call will cost, where a library says it.
pub fn estimate(
    function: &str,
    overload: &str,
    target: Option<&Operand<'_>>,
    arguments: &[Operand<'_>],
    bounds: &dyn SizeBounds,
) -> Option<CallEstimate> {
    let call = Call {
        target,
        arguments,
        bounds,
    };
    call.extension(overload)
        .or_else(|| call.kubernetes(function, overload))
}

struct Call<'a> {
    target: Option<&'a Operand<'a>>,
    arguments: &'a [Operand<'a>],
    bounds: &'a dyn SizeBounds,
}

impl Call<'_> {
    /// The costs that the language's extension libraries bring along.
    fn extension(&self, overload: &str) -> Option<CallEstimate> {
        match overload {
            "list_sets_contains_list" | "list_sets_intersects_list" => self.sets(1.0),
            "list_sets_equivalent_list" => self.sets(2.0),
            "list_slice" => {
                let ([start, end], target) = (self.arguments, self.target?) else {
                    return None;
                };
                let end = literal_size(end, self.size(target).max);
                let size = end.wrapping_sub(literal_size(start, 0));
                Some(new_list(1.0, Range::exactly(size)))
            }
            "lists_range" => match (self.target, self.arguments) {
                (None, [count]) => {
                    Some(new_list(1.0, Range::exactly(literal_size(count, u64::MAX))))
                }
                _ => None,
            },
            "list_reverse" => Some(new_list(1.0, self.target_without_arguments()?)),
            "list_flatten" | "list_flatten_int" => {
                let depth = match self.arguments {
                    [] => 1,
                    [depth] => literal_size(depth, u64::MAX),
                    _ => return None,
                };
                Some(new_list(depth as f64, self.size(self.target?)))
            }
            "list_distinct" => {
                let size = self.target_without_arguments()?;
                Some(new_list(2.0, size.times(size)))
            }
            _ => {
                let (item, by) = sorted_item(overload)?;
                let size = match (by, self.arguments) {
                    (SortedBy::Items, []) => self.size(self.target?),
                    (SortedBy::Keys, [keys]) => {
                        self.target?;
                        self.size(keys)
                    }
                    _ => return None,
                };
                let is_text = matches!(item, "string" | "bytes");
                let factor = if is_text { 2.0 + TEXT } else { 2.0 };
                Some(new_list(factor, size.times(size)))
            }
        }
    }

    fn sets(&self, factor: f64) -> Option<CallEstimate> {
        let [left, right] = self.arguments else {
            return None;
        };
        let product = self.size(left).times(self.size(right));
        Some(product.by(factor).plus(Range::exactly(1)).cost())
    }

    fn target_without_arguments(&self) -> Option<Range> {
        match (self.target, self.arguments) {
            (Some(target), []) => Some(self.size(target)),
            _ => None,
        }
    }

    fn kubernetes(&self, function: &str, overload: &str) -> Option<CallEstimate> {
        let one = Some(Range::exactly(1).cost());
        let first = self.arguments.first().map(|argument| self.size(argument));
        let target = self.target.map(|target| self.size(target));
        match function {
            "check" => Some(Range::exactly(CHECK).cost()),
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace"
            | "name" | "allowed" | "reason" | "error" | "errored" => one,
            "fieldSelector" | "labelSelector" => match self.arguments {
                [_] => {
                    let length = first?;
                    let requirements = length.by(REQUIREMENTS_PER_CHARACTER).by(PER_REQUIREMENT);
                    let parsed = Range::exactly(LIST_CREATION).plus(length.by(TEXT));
                    Some(parsed.plus(requirements).cost())
                }
                _ => None,
            },
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let Some(item) = item(self.target?) else {
                    return Some(target?.by(TEXT).cost());
                };
                let mut each = Range::exactly(1);
                if matches!(item.type_of, Type::String | Type::Bytes) {
                    each = each.plus(self.item_size(&item).by(TEXT));
                }
                Some(target?.times(each).cost())
            }
            "url" | "jsonpatch.escapeKey" => match self.arguments {
                [_] => Some(first?.by(TEXT).cost_and_size(first?)),
                _ => None,
            },
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                Some(target?.by(TEXT).cost_and_size(target?))
            }
            "replace" => match self.arguments {
                [old, new, ..] => {
                    let size = replaced(target?, self.size(old), self.size(new));
                    Some(target?.by(2.0 * TEXT).cost_and_size(size))
                }
                _ => None,
            },
            "split" => {
                let limit = match self.arguments.get(1).map(|limit| limit.literal) {
                    Some(Some(Constant::Int(limit))) => *limit as u64,
                    _ => target?.max,
                };
                let size = Range { min: 0, max: limit };
                Some(target?.by(2.0 * TEXT).cost_and_size(size))
            }
            "join" => {
                let count = target?;
                let mut size = Range::exactly(0);
                if let Some(item) = item(self.target?) {
                    size = count.times(self.item_size(&item));
                }
                if let Some(separator) = first {
                    let separators = Range {
                        min: count.min.saturating_sub(1),
                        max: count.max.saturating_sub(1),
                    };
                    size = size.plus(separator.times(separators));
                }
                Some(size.by(TEXT).cost_and_size(size))
            }
            "find" | "findAll" => {
                let (text, pattern) = (target?, first?);
                let cost = text
                    .plus(Range::exactly(1))
                    .by(TEXT)
                    .times(pattern.by(PATTERN));
                let size = Range {
                    min: 0,
                    max: text.max,
                };
                Some(cost.cost_and_size(size))
            }
            "ip" if overload == "cidr_ip" => one,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
            | "isSemver" => Some(first?.by(TEXT).cost()),
            "ip.isCanonical" => Some(first?.by(2.0 * TEXT).cost()),
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
            | "getQuery" => one,
            "containsIP" => {
                let parsed = match overload {
                    "cidr_contains_ip_string" => first?.by(TEXT),
                    _ => Range::exactly(0),
                };
                first?;
                Some(ADDRESS.plus(ADDRESS).by(TEXT).plus(parsed).cost())
            }
            "containsCIDR" => {
                let parsed = match overload {
                    "cidr_contains_cidr_string" => first?.by(TEXT),
                    _ => Range::exactly(0),
                };
                first?;
                let compared = ADDRESS.plus(ADDRESS).by(TEXT).plus(ADDRESS.by(TEXT));
                Some(compared.plus(Range::exactly(1)).plus(parsed).cost())
            }
            "validate" => Some(first?.by(TEXT).by(FORMAT_PATTERN * PATTERN).cost()),
            "_==_" => match self.arguments {
                [left, right] if left.type_of == right.type_of => equality(left.type_of, right),
                _ => None,
            },
            "includes" if overload == "dra_includes_dyn_dyn" => {
                self.target?;
                Some(
                    Range {
                        min: 0,
                        max: MAX_DEVICE_VALUES,
                    }
                    .cost(),
                )
            }
            _ => None,
        }
    }

    /// The size of an operand: what the expression says, else what the host says, else anything.
    fn size(&self, operand: &Operand<'_>) -> Range {
        let known = operand
            .size
            .or_else(|| self.bounds.size(operand.path, operand.type_of));
        known.map_or(Range::UNKNOWN, Range::from)
    }

    fn item_size(&self, item: &Item<'_>) -> Range {
        let known = self.bounds.size(&item.path, item.type_of);
        known.map_or(Range::UNKNOWN, Range::from)
    }
}

/// What an attribute of a device may hold.
const MAX_DEVICE_VALUES: u64 = 48;

/// The bytes of an address.
const ADDRESS: Range = Range { min: 4, max: 16 };

fn equality(type_of: &Type, right: &Operand<'_>) -> Option<CallEstimate> {
    let text = |max| Some(Range { min: 1, max }.by(TEXT).cost());
    match type_of {
        Type::Opaque(name, _) => match &**name {
            "net.IP" | "net.CIDR" => Some(Range::exactly(1).cost()),
            _ => None,
        },
        Type::Object(name) => match &**name {
            "kubernetes.Quantity"
            | "kubernetes.Semver"
            | "kubernetes.authorization.Authorizer"
            | "kubernetes.authorization.PathCheck"
            | "kubernetes.authorization.GroupCheck"
            | "kubernetes.authorization.ResourceCheck"
            | "kubernetes.authorization.Decision" => Some(Range::exactly(1).cost()),
            "kubernetes.NamedFormat" => text(FORMAT_NAME),
            "kubernetes.URL" => text(right.size.map_or(1, |size| size.max)),
            _ => None,
        },
        _ => None,
    }
}

/// The items of a list, as an operand of their own.
struct Item<'a> {
    path: Vec<Name>,
    type_of: &'a Type,
}

fn item<'a>(list: &Operand<'a>) -> Option<Item<'a>> {
    let type_of = match list.type_of {
        Type::List(item) => &**item,
        Type::Map(entry) => &entry.0,
        Type::Opaque(_, parameters) => parameters.first()?,
        Type::Type(inner) => &**inner,
        _ => return None,
    };
    let mut path = list.path.to_vec();
    if !path.is_empty() {
        path.push("@items".into());
    }
    Some(Item { path, type_of })
}

/// The size of a text after replacing, from the sizes of the text, of what is replaced and of what
/// replaces it.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let divided = |size: u64, by: u64| (size as f64 / by as f64).ceil() as u64;
    // The longest result. An empty text is found before and after every character.
    let (most, kept) = if old.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if new.max <= old.min {
        (0, text.max)
    } else {
        (divided(text.max, old.min), 0)
    };
    let (least, kept_least) = if old.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if old.max <= new.min {
        (0, text.min)
    } else {
        (divided(text.min, old.max), 0)
    };
    let count = Range {
        min: least,
        max: most,
    };
    count.times(new).plus(Range {
        min: kept_least,
        max: kept,
    })
}

/// A whole number that is written in the expression; what is below zero counts as zero.
fn literal_size(operand: &Operand<'_>, otherwise: u64) -> u64 {
    match operand.literal {
        Some(Constant::Int(number)) => u64::try_from(*number).unwrap_or(0),
        _ => otherwise,
    }
}

fn new_list(factor: f64, size: Range) -> CallEstimate {
    size.by(factor)
        .plus(Range::exactly(1))
        .plus(Range::exactly(LIST_CREATION))
        .cost_and_size(size)
}

/// The smallest and largest value of a size or cost; sums and products stay below the largest number.
#[derive(Clone, Copy)]
struct Range {
    min: u64,
    max: u64,
}

impl Range {
    const UNKNOWN: Range = Range {
        min: 0,
        max: u64::MAX,
    };

    fn exactly(number: u64) -> Range {
        Range {
            min: number,
            max: number,
        }
    }

    fn plus(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    fn times(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Rounded up.
    fn by(self, factor: f64) -> Range {
        // Conversions of floats saturate.
        let times = |number: u64| (number as f64 * factor).ceil() as u64;
        Range {
            min: times(self.min),
            max: times(self.max),
        }
    }

    fn cost(self) -> CallEstimate {
        CallEstimate {
            cost_min: self.min,
            cost_max: self.max,
            result_size: None,
        }
    }

    fn cost_and_size(self, size: Range) -> CallEstimate {
        CallEstimate {
            result_size: Some(SizeEstimate {
                min: size.min,
                max: size.max,
            }),
            ..self.cost()
        }
    }
}

impl From<SizeEstimate> for Range {
    fn from(size: SizeEstimate) -> Range {
        Range {
            min: size.min,
            max: size.max,
        }
    }
}
