//! Rarer features: surge and OnDelete updates, back-off limits per index, budgets in percent,
//! autoscalers without a target, claims of ephemeral volumes, volumes that are reserved or cannot be
//! deleted, ServiceCIDRs, owners without dependents.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::objects::{deployment, elsewhere, job, rolling, template, version};
use super::scenario_client::ScenarioClient;
use super::workloads::{APPS, BATCH, CORE};
use super::{condition, number, text};

const SCALERS: &str = "/apis/autoscaling/v2/namespaces/swap/horizontalpodautoscalers";
const BUDGETS: &str = "/apis/policy/v1/namespaces/swap/poddisruptionbudgets";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

/// The DaemonSets of the scenario that run on every node.
pub const EVERYWHERE: [&str; 3] = ["agent", "surge", "by-hand"];

pub async fn begin(client: &ScenarioClient) -> Result<()> {
    sets(client).await?;
    jobs(client).await?;
    budgets(client).await?;
    scalers(client).await?;
    volumes(client).await?;
    quotas(client).await?;
    ranges(client).await?;
    owners(client).await
}

async fn sets(client: &ScenarioClient) -> Result<()> {
    for (name, strategy) in [
        ("surge", rolling(1.into(), 0.into())),
        ("by-hand", json!({"type": "OnDelete"})),
    ] {
        let set = json!({
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "updateStrategy": strategy,
                "template": template(name, "v1")},
        });
        client.create(&format!("{APPS}/daemonsets"), set).await?;
    }
    // It must not depend on timing which of its pods are evicted, and thereby updated.
    let mut stays = template("manual", "v1");
    stays["spec"]["affinity"] = elsewhere("node-2");
    let set = json!({
        "metadata": {"name": "manual"},
        "spec": {
            "replicas": 2, "serviceName": "manual", "updateStrategy": {"type": "OnDelete"},
            "minReadySeconds": 1, "selector": {"matchLabels": {"app": "manual"}},
            "template": stays,
        },
    });
    client.create(&format!("{APPS}/statefulsets"), set).await?;
    let mut short = deployment("short", 1, rolling(1.into(), 0.into()));
    short["spec"]["revisionHistoryLimit"] = 1.into();
    short["spec"]["minReadySeconds"] = 1.into();
    client.create(&format!("{APPS}/deployments"), short).await
}

async fn jobs(client: &ScenarioClient) -> Result<()> {
    let collection = format!("{BATCH}/jobs");
    for one in [
        job(
            "patient",
            "0,1",
            json!({"backoffLimit": null, "backoffLimitPerIndex": 1, "completions": 2,
                "parallelism": 2, "completionMode": "Indexed"}),
        ),
        // Other pods must not exit by themselves, because the time would not be determined.
        job(
            "give-up",
            "never,3,never",
            json!({"backoffLimit": null, "backoffLimitPerIndex": 5, "maxFailedIndexes": 0,
                "completions": 3, "parallelism": 3, "completionMode": "Indexed",
                "podFailurePolicy": {"rules": [{"action": "FailIndex",
                    "onExitCodes": {"operator": "In", "values": [3]}}]}}),
        ),
        job("hurried", "never", json!({"activeDeadlineSeconds": 3})),
        job(
            "enough",
            "0,0,never",
            json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed",
                "successPolicy": {"rules": [{"succeededIndexes": "0-2", "succeededCount": 2}]}}),
        ),
        job(
            "queue",
            "0",
            json!({"parallelism": 2, "podReplacementPolicy": "Failed"}),
        ),
    ] {
        client.create(&collection, one).await?;
    }
    Ok(())
}

async fn budgets(client: &ScenarioClient) -> Result<()> {
    for (name, app, spec) in [
        ("half", "again", json!({"minAvailable": "50%"})),
        (
            "third",
            "shares",
            json!({"maxUnavailable": "34%", "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
        ),
        ("unmanaged", "user", json!({"maxUnavailable": 1})),
        ("nobody", "no-such-app", json!({"minAvailable": 0})),
    ] {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": app}});
        let budget = json!({"metadata": {"name": name}, "spec": spec});
        client.create(BUDGETS, budget).await?;
    }
    Ok(())
}

/// Autoscalers that do not depend on metrics, which only one of the API servers has: without a
/// target, or with equal minimum and maximum.
async fn scalers(client: &ScenarioClient) -> Result<()> {
    let deployments = format!("{APPS}/deployments");
    for (name, replicas) in [("none", 0), ("grown", 1), ("capped", 3)] {
        let one = deployment(name, replicas, rolling(1.into(), 0.into()));
        client.create(&deployments, one).await?;
    }
    for (name, kind, target, least, most) in [
        ("none", "Deployment", "none", 1, 3),
        ("grown", "Deployment", "grown", 2, 2),
        ("capped", "Deployment", "capped", 2, 2),
        ("no-target", "Deployment", "no-such-target", 1, 3),
        ("no-kind", "NoSuchKind", "web", 1, 3),
    ] {
        let scaler = json!({
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target},
                "minReplicas": least, "maxReplicas": most,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 50}}}],
            },
        });
        client.create(SCALERS, scaler).await?;
    }
    Ok(())
}

async fn volumes(client: &ScenarioClient) -> Result<()> {
    for name in ["swap-scratch", "swap-cycle"] {
        let class = json!({
            "metadata": {"name": name}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        });
        client
            .create("/apis/storage.k8s.io/v1/storageclasses", class)
            .await?;
    }
    let claims = format!("{CORE}/persistentvolumeclaims");
    let volume = |name: &str, class: &str, policy: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": class, "persistentVolumeReclaimPolicy": policy,
                "local": {"path": "/tmp"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}},
            },
        })
    };
    let claim = |name: &str, class: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}},
        })
    };
    let mut reserved = volume("swap-reserved", "swap-static", "Retain");
    reserved["spec"]["claimRef"] = json!({"namespace": "swap", "name": "reserved"});
    let mut block = volume("swap-block", "swap-block", "Retain");
    block["spec"]["volumeMode"] = "Block".into();
    for one in [
        volume("swap-scratch", "swap-scratch", "Retain"),
        volume("swap-cycle", "swap-cycle", "Retain"),
        volume("swap-named", "swap-other", "Retain"),
        volume("swap-undeletable", "swap-undeletable", "Delete"),
        reserved,
        block,
    ] {
        client.create("/api/v1/persistentvolumes", one).await?;
    }
    let mut named = claim("named", "swap-other");
    named["spec"]["volumeName"] = "swap-named".into();
    let mut second = claim("named-too", "swap-other");
    second["spec"]["volumeName"] = "swap-named".into();
    let mut mismatch = claim("mismatch", "swap-block");
    mismatch["spec"]["volumeName"] = "swap-block".into();
    for one in [
        claim("reserved", "swap-static"),
        claim("gone", "swap-undeletable"),
        claim("taken-data", "swap-scratch"),
        claim("no-class", "swap-no-such-class"),
        named,
        mismatch,
    ] {
        client.create(&claims, one).await?;
    }
    // The second claim is created after the first is bound, so that the order is determined.
    bound(client, "named").await?;
    client.create(&claims, second).await?;
    for (name, class) in [
        ("scratch", "swap-scratch"),
        ("taken", "swap-scratch"),
        ("cycle", "swap-cycle"),
    ] {
        let mut pod = template(name, "v1");
        pod["metadata"]["name"] = name.into();
        pod["spec"]["volumes"] = json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": {
            "metadata": {"labels": {"of": name}},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}}}]);
        // Of a pod that runs once a node says that it has ended before it removes it.
        pod["spec"]["restartPolicy"] = "Never".into();
        pod["spec"]["containers"][0]["env"] = json!([{"name": "EXIT_CODES", "value": "never"}]);
        client.create(&format!("{CORE}/pods"), pod).await?;
    }
    Ok(())
}

async fn quotas(client: &ScenarioClient) -> Result<()> {
    for (name, spec) in [
        (
            "best-effort",
            json!({"hard": {"pods": "9"}, "scopes": ["BestEffort"]}),
        ),
        (
            "steady",
            json!({"hard": {"pods": "9", "requests.memory": "1Gi"},
                "scopes": ["NotTerminating", "NotBestEffort"]}),
        ),
        (
            "important",
            json!({"hard": {"pods": "9"}, "scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "Exists"}]}}),
        ),
        (
            "counts",
            json!({"hard": {"count/replicationcontrollers": "9", "services": "9",
                "count/jobs.batch": "9", "requests.storage": "9Gi"}}),
        ),
    ] {
        let quota = json!({"metadata": {"name": name}, "spec": spec});
        let collection = "/api/v1/namespaces/swap-quota/resourcequotas";
        client.create(collection, quota).await?;
    }
    Ok(())
}

/// A ServiceCIDR that is in use and so cannot be deleted, and one that is not in use.
async fn ranges(client: &ScenarioClient) -> Result<()> {
    for (name, cidr) in [
        ("swap-used", "10.219.7.0/24"),
        ("swap-unused", "10.219.8.0/24"),
    ] {
        let range = json!({"metadata": {"name": name}, "spec": {"cidrs": [cidr]}});
        client.create(RANGES, range).await?;
        let path = format!("{RANGES}/{name}");
        client
            .until_object(&path, &format!("range {name} is ready"), |one| {
                condition(one, "Ready") == "True"
            })
            .await?;
    }
    client
        .until("a Service has an address of another range", || async {
            let service = json!({"metadata": {"name": "elsewhere"},
                "spec": {"clusterIP": "10.219.7.10", "ports": [{"port": 80}]}});
            // The allocator may not know the range yet.
            client.create(&format!("{CORE}/services"), service).await?;
            Ok(true)
        })
        .await?;
    client
        .delete(&format!("{RANGES}/swap-used"), "Background")
        .await?;
    client
        .delete(&format!("{RANGES}/swap-unused"), "Background")
        .await
}

/// Owners in another namespace, owners that never existed, and one of two owners that is deleted.
async fn owners(client: &ScenarioClient) -> Result<()> {
    let uid_of = async |path: String| -> Result<String> {
        let object = client.get(&path).await?.context("an owner")?;
        Ok(text(&object, "/metadata/uid").to_owned())
    };
    let many = "/api/v1/namespaces/swap-quota/replicationcontrollers/many".to_owned();
    let reference = |version: &str, kind: &str, name: &str, uid: String| json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid});
    let web = uid_of(format!("{APPS}/deployments/web")).await?;
    let old = uid_of(format!("{APPS}/deployments/old")).await?;
    let web = reference("apps/v1", "Deployment", "web", web);
    let old = reference("apps/v1", "Deployment", "old", old);
    let stray = reference("v1", "ReplicationController", "many", uid_of(many).await?);
    let never = "00000000-0000-4000-8000-000000000000".to_owned();
    let never = reference("v1", "ConfigMap", "no-such-map", never);
    for (name, owners) in [
        ("stray", vec![stray]),
        ("orphan", vec![never.clone()]),
        ("shared", vec![web.clone(), old]),
        ("half-orphan", vec![web, never]),
    ] {
        let map = json!({"metadata": {"name": name, "ownerReferences": owners}});
        client.create(&format!("{CORE}/configmaps"), map).await?;
    }
    Ok(())
}

pub async fn change(client: &ScenarioClient) -> Result<()> {
    for name in EVERYWHERE {
        client
            .until_object(
                &format!("{APPS}/daemonsets/{name}"),
                &format!("DaemonSet {name} is everywhere"),
                |one| number(one, "/status/numberAvailable") == 3,
            )
            .await?;
    }
    for name in ["surge", "by-hand"] {
        let path = format!("{APPS}/daemonsets/{name}");
        client.patch(&path, version("v2")).await?;
    }
    let manual = format!("{APPS}/statefulsets/manual");
    client
        .until_object(&manual, "StatefulSet manual is available", |one| {
            number(one, "/status/availableReplicas") == 2
        })
        .await?;
    client.patch(&manual, version("v2")).await?;
    let short = format!("{APPS}/deployments/short");
    for (round, version) in [version("v2"), version("v1"), version("v2")]
        .into_iter()
        .enumerate()
    {
        let mut patch = version;
        // Each revision is new: none is a rollback.
        patch["spec"]["template"]["metadata"] =
            json!({"annotations": {"round": round.to_string()}});
        client.patch(&short, patch).await?;
        let what = format!("round {round} of Deployment short is through");
        client
            .until_object(&short, &what, |one| {
                one["status"]["observedGeneration"] == one["metadata"]["generation"]
                    && number(one, "/status/updatedReplicas") == 1
                    && number(one, "/status/replicas") == 1
                    && number(one, "/status/availableReplicas") == 1
            })
            .await?;
    }
    bound(client, "gone").await?;
    client
        .delete(&format!("{CORE}/persistentvolumeclaims/gone"), "Background")
        .await
}

pub async fn finish(client: &ScenarioClient) -> Result<()> {
    for (name, kind) in [
        ("patient", "Failed"),
        ("give-up", "Failed"),
        ("hurried", "Failed"),
        ("enough", "Complete"),
        ("queue", "Complete"),
    ] {
        let what = format!("Job {name} is {kind}");
        client
            .until_object(&format!("{BATCH}/jobs/{name}"), &what, |one| {
                condition(one, kind) == "True"
            })
            .await?;
    }
    let surge = format!("{APPS}/daemonsets/surge");
    client
        .until_object(&surge, "a DaemonSet is updated by surge", |one| {
            number(one, "/status/updatedNumberScheduled") == 3
                && number(one, "/status/numberAvailable") == 3
        })
        .await?;
    let pods = format!("{CORE}/pods?labelSelector=app=surge");
    client
        .until("no pod of it is left over", || async {
            Ok(client.list(&pods).await?.len() == 3)
        })
        .await?;
    for gone in [
        format!("{CORE}/configmaps/stray"),
        format!("{CORE}/configmaps/orphan"),
        format!("{RANGES}/swap-unused"),
    ] {
        client.until_gone(&gone).await?;
    }
    for name in ["shared", "half-orphan"] {
        let path = format!("{CORE}/configmaps/{name}");
        let what = format!("{name} has lost an owner");
        client
            .until_object(&path, &what, |one| {
                let owners = one["metadata"]["ownerReferences"].as_array();
                owners.map_or(0, Vec::len) == 1
            })
            .await?;
    }
    let sets = format!("{APPS}/replicasets?labelSelector=app=short");
    client
        .until("of the history of a Deployment one set is left", || async {
            Ok(client.list(&sets).await?.len() == 2)
        })
        .await?;
    for (name, replicas) in [("grown", 2), ("capped", 2)] {
        let path = format!("{APPS}/deployments/{name}");
        let what = format!("Deployment {name} is scaled to its bound");
        client
            .until_object(&path, &what, |one| {
                number(one, "/status/availableReplicas") == replicas
            })
            .await?;
    }
    for (name, kind) in [
        ("none", "ScalingActive"),
        ("no-target", "AbleToScale"),
        ("no-kind", "AbleToScale"),
    ] {
        let path = format!("{SCALERS}/{name}");
        client
            .until_object(&path, &format!("autoscaler {name} says why not"), |one| {
                condition(one, kind) == "False"
            })
            .await?;
    }
    for name in ["reserved", "scratch-data"] {
        bound(client, name).await?;
    }
    let volume = "/api/v1/persistentvolumes/swap-undeletable";
    client
        .until_object(volume, "a volume cannot be deleted", |one| {
            text(one, "/status/phase") == "Failed"
        })
        .await?;
    for name in ["scratch", "cycle"] {
        let path = format!("{CORE}/pods/{name}");
        let what = format!("pod {name} has an ephemeral volume");
        client
            .until_object(&path, &what, |one: &Value| {
                text(one, "/status/phase") == "Running"
            })
            .await?;
    }
    // The pod waits for its claim, and the claim for its pod.
    let cycle = format!("{CORE}/pods/cycle");
    client.delete(&cycle, "Foreground").await?;
    client.until_gone(&cycle).await?;
    client
        .until_object(
            "/api/v1/persistentvolumes/swap-cycle",
            "the volume of an ephemeral claim is released",
            |one| text(one, "/status/phase") == "Released",
        )
        .await
}

async fn bound(client: &ScenarioClient, claim: &str) -> Result<()> {
    let path = format!("{CORE}/persistentvolumeclaims/{claim}");
    client
        .until_object(&path, &format!("claim {claim} is bound"), |one| {
            text(one, "/status/phase") == "Bound"
        })
        .await
}
