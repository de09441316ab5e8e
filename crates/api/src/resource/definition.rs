//! What the objects of a kind look like: a type of the program's table, or the schema of a
//! CustomResourceDefinition.

use std::any::Any;
use std::sync::Arc;

#[derive(Clone)]
pub enum Definition {
    /// The name of a type in the table, e.g. `io.k8s.api.core.v1.Pod`.
    BuiltIn(&'static str),
    Custom(CustomVersion),
}

/// One version of a kind that a CustomResourceDefinition defines.
#[derive(Clone)]
pub struct CustomVersion {
    pub schema: SchemaHandle,
    /// What all versions of the kind share.
    pub kind: Arc<CustomKind>,
    /// Where the numbers of the scale subresource are, if there is one.
    pub scale: Option<ScalePaths>,
    /// The names of the fields that the version declares selectable.
    pub selectable_fields: Vec<Arc<str>>,
    /// What clients of a deprecated version are warned with.
    pub deprecation: Option<String>,
}

/// A kind that a CustomResourceDefinition defines.
pub struct CustomKind {
    /// The name and the UID of the definition.
    pub name: String,
    pub uid: String,
    pub list_kind: String,
    /// The version that objects are stored in.
    pub storage_version: String,
    /// The schemas of all versions, also of those that are not served.
    pub schemas: Vec<(String, SchemaHandle)>,
    /// Whether fields that no schema knows are kept.
    pub preserves_unknown_fields: bool,
    /// Whether a webhook converts between versions; otherwise they differ in name only.
    pub is_converted_by_webhook: bool,
    /// Whether the definition is being deleted: no new objects are made.
    pub is_terminating: bool,
    /// Changes with everything that documents about the kind show.
    pub fingerprint: [u8; 32],
}

/// Dotted paths, such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// A schema that is kept here and read elsewhere: schemas are made of what is above this module.
#[derive(Clone)]
pub struct SchemaHandle(Arc<dyn Any + Send + Sync>);

impl SchemaHandle {
    pub fn new<T: Any + Send + Sync>(schema: Arc<T>) -> SchemaHandle {
        SchemaHandle(schema)
    }

    /// The schema, if it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl Definition {
    /// The name of the type in the table; "" for a custom kind, which is not in it.
    pub fn name(&self) -> &'static str {
        match self {
            Definition::BuiltIn(name) => name,
            Definition::Custom(_) => "",
        }
    }

    pub fn custom(&self) -> Option<&CustomVersion> {
        match self {
            Definition::BuiltIn(_) => None,
            Definition::Custom(custom) => Some(custom),
        }
    }
}

impl CustomKind {
    /// The schema of a version.
    pub fn schema(&self, version: &str) -> Option<&SchemaHandle> {
        let mut known = self.schemas.iter().filter(|(name, _)| name == version);
        known.next().map(|(_, schema)| schema)
    }
}
