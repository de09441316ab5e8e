//! What hooks are asked about: a request with its object, in any version of its kind.

use std::borrow::Cow;
use std::sync::Arc;

use api::{Resource, Status, Value};

use crate::admission::Admitted;
use crate::admission_hooks::{Attributes, Operation, ReviewVersion};
use crate::context::Context;
use crate::converted;

/// The facts of a request that stay the same for all hooks.
pub(in crate::admission) struct Request<'a> {
    pub context: &'a Context,
    /// The version that was sent.
    pub requested: &'a Arc<Resource>,
    pub subresource: &'a str,
    pub operation: Operation,
    pub namespace: String,
    pub name: String,
    pub dry_run: bool,
    /// The options of the operation; null for a connection.
    options: Value,
    /// Whether what is admitted is an object of the kind itself, which is stored in one version and
    /// shown in others, and not one that only a subresource takes.
    is_of_kind: bool,
}

/// The objects of a request, as they are stored.
#[derive(Clone, Copy)]
pub(in crate::admission) struct Objects<'a> {
    pub new: Option<&'a Value>,
    pub old: Option<&'a Value>,
}

/// A kind in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admission) struct Kind<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}

impl<'a> Kind<'a> {
    /// The kind of what a resource or its subresource takes.
    pub fn of(resource: &'a Resource, subresource: &str) -> Kind<'a> {
        match resource.subresource(subresource) {
            Some(below) => Kind {
                group: &below.group,
                version: &below.version,
                kind: &below.kind,
            },
            None => Kind {
                group: &resource.group,
                version: &resource.version,
                kind: &resource.kind,
            },
        }
    }

    fn document(&self) -> Value {
        api::document!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

impl<'a> Request<'a> {
    pub fn of(admitted: &Admitted<'a>) -> Request<'a> {
        let (context, requested) = (admitted.context, admitted.requested);
        let kind = Kind::of(requested, admitted.subresource);
        let is_of_kind = (kind.group, kind.kind) == (&requested.group, &requested.kind);
        let name = match (admitted.operation, admitted.has_generated_name) {
            (Operation::Create, true) => "",
            (Operation::Create, false) => admitted.name(),
            _ => &context.info.name,
        };
        // A namespace is in itself, as far as rules and selectors are concerned.
        let of_namespace = admitted.is("", "Namespace");
        let namespace = match of_namespace {
            true if name.is_empty() => context.info.namespace.clone(),
            true => name.to_string(),
            false => admitted.namespace(),
        };
        Request {
            context,
            requested,
            subresource: admitted.subresource,
            operation: admitted.operation,
            namespace,
            name: name.to_string(),
            dry_run: admitted.dry_run,
            options: options(admitted),
            is_of_kind,
        }
    }

    /// What rules are matched with, as if the request had been for this version.
    pub fn attributes<'b>(&'b self, resource: &'b Resource) -> Attributes<'b> {
        Attributes {
            operation: self.operation,
            group: &resource.group,
            version: &resource.version,
            plural: &resource.plural,
            subresource: self.subresource,
            namespace: &self.namespace,
        }
    }

    /// The other versions in which the object of the request is served.
    pub fn equivalents(&self) -> Vec<Arc<Resource>> {
        let stored = api::conversion::storage_of(self.requested);
        let kinds = self.context.server.kinds.snapshot();
        if self.requested.is_custom() {
            let versions = kinds.versions_of(&self.requested.group, &self.requested.plural);
            let others = versions.filter(|other| {
                other != &self.requested
                    && (self.subresource.is_empty()
                        || other.subresource(self.subresource).is_some())
            });
            return others.cloned().collect();
        }
        // Only built-in kinds are versions of a built-in one: however many others are served, they are
        // not looked at.
        let others = api::catalogue::built_in().resources().filter(|other| {
            let (group, version, plural) = other.id();
            other.plural == self.requested.plural
                && *other != self.requested
                && kinds.find(group, version, plural).is_some()
                && api::conversion::storage_of(other) == stored
                && (self.subresource.is_empty() || other.subresource(self.subresource).is_some())
        });
        others.cloned().collect()
    }

    /// An object as it is stored, in the version of `resource`. Objects of custom kinds may have to be
    /// converted by a webhook.
    pub async fn shown<'v>(
        &self,
        resource: &Resource,
        stored: &'v Value,
    ) -> Result<Cow<'v, Value>, Status> {
        if self.is_of_kind && resource.is_custom() {
            if stored.str_at(&["apiVersion"]) == resource.api_version() {
                return Ok(Cow::Borrowed(stored));
            }
            return Ok(Cow::Owned(self.converted(resource, stored.clone()).await?));
        }
        Ok(match self.is_of_kind && !resource.is_stored_as_itself() {
            true => Cow::Owned(api::conversion::from_storage(resource, stored.clone())),
            false => Cow::Borrowed(stored),
        })
    }

    /// Both objects of the request, each as [`Request::shown`] shows it.
    pub async fn both_shown<'v>(
        &self,
        resource: &Resource,
        objects: Objects<'v>,
    ) -> Result<[Option<Cow<'v, Value>>; 2], Status> {
        let mut shown = [None, None];
        for (place, object) in shown.iter_mut().zip([objects.new, objects.old]) {
            if let Some(object) = object {
                *place = Some(self.shown(resource, object).await?);
            }
        }
        Ok(shown)
    }

    /// The opposite of [`Request::shown`].
    pub async fn stored(&self, resource: &Resource, shown: Value) -> Result<Value, Status> {
        match self.is_of_kind {
            // Until it is written, a custom object is in the version that was sent.
            true if resource.is_custom() => self.converted(self.requested, shown).await,
            true => Ok(api::conversion::to_storage(resource, shown)),
            false => Ok(shown),
        }
    }

    async fn converted(&self, resource: &Resource, object: Value) -> Result<Value, Status> {
        let converted = converted::as_requested(&self.context.server, resource, object);
        converted.await.map_err(Status::internal)
    }

    pub fn is_of_kind(&self) -> bool {
        self.is_of_kind
    }

    /// The `AdmissionRequest` for a hook that is asked about `resource`, without the two objects.
    pub fn document(&self, uid: &str, resource: &Resource) -> Value {
        let named = |resource: &Resource| {
            api::document!({
                "group": &*resource.group, "version": &*resource.version,
                "resource": &*resource.plural,
            })
        };
        let mut request = api::document!({
            "uid": uid,
            "operation": self.operation.text(),
            "dryRun": self.dry_run,
        });
        let kind = Kind::of(resource, self.subresource);
        let requested = Kind::of(self.requested, self.subresource);
        request.set(&["kind"], kind.document());
        request.set(&["resource"], named(resource));
        request.set(&["requestKind"], requested.document());
        request.set(&["requestResource"], named(self.requested));
        request.set(&["userInfo"], self.context.identity.user_info());
        request.set(&["options"], self.options.clone());
        for (field, text) in [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ] {
            if !text.is_empty() {
                request.set(&[field], text);
            }
        }
        request
    }

    /// The `AdmissionReview` with these objects, which are JSON already.
    pub fn review(
        &self,
        version: ReviewVersion,
        request: &Value,
        object: &[u8],
        old_object: &[u8],
    ) -> Vec<u8> {
        let version = match version {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1Beta1 => "v1beta1",
        };
        let mut request = request.to_json();
        // It has fields, so that more can follow.
        request.pop();
        let mut body = Vec::with_capacity(request.len() + object.len() + old_object.len() + 128);
        body.extend_from_slice(b"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/");
        body.extend_from_slice(version.as_bytes());
        body.extend_from_slice(b"\",\"request\":");
        body.extend_from_slice(&request);
        body.extend_from_slice(b",\"object\":");
        body.extend_from_slice(object);
        body.extend_from_slice(b",\"oldObject\":");
        body.extend_from_slice(old_object);
        body.extend_from_slice(b"}}");
        body
    }
}

/// JSON of an object that may not be there.
pub(super) fn json_or_null(object: Option<&Value>) -> Vec<u8> {
    object.map_or_else(|| b"null".to_vec(), Value::to_json)
}

/// The options of the operation, as hooks see them. A patch is an update, or a creation.
fn options(admitted: &Admitted<'_>) -> Value {
    let kind = match admitted.operation {
        Operation::Connect => return Value::Null,
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    let mut options = admitted.options.cloned().unwrap_or_else(Value::object);
    options.set(&["kind"], kind);
    options.set(&["apiVersion"], "meta.k8s.io/v1");
    if admitted.operation == Operation::Delete {
        return options;
    }
    let query = &admitted.context.query;
    for field in ["fieldManager", "fieldValidation"] {
        let given = query.get(field);
        if !given.is_empty() {
            options.set(&[field], given);
        }
    }
    if admitted.dry_run {
        options.set(&["dryRun"], api::document!(["All"]));
    }
    options
}
