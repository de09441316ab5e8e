//! CustomResourceDefinition: the definition of a kind that is served while the server runs.

mod conversion;
mod cost;
mod form;
mod names;
mod rules;
mod schema;
mod spec;
mod strictness;
mod version;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use self::conversion::Leniency;
use self::form::Form;
use self::spec::Options;
use crate::custom::{self, Expressions, Format, Kind, Props, convertible, violations};
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata;
use crate::resource::Strategy;
use crate::strategy::checks::client_config;
use crate::strategy::terminating_definition;

pub use conversion::bundle_error;
pub use names::{Approval, approval, is_protected};
pub use version::MOST_SELECTABLE;

/// The strategy of the kind. Without `expressions` rules are not compiled.
pub struct CustomResourceDefinition {
    pub expressions: Option<&'static dyn Expressions>,
}

impl Strategy for CustomResourceDefinition {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        let kind = object.str_at(&["spec", "names", "kind"]).to_string();
        if object.has(&["spec", "names"]) {
            object.set_default(&["spec", "names", "singular"], kind.to_lowercase());
            if !kind.is_empty() {
                object.set_default(&["spec", "names", "listKind"], format!("{kind}List"));
            }
        }
        if let Some(spec) = object.get_mut("spec").filter(|spec| !spec.is_null()) {
            spec.set_missing(&["conversion"], crate::document!({"strategy": "None"}));
            if let Some(config) = spec.at_mut(&["conversion", "webhook", "clientConfig"]) {
                client_config::default(config);
            }
        }
        if object.list_at(&["status", "storedVersions"]).is_empty() {
            record_storage_version(object);
        }
    }

    fn prepare_create_content(&self, object: &mut Value) {
        // What is not known yet is written all the same.
        let nothing =
            crate::document!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null});
        object.set(&["status"], nothing);
        record_storage_version(object);
    }

    fn prepare_update_content(&self, new: &mut Value, _old: &Value, subresource: &str) {
        if subresource.is_empty() {
            record_storage_version(new);
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = metadata::validate(object, self.metadata_rules());
        if let Some(error) = wrong_name(object) {
            let last = errors.iter().rposition(|known| known.path == error.path);
            errors.insert(last.map_or(0, |last| last + 1), error);
        }
        errors.extend(self.validate_content(object));
        errors
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let options = Options {
            schemas_required: true,
            valid_types: true,
            structural: true,
            pruned_defaults: true,
            atomic_sets: true,
            keyed_lists: true,
            conversion: Leniency {
                unknown_review_versions: false,
                invalid_bundle: true,
            },
            stored_expressions: BTreeSet::new(),
            unchanged: BTreeSet::new(),
            too_many_selectable: BTreeSet::new(),
            expressions: self
                .expressions
                .map(|expressions| expressions as &dyn Expressions),
        };
        let mut errors = spec::validate(object, options);
        errors.extend(status_errors(object));
        errors.extend(stored_version_errors(object));
        errors.extend(names::validate_approval(object, None));
        errors.extend(preserve_unknown_fields(object, None));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            return status_errors(new);
        }
        let mut errors = spec::validate(new, self.update_options(new, old));
        errors.extend(immutable(new, old));
        errors.extend(status_errors(new));
        errors.extend(stored_version_errors(new));
        errors.extend(names::validate_approval(new, Some(old)));
        errors.extend(preserve_unknown_fields(new, Some(old)));
        errors
    }

    fn has_finalizers_of_its_own(&self, object: &Value) -> bool {
        terminating_definition::stays(object)
    }

    fn prepare_deleting(&self, object: &mut Value) {
        terminating_definition::mark(object);
    }

    fn checks_delete_preconditions_itself(&self) -> bool {
        true
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, subresource: &str) -> Vec<String> {
        if !subresource.is_empty() {
            return Vec::new();
        }
        let before: BTreeSet<&str> = old
            .map(unknown_formats)
            .unwrap_or_default()
            .into_iter()
            .collect();
        let formats = unknown_formats(new).into_iter();
        formats
            .filter(|format| !before.contains(format))
            .map(|format| format!("unrecognized format {format:?}"))
            .collect()
    }
}

impl CustomResourceDefinition {
    /// An update need not keep what the stored definition does not keep.
    fn update_options<'a>(&'a self, new: &'a Value, old: &'a Value) -> Options<'a> {
        let (form, old_form) = (Form::of(new), Form::of(old));
        let webhook = old.at(&["spec", "conversion", "webhook"]);
        let reviews = webhook.map_or(&[][..], |hook| hook.list_at(&["conversionReviewVersions"]));
        let config = webhook.and_then(|webhook| webhook.get("clientConfig"));
        let wrong_bundle =
            config.is_some_and(|config| conversion::bundle_error(config, &Path::new("")).is_some());
        let old_schemas = old_form.schema_by_version();
        let schemas = form.schema_by_version();
        let unchanged = schemas
            .iter()
            .filter_map(|(name, schema)| (old_schemas.get(name) == Some(schema)).then_some(*name));
        let mut stored_expressions = BTreeSet::new();
        old_form.has_schema_with(|schema| {
            for rule in schema.rules() {
                stored_expressions.insert(rule.str_at(&["rule"]));
                stored_expressions.insert(rule.str_at(&["messageExpression"]));
            }
            false
        });
        let lists_nothing_odd =
            |schema: Props<'_>| !schema::keyed_list_errors(schema, &Path::new("")).is_empty();
        let types = [
            "", "array", "boolean", "integer", "number", "object", "string",
        ];
        Options {
            schemas_required: old_form.schemas().count() > 0
                && old_schemas
                    .values()
                    .all(|schema| schema.is_some_and(|schema| schema.has(&["openAPIV3Schema"]))),
            valid_types: !old_form.has_schema_with(|schema| !types.contains(&schema.kind())),
            structural: old_form.schemas().all(is_structural),
            pruned_defaults: !old_form
                .schemas()
                .any(|schema| is_structural(schema) && custom::has_unpruned_defaults(schema)),
            atomic_sets: !old_form.has_schema_with(|schema| {
                schema.list_type() == Some("set")
                    && schema
                        .item()
                        .is_some_and(|item| schema::not_atomic(item).is_some())
            }),
            keyed_lists: !old_form.has_schema_with(lists_nothing_odd),
            conversion: Leniency {
                unknown_review_versions: !conversion::speaks_known_version(reviews),
                invalid_bundle: !is_established(old) || wrong_bundle,
            },
            stored_expressions,
            unchanged: unchanged.collect(),
            too_many_selectable: too_many_selectable(&form, &old_form),
            expressions: self
                .expressions
                .map(|expressions| expressions as &dyn Expressions),
        }
    }
}

fn is_structural(schema: &Value) -> bool {
    let props = Props::of(schema);
    convertible(props).is_ok() && violations(props, &Path::new("")).is_empty()
}

fn too_many_selectable<'a>(form: &Form<'a>, old: &Form<'a>) -> BTreeSet<&'a str> {
    let many = |fields: &Value| fields.as_array().is_some_and(|f| f.len() > MOST_SELECTABLE);
    let mut found = BTreeSet::new();
    if let (Some(fields), Some(old_fields)) = (form.selectable_fields(), old.selectable_fields())
        && many(old_fields)
        && fields == old_fields
    {
        found.insert("");
    }
    for version in form.versions() {
        let name = version.str_at(&["name"]);
        let before = old
            .versions()
            .iter()
            .find(|old| old.str_at(&["name"]) == name);
        let before = before.and_then(|before| old.of_version(before, "selectableFields"));
        if let (Some(fields), Some(before)) = (form.of_version(version, "selectableFields"), before)
            && many(before)
            && fields == before
        {
            found.insert(name);
        }
    }
    found
}

/// Whether the kind is served.
pub fn is_established(definition: &Value) -> bool {
    let mut conditions = definition.list_at(&["status", "conditions"]).iter();
    conditions.any(|condition| {
        condition.str_at(&["type"]) == "Established" && condition.str_at(&["status"]) == "True"
    })
}

/// Notes that objects are stored in the storage version from now on.
fn record_storage_version(object: &mut Value) {
    let versions = object.list_at(&["spec", "versions"]).iter();
    let mut stored = versions.filter(|version| version.bool_at(&["storage"]));
    let Some(name) = stored
        .next()
        .map(|version| version.str_at(&["name"]).to_string())
    else {
        return;
    };
    let known = object.list_at(&["status", "storedVersions"]);
    if !known.iter().any(|known| known.as_str() == Some(&name)) {
        let mut known = known.to_vec();
        known.push(name.into());
        object.set(&["status", "storedVersions"], known);
    }
}

fn wrong_name(object: &Value) -> Option<FieldError> {
    let name = object.str_at(&["metadata", "name"]);
    let plural = object.str_at(&["spec", "names", "plural"]);
    let wanted = format!("{plural}.{}", object.str_at(&["spec", "group"]));
    (!name.is_empty() && name != wanted).then(|| {
        let path = Path::new("metadata").child("name");
        FieldError::invalid(&path, name, "must be spec.names.plural+\".\"+spec.group")
    })
}

fn immutable(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut fields: Vec<&[&str]> = Vec::new();
    if is_established(old) {
        fields.extend([&["scope"][..], &["names", "kind"]]);
    }
    fields.extend([&["group"][..], &["names", "plural"]]);
    let mut errors = Vec::new();
    for names in fields {
        let at = |object: &Value| {
            let spec = object.get("spec");
            spec.map_or(String::new(), |spec| spec.str_at(names).to_string())
        };
        let path = names
            .iter()
            .fold(Path::new("spec"), |path, name| path.child(name));
        if at(new) != at(old) {
            errors.push(FieldError::invalid(&path, at(new), "field is immutable"));
        }
    }
    errors
}

fn status_errors(object: &Value) -> Vec<FieldError> {
    let path = Path::new("status").child("acceptedNames");
    match object.at(&["status", "acceptedNames"]) {
        Some(accepted) => names::validate(accepted, &path),
        None => Vec::new(),
    }
}

/// Versions in which objects may be stored stay.
fn stored_version_errors(object: &Value) -> Vec<FieldError> {
    let path = Path::new("status").child("storedVersions");
    let stored = object.list_at(&["status", "storedVersions"]);
    if stored.is_empty() {
        let why = "must have at least one stored version";
        let shown = object.at(&["status", "storedVersions"]).cloned();
        return vec![FieldError::invalid(&path, shown.unwrap_or_default(), why)];
    }
    let mut errors = Vec::new();
    let versions = object.list_at(&["spec", "versions"]);
    // Each counts once, so that a repeated name is not found again.
    let mut left: BTreeSet<&str> = stored.iter().filter_map(Value::as_str).collect();
    for version in versions {
        let name = version.str_at(&["name"]);
        if !left.remove(name) && version.bool_at(&["storage"]) {
            let why = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(&path, stored.to_vec(), why));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        if !versions
            .iter()
            .any(|version| version.str_at(&["name"]) == name)
        {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must \
                 remain in spec.versions until a storage migration ensures no data remains \
                 persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(&path.index(index), name, why));
        }
    }
    errors
}

fn preserve_unknown_fields(new: &Value, old: Option<&Value>) -> Option<FieldError> {
    let at = ["spec", "preserveUnknownFields"];
    if old.is_some_and(|old| old.bool_at(&at)) || !new.bool_at(&at) {
        return None;
    }
    let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
               spec.versions[*].schema instead";
    let path = Path::new("spec").child("preserveUnknownFields");
    Some(FieldError::invalid(&path, true, why))
}

/// The formats in the schemas of a definition that mean nothing.
fn unknown_formats(definition: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    Form::of(definition).has_schema_with(|schema| {
        let format = schema.text("format");
        let known = Kind::parse(schema.kind()).and_then(|kind| Format::checked(kind, format));
        if !format.is_empty() && known.is_none() {
            found.push(format);
        }
        false
    });
    found
}
