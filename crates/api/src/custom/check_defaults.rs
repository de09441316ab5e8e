//! Whether the defaults of a schema are values that the schema allows.

use std::sync::Arc;

use super::correlation::Correlated;
use super::defaults::Surroundings;
use super::metadata::{self, Malformed};
use super::node::{Expressions, Node};
use super::rules;
use super::{prune, validate};
use crate::document::Value;
use crate::field::{FieldError, Path};

/// Everything that is wrong with defaults. With `pruned` they may have no unknown fields.
pub(super) fn check(
    root: &Arc<Node>,
    path: &Path,
    pruned: bool,
    expressions: Option<&dyn Expressions>,
) -> Vec<FieldError> {
    let mut checker = Checker {
        pruned,
        expressions,
        budget: rules::RUNTIME_COST_BUDGET,
        errors: Vec::new(),
    };
    checker.visit(root, path, &Surroundings::root(), true);
    checker.errors
}

struct Checker<'a> {
    pruned: bool,
    expressions: Option<&'a dyn Expressions>,
    /// What is left for the rules of all defaults together.
    budget: i64,
    errors: Vec<FieldError>,
}

impl Checker<'_> {
    fn visit(&mut self, node: &Arc<Node>, path: &Path, around: &Surroundings<'_>, is_root: bool) {
        let is_resource = is_root || node.is_embedded_resource();
        let root = Surroundings::root();
        let around = if is_resource { &root } else { around };
        if let Some(default) = node.default() {
            self.check(node, default, &path.child("default"), around, is_resource);
        }
        if self.budget < 0 {
            return;
        }
        if let Some(below) = node.items() {
            self.visit(below, &path.child("items"), &around.item(), false);
        }
        for property in node.properties() {
            let path = path.child("properties").key(&property.name);
            let around = around.field(&property.name, is_resource);
            self.visit(&property.node, &path, &around, false);
            if self.budget < 0 {
                return;
            }
        }
    }

    fn check(
        &mut self,
        node: &Arc<Node>,
        default: &Value,
        path: &Path,
        around: &Surroundings<'_>,
        is_resource: bool,
    ) {
        if around.is_metadata() {
            if let Some(why) = wrong_metadata(around.surround(default.clone())) {
                let detail = format!("must result in valid metadata: {why}");
                self.errors
                    .push(FieldError::invalid(path, default.clone(), detail));
                return;
            }
        } else {
            if self.pruned {
                let mut pruned = default.clone();
                prune::prune(&mut pruned, Some(node), is_resource, None);
                if pruned != *default {
                    let detail = "must not have unknown fields";
                    self.errors
                        .push(FieldError::invalid(path, default.clone(), detail));
                }
            }
            let mut coerced = default.clone();
            if let Err(mut error) =
                metadata::coerce(&mut coerced, node, is_resource, Malformed::Refused)
            {
                error.path = path.child(&error.path).to_string();
                self.errors.push(error);
                return;
            }
            let errors = metadata::validate(&coerced, node, is_resource, path);
            if !errors.is_empty() {
                self.errors.extend(errors);
                return;
            }
        }
        let errors = validate::validate_default(node, default, path);
        if !errors.is_empty() {
            self.errors.extend(errors);
            return;
        }
        self.run_rules(node, default, path, is_resource);
    }

    /// Runs the rules as for an update that changes nothing, then as for a new object; the dearer of
    /// both counts.
    fn run_rules(&mut self, node: &Arc<Node>, default: &Value, path: &Path, is_resource: bool) {
        let Some(expressions) = self.expressions.filter(|_| node.has_rules_within()) else {
            return;
        };
        let run = |old: Option<&Value>, budget: &mut i64| {
            let no_correlation: Option<&Correlated<'_>> = None;
            let values = (default, old);
            rules::evaluate(
                node,
                is_resource,
                path,
                values,
                no_correlation,
                expressions,
                budget,
            )
        };
        let (mut unchanged, mut created) = (self.budget, self.budget);
        let findings = run(Some(default), &mut unchanged);
        if findings.errors.is_empty() {
            self.errors.extend(run(None, &mut created).errors);
        }
        self.errors.extend(findings.errors);
        self.budget = unchanged.min(created);
    }
}

/// What is wrong with the metadata of an otherwise empty resource.
fn wrong_metadata(mut resource: Value) -> Option<String> {
    resource.set_missing(&["apiVersion"], "validation/v1");
    resource.set_missing(&["kind"], "Validation");
    if let Err(error) = metadata::coerce_resource(&mut resource, Malformed::Refused) {
        return Some(error.to_string());
    }
    let errors = metadata::validate_resource_alone(&resource);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}
