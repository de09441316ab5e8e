//! Type checking of ValidatingAdmissionPolicies: compiles their expressions for the kinds that they are
//! about, and writes what is wrong as warnings into their status. A policy is checked when it changes;
//! kinds that come later do not change what was found.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;

use api::Value;
use api::expressions::type_checking::{KindName, KindSchema};
use client::controller::Reconciled;
use client::{ObjectKey, WorkQueue, retry};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error};

/// Upstream's name, with which it owns the fields of the status.
const CONTROLLER: &str = "validatingadmissionpolicy-status";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let policies = config.informers.of::<ValidatingAdmissionPolicy>();
    let queue = WorkQueue::new();
    let feed = enqueue(
        &policies,
        &queue,
        |policy: &ValidatingAdmissionPolicy| match plan::is_due(policy) {
            true => own_key(policy),
            false => Vec::new(),
        },
    );
    let reconcile = move |key: ObjectKey| {
        let (config, policies) = (config.clone(), policies.clone());
        async move {
            policies.synced().await;
            match policies.get("", &key.name) {
                Some(policy) if plan::is_due(&policy) => {
                    reconcile(&config, &key.name, &policy).await
                }
                _ => Ok(Reconciled::Done),
            }
        }
    };
    watching::run(CONTROLLER, 1, queue, feed, reconcile, shutdown).await;
}

async fn reconcile(
    config: &Config,
    name: &str,
    policy: &ValidatingAdmissionPolicy,
) -> Result<Reconciled, Error> {
    let document = Value::from_json(&serde_json::to_vec(policy)?)?;
    let kinds = kinds_of_others(&config.client, &document).await?;
    let needed = plan::needed(&document, |group, version, resource| {
        let key = (group.to_string(), version.to_string());
        kinds.get(&key)?.get(resource).cloned()
    });
    let schemas = schemas_of_others(&config.client, &needed).await?;
    let warnings = plan::check(&document, needed, |kind| {
        plan::built_in(kind).or_else(|| schemas.get(&kind.to_string()).cloned())
    });
    let generation = policy.metadata.generation.unwrap_or_default();
    let status = plan::status(name, generation, &warnings);
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(config.client.clone());
    let parameters = PatchParams::apply(CONTROLLER).force();
    match policies
        .patch_status(name, &parameters, &Patch::Apply(status))
        .await
    {
        Err(error) if !retry::is_not_found(&error) => Err(error.into()),
        _ => Ok(Reconciled::Done),
    }
}

/// By group version, the kinds of its resources.
type Kinds = HashMap<(String, String), HashMap<String, String>>;

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<NamedResource>,
}

#[derive(Deserialize)]
struct NamedResource {
    name: String,
    kind: String,
}

/// The kinds of the resources that a policy names and that are not built in. A group version that is
/// not served has none.
async fn kinds_of_others(client: &kube::Client, policy: &Value) -> Result<Kinds, Error> {
    let mut kinds = Kinds::new();
    for (group, version) in plan::unknown_group_versions(policy) {
        let path = match group.as_str() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let Some(served) = get::<Resources>(client, &path).await? else {
            continue;
        };
        let served = served.resources.into_iter();
        let served = served.map(|resource| (resource.name, resource.kind));
        kinds.insert((group, version), served.collect());
    }
    Ok(kinds)
}

/// The schemas of kinds that are not built in, by the name of the kind.
async fn schemas_of_others(
    client: &kube::Client,
    needed: &plan::Needed,
) -> Result<HashMap<String, KindSchema>, Error> {
    let mut documents: HashMap<String, Option<Arc<Value>>> = HashMap::new();
    let mut schemas = HashMap::new();
    let others = needed.kinds.iter().chain(&needed.params);
    for kind in others.filter(|kind| plan::built_in(kind).is_none()) {
        let path = document_path(kind);
        let document = match documents.get(&path) {
            Some(known) => known.clone(),
            None => {
                let document = get::<Value>(client, &path).await?.map(Arc::new);
                documents.insert(path, document.clone());
                document
            }
        };
        let Some(document) = document else {
            continue;
        };
        if let Some(name) = plan::published_name(&document, kind) {
            schemas.insert(kind.to_string(), KindSchema::Published { document, name });
        }
    }
    Ok(schemas)
}

fn document_path(kind: &KindName) -> String {
    match kind.group.as_str() {
        "" => format!("/openapi/v3/api/{}", kind.version),
        group => format!("/openapi/v3/apis/{group}/{}", kind.version),
    }
}

/// What is at a path; nothing where that is not served. Policies name groups and versions as they
/// please, so that some are no paths at all.
async fn get<T: serde::de::DeserializeOwned>(
    client: &kube::Client,
    path: &str,
) -> Result<Option<T>, Error> {
    let Ok(request) = http::Request::get(path).body(Vec::new()) else {
        return Ok(None);
    };
    match client.request(request).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if retry::is_not_found(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
