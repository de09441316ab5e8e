//! The scale subresource: replicas of a workload as an autoscaling/v1 Scale.

use std::sync::Arc;

use api::apply::Scaled;
use api::custom::{dotted, number_at, text_at};
use api::resource::ScalePaths;
use api::selector::LabelSelector;
use api::{Resource, Status, Value};
use http::Response;

use crate::body::Body;
use crate::cache::CachedObject;
use crate::context::Context;
use crate::converted;
use crate::decode;
use crate::options::{self, PatchType};
use crate::registry::{
    Configuration, Patch, Target, View, check_name, set_owners, settle_namespace, update,
};
use crate::response;
use crate::verbs::patch::{check_custom, patch_type};

const DEFINITION: &str = "io.k8s.api.autoscaling.v1.Scale";

pub(super) async fn handle(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let view = AsScale(resource);
    let target = Target {
        subresource: "",
        is_owned: true,
        view: Some(&view),
        ..Target::of(context, resource)
    };
    let entry = match context.info.verb {
        "get" => {
            context
                .server
                .objects
                .get(resource, target.namespace, target.name)
                .await?
        }
        "update" => {
            let mut scale = decode::of_kind(context, "autoscaling", "v1", "Scale", body)?;
            check_name(&scale, target.name)?;
            settle_namespace(resource, target.namespace, &mut scale)?;
            let version = scale.str_at(&["metadata", "resourceVersion"]);
            update(context, &target, !version.is_empty(), |old| {
                with_scale(context, resource, old, scale.clone())
            })
            .await?
        }
        _ => match checked_patch_type(context, resource)? {
            PatchType::Apply => apply(context, &target, body).await?,
            patch_type => {
                let patch = Patch::parse(patch_type, body)?;
                update(context, &target, patch.names_version(), |old| {
                    let scale = patch.apply_to(&scale_of(resource, old)?, DEFINITION)?;
                    with_scale(context, resource, old, scale)
                })
                .await?
            }
        },
    };
    let object = entry.object_with_version()?;
    let object = converted::as_requested(&context.server, resource, object).await?;
    let scale = scale_of(resource, &object)?;
    response::encoded(200, &scale, context.output.encoding)
}

fn checked_patch_type(context: &Context, resource: &Resource) -> Result<PatchType, Status> {
    let patch_type = patch_type(context)?;
    check_custom(resource, patch_type)?;
    Ok(patch_type)
}

/// Admission sees the Scale, and may change it.
struct AsScale<'a>(&'a Resource);

impl View for AsScale<'_> {
    fn subresource(&self) -> &'static str {
        "scale"
    }

    fn of(&self, object: &Value) -> Value {
        scale_of(self.0, object).unwrap_or_default()
    }

    fn put(&self, object: &mut Value, shown: &Value) -> Result<(), Status> {
        if *shown != self.of(object) {
            let replicas = replicas_of(self.0, object, shown)?;
            set_replicas(self.0, object, replicas);
        }
        Ok(())
    }
}

async fn apply(
    context: &Context,
    target: &Target<'_>,
    body: &[u8],
) -> Result<Arc<CachedObject>, Status> {
    let configuration = Configuration::read(body)?;
    let manager = options::manager(context);
    let force = context.query.flag("force");
    update(context, target, configuration.names_version(), |old| {
        let time = context.server.timestamp();
        let scaled = Scaled::new(target.resource, old, &manager, time);
        let live = scale_of(target.resource, old)?;
        let (scale, owners) = scaled.apply(&live, &configuration.applied, force)?;
        configuration.complain(context)?;
        let mut new = replaced(target.resource, old, &scale)?;
        set_owners(&mut new, owners);
        Ok(new)
    })
    .await
}

/// The object with the replicas of a Scale that was written or patched.
fn with_scale(
    context: &Context,
    resource: &Resource,
    old: &Value,
    mut scale: Value,
) -> Result<Value, Status> {
    let manager = options::manager(context);
    let scaled = Scaled::new(resource, old, &manager, context.server.timestamp());
    let mut new = replaced(resource, old, &scale)?;
    set_owners(
        &mut new,
        scaled.update(&scale_of(resource, old)?, &mut scale),
    );
    Ok(new)
}

fn replaced(resource: &Resource, old: &Value, scale: &Value) -> Result<Value, Status> {
    let replicas = replicas_of(resource, old, scale)?;
    let mut new = old.clone();
    set_replicas(resource, &mut new, replicas);
    let version = scale.str_at(&["metadata", "resourceVersion"]);
    // A custom resource cannot be updated without one: then it is the one that was read.
    if !version.is_empty() || !resource.is_custom() {
        new.set(&["metadata", "resourceVersion"], version);
    }
    Ok(new)
}

fn set_replicas(resource: &Resource, object: &mut Value, replicas: i64) {
    match paths_of(resource) {
        Some(paths) => object.set(&dotted(&paths.spec_replicas), replicas),
        None => object.set(&["spec", "replicas"], replicas),
    }
}

/// The replicas that a Scale of this object asks for.
fn replicas_of(resource: &Resource, old: &Value, scale: &Value) -> Result<i64, Status> {
    let replicas = match scale.at(&["spec", "replicas"]) {
        None | Some(Value::Null) => 0,
        Some(Value::Integer(number)) => *number,
        Some(_) => {
            return Err(Status::bad_request(
                "spec.replicas: Invalid value: must be a number",
            ));
        }
    };
    // Of a custom resource its own rules say this.
    if replicas < 0 && !resource.is_custom() {
        let path = api::field::Path::new("spec").child("replicas");
        let detail = "must be greater than or equal to 0";
        let error = api::FieldError::invalid(&path, replicas, detail);
        let name = old.str_at(&["metadata", "name"]);
        return Err(Status::invalid(
            "autoscaling",
            "Scale",
            name,
            vec![error.into()],
        ));
    }
    Ok(replicas)
}

/// Where a custom resource has what its Scale shows.
fn paths_of(resource: &Resource) -> Option<&ScalePaths> {
    resource.definition.custom()?.scale.as_ref()
}

fn scale_of(resource: &Resource, object: &Value) -> Result<Value, Status> {
    let mut scale = api::document!({"kind": "Scale", "apiVersion": "autoscaling/v1"});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object.at(&["metadata", field]) {
            scale.set(&["metadata", field], value.clone());
        }
    }
    let number = |path: &[&str]| object.at(path).and_then(Value::as_i64).unwrap_or(0);
    let mut set_replicas = |replicas: i64| match replicas {
        0 => scale.set(&["spec"], Value::object()),
        _ => scale.set(&["spec", "replicas"], replicas),
    };
    if let Some(paths) = paths_of(resource) {
        let replicas = number_at(object, &paths.spec_replicas).map_err(Status::internal)?;
        let replicas = replicas.ok_or_else(|| {
            let path = &paths.spec_replicas;
            Status::internal(format_args!(
                "the spec replicas field {path:?} does not exist"
            ))
        })?;
        set_replicas(replicas);
        let counted = number_at(object, &paths.status_replicas).map_err(Status::internal)?;
        scale.set(&["status", "replicas"], counted.unwrap_or(0));
        if let Some(path) = &paths.label_selector {
            let selector = text_at(object, path).map_err(Status::internal)?;
            if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
                scale.set(&["status", "selector"], selector);
            }
        }
        return Ok(scale);
    }
    set_replicas(number(&["spec", "replicas"]));
    scale.set(&["status", "replicas"], number(&["status", "replicas"]));
    if let Some(selector) = object.at(&["spec", "selector"])
        && let Ok(selector) = LabelSelector::from_document(&label_selector(object, selector))
        && !selector.is_everything()
    {
        scale.set(&["status", "selector"], selector.to_string());
    }
    Ok(scale)
}

/// A ReplicationController selects by labels alone.
fn label_selector(object: &Value, selector: &Value) -> Value {
    match object.str_at(&["kind"]) {
        "ReplicationController" => {
            let mut made = Value::object();
            made.set(&["matchLabels"], selector.clone());
            made
        }
        _ => selector.clone(),
    }
}
