//! The node's heartbeat: a Lease in `kube-node-lease`, renewed every ten seconds.

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
const DURATION_SECONDS: i32 = 40;
const RENEWAL: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(200);

pub async fn run(
    client: kube::Client,
    environment: Environment,
    node_name: String,
    node_uid: String,
    shutdown: CancellationToken,
) {
    let api: Api<Lease> = Api::namespaced(client, NAMESPACE);
    loop {
        let pause = match renew(&api, &environment, &node_name, &node_uid).await {
            Ok(()) => RENEWAL,
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
) -> kube::Result<()> {
    let now = MicroTime(environment.now());
    let patch = serde_json::json!({"spec": {
        "holderIdentity": node_name,
        "leaseDurationSeconds": DURATION_SECONDS,
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
            lease_duration_seconds: Some(DURATION_SECONDS),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    api.create(&PostParams::default(), &lease).await.map(drop)
}
