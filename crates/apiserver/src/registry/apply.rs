//! Server-side apply: a configuration becomes a part of the object, which is created where it is not
//! there.

use std::sync::Arc;

use api::apply::Write;
use api::conversion;
use api::document::yaml::{self, Repeated};
use api::{Reason, Resource, Status, Value, schema};

use super::create::{New, create, settle_namespace};
use super::preconditions::check_name;
use super::{Target, update};
use crate::authorization::Attributes;
use crate::cache::CachedObject;
use crate::context::Context;
use crate::decode::FieldValidation;
use crate::hops::Hops;
use crate::options;

/// Attempts to create what others create and delete at the same time.
const ATTEMPTS: usize = 5;

/// What a client applies.
pub(crate) struct Configuration {
    pub applied: Value,
    /// Keys given twice, of which the last counts.
    repeated: Vec<Repeated>,
}

/// What became of the object.
pub(crate) enum Applied {
    Created(Arc<CachedObject>, Hops),
    Updated(Arc<CachedObject>),
}

pub(crate) async fn apply(
    context: &Context,
    resource: &Arc<Resource>,
    configuration: &Configuration,
) -> Result<Applied, Status> {
    let target = Target {
        is_owned: true,
        ..Target::of(context, resource)
    };
    let conditional = configuration.names_version();
    for _ in 0..ATTEMPTS {
        let changed = update(context, &target, conditional, |live| {
            let live = match resource.is_stored_as_itself() {
                true => return merged(context, &target, configuration, Some(live)),
                false => conversion::from_storage(resource, live.clone()),
            };
            let new = merged(context, &target, configuration, Some(&live))?;
            Ok(conversion::to_storage(resource, new))
        });
        match changed.await {
            Err(status) if is_missing(&status, &target) => {}
            result => return result.map(Applied::Updated),
        }
        match create_applied(context, &target, configuration).await {
            Err(status) if status.reason == Reason::AlreadyExists => {}
            result => return result,
        }
    }
    Err(resource.conflict(
        target.name,
        "it was created and deleted several times meanwhile",
    ))
}

/// Only objects themselves are created.
fn is_missing(status: &Status, target: &Target<'_>) -> bool {
    let about_target = status.details.as_ref().is_some_and(|details| {
        details.kind == target.requested.plural && details.name == target.name
    });
    status.reason == Reason::NotFound && target.subresource.is_empty() && about_target
}

async fn create_applied(
    context: &Context,
    target: &Target<'_>,
    configuration: &Configuration,
) -> Result<Applied, Status> {
    let (resource, name) = (target.requested, target.name);
    let mut object = merged(context, target, configuration, None)?;
    let uid = object.str_at(&["metadata", "uid"]);
    if !uid.is_empty() {
        return Err(resource.conflict(
            name,
            format_args!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            ),
        ));
    }
    settle_namespace(resource, &context.info.namespace, &mut object)?;
    check_name(&object, name)?;
    let attributes = Attributes {
        verb: "create".to_string(),
        ..Attributes::of(&context.info)
    };
    let authorizer = &context.server.authorizer;
    authorizer.check(&context.identity, &attributes)?;
    let mut hops = Hops::begin(context, resource, 0);
    let new = New {
        object: conversion::to_storage(resource, object),
        is_owned: true,
    };
    let entry = create(context, resource, new, &mut hops).await?;
    Ok(Applied::Created(entry, hops))
}

/// The object as the configuration makes it.
fn merged(
    context: &Context,
    target: &Target<'_>,
    configuration: &Configuration,
    live: Option<&Value>,
) -> Result<Value, Status> {
    let resource = target.requested;
    let manager = options::manager(context);
    let time = context.server.timestamp();
    let write = Write::new(resource, target.subresource, &manager, time);
    let force = context.query.flag("force");
    let object = api::apply::apply(&write, live, &configuration.applied, force)?;
    configuration.complain(context)?;
    let (namespace, name) = (
        object.str_at(&["metadata", "namespace"]).to_string(),
        object.str_at(&["metadata", "name"]).to_string(),
    );
    let kind = schema::Target::of(resource);
    let gvk = format!(
        "{}/{}, Kind={}",
        resource.group, resource.version, resource.kind
    );
    let restored = match resource.is_custom() {
        true => Ok((object, Vec::new())),
        false => schema::restore(kind.definition, object),
    };
    let (mut object, _) = restored.map_err(|problem| {
        Status::new(
            Reason::Unknown,
            format!(
                "failed to convert new object ({namespace}/{name}; {gvk}) to proper version: unable to convert unstructured object to {gvk}: {problem}"
            ),
        )
    })?;
    if live.is_some() {
        settle_namespace(resource, &context.info.namespace, &mut object)?;
        if name != target.name {
            return Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
    }
    Ok(object)
}

impl Configuration {
    pub fn read(body: &[u8]) -> Result<Configuration, Status> {
        let refused =
            |problem: String| Status::bad_request(format!("error decoding YAML: {problem}"));
        let (documents, repeated) =
            yaml::parse_with_repeated(body).map_err(|problem| refused(problem.to_string()))?;
        let applied = match documents.into_iter().next() {
            Some(object @ Value::Object(_)) => object,
            None | Some(Value::Null) => Value::object(),
            Some(other) => {
                let found = match other {
                    Value::Array(_) => "array",
                    Value::String(_) => "string",
                    Value::Bool(_) => "bool",
                    _ => "number",
                };
                return Err(refused(format!(
                    "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
                )));
            }
        };
        Ok(Configuration { applied, repeated })
    }

    /// Whether the configuration itself demands a resourceVersion.
    pub fn names_version(&self) -> bool {
        let version = self.applied.str_at(&["metadata", "resourceVersion"]);
        !version.is_empty()
    }

    /// Answers repeated keys as the request asks.
    pub fn complain(&self, context: &Context) -> Result<(), Status> {
        if self.repeated.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = self.repeated.iter().map(ToString::to_string).collect();
        match FieldValidation::of(context) {
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                lines.into_iter().for_each(|line| context.warn(line));
                Ok(())
            }
            FieldValidation::Strict => Err(Status::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                lines.join("\n  ")
            ))),
        }
    }
}
