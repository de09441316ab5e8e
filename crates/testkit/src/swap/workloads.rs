//! Workloads of every kind: created, changed while they run, rolled back, scaled, and deleted with
//! every propagation policy.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::objects::{deployment, elsewhere, job, rolling, template, version};
use super::scenario_client::ScenarioClient;
use super::{condition, number, text};

pub const APPS: &str = "/apis/apps/v1/namespaces/swap";
pub const BATCH: &str = "/apis/batch/v1/namespaces/swap";
pub const CORE: &str = "/api/v1/namespaces/swap";

/// Creates all objects that do not belong to storage.
pub async fn begin(client: &ScenarioClient) -> Result<()> {
    for name in ["swap", "swap-quota", "swap-doomed"] {
        let namespace = json!({"metadata": {"name": name}});
        client.create("/api/v1/namespaces", namespace).await?;
        // Pods need the ServiceAccount, and the quota counts objects that controllers create.
        for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{name}/{path}");
            client
                .until_object(&path, &format!("{name} has {path}"), |_| true)
                .await?;
        }
    }
    deployments(client).await?;
    services(client).await?;
    sets(client).await?;
    jobs(client).await?;
    doomed(client).await?;
    quota(client).await?;
    roles(client).await
}

async fn deployments(client: &ScenarioClient) -> Result<()> {
    let collection = format!("{APPS}/deployments");
    let gentle = rolling(1.into(), 0.into());
    for one in [
        deployment("web", 3, gentle.clone()),
        deployment("again", 2, json!({"type": "Recreate"})),
        deployment("old", 2, gentle.clone()),
        deployment("left", 2, gentle.clone()),
        deployment("shares", 6, rolling(2.into(), 2.into())),
    ] {
        client.create(&collection, one).await?;
    }
    let mut idle = deployment("idle", 2, gentle.clone());
    idle["spec"]["paused"] = true.into();
    client.create(&collection, idle).await?;
    let mut stuck = deployment("stuck", 1, gentle);
    stuck["spec"]["progressDeadlineSeconds"] = 5.into();
    stuck["spec"]["template"]["spec"]["nodeSelector"] = json!({"swap": "nowhere"});
    client.create(&collection, stuck).await
}

async fn services(client: &ScenarioClient) -> Result<()> {
    let collection = format!("{CORE}/services");
    for (name, spec) in [
        (
            "web",
            json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}),
        ),
        (
            "db",
            json!({"selector": {"app": "db"}, "clusterIP": "None", "ports": [{"port": 80}]}),
        ),
        ("outside", json!({"ports": [{"port": 80}]})),
    ] {
        let service = json!({"metadata": {"name": name}, "spec": spec});
        client.create(&collection, service).await?;
    }
    let endpoints = json!({
        "metadata": {"name": "outside"},
        "subsets": [{"addresses": [{"ip": "192.0.2.7"}, {"ip": "192.0.2.8"}], "ports": [{"port": 80}]}],
    });
    client
        .create(&format!("{CORE}/endpoints"), endpoints)
        .await?;
    for (name, spec) in [
        (
            "web",
            json!({"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}}),
        ),
        (
            "db",
            json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}}),
        ),
    ] {
        let budget = json!({"metadata": {"name": name}, "spec": spec});
        let collection = "/apis/policy/v1/namespaces/swap/poddisruptionbudgets";
        client.create(collection, budget).await?;
    }
    Ok(())
}

async fn sets(client: &ScenarioClient) -> Result<()> {
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": template("db", "v1"),
        },
    });
    client.create(&format!("{APPS}/statefulsets"), set).await?;
    let parallel = json!({
        "metadata": {"name": "late"},
        "spec": {
            "replicas": 2, "serviceName": "late", "podManagementPolicy": "Parallel",
            "ordinals": {"start": 5}, "selector": {"matchLabels": {"app": "late"}},
            "template": template("late", "v1"),
        },
    });
    client
        .create(&format!("{APPS}/statefulsets"), parallel)
        .await?;
    for (name, selector) in [("agent", json!({})), ("few", json!({"swap": "few"}))] {
        let mut template = template(name, "v1");
        template["spec"]["nodeSelector"] = selector;
        let set = json!({
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        });
        client.create(&format!("{APPS}/daemonsets"), set).await?;
    }
    let label = json!({"metadata": {"labels": {"swap": "few"}}});
    client.patch("/api/v1/nodes/node-1", label).await
}

async fn jobs(client: &ScenarioClient) -> Result<()> {
    let collection = format!("{BATCH}/jobs");
    for one in [
        job(
            "indexed",
            "0,0,0,0",
            json!({"completions": 4, "parallelism": 2, "completionMode": "Indexed"}),
        ),
        job("fails", "1", json!({"backoffLimit": 1})),
        job(
            "policy",
            "3",
            json!({"podFailurePolicy": {"rules": [{"action": "FailJob",
                "onExitCodes": {"operator": "In", "values": [3]}}]}}),
        ),
        job(
            "single",
            "0,1,0",
            json!({"backoffLimit": null, "backoffLimitPerIndex": 0, "completions": 3,
                "parallelism": 3, "completionMode": "Indexed"}),
        ),
        job(
            "leader",
            "0,never",
            json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed",
                "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}),
        ),
        job(
            "held",
            "0",
            json!({"suspend": true, "completions": 2, "parallelism": 2}),
        ),
        job("brief", "0", json!({"ttlSecondsAfterFinished": 1})),
        job("foreign", "0", json!({"managedBy": "example.com/other"})),
    ] {
        client.create(&collection, one).await?;
    }
    let mut hourly = job("", "0", json!({}));
    let template = hourly["spec"].take();
    let cron = json!({
        "metadata": {"name": "tick"},
        "spec": {
            "schedule": "* * * * *", "timeZone": "Asia/Kolkata", "successfulJobsHistoryLimit": 1,
            "jobTemplate": {"spec": template},
        },
    });
    client.create(&format!("{BATCH}/cronjobs"), cron).await
}

/// A namespace with objects of many kinds, which will be deleted.
async fn doomed(client: &ScenarioClient) -> Result<()> {
    let one = deployment("web", 1, json!({"type": "RollingUpdate"}));
    let collection = "/apis/apps/v1/namespaces/swap-doomed/deployments";
    client.create(collection, one).await?;
    let map = json!({"metadata": {"name": "kept", "finalizers": ["swap.test/kept"]}});
    client
        .create("/api/v1/namespaces/swap-doomed/configmaps", map)
        .await
}

async fn quota(client: &ScenarioClient) -> Result<()> {
    let core = "/api/v1/namespaces/swap-quota";
    let quota = json!({
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "2", "requests.cpu": "1", "count/configmaps": "5"}},
    });
    client
        .create(&format!("{core}/resourcequotas"), quota)
        .await?;
    // The quota is not enforced before it has a status.
    client
        .until_object(
            &format!("{core}/resourcequotas/small"),
            "the quota is counted",
            |quota| text(quota, "/status/hard/pods") == "2",
        )
        .await?;
    // An evicted pod would be replaced when the controller retries, which may be long after the quota
    // has room, so that these pods are kept away from the node that is tainted later.
    let mut template = template("many", "v1");
    template["spec"]["affinity"] = elsewhere("node-2");
    let controller = json!({
        "metadata": {"name": "many"},
        "spec": {"replicas": 4, "selector": {"app": "many"}, "template": template},
    });
    client
        .create(&format!("{core}/replicationcontrollers"), controller)
        .await
}

async fn roles(client: &ScenarioClient) -> Result<()> {
    let collection = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for name in ["swap-one", "swap-two"] {
        let role = json!({
            "metadata": {"name": name, "labels": {"swap.test/part": "yes"}},
            "rules": [{"apiGroups": [""], "resources": [name], "verbs": ["get"]}],
        });
        client.create(collection, role).await?;
    }
    let whole = json!({
        "metadata": {"name": "swap-whole"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"swap.test/part": "yes"}}]},
        "rules": [],
    });
    client.create(collection, whole).await
}

/// Changes the objects, each change after the previous one has been reconciled.
pub async fn change(client: &ScenarioClient) -> Result<()> {
    let names = ["web", "again", "old", "left", "shares"];
    for name in names {
        complete(client, name, "v1").await?;
    }
    let web = format!("{APPS}/deployments/web");
    client.patch(&web, version("v2")).await?;
    let again = format!("{APPS}/deployments/again");
    client.patch(&again, version("v2")).await?;
    let mut nowhere = version("v2");
    nowhere["spec"]["template"]["spec"]["nodeSelector"] = json!({"swap": "nowhere"});
    let shares = format!("{APPS}/deployments/shares");
    client.patch(&shares, nowhere).await?;
    complete(client, "web", "v2").await?;
    complete(client, "again", "v2").await?;
    // Back to the first revision, as `kubectl rollout undo` does it.
    client.patch(&web, version("v1")).await?;
    complete(client, "web", "v1").await?;
    let four = json!({"spec": {"replicas": 4}});
    client.patch(&web, four).await?;
    complete(client, "web", "v1, scaled").await?;
    client
        .until_object(&shares, "a rollout is stalled half way", |one| {
            number(one, "/status/replicas") == 8
                && number(one, "/status/availableReplicas") == 4
                && number(one, "/status/updatedReplicas") == 4
        })
        .await?;
    let twelve = json!({"spec": {"replicas": 12}});
    client.patch(&shares, twelve).await?;

    let db = format!("{APPS}/statefulsets/db");
    ready(client, "db", 3).await?;
    ready(client, "late", 2).await?;
    let mut partial = version("v2");
    partial["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    client.patch(&db, partial).await?;
    let agent = format!("{APPS}/daemonsets/agent");
    client
        .until_object(&agent, "the DaemonSet runs on 3 nodes", |one| {
            number(one, "/status/numberAvailable") == 3
        })
        .await?;
    client.patch(&agent, version("v2")).await?;
    let held = format!("{BATCH}/jobs/held");
    client
        .until_object(&held, "a Job is suspended", |one| {
            condition(one, "Suspended") == "True"
        })
        .await?;
    client
        .patch(&held, json!({"spec": {"suspend": false}}))
        .await?;

    client
        .delete(&format!("{APPS}/deployments/old"), "Foreground")
        .await?;
    client
        .delete(&format!("{APPS}/deployments/left"), "Orphan")
        .await?;
    client
        .delete("/api/v1/namespaces/swap-doomed", "Background")
        .await?;
    let kept = "/api/v1/namespaces/swap-doomed/configmaps/kept";
    client
        .until_object(
            "/api/v1/namespaces/swap-doomed",
            "a namespace tells what it waits for",
            |one| {
                condition(one, "NamespaceFinalizersRemaining") == "True"
                    && condition(one, "NamespaceContentRemaining") == "True"
            },
        )
        .await?;
    client
        .patch(kept, json!({"metadata": {"finalizers": null}}))
        .await
}

/// Waits until everything has settled.
pub async fn finish(client: &ScenarioClient) -> Result<()> {
    for gone in [
        format!("{APPS}/deployments/old"),
        format!("{APPS}/deployments/left"),
        "/api/v1/namespaces/swap-doomed".to_owned(),
        format!("{BATCH}/jobs/brief"),
    ] {
        client.until_gone(&gone).await?;
    }
    let replica_sets = format!("{APPS}/replicasets?labelSelector=app=old");
    client
        .until("nothing of a deleted Deployment is left", || async {
            let pods = format!("{CORE}/pods?labelSelector=app=old");
            Ok(
                client.list(&replica_sets).await?.is_empty()
                    && client.list(&pods).await?.is_empty(),
            )
        })
        .await?;
    for (name, kind) in [
        ("indexed", "Complete"),
        ("fails", "Failed"),
        ("policy", "Failed"),
        ("single", "Failed"),
        ("leader", "Complete"),
        ("held", "Complete"),
    ] {
        let what = format!("Job {name} is {kind}");
        client
            .until_object(&format!("{BATCH}/jobs/{name}"), &what, |one| {
                condition(one, kind) == "True"
            })
            .await?;
    }
    let stuck = format!("{APPS}/deployments/stuck");
    client
        .until_object(&stuck, "a Deployment exceeds its deadline", |one| {
            condition(one, "Progressing") == "False"
        })
        .await?;
    let db = format!("{APPS}/statefulsets/db");
    client
        .until_object(
            &db,
            "a StatefulSet is updated down to its partition",
            |one| {
                number(one, "/status/updatedReplicas") == 2
                    && number(one, "/status/readyReplicas") == 3
            },
        )
        .await?;
    let agent = format!("{APPS}/daemonsets/agent");
    client
        .until_object(&agent, "a DaemonSet is updated", |one| {
            number(one, "/status/updatedNumberScheduled") == 3
                && number(one, "/status/numberAvailable") == 3
        })
        .await?;
    let many = "/api/v1/namespaces/swap-quota/replicationcontrollers/many";
    client
        .until_object(many, "a quota holds a controller back", |one| {
            condition(one, "ReplicaFailure") == "True" && number(one, "/status/readyReplicas") == 2
        })
        .await?;
    let whole = "/apis/rbac.authorization.k8s.io/v1/clusterroles/swap-whole";
    client
        .until_object(whole, "a ClusterRole is aggregated", |one| {
            one["rules"]
                .as_array()
                .is_some_and(|rules| rules.len() == 2)
        })
        .await?;
    cron(client).await
}

/// One run of the CronJob. A second one would depend on the speed of the scenario.
async fn cron(client: &ScenarioClient) -> Result<()> {
    let tick = format!("{BATCH}/cronjobs/tick");
    client
        .until_object(&tick, "a CronJob ran", |one| {
            !text(one, "/status/lastSuccessfulTime").is_empty()
        })
        .await?;
    client
        .patch(&tick, json!({"spec": {"suspend": true}}))
        .await?;
    client
        .until_object(&tick, "the CronJob rests", |one| {
            one["status"]["active"].is_null()
        })
        .await?;
    client
        .until("one Job of the CronJob is kept", || async {
            let jobs = client.list(&format!("{BATCH}/jobs")).await?;
            let own = jobs
                .iter()
                .filter(|one| text(one, "/metadata/ownerReferences/0/kind") == "CronJob");
            Ok(own.count() == 1)
        })
        .await
}

/// Waits until a rollout is complete.
async fn complete(client: &ScenarioClient, name: &str, now: &str) -> Result<()> {
    let is_complete = |one: &Value| {
        let replicas = number(one, "/spec/replicas");
        let counts = [
            "/status/replicas",
            "/status/updatedReplicas",
            "/status/availableReplicas",
        ];
        one["status"]["observedGeneration"] == one["metadata"]["generation"]
            && counts.iter().all(|count| number(one, count) == replicas)
    };
    let what = format!("Deployment {name} is complete ({now})");
    client
        .until_object(&format!("{APPS}/deployments/{name}"), &what, is_complete)
        .await
}

async fn ready(client: &ScenarioClient, name: &str, count: i64) -> Result<()> {
    let what = format!("StatefulSet {name} has {count} ready pods");
    client
        .until_object(&format!("{APPS}/statefulsets/{name}"), &what, |one| {
            number(one, "/status/readyReplicas") == count
        })
        .await
}

/// The name of one pod of that app.
pub async fn pod_of(client: &ScenarioClient, app: &str) -> Result<String> {
    let path = format!("{CORE}/pods?labelSelector=app={app}");
    let pods = client.list(&path).await?;
    let pod = pods.first().context("no such pod")?;
    let name = text(pod, "/metadata/name");
    ensure!(!name.is_empty(), "a pod without a name");
    Ok(name.to_owned())
}
