//! Which object a write is about.

use std::sync::Arc;

use api::{Resource, Status, Value};

use crate::context::Context;

pub(crate) struct Target<'a> {
    /// The version that the object is stored in.
    pub resource: &'a Arc<Resource>,
    /// The version that was sent, whose rules hold.
    pub requested: &'a Arc<Resource>,
    pub namespace: &'a str,
    pub name: &'a str,
    /// "" for the object itself.
    pub subresource: &'a str,
    /// Whether the new state comes with its final `managedFields`; otherwise this write owns what
    /// it changes.
    pub is_owned: bool,
    /// Whether everything is done but the write itself.
    pub dry_run: bool,
    /// What admission sees in place of the object, where a subresource shows only a part of it.
    pub view: Option<&'a dyn View>,
}

/// A part of an object that a subresource shows in a kind of its own, such as a Scale.
pub(crate) trait View: Sync {
    fn subresource(&self) -> &'static str;

    fn of(&self, object: &Value) -> Value;

    /// Changes the object so that it shows this.
    fn put(&self, object: &mut Value, shown: &Value) -> Result<(), Status>;
}

impl<'a> Target<'a> {
    /// The object that the path of the request names.
    pub fn of(context: &'a Context, resource: &'a Arc<Resource>) -> Target<'a> {
        let info = &context.info;
        Target {
            resource: api::conversion::storage_of(resource),
            requested: resource,
            namespace: if resource.namespaced {
                &info.namespace
            } else {
                ""
            },
            name: &info.name,
            subresource: &info.subresource,
            is_owned: false,
            dry_run: context.dry_run,
            view: None,
        }
    }

    /// An object that the server writes on its own account, which owns nothing of it.
    pub fn internal(
        resource: &'a Arc<Resource>,
        namespace: &'a str,
        name: &'a str,
        subresource: &'a str,
    ) -> Target<'a> {
        Target {
            resource,
            requested: resource,
            namespace,
            name,
            subresource,
            is_owned: true,
            dry_run: false,
            view: None,
        }
    }
}
