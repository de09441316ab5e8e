//! The costs of calls: a library's where it says one, else those of the language.

use super::range::{Estimate, UNKNOWN, add_sizes, exact_size, per_element, unite_sizes};
use super::{EntrySize, Estimator, Path};
use crate::ast::{Call, Expr, Id};
use crate::checked::Reference;
use crate::function::{Operand, SizeEstimate};
use crate::libraries::cost;

/// Per character of a text that is read.
const TEXT: f64 = 0.1;
/// Per character of a regular expression.
const PATTERN: f64 = 0.25;

/// A target or argument, with what is known of it when the call is looked at.
struct Known {
    id: Id,
    path: Path,
    size: Option<SizeEstimate>,
}

impl Known {
    fn size(&self) -> SizeEstimate {
        self.size.unwrap_or(UNKNOWN)
    }
}

/// One overload's share of a call.
struct Share {
    cost: Estimate,
    size: Option<SizeEstimate>,
}

impl Share {
    fn of(cost: Estimate) -> Share {
        Share { cost, size: None }
    }

    fn sized(cost: Estimate, size: SizeEstimate) -> Share {
        let size = Some(size);
        Share { cost, size }
    }
}

impl<'a> Estimator<'a> {
    pub(super) fn cost_of_call(&mut self, id: Id, call: &'a Call) -> Estimate {
        if let ("dyn", &[argument]) = (&*call.function, &call.arguments[..]) {
            let cost = self.cost(argument);
            self.copy_sizes(id, argument);
            return cost.add(Estimate::exactly(1));
        }
        let mut costs = Vec::with_capacity(call.arguments.len());
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            costs.push(self.cost(*argument));
            arguments.push(self.known(*argument));
        }
        let checked = self.checked;
        let overloads = match checked.reference(id) {
            Some(Reference::Function { overloads, .. }) => &overloads[..],
            Some(Reference::OptionalSelect) => &[],
            _ => return Estimate::default(),
        };
        let mut cost = Estimate::default();
        let target = call.target.map(|target| {
            cost = self.cost(target);
            self.known(target)
        });
        let mut union = Estimate {
            min: u64::MAX,
            max: 0,
        };
        let mut size: Option<SizeEstimate> = None;
        let mut add_overload = |estimator: &mut Self, overload: &str| {
            let share = estimator
                .by_library(
                    &call.function,
                    overload,
                    target.as_ref(),
                    &arguments,
                    &costs,
                )
                .unwrap_or_else(|| {
                    estimator.by_language(id, overload, target.as_ref(), &arguments, &costs)
                });
            union = union.union(share.cost);
            size = match (size, share.size) {
                (Some(before), Some(now)) => Some(unite_sizes(before, now)),
                (before, now) => before.or(now),
            };
            if let ("index_list" | "index_map", Some(argument)) = (overload, arguments.first()) {
                let step = if overload == "index_list" {
                    estimator.items.clone()
                } else {
                    estimator.values.clone()
                };
                size = estimator
                    .entry_size(argument.id)
                    .map(|entries| entries.value);
                let path = estimator.path_to(argument.id, &step);
                estimator.set_path(id, path);
            }
            if size.is_none() {
                size = estimator.size(id);
            }
        };
        for overload in overloads {
            add_overload(self, overload.id);
        }
        if overloads.is_empty() {
            add_overload(self, "select_optional_field");
        }
        self.set_size(id, size);
        cost.add(union)
    }

    fn known(&mut self, id: Id) -> Known {
        let mut path = self.path(id);
        // Only paths from variables of the host are of use.
        if let Some("__result__" | "@result") = path.first().map(|name| &**name) {
            path = Path::from([]);
        }
        let size = self.size(id);
        Known { id, path, size }
    }

    fn by_library(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Known>,
        arguments: &[Known],
        costs: &[Estimate],
    ) -> Option<Share> {
        let target = target.map(|target| self.operand(target));
        let arguments: Vec<Operand<'_>> = arguments
            .iter()
            .map(|argument| self.operand(argument))
            .collect();
        let call = cost::estimate(function, overload, target.as_ref(), &arguments, self.bounds)?;
        let own = Estimate {
            min: call.cost_min,
            max: call.cost_max,
        };
        Some(Share {
            cost: own.add(sum(costs)),
            size: call.result_size,
        })
    }

    fn operand<'k>(&'k self, known: &'k Known) -> Operand<'k> {
        let literal = match self.checked.ast.expr(known.id) {
            Expr::Constant(constant) => Some(constant),
            _ => None,
        };
        Operand {
            path: &known.path,
            type_of: self.checked.type_of(known.id),
            literal,
            size: known.size,
        }
    }

    fn by_language(
        &mut self,
        id: Id,
        overload: &str,
        target: Option<&Known>,
        arguments: &[Known],
        costs: &[Estimate],
    ) -> Share {
        let all = sum(costs);
        let reading = |size: SizeEstimate| per_element(size, TEXT).add(all);
        match (overload, target, arguments) {
            ("string_format", Some(target), _) => Share::of(reading(target.size())),
            ("string_to_bytes", _, [text]) => {
                let size = text.size();
                let result = SizeEstimate {
                    min: size.min,
                    max: size.max.wrapping_mul(4),
                };
                Share::sized(reading(size), result)
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = bytes.size();
                let result = SizeEstimate {
                    min: size.min / 4,
                    max: size.max,
                };
                Share::sized(reading(size), result)
            }
            ("strings_quote", _, [text]) => {
                let size = text.size();
                let result = SizeEstimate {
                    min: size.min.wrapping_add(2),
                    max: size.max.wrapping_mul(2).wrapping_add(2),
                };
                Share::sized(reading(size), result)
            }
            ("starts_with_string" | "ends_with_string", _, [part]) => {
                Share::of(reading(part.size()))
            }
            ("in_list", _, [_, list]) => Share::of(per_element(list.size(), 1.0).add(all)),
            ("matches_string", Some(text), [pattern]) => {
                let text = per_element(add_sizes(text.size(), exact_size(1)), TEXT);
                let pattern = per_element(pattern.size(), PATTERN);
                Share::of(text.multiply(pattern).add(all))
            }
            ("contains_string", Some(text), [part]) => {
                let text = per_element(text.size(), TEXT);
                Share::of(text.multiply(per_element(part.size(), TEXT)).add(all))
            }
            ("logical_or" | "logical_and", _, _) => {
                let (left, right) = pair(costs);
                Share::of(Estimate {
                    min: left.min,
                    max: left.max.saturating_add(right.max),
                })
            }
            ("conditional", _, [_, if_true, if_false]) => {
                let size = unite_sizes(if_true.size(), if_false.size());
                let entries = self.united_entries(if_true.id, if_false.id);
                self.set_entries(id, entries);
                let (condition, branches) = match *costs {
                    [condition, if_true, if_false] => (condition, if_true.union(if_false)),
                    _ => (all, all),
                };
                Share::sized(condition.add(branches), size)
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let size = add_sizes(left.size(), right.size());
                let entries = self.united_entries(left.id, right.id);
                self.set_entries(id, entries);
                if overload == "add_list" {
                    return Share::sized(all.add(Estimate::exactly(1)), size);
                }
                Share::sized(reading(size), size)
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [left, right],
            ) => {
                let max = left.size().max.min(right.size().max);
                let min = max.min(1);
                Share::of(reading(SizeEstimate { min, max }))
            }
            _ => Share::of(all.add(Estimate::exactly(1))),
        }
    }

    fn united_entries(&self, left: Id, right: Id) -> Option<EntrySize> {
        let (left, right) = (self.entry_size(left)?, self.entry_size(right)?);
        Some(EntrySize {
            is_list: left.is_list,
            key: unite_sizes(left.key, right.key),
            value: unite_sizes(left.value, right.value),
        })
    }
}

fn sum(costs: &[Estimate]) -> Estimate {
    costs
        .iter()
        .fold(Estimate::default(), |sum, cost| sum.add(*cost))
}

fn pair(costs: &[Estimate]) -> (Estimate, Estimate) {
    let at = |index: usize| costs.get(index).copied().unwrap_or_default();
    (at(0), at(1))
}
