//! Volumes: claims that wait for their pod, claims of a StatefulSet that are deleted when it
//! shrinks, a claim that is deleted while it is in use.

use anyhow::Result;
use serde_json::json;

use super::objects::template;
use super::scenario_client::ScenarioClient;
use super::workloads::{APPS, CORE};
use super::{number, text};

pub async fn begin(client: &ScenarioClient) -> Result<()> {
    for (name, mode) in [
        ("swap-waits", "WaitForFirstConsumer"),
        ("swap-now", "Immediate"),
    ] {
        let class = json!({
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode,
        });
        client
            .create("/apis/storage.k8s.io/v1/storageclasses", class)
            .await?;
    }
    for (name, class, size) in [
        ("swap-1", "swap-waits", "1Gi"),
        ("swap-2", "swap-waits", "1Gi"),
        ("swap-3", "swap-waits", "1Gi"),
        ("swap-now-small", "swap-now", "1Gi"),
        ("swap-now-large", "swap-now", "5Gi"),
    ] {
        let volume = json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": class, "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": "/tmp"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}},
            },
        });
        client.create("/api/v1/persistentvolumes", volume).await?;
    }
    let claims = format!("{CORE}/persistentvolumeclaims");
    for (name, class) in [("now", "swap-now"), ("waits", "swap-waits")] {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        client.create(&claims, claim).await?;
    }
    let mut template = template("disk", "v1");
    template["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}]);
    let set = json!({
        "metadata": {"name": "disk"},
        "spec": {
            "replicas": 2, "serviceName": "disk", "selector": {"matchLabels": {"app": "disk"}},
            "template": template,
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"},
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"storageClassName": "swap-waits", "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}},
            }],
        },
    });
    client.create(&format!("{APPS}/statefulsets"), set).await?;
    let mut user = super::objects::template("user", "v1");
    user["metadata"]["name"] = "user".into();
    user["spec"]["volumes"] =
        json!([{"name": "now", "persistentVolumeClaim": {"claimName": "now"}}]);
    client.create(&format!("{CORE}/pods"), user).await
}

pub async fn change(client: &ScenarioClient) -> Result<()> {
    let disk = format!("{APPS}/statefulsets/disk");
    client
        .until_object(&disk, "a StatefulSet has its volumes", |one| {
            number(one, "/status/readyReplicas") == 2
        })
        .await?;
    client
        .patch(&disk, json!({"spec": {"replicas": 1}}))
        .await?;
    client
        .until_gone(&format!("{CORE}/persistentvolumeclaims/data-disk-1"))
        .await?;
    client
        .until("its volume is released", || async {
            let volumes = client.list("/api/v1/persistentvolumes").await?;
            let released = volumes
                .iter()
                .filter(|volume| text(volume, "/status/phase") == "Released");
            Ok(released.count() == 1)
        })
        .await?;
    let user = format!("{CORE}/pods/user");
    client
        .until_object(&user, "a pod uses a claim", |pod| {
            text(pod, "/status/phase") == "Running"
        })
        .await?;
    let now = format!("{CORE}/persistentvolumeclaims/now");
    client.delete(&now, "Background").await?;
    client
        .until_object(&now, "a claim in use stays", |claim| {
            !text(claim, "/metadata/deletionTimestamp").is_empty()
        })
        .await
}
