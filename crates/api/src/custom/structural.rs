//! Whether a schema is structural: every field has its type outside of `allOf`, `anyOf`, `oneOf` and
//! `not`, and below these stands nothing but conditions on values.

use super::props::{AdditionalProps, ItemProps, Props};
use crate::custom::pattern;
use crate::field::{FieldError, Path};

/// A schema has something that has no meaning here at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotConvertible {
    #[error("OpenAPIV3Schema '{0}' is not supported")]
    Unsupported(&'static str),
    #[error("OpenAPIV3Schema 'items' must be a schema, but is an array")]
    SeveralItems,
    #[error("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined")]
    PreserveUnknownFields,
}

/// Whether the schema can be converted at all, which is asked before anything else.
pub fn convertible(schema: Props<'_>) -> Result<(), NotConvertible> {
    let texts = [("id", "id"), ("$schema", "schema"), ("$ref", "$ref")];
    for (field, name) in texts {
        if !schema.text(field).is_empty() {
            return Err(NotConvertible::Unsupported(name));
        }
    }
    for name in ["patternProperties", "dependencies"] {
        if schema.has_named(name) {
            return Err(NotConvertible::Unsupported(name));
        }
    }
    if schema.get("additionalItems").is_some() {
        return Err(NotConvertible::Unsupported("additionalItems"));
    }
    if schema.has_named("definitions") {
        return Err(NotConvertible::Unsupported("definitions"));
    }
    if let Some(below) = schema.negated() {
        convertible(below)?;
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        schema.schemas(name).try_for_each(convertible)?;
    }
    let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
    if preserve.and_then(|flag| flag.as_bool()) == Some(false) {
        return Err(NotConvertible::PreserveUnknownFields);
    }
    match schema.items() {
        Some(ItemProps::Several(schemas)) if !schemas.is_empty() => {
            return Err(NotConvertible::SeveralItems);
        }
        Some(ItemProps::One(below)) => convertible(below)?,
        _ => {}
    }
    schema
        .named("properties")
        .try_for_each(|(_, below)| convertible(below))?;
    schema.additional_schema().map_or(Ok(()), convertible)
}

/// Everything because of which a schema is not structural, in the order of the texts.
pub fn violations(schema: Props<'_>, path: &Path) -> Vec<FieldError> {
    let mut checker = Checker { errors: Vec::new() };
    checker.invariants(schema, Level::Root, path);
    checker.completeness(schema, Some(schema), path, path);
    let mut errors = checker.errors;
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

struct Checker {
    errors: Vec<FieldError>,
}

impl Checker {
    fn forbid(&mut self, path: Path, why: &str) {
        self.errors.push(FieldError::forbidden(&path, why));
    }

    fn require(&mut self, path: Path, why: &str) {
        self.errors.push(FieldError::required(&path, why));
    }

    fn invariants(&mut self, schema: Props<'_>, level: Level, path: &Path) {
        if schema.kind() == "array" && schema.item().is_none() {
            self.require(path.child("items"), "must be specified");
        }
        if let Some(below) = schema.item() {
            self.invariants(below, Level::Item, &path.child("items"));
        }
        for (name, below) in schema.named("properties") {
            self.invariants(below, Level::Field, &path.child("properties").key(name));
        }
        let additional = path.child("additionalProperties");
        if let Some(declared) = schema.additional() {
            if level == Level::Root {
                self.forbid(additional.clone(), "must not be used at the root");
            }
            if let AdditionalProps::Schema(below) = declared {
                self.invariants(below, Level::Field, &additional);
            }
        }
        let is_int_or_string = schema.is_int_or_string();
        let embedded = schema.is_embedded_resource();
        let preserves = schema.preserves_unknown_fields();
        for (set, name) in [
            (preserves, "x-kubernetes-preserve-unknown-fields"),
            (embedded, "x-kubernetes-embedded-resource"),
        ] {
            if is_int_or_string && set {
                let why = "must be false if x-kubernetes-int-or-string is true";
                self.errors
                    .push(FieldError::invalid(&path.child(name), true, why));
            }
        }
        let skip_any_of = is_int_or_string_pattern(schema);
        let skip_first = schema
            .schemas("allOf")
            .next()
            .is_some_and(is_int_or_string_pattern);
        self.values(schema, skip_any_of, skip_first, path);
        self.types(schema, level, path);
        if embedded && schema.additional().is_some() {
            let why = "must not be used if x-kubernetes-embedded-resource is set";
            self.forbid(additional, why);
        }
        if level == Level::Root && !matches!(schema.kind(), "" | "object") {
            let why = "must be object at the root";
            self.errors
                .push(FieldError::invalid(&path.child("type"), schema.kind(), why));
        }
        self.metadata(schema, level, path);
        if embedded && !preserves && !schema.has_named("properties") {
            let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                       x-kubernetes-preserve-unknown-fields";
            self.require(path.child("properties"), why);
        }
    }

    fn types(&mut self, schema: Props<'_>, level: Level, path: &Path) {
        let path = path.child("type");
        let kind = schema.kind();
        if schema.is_embedded_resource() && kind != "object" {
            let why = "must be object if x-kubernetes-embedded-resource is true";
            match kind {
                "" => self.require(path, why),
                other => self.errors.push(FieldError::invalid(&path, other, why)),
            }
        } else if kind.is_empty()
            && !schema.is_int_or_string()
            && !schema.preserves_unknown_fields()
        {
            self.require(
                path,
                match level {
                    Level::Root => "must not be empty at the root",
                    Level::Item => "must not be empty for specified array items",
                    Level::Field => "must not be empty for specified object fields",
                },
            );
        }
    }

    /// The types of `kind`, `apiVersion` and `metadata` are given.
    fn metadata(&mut self, schema: Props<'_>, level: Level, path: &Path) {
        let is_resource = level == Level::Root || schema.is_embedded_resource();
        let path = path.child("properties");
        for name in ["kind", "apiVersion"] {
            if let Some(below) = schema.property(name)
                && is_resource
                && below.kind() != "string"
            {
                let path = path.key(name).child("type");
                self.errors
                    .push(FieldError::invalid(&path, below.kind(), "must be string"));
            }
        }
        let Some(metadata) = schema.property("metadata") else {
            return;
        };
        let path = path.key("metadata");
        if is_resource && metadata.kind() != "object" {
            let kind = metadata.kind();
            self.errors.push(FieldError::invalid(
                &path.child("type"),
                kind,
                "must be object",
            ));
        }
        let mut names = metadata.named("properties").map(|(name, _)| name);
        let only_names = names.all(|name| matches!(name, "name" | "generateName"));
        let only = metadata.set_fields().all(|(name, _)| match name {
            "type" | "default" => true,
            "properties" => only_names,
            _ => false,
        });
        if level == Level::Root && !only {
            let why = "must not specify anything other than name and generateName, but metadata is \
                       implicitly specified";
            self.forbid(path, why);
        }
    }

    /// The conditions on values of a schema, nested or not.
    fn values(&mut self, schema: Props<'_>, skip_any_of: bool, skip_first: bool, path: &Path) {
        if !skip_any_of {
            for (index, below) in schema.schemas("anyOf").enumerate() {
                self.nested(below, false, &path.child("anyOf").index(index));
            }
        }
        for (index, below) in schema.schemas("allOf").enumerate() {
            let skip = skip_first && index == 0;
            self.nested(below, skip, &path.child("allOf").index(index));
        }
        for (index, below) in schema.schemas("oneOf").enumerate() {
            self.nested(below, false, &path.child("oneOf").index(index));
        }
        if let Some(below) = schema.negated() {
            self.nested(below, false, &path.child("not"));
        }
        let text = schema.text("pattern");
        if !text.is_empty()
            && let Err(error) = pattern::check(text)
        {
            let why = format!("must be a valid regular expression, but isn't: {error}");
            self.errors
                .push(FieldError::invalid(&path.child("pattern"), text, why));
        }
    }

    fn nested(&mut self, schema: Props<'_>, skip_any_of: bool, path: &Path) {
        self.values(schema, skip_any_of, false, path);
        if let Some(below) = schema.item() {
            self.nested(below, false, &path.child("items"));
        }
        for (name, below) in schema.named("properties") {
            self.nested(below, false, &path.child("properties").key(name));
        }
        const EMPTY: &str = "must be empty to be structural";
        const UNDEFINED: &str = "must be undefined to be structural";
        const FALSE: &str = "must be false to be structural";
        let is_declared = |name: &str| match schema.get(name) {
            None => false,
            Some(value) => match value.as_bool() {
                Some(flag) => flag,
                None => {
                    value.as_str() != Some("") && value.as_array().is_none_or(|l| !l.is_empty())
                }
            },
        };
        for (name, why) in [
            ("type", EMPTY),
            ("additionalProperties", UNDEFINED),
            ("default", UNDEFINED),
            ("title", EMPTY),
            ("description", EMPTY),
            ("nullable", FALSE),
            ("x-kubernetes-preserve-unknown-fields", FALSE),
            ("x-kubernetes-embedded-resource", FALSE),
            ("x-kubernetes-int-or-string", FALSE),
            ("x-kubernetes-list-map-keys", EMPTY),
            ("x-kubernetes-list-type", UNDEFINED),
            ("x-kubernetes-map-type", UNDEFINED),
            ("x-kubernetes-validations", EMPTY),
        ] {
            let found = match name {
                "default" => schema.default().is_some(),
                "x-kubernetes-list-type" => schema.list_type().is_some(),
                "x-kubernetes-map-type" => schema.map_type().is_some(),
                other => is_declared(other),
            };
            if found {
                self.forbid(path.child(name), why);
            }
        }
        if schema.property("metadata").is_some() {
            let why = "must not be specified in a nested context";
            self.forbid(path.child("properties").key("metadata"), why);
        }
    }

    /// What a condition mentions must also be declared outside of conditions.
    fn completeness(
        &mut self,
        values: Props<'_>,
        schema: Option<Props<'_>>,
        path: &Path,
        from: &Path,
    ) {
        if let Some(below) = values.negated() {
            self.is_declared(below, schema, path, &from.child("not"));
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            for (index, below) in values.schemas(name).enumerate() {
                self.is_declared(below, schema, path, &from.child(name).index(index));
            }
        }
    }

    fn is_declared(
        &mut self,
        nested: Props<'_>,
        schema: Option<Props<'_>>,
        path: &Path,
        from: &Path,
    ) {
        let Some(schema) = schema else {
            self.require(path.clone(), &format!("because it is defined in {from}"));
            return;
        };
        self.completeness(nested, Some(schema), path, from);
        if let Some(below) = nested.item() {
            let from = from.child("items");
            self.is_declared(below, schema.item(), &path.child("items"), &from);
        }
        for (name, below) in nested.named("properties") {
            let path = path.child("properties").key(name);
            let from = from.child("properties").key(name);
            self.is_declared(below, schema.property(name), &path, &from);
        }
    }
}

/// `anyOf: [{type: integer}, {type: string}]` and nothing else, which may accompany
/// `x-kubernetes-int-or-string`.
fn is_int_or_string_pattern(schema: Props<'_>) -> bool {
    let is_only = |schema: Props<'_>, kind: &str| {
        schema.kind() == kind && schema.set_fields().all(|(name, _)| name == "type")
    };
    let mut schemas = schema.schemas("anyOf");
    match (schemas.next(), schemas.next(), schemas.next()) {
        (Some(first), Some(second), None) => is_only(first, "integer") && is_only(second, "string"),
        _ => false,
    }
}
