//! What the patch of a hook makes of an object: still of its kind and of its types, defaulted, and in
//! the version that it is stored in.

use api::patch::{json_patch, misfit};
use api::schema::{self, Target};
use api::{Resource, Status, Value};

use super::call::{Asked, internal};
use super::request::{Kind, Request};
use crate::admission::Admitted;
use crate::decode;

pub(in crate::admission) const OWNERS: [&str; 2] = ["metadata", "managedFields"];
/// The set of types of the built-in kinds, as upstream's errors name it.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// An object as a hook patched it.
#[derive(Debug)]
pub(super) struct Patched {
    /// As it is stored, without its owners.
    object: Value,
    owners: Option<Value>,
    /// Whether anything is other than before.
    pub is_change: bool,
    /// The patch, as the audit log shows it.
    pub told: String,
}

impl Patched {
    pub fn take_place(self, admitted: &mut Admitted<'_>) {
        *admitted.object = self.object;
        admitted.owners = self.owners;
    }
}

/// Applies the operations to `shown`, which is the object in the version that the hook was asked
/// about, with its owners.
pub(super) async fn apply(
    asked: &Asked<'_>,
    admitted: &Admitted<'_>,
    shown: &Value,
    operations: &Value,
) -> Result<Patched, Status> {
    let (request, resource) = (asked.request, asked.resource);
    let patched = match json_patch(shown, operations) {
        Ok(patched) => patched,
        Err(status) => {
            let misfit = misfit(shown, operations);
            return Err(internal(
                misfit.map_or(status.message, |misfit| misfit.words),
            ));
        }
    };
    let (object, owners) = settled(request, admitted, resource, patched, Unknown::Dropped).await?;
    let told = api::document!({
        "configuration": asked.hook.configuration.as_str(), "webhook": asked.hook.name.as_str(),
        "patch": operations.clone(), "patchType": "JSONPatch",
    });
    Ok(Patched {
        is_change: object != *admitted.object || owners != admitted.owners,
        object,
        owners,
        told: told.to_string(),
    })
}

/// What happens to fields that the kind does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::admission) enum Unknown {
    Dropped,
    Refused,
}

/// What somebody made of an object in the version of `resource`, with its owners: as it is stored, and
/// its owners.
pub(in crate::admission) async fn settled(
    request: &Request<'_>,
    admitted: &Admitted<'_>,
    resource: &Resource,
    mut patched: Value,
    unknown: Unknown,
) -> Result<(Value, Option<Value>), Status> {
    let kind = Kind::of(resource, request.subresource);
    let target = match request.is_of_kind() {
        true => Some(Target::of(resource)),
        false => Target::of_kind(kind.group, kind.version, kind.kind),
    };
    let target = target.ok_or_else(|| internal(unregistered(&patched)))?;
    check_kind(&patched, &target)?;
    let owners = patched.remove(&OWNERS).filter(|owners| !owners.is_null());
    let custom = resource.definition.custom();
    let patched = match custom.filter(|_| request.is_of_kind()) {
        Some(custom) => {
            let conformed = decode::custom::conform(custom, &mut patched);
            conformed.map_err(|problem| internal(problem.to_string()))?;
            patched
        }
        None => {
            let conformed = schema::conform(target.definition, patched);
            let (patched, problems) = conformed.map_err(|problem| internal(problem.to_string()))?;
            if unknown == Unknown::Refused && !problems.is_empty() {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                let told = format!("strict decoding error: {}", problems.join(", "));
                return Err(internal(told));
            }
            patched
        }
    };
    let mut object = request.stored(resource, patched).await?;
    match request.is_of_kind() {
        true => {
            schema::defaults(api::conversion::storage_of(admitted.requested), &mut object);
            admitted.requested.strategy().default(&mut object);
        }
        false => schema::apply_declared_defaults(target.definition, &mut object),
    }
    Ok((object, believed_owners(admitted, owners)))
}

/// The owners that a hook left, or those before it where it broke them.
fn believed_owners(admitted: &Admitted<'_>, owners: Option<Value>) -> Option<Value> {
    if owners == admitted.owners {
        return owners;
    }
    let mut object = Value::object();
    if let Some(owners) = &owners {
        object.set(&OWNERS, owners.clone());
    }
    let errors = api::metadata::managed_fields::validate(&object);
    match errors.first() {
        None => owners,
        Some(error) => {
            admitted.context.warn(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {error}"
            ));
            admitted.owners.clone()
        }
    }
}

fn unregistered(object: &Value) -> String {
    let (kind, version) = (object.str_at(&["kind"]), object.str_at(&["apiVersion"]));
    format!("no kind {kind:?} is registered for version {version:?} in scheme {SCHEME:?}")
}

/// A hook cannot turn an object into one of another kind.
fn check_kind(object: &Value, target: &Target<'_>) -> Result<(), Status> {
    let (given, version) = (object.str_at(&["kind"]), object.str_at(&["apiVersion"]));
    let expected = api::resource::api_version(target.group, target.version);
    if (given, version) == (target.kind, &expected) {
        return Ok(());
    }
    let (group, version) = api::resource::split_api_version(version);
    Err(internal(match Target::of_kind(group, version, given) {
        Some(_) => format!(
            "converting ({version}.{given}) to ({}.{}): unknown conversion",
            target.version, target.kind
        ),
        None => unregistered(object),
    }))
}
