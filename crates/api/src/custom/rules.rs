//! Runs the rules of a schema (`x-kubernetes-validations`) over an object, with a budget.

use std::sync::Arc;

use super::correlation::Correlated;
use super::node::{CompiledRule, Expressions, Node, OldSelf, Outcome, Program, Rule, Rules, Scope};
use super::path::field_path;
use super::sizes;
use crate::document::Value;
use crate::field::{FieldError, Path};

/// The cost that all rules together may have for one object.
pub const RUNTIME_COST_BUDGET: i64 = 10_000_000;

/// What the rules have to say about an object.
#[derive(Debug, Default, PartialEq)]
pub struct Findings {
    pub errors: Vec<FieldError>,
    /// Broken rules that the unchanged parts of an object are not held to.
    pub warnings: Vec<String>,
}

/// How often a value of this node can be in an object, when nothing above it says: as often as its
/// smallest form fits into the largest request.
pub fn max_cardinality(node: &Arc<Node>, is_root: bool) -> u64 {
    let smallest = sizes::estimate(node, is_root).map_or(0, |size| size.min_serialized_size);
    (sizes::MAX_REQUEST_SIZE / (smallest + 1)).unsigned_abs()
}

/// Runs all rules of a schema. `budget` is what is left for them; it ends below zero when they were
/// stopped.
pub fn evaluate(
    root: &Arc<Node>,
    is_root: bool,
    path: &Path,
    (value, old): (&Value, Option<&Value>),
    ratcheting: Option<&Correlated<'_>>,
    expressions: &dyn Expressions,
    budget: &mut i64,
) -> Findings {
    let mut walk = Walk {
        expressions,
        budget: *budget,
        findings: Findings::default(),
    };
    let ratchet = Ratchet {
        current: ratcheting,
        nearest: None,
    };
    let place = Place {
        node: root,
        is_root,
        value,
        old: old.filter(|old| !old.is_null()),
    };
    walk.visit(place, path, ratchet);
    *budget = walk.budget;
    walk.findings
}

/// One value of the object with its schema.
#[derive(Clone, Copy)]
struct Place<'a> {
    node: &'a Arc<Node>,
    is_root: bool,
    value: &'a Value,
    old: Option<&'a Value>,
}

/// Whether what stands somewhere is as it was.
#[derive(Clone, Copy)]
struct Ratchet<'r, 'v> {
    current: Option<&'r Correlated<'v>>,
    /// The nearest place above with a counterpart in the old object.
    nearest: Option<&'r Correlated<'v>>,
}

impl Ratchet<'_, '_> {
    fn is_unchanged(self) -> bool {
        self.current
            .or(self.nearest)
            .is_some_and(Correlated::is_unchanged)
    }
}

struct Walk<'a> {
    expressions: &'a dyn Expressions,
    budget: i64,
    findings: Findings,
}

impl Walk<'_> {
    fn visit(&mut self, place: Place<'_>, path: &Path, ratchet: Ratchet<'_, '_>) {
        if place.value.is_null() || !place.node.has_rules_within() {
            return;
        }
        if let Some(rules) = place.node.rules() {
            self.run_all(rules, place, path, ratchet);
        }
        match place.value {
            _ if self.budget < 0 => {}
            Value::Array(items) => self.visit_items(items, place, path, ratchet),
            Value::Object(fields) => {
                for (name, value) in fields.iter() {
                    let (node, path) = match place.node.property(name) {
                        Some(node) => (node, path.child(name)),
                        None => match place.node.additional_schema() {
                            Some(node) => (node, path.key(name)),
                            None => continue,
                        },
                    };
                    if !node.has_rules_within() {
                        continue;
                    }
                    let below = ratchet.current.and_then(|here| here.field(name));
                    // The version of an object is not visible in it: both are converted to one.
                    let at_root =
                        ratchet.nearest.is_none() && matches!(name, "apiVersion" | "kind");
                    let ratchet = match ratchet.current {
                        None => ratchet,
                        Some(_) if at_root => Ratchet {
                            current: None,
                            nearest: None,
                        },
                        Some(here) => Ratchet {
                            current: below.as_ref(),
                            nearest: Some(here),
                        },
                    };
                    let old = place.old.and_then(|old| old.get(name));
                    self.visit(
                        Place {
                            node,
                            is_root: node.is_embedded_resource(),
                            value,
                            old: old.filter(|old| !old.is_null()),
                        },
                        &path,
                        ratchet,
                    );
                    if self.budget < 0 {
                        return;
                    }
                }
            }
            _ => {}
        }
    }

    fn visit_items(
        &mut self,
        items: &[Value],
        place: Place<'_>,
        path: &Path,
        ratchet: Ratchet<'_, '_>,
    ) {
        let Some(node) = place.node.items().filter(|node| node.has_rules_within()) else {
            return;
        };
        let old_items = place.old.and_then(Value::as_array);
        let old_items =
            old_items.map(|items| super::correlation::KeyedItems::of(place.node, items));
        for (index, value) in items.iter().enumerate() {
            let below = ratchet.current.and_then(|here| here.item(index));
            let ratchet = match ratchet.current {
                None => ratchet,
                Some(here) => Ratchet {
                    current: below.as_ref(),
                    nearest: Some(here),
                },
            };
            let old = old_items.as_ref().and_then(|items| items.find(value));
            self.visit(
                Place {
                    node,
                    is_root: node.is_embedded_resource(),
                    value,
                    old,
                },
                &path.index(index),
                ratchet,
            );
            if self.budget < 0 {
                return;
            }
        }
    }

    /// Runs the rules of one place. After the budget is spent no rule runs any more.
    fn run_all(&mut self, rules: &Rules, place: Place<'_>, path: &Path, ratchet: Ratchet<'_, '_>) {
        let kind = place.node.kind().name();
        let compilation = rules.compiled(place.node, place.is_root, self.expressions);
        if let Some(failure) = &compilation.failure {
            let detail = format!("rule compiler initialization error: {failure}");
            self.refuse(FieldError::invalid(path, kind, detail));
            return;
        }
        if self.budget <= 0 {
            self.stop(FieldError::invalid(path, kind, OUT_OF_BUDGET));
            return;
        }
        for (rule, compiled) in rules.declared().iter().zip(&compilation.rules) {
            if let Some(error) = &compiled.error {
                let detail = format!("rule compile error: {error}");
                self.refuse(FieldError::invalid(path, kind, detail));
                continue;
            }
            let Some(program) = &compiled.program else {
                continue;
            };
            let optional = rule.optional_old_self.unwrap_or_default();
            if compiled.uses_old_self && place.old.is_none() && !optional {
                continue;
            }
            let scope = scope(place, optional);
            let run = program.run(&scope);
            let Some(cost) = run.cost else {
                let detail = format!(
                    "runtime cost could not be calculated for validation rule: {}, no further \
                     validation rules will be run",
                    rule.called()
                );
                self.stop(FieldError::invalid(path, kind, detail));
                return;
            };
            if !self.spend(cost) {
                self.stop(FieldError::invalid(path, kind, OUT_OF_BUDGET));
                return;
            }
            let detail = match run.result {
                Ok(Outcome::Bool(true)) => continue,
                Ok(_) => None,
                Err(error) => Some(error),
            };
            if let Some(error) = detail {
                let limit = error.starts_with("operation cancelled: actual cost limit exceeded");
                let detail = if error.starts_with("no such overload") {
                    format!(
                        "'{error}': call arguments did not match a supported operator, function or \
                         macro signature for rule: {}",
                        rule.called()
                    )
                } else if limit {
                    format!(
                        "'{error}': no further validation rules will be run due to call cost \
                         exceeds limit for rule: {}",
                        rule.called()
                    )
                } else {
                    format!("{error} evaluating rule: {}", rule.called())
                };
                let error = FieldError::invalid(path, kind, detail);
                match limit {
                    true => return self.stop(error),
                    false => self.refuse(error),
                }
                continue;
            }
            let ratcheted = || !compiled.uses_old_self && ratchet.is_unchanged();
            if !self.report(rule, compiled, place, path, &ratcheted) {
                return;
            }
        }
    }

    /// Words the error of a broken rule; whether to go on.
    fn report(
        &mut self,
        rule: &Rule,
        compiled: &CompiledRule,
        place: Place<'_>,
        path: &Path,
        ratcheted: &dyn Fn() -> bool,
    ) -> bool {
        let path = match field_path(&rule.field_path, place.node, true) {
            Ok(found) if !found.text.is_empty() => path.child(&found.text),
            _ => path.clone(),
        };
        let add = |walk: &mut Walk<'_>, error: FieldError| match ratcheted() {
            true => walk.findings.warnings.push(error.to_string()),
            false => walk.refuse(error),
        };
        let detail = match &compiled.message {
            None => None,
            Some(program) => match self.message(&**program, rule, scope(place, false)) {
                Ok(detail) => detail,
                Err(detail) => {
                    let kind = place.node.kind().name();
                    add(self, FieldError::invalid(&path, kind, detail));
                    self.budget = -1;
                    return false;
                }
            },
        };
        let detail = detail.unwrap_or_else(|| rule.message_or_default());
        let error = rule.broken(&path, place.node, place.value, detail);
        add(self, error);
        true
    }

    /// The text that a message expression makes; `None` when it makes none that can be shown, an
    /// error when no rule may run any more.
    fn message(
        &mut self,
        program: &dyn Program,
        rule: &Rule,
        scope: Scope<'_>,
    ) -> Result<Option<String>, String> {
        const LONGEST: usize = 5 * 1024;
        let run = program.run(&scope);
        let Some(cost) = run.cost else {
            return Err(format!(
                "runtime cost could not be calculated for messageExpression: {:?}",
                rule.message_expression
            ));
        };
        if i64::try_from(cost).is_ok_and(|cost| cost <= self.budget) {
            self.budget -= cost as i64;
        } else {
            return Err(
                "messageExpression evaluation failed due to running out of cost budget, no further \
                 validation rules will be run"
                    .to_string(),
            );
        }
        match run.result {
            Err(error) if error.starts_with("operation cancelled: actual cost limit exceeded") => {
                Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for \
                     messageExpression: {:?}",
                    rule.message_expression
                ))
            }
            Ok(Outcome::Text(text)) => {
                let text = text.trim();
                let shown = !text.is_empty() && text.len() <= LONGEST && !text.contains('\n');
                Ok(shown.then(|| text.to_string()))
            }
            _ => Ok(None),
        }
    }

    fn spend(&mut self, cost: u64) -> bool {
        match i64::try_from(cost) {
            Ok(cost) if cost <= self.budget => {
                self.budget -= cost;
                true
            }
            _ => false,
        }
    }

    fn refuse(&mut self, error: FieldError) {
        self.findings.errors.push(error);
    }

    fn stop(&mut self, error: FieldError) {
        self.refuse(error);
        self.budget = -1;
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

fn scope(place: Place<'_>, optional: bool) -> Scope<'_> {
    Scope {
        node: place.node,
        is_root: place.is_root,
        value: place.value,
        old: match (optional, place.old) {
            (true, old) => OldSelf::Optional(old),
            (false, Some(old)) => OldSelf::Value(old),
            (false, None) => OldSelf::Undefined,
        },
    }
}
