//! The node's heartbeat: a Lease in `kube-node-lease`, renewed every ten seconds by default.

use std::time::Duration;

use client::retry;
use environment::Environment;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use tokio_util::sync::CancellationToken;

use crate::node_object::NodeObject;

const NAMESPACE: &str = "kube-node-lease";
const RETRY: Duration = Duration::from_millis(200);

/// Renews the lease of the node until `shutdown`. Its owner is the Node as the API has it: one that
/// was deleted and registered again is another owner.
pub async fn run(
    client: kube::Client,
    environment: Environment,
    node_object: NodeObject,
    duration_seconds: i32,
    shutdown: CancellationToken,
) {
    let node_name = node_object.name();
    // A quarter of its life, as upstream does: three renewals may be lost.
    let renewal = Duration::from_secs(duration_seconds.max(4) as u64 / 4);
    let api: Api<Lease> = Api::namespaced(client, NAMESPACE);
    // The owner that the lease is known to have.
    let mut written_owner: Option<String> = None;
    loop {
        let owner = node_object.uid();
        let new_owner = owner.as_deref().filter(|_| owner != written_owner);
        let lease = lease(&environment, node_name, new_owner, duration_seconds);
        let pause = match renew(&api, lease, node_name, owner.as_deref()).await {
            Ok(()) => {
                written_owner = owner;
                renewal
            }
            Err(error) => {
                tracing::warn!(
                    "the node's lease was not renewed: {}",
                    retry::sentence(&error)
                );
                RETRY
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The lease to write. It names its owner only if there is a new one.
fn lease(
    environment: &Environment,
    node_name: &str,
    owner: Option<&str>,
    duration_seconds: i32,
) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(node_name.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            owner_references: owners(node_name, owner),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node_name.to_owned()),
            lease_duration_seconds: Some(duration_seconds),
            renew_time: Some(MicroTime(environment.now())),
            ..LeaseSpec::default()
        }),
    }
}

fn owners(node_name: &str, uid: Option<&str>) -> Option<Vec<OwnerReference>> {
    let uid = uid?.to_owned();
    Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node_name.to_owned(),
        uid,
        ..OwnerReference::default()
    }])
}

async fn renew(
    api: &Api<Lease>,
    mut lease: Lease,
    node_name: &str,
    owner: Option<&str>,
) -> kube::Result<()> {
    let patched = api
        .patch(node_name, &PatchParams::default(), &Patch::Merge(&lease))
        .await;
    match patched {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other.map(drop),
    }
    lease.metadata.owner_references = owners(node_name, owner);
    api.create(&PostParams::default(), &lease).await.map(drop)
}
