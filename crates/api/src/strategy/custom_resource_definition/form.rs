//! A definition in the form in which it is checked. What all versions have alike (schema,
//! subresources, columns, selectable fields) counts as declared once for all of them, which is why
//! errors about a definition with one version speak of `spec.validation`.

use std::collections::BTreeMap;

use crate::custom::Props;
use crate::document::Value;

/// The fields of a version that move to the top when all versions agree.
const SHARED: [&str; 4] = [
    "schema",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
];

/// The spec of a definition.
#[derive(Clone, Copy)]
pub struct Form<'a> {
    pub spec: &'a Value,
    /// Whether the field of the same index in `SHARED` is at the top.
    shared: [bool; 4],
}

impl<'a> Form<'a> {
    pub fn of(definition: &'a Value) -> Form<'a> {
        static NOTHING: Value = Value::Null;
        let spec = definition.get("spec").unwrap_or(&NOTHING);
        let versions = spec.list_at(&["versions"]);
        let shared = SHARED.map(|name| {
            let mut values = versions.iter().map(|version| declared(version, name));
            match values.next() {
                None => false,
                Some(first) => values.all(|other| other == first),
            }
        });
        Form { spec, shared }
    }

    pub fn versions(&self) -> &'a [Value] {
        self.spec.list_at(&["versions"])
    }

    /// Whether there is a list of versions, be it empty.
    pub fn has_versions(&self) -> bool {
        self.spec
            .get("versions")
            .is_some_and(|found| !found.is_null())
    }

    /// What is declared for all versions together.
    fn top(&self, name: &str) -> Option<&'a Value> {
        let first = self.versions().first()?;
        self.is_shared(name)
            .then(|| declared(first, name))
            .flatten()
    }

    fn is_shared(&self, name: &str) -> bool {
        SHARED
            .iter()
            .zip(self.shared)
            .any(|(known, shared)| *known == name && shared)
    }

    /// What is declared for one version by itself.
    pub fn of_version(&self, version: &'a Value, name: &str) -> Option<&'a Value> {
        match self.is_shared(name) {
            true => None,
            false => declared(version, name),
        }
    }

    /// `schema` of all versions together, which errors call `validation`.
    pub fn validation(&self) -> Option<&'a Value> {
        self.top("schema")
    }

    pub fn subresources(&self) -> Option<&'a Value> {
        self.top("subresources")
    }

    pub fn columns(&self) -> &'a [Value] {
        self.top("additionalPrinterColumns")
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub fn selectable_fields(&self) -> Option<&'a Value> {
        self.top("selectableFields")
    }

    /// The subresources that hold for a version.
    pub fn subresources_of(&self, version: &'a Value) -> Option<&'a Value> {
        self.subresources()
            .or_else(|| self.of_version(version, "subresources"))
    }

    /// All schemas, each once.
    pub fn schemas(&self) -> impl Iterator<Item = &'a Value> {
        let own = self
            .versions()
            .iter()
            .filter_map(|version| self.of_version(version, "schema"));
        let all = self.validation().into_iter().chain(own);
        all.filter_map(|schema| {
            schema
                .get("openAPIV3Schema")
                .filter(|schema| !schema.is_null())
        })
    }

    /// Whether a part of a schema is like that.
    pub fn has_schema_with(&self, mut is: impl FnMut(Props<'a>) -> bool) -> bool {
        self.schemas().any(|schema| Props::of(schema).any(&mut is))
    }

    /// The schema of every version by name, as it was declared.
    pub fn schema_by_version(&self) -> BTreeMap<&'a str, Option<&'a Value>> {
        let versions = self.versions().iter();
        versions
            .map(|version| (version.str_at(&["name"]), declared(version, "schema")))
            .collect()
    }
}

/// A field of a version; empty lists are as none.
fn declared<'a>(version: &'a Value, name: &str) -> Option<&'a Value> {
    let value = version.get(name).filter(|value| !value.is_null())?;
    match value {
        Value::Array(items) if items.is_empty() => None,
        value => Some(value),
    }
}
