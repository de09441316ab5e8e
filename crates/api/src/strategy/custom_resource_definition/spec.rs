//! The spec of a definition: group, scope, versions and what each of them declares.

use std::collections::BTreeSet;

use super::conversion::{self, Leniency};
use super::cost::TotalCost;
use super::form::Form;
use super::schema;
use super::strictness::Strictness;
use super::{names, version};
use crate::custom::{self, Expressions, Props, convertible, violations};
use crate::document::Value;
use crate::field::{FieldError, Path, go_struct};
use crate::metadata::names::{dns_1035_label, dns_subdomain};
use crate::repeats::Seen;
use crate::strategy::checks;

/// What a spec is held to. A new definition is held to all of it; an update is not held to what the
/// stored one does not keep either.
pub struct Options<'a> {
    pub schemas_required: bool,
    pub valid_types: bool,
    pub structural: bool,
    pub pruned_defaults: bool,
    pub atomic_sets: bool,
    pub keyed_lists: bool,
    pub conversion: Leniency,
    /// Rules and message expressions that were accepted before.
    pub stored_expressions: BTreeSet<&'a str>,
    /// The versions whose schema is as it was.
    pub unchanged: BTreeSet<&'a str>,
    /// The versions that may have too many selectable fields; "" for all together.
    pub too_many_selectable: BTreeSet<&'a str>,
    pub expressions: Option<&'a dyn Expressions>,
}

pub fn validate(definition: &Value, mut options: Options<'_>) -> Vec<FieldError> {
    let form = Form::of(definition);
    let (spec, path) = (form.spec, Path::new("spec"));
    let mut errors = Vec::new();
    group(spec.str_at(&["group"]), &path.child("group"), &mut errors);
    let scopes = ["Cluster", "Namespaced"];
    match spec.str_at(&["scope"]) {
        "" => errors.push(FieldError::required(&path.child("scope"), "")),
        scope => errors.extend(checks::supported(scope, &scopes, &path.child("scope"))),
    }
    let preserves = spec.bool_at(&["preserveUnknownFields"]);
    let has_defaults = form.has_schema_with(|schema| schema.get("default").is_some());
    options.structural |= !preserves || has_defaults || form.has_schema_with(has_extensions);
    missing_schemas(&form, &options, preserves, &path, &mut errors);
    if has_defaults && preserves {
        let why = "must be false in order to use defaults in the schema";
        let path = path.child("preserveUnknownFields");
        errors.push(FieldError::invalid(&path, true, why));
    }
    versions(&form, &options, &path.child("versions"), &mut errors);
    let names_path = path.child("names");
    for name in ["plural", "singular", "kind", "listKind"] {
        if spec.str_at(&["names", name]).is_empty() {
            errors.push(FieldError::required(&names_path.child(name), ""));
        }
    }
    errors.extend(names::validate(
        spec.get("names").unwrap_or(&Value::Null),
        &names_path,
    ));
    let first = spec.list_at(&["versions"]).first();
    let first = first.map_or("", |version| version.str_at(&["name"]));
    let has_status = |subresources: Option<&Value>| {
        subresources.is_some_and(|declared| declared.has(&["status"]))
    };
    let any_status = form
        .versions()
        .iter()
        .any(|version| has_status(form.subresources_of(version)));
    let validation = form.validation();
    let unchanged = options.unchanged.contains(first);
    let at = path.child("validation");
    errors.extend(validation_errors(
        validation, any_status, unchanged, &options, &at,
    ));
    let at = path.child("subresources");
    errors.extend(version::subresources(form.subresources(), &at));
    for (index, column) in form.columns().iter().enumerate() {
        let at = path.child("additionalPrinterColumns").index(index);
        errors.extend(version::column(column, &at));
    }
    if let Some(fields) = form.selectable_fields() {
        let at = path.child("selectableFields");
        match validation {
            None => {
                let why = "may only be set when validations.schema is included";
                errors.push(FieldError::invalid(&at, "", why));
            }
            Some(schema) => errors.extend(selectable(fields, schema, &path, "", &options)),
        }
    }
    let at = path.child("conversion");
    errors.extend(conversion::validate(spec, options.conversion, &at));
    errors
}

fn group(group: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let wrong = dns_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid(path, group, wrong.join(",")));
    } else if !group.contains('.') {
        let why = "should be a domain with at least one dot";
        errors.push(FieldError::invalid(path, group, why));
    }
}

fn has_extensions(schema: Props<'_>) -> bool {
    schema.is_embedded_resource()
        || schema.get("x-kubernetes-preserve-unknown-fields").is_some()
        || schema.is_int_or_string()
        || schema.list_map_keys().next().is_some()
        || schema.list_type().is_some()
        || !schema.rules().is_empty()
}

fn has_schema(validation: Option<&Value>) -> bool {
    validation.is_some_and(|validation| validation.has(&["openAPIV3Schema"]))
}

fn missing_schemas(
    form: &Form<'_>,
    options: &Options<'_>,
    preserves: bool,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    if has_schema(form.validation()) {
        return;
    }
    for (index, version) in form.versions().iter().enumerate() {
        let path = path.child("versions").index(index);
        let path = path.child("schema").child("openAPIV3Schema");
        if has_schema(form.of_version(version, "schema")) {
            continue;
        }
        if options.schemas_required {
            errors.push(FieldError::required(&path, ""));
        } else if !preserves && version.bool_at(&["served"]) {
            let why = "because otherwise all fields are pruned";
            errors.push(FieldError::required(&path, why));
        }
    }
}

fn versions(form: &Form<'_>, options: &Options<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen = Seen::new();
    let mut unique = true;
    let mut stored = 0;
    for (index, version) in form.versions().iter().enumerate() {
        let name = version.str_at(&["name"]);
        stored += usize::from(version.bool_at(&["storage"]));
        unique &= seen.insert(name);
        let path = path.index(index);
        let wrong = dns_1035_label(name);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(
                &path.child("name"),
                name,
                wrong.join(","),
            ));
        }
        errors.extend(version::deprecation(version, &path));
        let subresources = form.subresources_of(version);
        let has_status = subresources.is_some_and(|declared| declared.has(&["status"]));
        let unchanged = options.unchanged.contains(name);
        let schema = form.of_version(version, "schema");
        let at = path.child("schema");
        errors.extend(validation_errors(
            schema, has_status, unchanged, options, &at,
        ));
        let own = form.of_version(version, "subresources");
        errors.extend(version::subresources(own, &path.child("subresources")));
        let columns = form.of_version(version, "additionalPrinterColumns");
        let columns = columns
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        for (index, column) in columns.iter().enumerate() {
            let at = path.child("additionalPrinterColumns").index(index);
            errors.extend(version::column(column, &at));
        }
        if let Some(fields) = form.of_version(version, "selectableFields") {
            let at = path.child("selectableFields");
            match schema.filter(|schema| schema.has(&["openAPIV3Schema"])) {
                None => {
                    let why = "may only be set when `version.schema.openAPIV3Schema` is not \
                               included";
                    errors.push(FieldError::invalid(&at, "", why));
                }
                Some(schema) => errors.extend(selectable(fields, schema, &path, name, options)),
            }
        }
    }
    let mut wrong = |why: &str| {
        let error = FieldError::invalid(path, Value::Null, why);
        errors.push(error.showing_text(shown_versions(form)));
    };
    if !unique {
        wrong("must contain unique version names");
    }
    if stored != 1 {
        wrong("must have exactly one version marked as storage version");
    }
    // The first one is also the version of the older form.
    let first = form
        .versions()
        .first()
        .map(|version| version.str_at(&["name"]));
    if let Some(name) = first.filter(|name| !name.is_empty()) {
        let wrong = dns_1035_label(name);
        if !wrong.is_empty() {
            let path = Path::new("spec").child("version");
            errors.push(FieldError::invalid(&path, name, wrong.join(",")));
        }
    }
}

/// The versions as Go shows its structures of them. Schemas are left out, which would fill pages.
fn shown_versions(form: &Form<'_>) -> String {
    let versions = form.versions().iter().map(|version| {
        let text = |value: &Value, name: &str| Value::from(value.str_at(&[name]));
        let own = |name: &str| form.of_version(version, name);
        let warning = version
            .get("deprecationWarning")
            .cloned()
            .unwrap_or_default();
        let head = go_struct(&[
            ("Name", text(version, "name")),
            ("Served", version.bool_at(&["served"]).into()),
            ("Storage", version.bool_at(&["storage"]).into()),
            ("Deprecated", version.bool_at(&["deprecated"]).into()),
            ("DeprecationWarning", warning),
            ("Schema", Value::Null),
        ]);
        let list = |name: &str, shown: &dyn Fn(&Value) -> String| match own(name) {
            None => "null".to_string(),
            Some(items) => {
                let items = items.as_array().map_or(&[][..], Vec::as_slice).iter();
                format!("[{}]", items.map(shown).collect::<Vec<_>>().join(","))
            }
        };
        let columns = list("additionalPrinterColumns", &|column| {
            go_struct(&[
                ("Name", text(column, "name")),
                ("Type", text(column, "type")),
                ("Format", text(column, "format")),
                ("Description", text(column, "description")),
                (
                    "Priority",
                    column.i64_at(&["priority"]).unwrap_or_default().into(),
                ),
                ("JSONPath", text(column, "jsonPath")),
            ])
        });
        let fields = list("selectableFields", &|field| {
            go_struct(&[("JSONPath", text(field, "jsonPath"))])
        });
        let subresources = own("subresources").map_or("null".to_string(), shown_subresources);
        format!(
            "{},\"Subresources\":{subresources},\"AdditionalPrinterColumns\":{columns},\
             \"SelectableFields\":{fields}}}",
            head.trim_end_matches('}')
        )
    });
    match form.versions().is_empty() {
        true if form.has_versions() => "[]".to_string(),
        true => "null".to_string(),
        false => format!("[{}]", versions.collect::<Vec<_>>().join(",")),
    }
}

fn shown_subresources(subresources: &Value) -> String {
    let status = match subresources.has(&["status"]) {
        true => "{}",
        false => "null",
    };
    let scale = subresources.get("scale").filter(|scale| !scale.is_null());
    let scale = scale.map_or("null".to_string(), |scale| {
        let selector = scale.get("labelSelectorPath").cloned().unwrap_or_default();
        go_struct(&[
            (
                "SpecReplicasPath",
                scale.str_at(&["specReplicasPath"]).into(),
            ),
            (
                "StatusReplicasPath",
                scale.str_at(&["statusReplicasPath"]).into(),
            ),
            ("LabelSelectorPath", selector),
        ])
    });
    format!("{{\"Status\":{status},\"Scale\":{scale}}}")
}

fn selectable(
    fields: &Value,
    validation: &Value,
    around: &Path,
    name: &str,
    options: &Options<'_>,
) -> Vec<FieldError> {
    let fields = fields.as_array().map_or(&[][..], Vec::as_slice);
    let schema = validation.get("openAPIV3Schema").unwrap_or(&Value::Null);
    let schema = Props::of(schema);
    // Upstream goes on with nothing to look the paths up in.
    if let Err(error) = convertible(schema) {
        let at = around.child("schema.openAPIV3Schema");
        return vec![FieldError::invalid(&at, "", error.to_string())];
    }
    let too_many = options.too_many_selectable.contains(name);
    let path = around.child("selectableFields");
    version::selectable(fields, &custom::compile_unchecked(schema), &path, too_many)
}

/// What may stand at the root of a schema when the status is a resource of its own.
const AT_ROOT: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// Checks one schema with everything in it.
fn validation_errors(
    validation: Option<&Value>,
    has_status: bool,
    unchanged: bool,
    options: &Options<'_>,
    path: &Path,
) -> Vec<FieldError> {
    let schema = validation.and_then(|validation| validation.get("openAPIV3Schema"));
    let Some(document) = schema.filter(|schema| !schema.is_null()) else {
        return Vec::new();
    };
    let path = path.child("openAPIV3Schema");
    if let Err(errors) = custom::is_bounded(document, &path) {
        return errors;
    }
    let mut errors = Vec::new();
    let schema = Props::of(document);
    if has_status {
        errors.extend(root_with_status(schema, &path));
    }
    if schema.nullable() {
        let why = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(&path.child("nullable"), why));
    }
    let mut not_convertible = None;
    let mut with_rules = false;
    if options.structural {
        if let Err(error) = convertible(schema) {
            not_convertible = Some(FieldError::invalid(&path, "", error.to_string()));
        } else {
            let mut found = violations(schema, &path);
            if found.is_empty() {
                let (pruned, expressions) = (options.pruned_defaults, options.expressions);
                found = custom::check_defaults(document, &path, pruned, expressions);
                with_rules = found.is_empty();
            }
            errors.extend(found);
        }
    }
    let is_stored = |expression: &str| options.stored_expressions.contains(expression);
    let strictness = Strictness {
        valid_types: options.valid_types,
        atomic_sets: options.atomic_sets,
        keyed_lists: options.keyed_lists,
        is_stored: &is_stored,
        cost_per_rule: !unchanged,
        expressions: options.expressions,
    };
    let mut total = TotalCost::default();
    let checked = schema::check(schema, &path, strictness, with_rules, &mut total);
    errors.extend(checked.errors);
    errors.extend(checked.rule_errors);
    if errors.is_empty() {
        errors.extend(not_convertible);
    }
    if with_rules {
        errors.extend(total.errors(&path));
    }
    errors
}

fn root_with_status(schema: Props<'_>, path: &Path) -> Option<FieldError> {
    if !matches!(schema.kind(), "" | "object") {
        let why = "only \"object\" is allowed as the type at the root of the schema if the status \
                   subresource is enabled";
        return Some(FieldError::invalid(&path.child("type"), schema.kind(), why));
    }
    let mut fields = schema.set_fields().map(|(name, _)| name);
    let wrong = fields.any(|name| !AT_ROOT.contains(&name));
    wrong.then(|| {
        let names: Vec<String> = AT_ROOT.iter().map(|name| go_name(name)).collect();
        let why = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is \
             enabled",
            names.join(" ")
        );
        FieldError::invalid_omitted(path, why)
    })
}

/// The name of a field in Go's structure.
fn go_name(name: &str) -> String {
    match name {
        "x-kubernetes-preserve-unknown-fields" => "XPreserveUnknownFields".to_string(),
        "x-kubernetes-validations" => "XValidations".to_string(),
        other => {
            let mut letters = other.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        }
    }
}
