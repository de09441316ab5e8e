//! Custom resources: the structural schema of a kind that was defined while the server runs, and what
//! it does to objects. Pure; it knows neither the definitions nor the catalogue of kinds.
//!
//! A [`Schema`] is the compact form of one version's `openAPIV3Schema`: immutable, cheap to clone, and
//! sharing what is equal with all other schemas of the process. Descriptions are not in it.
//!
//! What happens to an object, in this order:
//!
//! 1. [`Schema::conform`] on what was sent, read from the store or converted: metadata brought into
//!    shape, unknown fields pruned, nulls taken out
//! 2. [`Schema::default`]
//! 3. [`Schema::judge`]: the schema, embedded resources, list types, then the rules

mod apply;
mod build;
mod check_defaults;
mod columns;
mod correlation;
mod defaults;
mod format;
mod go;
mod intern;
mod json_path;
mod kind;
mod list_types;
mod metadata;
mod node;
mod path;
mod pattern;
mod props;
mod prune;
mod rules;
mod scale;
mod sizes;
mod structural;
mod validate;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::document::{MAX_DEPTH, TooDeep, Value};
use crate::field::{FieldError, FieldErrorKind, Path};

pub use apply::{Form, Place};
pub use columns::PrinterColumn;
pub use correlation::Correlated;
pub use format::{Format, duration, request_uri};
pub use intern::entries as shared_entries;
pub use json_path::JsonPath;
pub use kind::Kind;
pub use metadata::{Malformed, MetadataError};
pub use node::{
    Additional, Compilation, CompiledRule, Expressions, ListType, MapType, Name, Node, OldSelf,
    Outcome, PER_CALL_LIMIT, Program, Property, Rule, Rules, Run, Scope,
};
pub use path::{AccessorError, FoundPath, PathError, dotted, field_path, number_at, text_at};
pub use props::{AdditionalProps, ItemProps, Props};
pub use rules::{Findings, RUNTIME_COST_BUDGET, max_cardinality};
pub use scale::ScalePaths;
pub use sizes::{MAX_REQUEST_SIZE, Size, estimate};
pub use structural::{NotConvertible, convertible, violations};

/// The schema of one version of a kind.
#[derive(Clone, Debug)]
pub struct Schema(Arc<Root>);

#[derive(Debug)]
struct Root {
    node: Arc<Node>,
    /// Dropped after the node, so that a sweep finds it gone.
    _counted: intern::Counted,
}

/// An object that cannot be brought into shape.
#[derive(Debug, thiserror::Error)]
pub enum ConformError {
    #[error(transparent)]
    Type(#[from] AccessorError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// Of a resource inside the object.
    #[error("{0}")]
    Embedded(FieldError),
}

/// An object that is to be judged.
pub struct Judged<'a> {
    pub object: &'a Value,
    /// What is stored now, for an update.
    pub old: Option<&'a Value>,
    /// Only the status is written.
    pub status_only: bool,
    pub scale: Option<&'a ScalePaths>,
    /// Without it no rule is run.
    pub expressions: Option<&'a dyn Expressions>,
    /// What is wrong already (with the type and the metadata), which comes first in the answer.
    pub errors: Vec<FieldError>,
}

impl Schema {
    /// Compiles a document; the errors say because of what it is not a structural schema.
    pub fn from_document(schema: &Value) -> Result<Schema, Vec<FieldError>> {
        let path = Path::new("");
        is_bounded(schema, &path)?;
        let props = Props::of(schema);
        if let Err(error) = convertible(props) {
            return Err(vec![FieldError::invalid(&path, "", error.to_string())]);
        }
        let violations = violations(props, &path);
        match violations.is_empty() {
            true => Ok(Schema::of(build::build(props, true))),
            false => Err(violations),
        }
    }

    /// A schema that says nothing and keeps everything.
    pub fn of_anything() -> Schema {
        let document = crate::document!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        });
        Schema::of(build::build(Props::of(&document), true))
    }

    fn of(node: Arc<Node>) -> Schema {
        Schema(Arc::new(Root {
            node,
            _counted: intern::Counted::new(),
        }))
    }

    /// Where it begins.
    pub fn root(&self) -> &Arc<Node> {
        &self.0.node
    }

    /// Brings an object into the form that objects of this kind have: the metadata that of every
    /// object, unknown fields pruned, nulls without a meaning taken out. Returns the paths of what
    /// was not known, for field validation.
    ///
    /// What is [`Malformed::Dropped`] comes from the store, where it may be older than the rules.
    pub fn conform(
        &self,
        object: &mut Value,
        malformed: Malformed,
    ) -> Result<Vec<String>, ConformError> {
        text_at(object, "kind")?;
        text_at(object, "apiVersion")?;
        let mut unknown = Vec::new();
        if let Value::Object(fields) = object {
            let found = metadata::conform(fields, malformed)?;
            unknown.extend(found.into_iter().map(|name| format!("metadata.{name}")));
        }
        unknown.extend(self.prune(object));
        self.prune_nulls(object);
        let embedded = metadata::coerce(object, self.root(), false, malformed);
        unknown.extend(embedded.map_err(ConformError::Embedded)?);
        let generation = ["metadata", "generation"];
        if malformed == Malformed::Dropped
            && object.has(&["metadata"])
            && object.i64_at(&generation).unwrap_or_default() == 0
        {
            object.set(&generation, 1);
        }
        Ok(unknown)
    }

    /// Takes out unknown fields; their paths, in order.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut pruned = prune::Pruned::default();
        prune::prune(object, Some(self.root()), true, Some(&mut pruned));
        pruned.found.sort();
        pruned.found
    }

    /// Takes out fields that are null, may not be and have no default.
    pub fn prune_nulls(&self, object: &mut Value) {
        defaults::prune_nulls(object, Some(self.root()));
    }

    /// Fills in defaults, on what was sent as on what is read from the store.
    pub fn default(&self, object: &mut Value) {
        defaults::apply(object, self.root());
    }

    /// Judges an object by everything that its kind declares, in the order of upstream's answers.
    pub fn judge(&self, judged: Judged<'_>) -> Findings {
        let Judged {
            object,
            old,
            status_only,
            scale,
            expressions,
            mut errors,
        } = judged;
        let correlated = old.map(|old| Correlated::new(self.root(), object, old));
        match status_only {
            false => {
                let root = Path::new("");
                let before = correlated.as_ref();
                errors.extend(validate::validate(self.root(), object, before, &root));
            }
            true => errors.extend(self.validate_status(object, correlated.as_ref())),
        }
        if let Some(scale) = scale {
            if !status_only {
                errors.extend(scale.validate_spec(object));
            }
            errors.extend(scale.validate_status(object));
        }
        if !status_only {
            errors.extend(self.validate_embedded(object));
        }
        let repeated = self.validate_list_types(object);
        // An object with repeated items may be changed as long as it has them.
        let had_repeated = || old.is_some_and(|old| !self.validate_list_types(old).is_empty());
        if !repeated.is_empty() && !had_repeated() {
            errors.extend(repeated);
        }
        let Some(expressions) = expressions.filter(|_| self.root().has_rules_within()) else {
            return Findings {
                errors,
                warnings: Vec::new(),
            };
        };
        if errors.iter().any(blocks_rules) {
            let detail = "some validation rules were not checked because the object was invalid; \
                          correct the existing errors to complete validation";
            errors.push(FieldError::invalid(&Path::new(""), Value::Null, detail));
            return Findings {
                errors,
                warnings: Vec::new(),
            };
        }
        let mut budget = RUNTIME_COST_BUDGET;
        let findings = rules::evaluate(
            self.root(),
            true,
            &Path::new(""),
            (object, old),
            correlated.as_ref(),
            expressions,
            &mut budget,
        );
        errors.extend(findings.errors);
        Findings {
            errors,
            warnings: findings.warnings,
        }
    }

    /// Judges by the schema alone. With `old`, what did not change is not judged.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let correlated = old.map(|old| Correlated::new(self.root(), object, old));
        let root = Path::new("");
        validate::validate(self.root(), object, correlated.as_ref(), &root)
    }

    fn validate_status(
        &self,
        object: &Value,
        correlated: Option<&Correlated<'_>>,
    ) -> Vec<FieldError> {
        let (Some(node), Some(status)) = (self.root().property("status"), object.get("status"))
        else {
            return Vec::new();
        };
        let before = correlated.and_then(|before| before.field("status"));
        validate::validate(node, status, before.as_ref(), &Path::new("status"))
    }

    /// Checks the metadata of resources inside the object.
    pub fn validate_embedded(&self, object: &Value) -> Vec<FieldError> {
        metadata::validate(object, self.root(), false, &Path::new(""))
    }

    /// Checks lists of type set and map.
    pub fn validate_list_types(&self, object: &Value) -> Vec<FieldError> {
        list_types::validate(object, self.root(), &Path::new(""))
    }

    /// What server-side apply must know of the whole object.
    pub fn place(&self) -> Place {
        Place::root(self.root().clone())
    }

    /// The places with rules, each with its path in the schema, e.g. `properties[spec].items`, and
    /// whether it is the root of a resource.
    pub fn rule_positions(&self) -> Vec<(Path, Arc<Node>, bool)> {
        let mut found = Vec::new();
        positions(self.root(), &Path::new(""), true, &mut found);
        found
    }
}

fn positions(
    node: &Arc<Node>,
    path: &Path,
    is_root: bool,
    found: &mut Vec<(Path, Arc<Node>, bool)>,
) {
    if !node.has_rules_within() {
        return;
    }
    if node.rules().is_some() {
        found.push((path.clone(), node.clone(), is_root));
    }
    for property in node.properties() {
        let path = path.child("properties").key(&property.name);
        let is_root = property.node.is_embedded_resource();
        positions(&property.node, &path, is_root, found);
    }
    let below = [
        (node.items(), "items"),
        (node.additional_schema(), "additionalProperties"),
    ];
    for (below, name) in below {
        if let Some(below) = below {
            positions(
                below,
                &path.child(name),
                below.is_embedded_resource(),
                found,
            );
        }
    }
}

/// Everything that is wrong with the defaults of a schema that is structural. With `pruned` they may
/// have no unknown fields.
pub fn check_defaults(
    schema: &Value,
    path: &Path,
    pruned: bool,
    expressions: Option<&dyn Expressions>,
) -> Vec<FieldError> {
    let node = build::build(Props::of(schema), false);
    check_defaults::check(&node, path, pruned, expressions)
}

/// Whether pruning the defaults of a structural schema changes them.
pub fn has_unpruned_defaults(schema: &Value) -> bool {
    let props = Props::of(schema);
    let (pruned, given) = (build::build(props, true), build::build(props, false));
    !Arc::ptr_eq(&pruned, &given)
}

/// Compiles a structural schema, or a part of one, without checking it again.
pub fn compile_unchecked(schema: Props<'_>) -> Arc<Node> {
    build::build(schema, false)
}

/// Refuses a schema that is nested too deeply to be walked.
pub fn is_bounded(schema: &Value, path: &Path) -> Result<(), Vec<FieldError>> {
    match schema.is_deeper_than(MAX_DEPTH) {
        true => Err(vec![FieldError::invalid_omitted(path, TooDeep.to_string())]),
        false => Ok(()),
    }
}

/// Rules assume that types, sizes and required fields are right.
fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported { .. }
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany { .. }
            | FieldErrorKind::TypeInvalid { .. }
    )
}
