//! Workloads of every kind: made, changed while they run, rolled back, scaled, deleted in all ways.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::objects::{deployment, elsewhere, job, rolling, template, version};
use super::stage::Stage;
use super::{condition, number, text};

pub const APPS: &str = "/apis/apps/v1/namespaces/swap";
pub const BATCH: &str = "/apis/batch/v1/namespaces/swap";
pub const CORE: &str = "/api/v1/namespaces/swap";

/// Makes everything that is not about storage.
pub async fn begin(stage: &Stage) -> Result<()> {
    for name in ["swap", "swap-quota", "swap-doomed"] {
        let namespace = json!({"metadata": {"name": name}});
        stage.create("/api/v1/namespaces", namespace).await?;
        // Pods need the account, and quota counts what controllers publish.
        for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{name}/{path}");
            stage
                .until_object(&path, &format!("{name} has {path}"), |_| true)
                .await?;
        }
    }
    deployments(stage).await?;
    services(stage).await?;
    sets(stage).await?;
    jobs(stage).await?;
    doomed(stage).await?;
    quota(stage).await?;
    roles(stage).await
}

async fn deployments(stage: &Stage) -> Result<()> {
    let collection = format!("{APPS}/deployments");
    let gentle = rolling(1.into(), 0.into());
    for one in [
        deployment("web", 3, gentle.clone()),
        deployment("again", 2, json!({"type": "Recreate"})),
        deployment("old", 2, gentle.clone()),
        deployment("left", 2, gentle.clone()),
        deployment("shares", 6, rolling(2.into(), 2.into())),
    ] {
        stage.create(&collection, one).await?;
    }
    let mut idle = deployment("idle", 2, gentle.clone());
    idle["spec"]["paused"] = true.into();
    stage.create(&collection, idle).await?;
    let mut stuck = deployment("stuck", 1, gentle);
    stuck["spec"]["progressDeadlineSeconds"] = 5.into();
    stuck["spec"]["template"]["spec"]["nodeSelector"] = json!({"swap": "nowhere"});
    stage.create(&collection, stuck).await
}

async fn services(stage: &Stage) -> Result<()> {
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
        stage.create(&collection, service).await?;
    }
    let endpoints = json!({
        "metadata": {"name": "outside"},
        "subsets": [{"addresses": [{"ip": "192.0.2.7"}, {"ip": "192.0.2.8"}], "ports": [{"port": 80}]}],
    });
    stage
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
        stage.create(collection, budget).await?;
    }
    Ok(())
}

async fn sets(stage: &Stage) -> Result<()> {
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": template("db", "v1"),
        },
    });
    stage.create(&format!("{APPS}/statefulsets"), set).await?;
    let parallel = json!({
        "metadata": {"name": "late"},
        "spec": {
            "replicas": 2, "serviceName": "late", "podManagementPolicy": "Parallel",
            "ordinals": {"start": 5}, "selector": {"matchLabels": {"app": "late"}},
            "template": template("late", "v1"),
        },
    });
    stage
        .create(&format!("{APPS}/statefulsets"), parallel)
        .await?;
    for (name, selector) in [("agent", json!({})), ("few", json!({"swap": "few"}))] {
        let mut template = template(name, "v1");
        template["spec"]["nodeSelector"] = selector;
        let set = json!({
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        });
        stage.create(&format!("{APPS}/daemonsets"), set).await?;
    }
    let label = json!({"metadata": {"labels": {"swap": "few"}}});
    stage.patch("/api/v1/nodes/node-1", label).await
}

async fn jobs(stage: &Stage) -> Result<()> {
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
        stage.create(&collection, one).await?;
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
    stage.create(&format!("{BATCH}/cronjobs"), cron).await
}

/// A namespace with a bit of everything, which will be deleted.
async fn doomed(stage: &Stage) -> Result<()> {
    let one = deployment("web", 1, json!({"type": "RollingUpdate"}));
    let collection = "/apis/apps/v1/namespaces/swap-doomed/deployments";
    stage.create(collection, one).await?;
    let map = json!({"metadata": {"name": "kept", "finalizers": ["swap.test/kept"]}});
    stage
        .create("/api/v1/namespaces/swap-doomed/configmaps", map)
        .await
}

async fn quota(stage: &Stage) -> Result<()> {
    let core = "/api/v1/namespaces/swap-quota";
    let quota = json!({
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "2", "requests.cpu": "1", "count/configmaps": "5"}},
    });
    stage
        .create(&format!("{core}/resourcequotas"), quota)
        .await?;
    // Without a status the quota does not hold yet.
    stage
        .until_object(
            &format!("{core}/resourcequotas/small"),
            "the quota is counted",
            |quota| text(quota, "/status/hard/pods") == "2",
        )
        .await?;
    // A pod that had to leave would be replaced when the controller asks again, which may be long
    // after the quota has room: these stay where they are.
    let mut template = template("many", "v1");
    template["spec"]["affinity"] = elsewhere("node-2");
    let controller = json!({
        "metadata": {"name": "many"},
        "spec": {"replicas": 4, "selector": {"app": "many"}, "template": template},
    });
    stage
        .create(&format!("{core}/replicationcontrollers"), controller)
        .await
}

async fn roles(stage: &Stage) -> Result<()> {
    let collection = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for name in ["swap-one", "swap-two"] {
        let role = json!({
            "metadata": {"name": name, "labels": {"swap.test/part": "yes"}},
            "rules": [{"apiGroups": [""], "resources": [name], "verbs": ["get"]}],
        });
        stage.create(collection, role).await?;
    }
    let whole = json!({
        "metadata": {"name": "swap-whole"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"swap.test/part": "yes"}}]},
        "rules": [],
    });
    stage.create(collection, whole).await
}

/// Changes what was made, each change when the one before has come true.
pub async fn change(stage: &Stage) -> Result<()> {
    let names = ["web", "again", "old", "left", "shares"];
    for name in names {
        complete(stage, name, "v1").await?;
    }
    let web = format!("{APPS}/deployments/web");
    stage.patch(&web, version("v2")).await?;
    let again = format!("{APPS}/deployments/again");
    stage.patch(&again, version("v2")).await?;
    let mut nowhere = version("v2");
    nowhere["spec"]["template"]["spec"]["nodeSelector"] = json!({"swap": "nowhere"});
    let shares = format!("{APPS}/deployments/shares");
    stage.patch(&shares, nowhere).await?;
    complete(stage, "web", "v2").await?;
    complete(stage, "again", "v2").await?;
    // Back to the first revision, as `kubectl rollout undo` does it.
    stage.patch(&web, version("v1")).await?;
    complete(stage, "web", "v1").await?;
    let four = json!({"spec": {"replicas": 4}});
    stage.patch(&web, four).await?;
    complete(stage, "web", "v1, scaled").await?;
    stage
        .until_object(&shares, "a rollout is stalled half way", |one| {
            number(one, "/status/replicas") == 8
                && number(one, "/status/availableReplicas") == 4
                && number(one, "/status/updatedReplicas") == 4
        })
        .await?;
    let twelve = json!({"spec": {"replicas": 12}});
    stage.patch(&shares, twelve).await?;

    let db = format!("{APPS}/statefulsets/db");
    ready(stage, "db", 3).await?;
    ready(stage, "late", 2).await?;
    let mut partial = version("v2");
    partial["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    stage.patch(&db, partial).await?;
    let agent = format!("{APPS}/daemonsets/agent");
    stage
        .until_object(&agent, "the DaemonSet runs on 3 nodes", |one| {
            number(one, "/status/numberAvailable") == 3
        })
        .await?;
    stage.patch(&agent, version("v2")).await?;
    let held = format!("{BATCH}/jobs/held");
    stage
        .until_object(&held, "a Job is suspended", |one| {
            condition(one, "Suspended") == "True"
        })
        .await?;
    stage
        .patch(&held, json!({"spec": {"suspend": false}}))
        .await?;

    stage
        .delete(&format!("{APPS}/deployments/old"), "Foreground")
        .await?;
    stage
        .delete(&format!("{APPS}/deployments/left"), "Orphan")
        .await?;
    stage
        .delete("/api/v1/namespaces/swap-doomed", "Background")
        .await?;
    let kept = "/api/v1/namespaces/swap-doomed/configmaps/kept";
    stage
        .until_object(
            "/api/v1/namespaces/swap-doomed",
            "a namespace tells what it waits for",
            |one| {
                condition(one, "NamespaceFinalizersRemaining") == "True"
                    && condition(one, "NamespaceContentRemaining") == "True"
            },
        )
        .await?;
    stage
        .patch(kept, json!({"metadata": {"finalizers": null}}))
        .await
}

/// Waits until everything has come to its end.
pub async fn finish(stage: &Stage) -> Result<()> {
    for gone in [
        format!("{APPS}/deployments/old"),
        format!("{APPS}/deployments/left"),
        "/api/v1/namespaces/swap-doomed".to_owned(),
        format!("{BATCH}/jobs/brief"),
    ] {
        stage.until_gone(&gone).await?;
    }
    let replica_sets = format!("{APPS}/replicasets?labelSelector=app=old");
    stage
        .until("nothing of a deleted Deployment is left", || async {
            let pods = format!("{CORE}/pods?labelSelector=app=old");
            Ok(stage.list(&replica_sets).await?.is_empty() && stage.list(&pods).await?.is_empty())
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
        stage
            .until_object(&format!("{BATCH}/jobs/{name}"), &what, |one| {
                condition(one, kind) == "True"
            })
            .await?;
    }
    let stuck = format!("{APPS}/deployments/stuck");
    stage
        .until_object(&stuck, "a Deployment exceeds its deadline", |one| {
            condition(one, "Progressing") == "False"
        })
        .await?;
    let db = format!("{APPS}/statefulsets/db");
    stage
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
    stage
        .until_object(&agent, "a DaemonSet is updated", |one| {
            number(one, "/status/updatedNumberScheduled") == 3
                && number(one, "/status/numberAvailable") == 3
        })
        .await?;
    let many = "/api/v1/namespaces/swap-quota/replicationcontrollers/many";
    stage
        .until_object(many, "a quota holds a controller back", |one| {
            condition(one, "ReplicaFailure") == "True" && number(one, "/status/readyReplicas") == 2
        })
        .await?;
    let whole = "/apis/rbac.authorization.k8s.io/v1/clusterroles/swap-whole";
    stage
        .until_object(whole, "a ClusterRole is aggregated", |one| {
            one["rules"]
                .as_array()
                .is_some_and(|rules| rules.len() == 2)
        })
        .await?;
    cron(stage).await
}

/// One run of the CronJob, and no second that would depend on how fast the scenario was.
async fn cron(stage: &Stage) -> Result<()> {
    let tick = format!("{BATCH}/cronjobs/tick");
    stage
        .until_object(&tick, "a CronJob ran", |one| {
            !text(one, "/status/lastSuccessfulTime").is_empty()
        })
        .await?;
    stage
        .patch(&tick, json!({"spec": {"suspend": true}}))
        .await?;
    stage
        .until_object(&tick, "the CronJob rests", |one| {
            one["status"]["active"].is_null()
        })
        .await?;
    stage
        .until("one Job of the CronJob is kept", || async {
            let jobs = stage.list(&format!("{BATCH}/jobs")).await?;
            let own = jobs
                .iter()
                .filter(|one| text(one, "/metadata/ownerReferences/0/kind") == "CronJob");
            Ok(own.count() == 1)
        })
        .await
}

/// Waits until a rollout is through.
async fn complete(stage: &Stage, name: &str, now: &str) -> Result<()> {
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
    stage
        .until_object(&format!("{APPS}/deployments/{name}"), &what, is_complete)
        .await
}

async fn ready(stage: &Stage, name: &str, count: i64) -> Result<()> {
    let what = format!("StatefulSet {name} has {count} ready pods");
    stage
        .until_object(&format!("{APPS}/statefulsets/{name}"), &what, |one| {
            number(one, "/status/readyReplicas") == count
        })
        .await
}

/// The name of some pod of that app.
pub async fn pod_of(stage: &Stage, app: &str) -> Result<String> {
    let path = format!("{CORE}/pods?labelSelector=app={app}");
    let pods = stage.list(&path).await?;
    let pod = pods.first().context("no such pod")?;
    let name = text(pod, "/metadata/name");
    ensure!(!name.is_empty(), "a pod without a name");
    Ok(name.to_owned())
}
