//! The schemas that stored definitions declare, read when a document shows them.

use api::Resource;
use api::openapi::{Declarations, Declared};

use crate::cache::Cache;

pub(crate) struct StoredDeclarations<'a>(pub &'a Cache);

impl Declarations for StoredDeclarations<'_> {
    fn of(&self, resource: &Resource) -> Option<Declared> {
        let custom = resource.definition.custom()?;
        let definitions = self
            .0
            .named("apiextensions.k8s.io", "customresourcedefinitions");
        let definition = definitions.get(&custom.kind.name)?.object().ok()?;
        let mut versions = definition.list_at(&["spec", "versions"]).iter();
        let version = versions.find(|one| one.str_at(&["name"]) == resource.version)?;
        let fields = version.list_at(&["selectableFields"]).iter();
        let fields = fields.map(|field| {
            let path = field.str_at(&["jsonPath"]);
            path.strip_prefix('.').unwrap_or(path).to_string()
        });
        Some(Declared {
            schema: version.at(&["schema", "openAPIV3Schema"]).cloned(),
            selectable_fields: fields.collect(),
        })
    }
}
