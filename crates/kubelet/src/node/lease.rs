//! The node's heartbeat: a Lease in `kube-node-lease`, renewed every ten seconds by default.

use std::time::Duration;

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

const NAMESPACE: &str = "kube-node-lease";
const RETRY: Duration = Duration::from_millis(200);

pub async fn run(
    client: kube::Client,
    environment: Environment,
    node_name: String,
    node_uid: String,
    duration_seconds: i32,
    shutdown: CancellationToken,
) {
    // A quarter of its life, as upstream does: three renewals may be lost.
    let renewal = Duration::from_secs(duration_seconds.max(4) as u64 / 4);
    let api: Api<Lease> = Api::namespaced(client, NAMESPACE);
    loop {
        let pause = match renew(&api, &environment, &node_name, &node_uid, duration_seconds).await {
            Ok(()) => renewal,
            Err(error) => {
                tracing::warn!(%error, "the node's lease was not renewed");
                RETRY
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn renew(
    api: &Api<Lease>,
    environment: &Environment,
    node_name: &str,
    node_uid: &str,
    duration_seconds: i32,
) -> kube::Result<()> {
    let now = MicroTime(environment.now());
    let patch = serde_json::json!({"spec": {
        "holderIdentity": node_name,
        "leaseDurationSeconds": duration_seconds,
        "renewTime": now,
    }});
    let patched = api
        .patch(node_name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    match patched {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other.map(drop),
    }
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(node_name.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node_name.to_owned(),
                uid: node_uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node_name.to_owned()),
            lease_duration_seconds: Some(duration_seconds),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    api.create(&PostParams::default(), &lease).await.map(drop)
}
