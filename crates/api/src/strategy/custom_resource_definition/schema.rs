//! What a schema in a definition may say, place by place.

use super::cost::{Cardinality, TotalCost};
use super::rules;
use super::strictness::Strictness;
use crate::custom::{AdditionalProps, ItemProps, Props};
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::repeats::Seen;

/// What is known from above about a place.
#[derive(Clone)]
struct Context {
    /// Why there may be no default here; "" for no reason.
    defaults_forbidden: Option<String>,
    inside_metadata: bool,
    /// The nearest place above whose parts have no counterpart in the old object.
    uncorrelatable: Option<Path>,
    /// How often values of this place can be there; none where rules do not count.
    cardinality: Option<Cardinality>,
}

/// What is wrong with a schema, errors about rules last.
pub struct Checked {
    pub errors: Vec<FieldError>,
    pub rule_errors: Vec<FieldError>,
}

/// Checks a schema and all below it. Rules are compiled only `with_rules`.
pub fn check(
    schema: Props<'_>,
    path: &Path,
    strictness: Strictness<'_>,
    with_rules: bool,
    total: &mut TotalCost,
) -> Checked {
    let context = Context {
        defaults_forbidden: None,
        inside_metadata: false,
        uncorrelatable: None,
        cardinality: with_rules.then_some(Cardinality::ONE),
    };
    let mut checker = Checker {
        strictness,
        total,
        checked: Checked {
            errors: Vec::new(),
            rule_errors: Vec::new(),
        },
    };
    checker.visit(schema, path, &context, true);
    checker.checked
}

struct Checker<'a> {
    strictness: Strictness<'a>,
    total: &'a mut TotalCost,
    checked: Checked,
}

impl Checker<'_> {
    fn forbid(&mut self, path: &Path, name: &str, why: &str) {
        self.push(FieldError::forbidden(&path.child(name), why));
    }

    fn push(&mut self, error: FieldError) {
        self.checked.errors.push(error);
    }

    fn visit(&mut self, schema: Props<'_>, path: &Path, context: &Context, is_root: bool) {
        let before = self.checked.errors.len();
        self.unsupported(schema, path, context);
        if schema.flag("uniqueItems") {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes \
                       quadratic";
            self.forbid(path, "uniqueItems", why);
        }
        self.below(schema, path, context, is_root);
        let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
        if preserve.and_then(Value::as_bool) == Some(false) {
            let path = path.child("x-kubernetes-preserve-unknown-fields");
            self.push(FieldError::invalid(
                &path,
                false,
                "must be true or undefined",
            ));
        }
        self.topology(schema, path);
        if self.strictness.keyed_lists {
            self.checked.errors.extend(keyed_list_errors(schema, path));
        }
        if schema.rules().is_empty() {
            return;
        }
        self.checked
            .errors
            .extend(rules::declaration_errors(schema, path));
        // Rules are only compiled where nothing is wrong at this place or below.
        if let (Some(cardinality), true) =
            (context.cardinality, self.checked.errors.len() == before)
        {
            let place = rules::Place {
                schema,
                path,
                is_root: is_root || schema.is_embedded_resource(),
                cardinality,
                uncorrelatable: context.uncorrelatable.as_ref(),
            };
            let errors = rules::compile_errors(&place, self.strictness, self.total);
            self.checked.rule_errors.extend(errors);
        }
    }

    fn unsupported(&mut self, schema: Props<'_>, path: &Path, context: &Context) {
        const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
        let kind = schema.kind();
        if self.strictness.valid_types && !kind.is_empty() && !TYPES.contains(&kind) {
            self.push(FieldError::not_supported(&path.child("type"), kind, &TYPES));
        }
        if let (Some(reason), true) = (&context.defaults_forbidden, schema.default().is_some()) {
            let why = match reason.as_str() {
                "" => "must not be set".to_string(),
                reason => format!("must not be set {reason}"),
            };
            self.forbid(path, "default", &why);
        }
        if !schema.text("id").is_empty() {
            self.forbid(path, "id", "id is not supported");
        }
        if schema.get("additionalItems").is_some() {
            self.forbid(path, "additionalItems", "additionalItems is not supported");
        }
        for name in ["patternProperties", "definitions"] {
            if schema.has_named(name) {
                self.forbid(path, name, &format!("{name} is not supported"));
            }
        }
        for name in ["dependencies", "$ref"] {
            if schema.get(name).is_some() {
                self.forbid(path, name, &format!("{name} is not supported"));
            }
        }
        if kind == "null" {
            let why = "type cannot be set to null, use nullable as an alternative";
            self.forbid(path, "type", why);
        }
        if matches!(schema.items(), Some(ItemProps::Several(schemas)) if !schemas.is_empty()) {
            self.forbid(
                path,
                "items",
                "items must be a schema object and not an array",
            );
        }
        if context.inside_metadata && schema.is_embedded_resource() {
            let why = "must not be used inside of resource meta";
            self.forbid(path, "x-kubernetes-embedded-resource", why);
        }
    }

    fn below(&mut self, schema: Props<'_>, path: &Path, context: &Context, is_root: bool) {
        let cardinality = context.cardinality.map(|above| above.below(schema));
        if let Some(additional) = schema.additional() {
            let exclusive = !matches!(additional, AdditionalProps::Allowed(true));
            if schema.has_named("properties") && exclusive {
                let why = "additionalProperties and properties are mutual exclusive";
                self.forbid(path, "additionalProperties", why);
            }
            if let AdditionalProps::Schema(below) = additional {
                let mut context = Context {
                    cardinality,
                    ..context.clone()
                };
                if context.inside_metadata {
                    let reason = "inside additionalProperties applying to object metadata";
                    context.defaults_forbidden = Some(reason.to_string());
                }
                self.visit(below, &path.child("additionalProperties"), &context, false);
            }
        }
        let is_resource = is_root || schema.is_embedded_resource();
        for (name, below) in schema.named("properties") {
            let mut context = Context {
                cardinality,
                ..context.clone()
            };
            if !matches!(schema.map_type(), None | Some("granular" | "atomic")) {
                context.uncorrelatable.get_or_insert_with(|| path.clone());
            }
            if is_resource && matches!(name, "metadata" | "kind" | "apiVersion") {
                context.inside_metadata = true;
                if is_root {
                    context.defaults_forbidden = Some(format!("in top-level {name}"));
                }
            }
            let path = path.child("properties").key(name);
            self.visit(below, &path, &context, false);
        }
        let nested = Context {
            cardinality: None,
            ..context.clone()
        };
        if let Some(below) = schema.negated() {
            self.visit(below, &path.child("not"), &nested, false);
        }
        for name in ["allOf", "oneOf", "anyOf"] {
            for (index, below) in schema.schemas(name).enumerate() {
                self.visit(below, &path.child(name).index(index), &nested, false);
            }
        }
        for (name, below) in schema.named("definitions") {
            let path = path.child("definitions").key(name);
            self.visit(below, &path, &nested, false);
        }
        let mut items = Context {
            cardinality,
            ..context.clone()
        };
        if schema.list_type() != Some("map") {
            items.uncorrelatable.get_or_insert_with(|| path.clone());
        }
        match schema.items() {
            None => {}
            Some(ItemProps::One(below)) => {
                self.visit(below, &path.child("items"), &items, false);
            }
            Some(ItemProps::Several(schemas)) => {
                for (index, below) in schemas.iter().enumerate() {
                    let path = path.child("items").index(index);
                    self.visit(Props::of(below), &path, &items, false);
                }
            }
        }
    }

    /// List and map types.
    fn topology(&mut self, schema: Props<'_>, path: &Path) {
        let kind_path = path.child("type");
        let wrong_kind = |why: &str| match schema.kind() {
            "" => FieldError::required(&kind_path, why),
            kind => FieldError::invalid(&kind_path, kind, why),
        };
        if let Some(map_type) = schema.map_type() {
            if schema.kind() != "object" {
                self.push(wrong_kind(
                    "must be object if x-kubernetes-map-type is specified",
                ));
            }
            let known = ["atomic", "granular"];
            if !known.contains(&map_type) {
                let path = path.child("x-kubernetes-map-type");
                self.push(FieldError::not_supported(&path, map_type, &known));
            }
        }
        let type_path = path.child("x-kubernetes-list-type");
        let items_path = path.child("items");
        if let Some(list_type) = schema.list_type() {
            if schema.kind() != "array" {
                self.push(wrong_kind(
                    "must be array if x-kubernetes-list-type is specified",
                ));
            } else if let (true, "set", Some(item)) =
                (self.strictness.atomic_sets, list_type, schema.item())
                && let Some(name) = not_atomic(item)
            {
                let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
                // Upstream shows the list type in both cases.
                let shown = item.list_type().map_or(Value::Null, Value::from);
                self.push(FieldError::invalid(&items_path.child(name), shown, why));
            }
            let known = ["atomic", "set", "map"];
            if !known.contains(&list_type) {
                self.push(FieldError::not_supported(&type_path, list_type, &known));
            }
        }
        if schema.list_map_keys().next().is_some() {
            let why = "must be map if x-kubernetes-list-map-keys is non-empty";
            match schema.list_type() {
                None => self.push(FieldError::required(&type_path, why)),
                Some("map") => {}
                Some(other) => self.push(FieldError::invalid(&type_path, other, why)),
            }
        }
        if schema.list_type() == Some("map") {
            self.keyed_list(schema, path);
        }
    }

    fn keyed_list(&mut self, schema: Props<'_>, path: &Path) {
        let keys_path = path.child("x-kubernetes-list-map-keys");
        let items_path = path.child("items");
        if schema.list_map_keys().next().is_none() {
            let why = "must not be empty if x-kubernetes-list-type is map";
            self.push(FieldError::required(&keys_path, why));
        }
        let item = match schema.items() {
            None => {
                let why = "must have a schema if x-kubernetes-list-type is map";
                self.push(FieldError::required(&items_path, why));
                return;
            }
            Some(ItemProps::Several(schemas)) => {
                let why = "must only have a single schema if x-kubernetes-list-type is map";
                let shown = crate::document!({"Schema": null, "JSONSchemas": schemas.to_vec()});
                self.push(FieldError::invalid(&items_path, shown, why));
                return;
            }
            Some(ItemProps::One(item)) => item,
        };
        if item.kind() != "object" {
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            self.push(FieldError::invalid(
                &items_path.child("type"),
                item.kind(),
                why,
            ));
            return;
        }
        let keys: Vec<&str> = schema.list_map_keys().collect();
        let shown = || Value::Array(keys.iter().map(|key| Value::from(*key)).collect());
        let mut seen = Seen::new();
        for key in &keys {
            match item.property(key) {
                None => {
                    let why = "entries must all be names of item properties";
                    self.push(FieldError::invalid(&keys_path, shown(), why));
                }
                Some(property) if matches!(property.kind(), "array" | "object") => {
                    let why =
                        "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let path = items_path.child("properties").key(key).child("type");
                    self.push(FieldError::invalid(&path, item.kind(), why));
                }
                Some(_) => {}
            }
            if !seen.insert(*key) {
                let why = "must not contain duplicate entries";
                self.push(FieldError::invalid(&keys_path, shown(), why));
            }
        }
    }
}

/// The field because of which the items of a set are not atomic.
pub fn not_atomic(item: Props<'_>) -> Option<&'static str> {
    match item.kind() {
        "array" => match item.list_type() {
            None | Some("atomic") => None,
            Some(_) => Some("x-kubernetes-list-type"),
        },
        "object" => (item.map_type() != Some("atomic")).then_some("x-kubernetes-map-type"),
        _ => None,
    }
}

/// Items of sets and maps are not null, and the keys of a map are always there.
pub fn keyed_list_errors(schema: Props<'_>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (Some(item), Some(list_type @ ("set" | "map"))) = (schema.item(), schema.list_type())
    else {
        return errors;
    };
    let path = path.child("items");
    if item.nullable() {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(&path.child("nullable"), why));
    }
    if list_type == "set" {
        return errors;
    }
    for key in schema.list_map_keys() {
        let Some(property) = item.property(key) else {
            continue;
        };
        let path = path.child("properties").key(key);
        let is_required = item.texts("required").any(|name| name == key);
        if !is_required && property.get("default").is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or \
                       be a required property";
            errors.push(FieldError::required(&path.child("default"), why));
        }
        if property.nullable() {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(&path.child("nullable"), why));
        }
    }
    errors
}
