//! The kinds that CustomResourceDefinitions define: from the stored document to what the catalogue
//! serves, one resource for each served version.

use std::sync::Arc;

use api::catalogue::compare_versions;
use api::custom::{JsonPath, PrinterColumn, ScalePaths, Schema};
use api::resource::{
    self, Column, CustomKind, CustomVersion, Definition, Rules, SchemaHandle, Subresource,
};
use api::{Resource, Value};
use sha2::{Digest, Sha256};

use super::conditions::{self, ESTABLISHED, NAMES_ACCEPTED};
use super::names::Names;
use super::strategy::{CustomStrategy, SelectableField};

/// In the order of upstream's discovery.
const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const BELOW: [&str; 3] = ["get", "patch", "update"];

/// What decides how a definition is served: as long as it is the same, nothing has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub uid: String,
    pub spec: [u8; 32],
    pub names: Names,
    pub is_terminating: bool,
}

impl Identity {
    pub fn of(definition: &Value) -> Identity {
        let spec = definition.get("spec").map(Value::to_json);
        Identity {
            uid: definition.str_at(&["metadata", "uid"]).to_string(),
            spec: Sha256::digest(spec.unwrap_or_default()).into(),
            names: Names::read(definition.at(&["status", "acceptedNames"])),
            is_terminating: conditions::is_terminating(definition),
        }
    }

    /// Whether objects look the same under both, so that the cache of the kind can stay.
    pub fn has_same_objects(&self, other: &Identity) -> bool {
        let same = Identity {
            is_terminating: other.is_terminating,
            ..self.clone()
        };
        same == *other
    }
}

/// A kind as it is served.
pub(crate) struct Served {
    pub group: String,
    pub plural: String,
    pub identity: Identity,
    /// The served versions, the preferred one first.
    pub versions: Vec<Arc<Resource>>,
    /// The version that objects are stored in, served or not.
    pub stored: Arc<Resource>,
}

/// Why a definition cannot be served, which validation should have found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotServable {
    #[error("no names were accepted")]
    Names,
    #[error("no version is stored")]
    Storage,
    #[error("the schema of version {version} is not structural: {problem}")]
    Schema { version: String, problem: String },
}

/// Whether requests for objects of the kind are answered.
pub(crate) fn is_served(definition: &Value) -> bool {
    conditions::is_true(definition, ESTABLISHED) || conditions::is_true(definition, NAMES_ACCEPTED)
}

/// The kind that a definition defines.
pub(crate) fn of(definition: &Value) -> Result<Served, NotServable> {
    let identity = Identity::of(definition);
    let names = &identity.names;
    if !names.are_complete() {
        return Err(NotServable::Names);
    }
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    let group = spec.str_at(&["group"]).to_string();
    let versions = spec.list_at(&["versions"]);
    let flag = |version: &Value, field: &str| version.get(field) == Some(&Value::Bool(true));
    let storage = versions.iter().find(|version| flag(version, "storage"));
    let storage_version = storage.ok_or(NotServable::Storage)?.str_at(&["name"]);
    let mut schemas = Vec::new();
    for version in versions {
        let schema = schema_of(version)?;
        let name = version.str_at(&["name"]).to_string();
        schemas.push((name, SchemaHandle::new(Arc::new(schema))));
    }
    let conversion = spec.str_at(&["conversion", "strategy"]);
    let kind = Arc::new(CustomKind {
        name: definition.str_at(&["metadata", "name"]).to_string(),
        uid: identity.uid.clone(),
        list_kind: names.list_kind.clone(),
        storage_version: storage_version.to_string(),
        schemas,
        preserves_unknown_fields: flag(spec, "preserveUnknownFields"),
        is_converted_by_webhook: conversion == "Webhook",
        is_terminating: identity.is_terminating,
        fingerprint: fingerprint(definition),
    });
    let selectable = selectable_fields(versions);
    let mut made = Vec::new();
    let mut stored = None;
    for (version, (_, schema)) in versions.iter().zip(&kind.schemas) {
        let one = Version {
            spec,
            version,
            group: &group,
            names,
            kind: &kind,
            schema,
            selectable: &selectable,
        };
        let (is_stored, is_served) = (flag(version, "storage"), flag(version, "served"));
        if is_stored || is_served {
            let resource = Arc::new(one.resource());
            if is_stored {
                stored = Some(resource.clone());
            }
            if is_served {
                made.push(resource);
            }
        }
    }
    made.sort_by(|left, right| compare_versions(&right.version, &left.version));
    Ok(Served {
        group,
        plural: names.plural.clone(),
        versions: made,
        stored: stored.ok_or(NotServable::Storage)?,
        identity,
    })
}

fn schema_of(version: &Value) -> Result<Schema, NotServable> {
    let Some(document) = version.at(&["schema", "openAPIV3Schema"]) else {
        return Ok(Schema::of_anything());
    };
    Schema::from_document(document).map_err(|problems| NotServable::Schema {
        version: version.str_at(&["name"]).to_string(),
        problem: problems
            .first()
            .map(ToString::to_string)
            .unwrap_or_default(),
    })
}

/// Changes with everything that documents show of the kind.
fn fingerprint(definition: &Value) -> [u8; 32] {
    let mut digest = Sha256::new();
    for path in [&["spec"][..], &["status", "acceptedNames"]] {
        let json = definition.at(path).map(Value::to_json);
        digest.update(json.unwrap_or_default());
    }
    digest.update([u8::from(conditions::is_terminating(definition))]);
    digest.finalize().into()
}

/// The selectable fields of all versions, each once: without a webhook all versions of an object have
/// the same fields.
fn selectable_fields(versions: &[Value]) -> Arc<[SelectableField]> {
    let mut fields: Vec<SelectableField> = Vec::new();
    for declared in versions
        .iter()
        .flat_map(|one| one.list_at(&["selectableFields"]))
    {
        let text = declared.str_at(&["jsonPath"]);
        let name = text.strip_prefix('.').unwrap_or(text);
        if fields.iter().any(|field| *field.name == *name) {
            continue;
        }
        if let Ok(path) = JsonPath::parse(text) {
            let name = name.into();
            fields.push(SelectableField { name, path });
        }
    }
    fields.into()
}

/// One version of a definition.
struct Version<'a> {
    spec: &'a Value,
    version: &'a Value,
    group: &'a str,
    names: &'a Names,
    kind: &'a Arc<CustomKind>,
    schema: &'a SchemaHandle,
    selectable: &'a Arc<[SelectableField]>,
}

impl Version<'_> {
    fn resource(&self) -> Resource {
        let owned = |text: &str| text.to_string().into();
        let all = |texts: &[String]| texts.iter().map(|text| owned(text)).collect();
        let names = self.names;
        let columns = self.columns();
        let selectable = self.version.list_at(&["selectableFields"]).iter();
        let selectable = selectable.map(|field| {
            let path = field.str_at(&["jsonPath"]);
            Arc::from(path.strip_prefix('.').unwrap_or(path))
        });
        let shown = columns.iter().map(|column| Column {
            name: owned(&column.name),
            kind: owned(&column.kind),
            format: owned(&column.format),
            priority: column.priority,
            description: owned(&column.description),
        });
        let shown = [name_column()].into_iter().chain(shown).collect();
        let scale = self.scale();
        let namespaced = self.spec.str_at(&["scope"]) == "Namespaced";
        let name = self.version.str_at(&["name"]);
        let strategy = CustomStrategy {
            namespaced,
            kind: names.kind.clone(),
            api_version: resource::api_version(self.group, name),
            has_status: self.has_subresource("status"),
            scale: scale.clone(),
            schema: self.schema.clone(),
            columns,
            selectable: self.selectable.clone(),
        };
        Resource {
            group: owned(self.group),
            version: owned(name),
            kind: owned(&names.kind),
            plural: owned(&names.plural),
            singular: owned(&names.singular),
            namespaced,
            short_names: all(&names.short_names),
            categories: all(&names.categories),
            verbs: VERBS.to_vec(),
            subresources: self.subresources(),
            columns: shown,
            definition: Definition::Custom(CustomVersion {
                schema: self.schema.clone(),
                kind: self.kind.clone(),
                scale: scale.map(|paths| resource::ScalePaths {
                    spec_replicas: paths.spec_replicas,
                    status_replicas: paths.status_replicas,
                    label_selector: paths.label_selector,
                }),
                selectable_fields: selectable.collect(),
                deprecation: self.deprecation(),
            }),
            rules: Rules::Added(Arc::new(strategy)),
            storage: None,
        }
    }

    fn has_subresource(&self, name: &str) -> bool {
        let found = self.version.at(&["subresources", name]);
        found.is_some_and(|found| !found.is_null())
    }

    fn subresources(&self) -> Vec<Subresource> {
        let mut below = Vec::new();
        if self.has_subresource("status") {
            below.push(Subresource {
                name: "status",
                kind: self.names.kind.clone().into(),
                group: self.group.to_string().into(),
                version: self.version.str_at(&["name"]).to_string().into(),
                verbs: BELOW.to_vec(),
            });
        }
        if self.has_subresource("scale") {
            below.push(Subresource {
                name: "scale",
                kind: "Scale".into(),
                group: "autoscaling".into(),
                version: "v1".into(),
                verbs: BELOW.to_vec(),
            });
        }
        below
    }

    fn scale(&self) -> Option<ScalePaths> {
        let scale = self.version.at(&["subresources", "scale"]);
        scale.filter(|scale| !scale.is_null()).map(ScalePaths::of)
    }

    /// Those that are declared; the age where none are, or where one cannot be read.
    fn columns(&self) -> Vec<PrinterColumn> {
        let declared = self.version.list_at(&["additionalPrinterColumns"]);
        if declared.is_empty() {
            return vec![PrinterColumn::age()];
        }
        let columns: Result<Vec<_>, _> = declared.iter().map(PrinterColumn::of).collect();
        columns.unwrap_or_default()
    }

    fn deprecation(&self) -> Option<String> {
        if self.version.get("deprecated") != Some(&Value::Bool(true)) {
            return None;
        }
        if let Some(text) = self
            .version
            .get("deprecationWarning")
            .and_then(Value::as_str)
        {
            return Some(text.to_string());
        }
        let (group, kind) = (self.group, self.spec.str_at(&["names", "kind"]));
        let name = self.version.str_at(&["name"]);
        let mut warning = format!("{group}/{name} {kind} is deprecated");
        let versions = self.spec.list_at(&["versions"]).iter();
        let better = versions
            .filter(|other| {
                other.get("served") == Some(&Value::Bool(true))
                    && other.get("deprecated") != Some(&Value::Bool(true))
            })
            .map(|other| other.str_at(&["name"]))
            .filter(|other| compare_versions(name, other).is_lt())
            .max_by(|left, right| compare_versions(left, right));
        if let Some(better) = better {
            warning.push_str(&format!("; use {group}/{better} {kind}"));
        }
        Some(warning)
    }
}

fn name_column() -> Column {
    Column {
        name: "Name".into(),
        kind: "string".into(),
        format: "name".into(),
        priority: 0,
        description: "".into(),
    }
}
