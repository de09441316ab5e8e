//! An operator made with controller-runtime: its loop, and its upgrade to a release that serves a newer
//! version of its kind, converts between both, and moves what is stored.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{Stage, condition, is, says};

const NAMESPACE: &str = "garden";
const DEFINITION: &str = "gardens.ecosystem.coracle.dev";

pub fn judge(stage: &mut Stage<'_>) -> Result<()> {
    stage.k(&["create", "namespace", NAMESPACE])?;
    let authority = stage.serving_certificate(NAMESPACE, "garden", "certificates")?;
    older_release(stage)?;
    newer_release(stage, &authority)?;
    migration(stage)?;
    stage.k(&[
        "delete",
        "mutatingwebhookconfiguration/garden",
        "validatingwebhookconfiguration/garden",
    ])?;
    stage.k(&["delete", "crd", DEFINITION, "--timeout=60s"])?;
    stage.k(&["delete", "namespace", NAMESPACE, "--timeout=120s"])?;
    Ok(())
}

fn older_release(stage: &mut Stage<'_>) -> Result<()> {
    let runs = stage.check("the older release runs and is the leader", |stage| {
        stage.apply(&stage.manifest("garden/older-definition.yaml")?)?;
        stage.k(&[
            "wait",
            "--for=condition=Established",
            "crd",
            DEFINITION,
            "--timeout=30s",
        ])?;
        stage.apply(
            &stage
                .manifest("garden/operator.yaml")?
                .replace("RELEASE", "v1alpha1"),
        )?;
        stage.wait_rollout(NAMESPACE, "deployment/garden")?;
        leads(stage)
    });
    ensure!(runs, "nothing can be judged without it");
    stage.check(
        "its loop writes a plan, a finalizer and a condition",
        |stage| {
            for name in ["front", "back", "roof"] {
                stage.apply(&older(name, 3))?;
            }
            for name in ["front", "back", "roof"] {
                let planted =
                    stage.eventually(|| planted(stage, "v1alpha1", name, "6", "v1alpha1"));
                stage.with_logs(NAMESPACE, planted)?;
            }
            let front = garden(stage, "v1alpha1", "front")?;
            is(
                &front,
                "/metadata/finalizers/0",
                &json!("ecosystem.coracle.dev/compost"),
            )?;
            let plan = stage.get(&["configmap/front-plan", "-n", NAMESPACE])?;
            is(
                &plan,
                "/metadata/ownerReferences/0/uid",
                &front["metadata"]["uid"],
            )
        },
    );
    stage.check("a plan that is deleted is written again", |stage| {
        stage.k(&["delete", "configmap/front-plan", "-n", NAMESPACE])?;
        stage.eventually(|| planted(stage, "v1alpha1", "front", "6", "v1alpha1"))
    });
    stage.check("its finalizer holds a garden until it has acted", |stage| {
        stage.k(&[
            "delete",
            "gardens",
            "roof",
            "-n",
            NAMESPACE,
            "--timeout=60s",
        ])?;
        stage.get(&["configmap/roof-compost", "-n", NAMESPACE])?;
        stage.eventually(|| {
            let left = stage.k(&[
                "get",
                "configmap/roof-plan",
                "-n",
                NAMESPACE,
                "--ignore-not-found",
            ])?;
            ensure!(left.is_empty(), "the plan outlived its garden");
            Ok(())
        })
    });
    Ok(())
}

fn newer_release(stage: &mut Stage<'_>, authority: &str) -> Result<()> {
    let runs = stage.check("the newer release takes over, with webhooks", |stage| {
        // First the release that can convert, then the definition that needs it: until the new
        // version is served, the new release waits for it.
        stage.apply(
            &stage
                .manifest("garden/newer-definition.yaml")?
                .replace("AUTHORITY", authority),
        )?;
        stage.apply(
            &stage
                .manifest("garden/operator.yaml")?
                .replace("RELEASE", "v1"),
        )?;
        stage.wait_rollout(NAMESPACE, "deployment/garden")?;
        stage.apply(
            &stage
                .manifest("garden/webhooks.yaml")?
                .replace("AUTHORITY", authority),
        )?;
        leads(stage)
    });
    ensure!(runs, "nothing can be judged without it");
    stage.check(
        "a garden that was stored before is read in the newer version",
        |stage| {
            let front = stage.eventually(|| garden(stage, "v1", "front"))?;
            is(&front, "/spec/beds", &json!(6))?;
            is(&front, "/spec/crop/name", &json!("beans"))
        },
    );
    stage.check(
        "the newer release's loop takes the stored gardens on",
        |stage| {
            for name in ["front", "back"] {
                let taken = stage.eventually(|| planted(stage, "v1", name, "6", "v1"));
                stage.with_logs(NAMESPACE, taken)?;
            }
            Ok(())
        },
    );
    stage.check(
        "the older version is still served, both ways without loss",
        |stage| {
            stage.apply(&newer(
                "side",
                "beds: 4, crop: {name: kale, variety: lacinato}",
            ))?;
            let side = garden(stage, "v1alpha1", "side")?;
            is(&side, "/spec/rows", &json!(2))?;
            is(
                &side,
                "/metadata/annotations/ecosystem.coracle.dev~1variety",
                &json!("lacinato"),
            )?;
            let patch = r#"--patch={"spec":{"rows":5}}"#;
            stage.k(&[
                "patch",
                "gardens.v1alpha1.ecosystem.coracle.dev",
                "side",
                "-n",
                NAMESPACE,
                "--type=merge",
                patch,
            ])?;
            let side = garden(stage, "v1", "side")?;
            is(&side, "/spec/beds", &json!(10))?;
            is(&side, "/spec/crop/variety", &json!("lacinato"))
        },
    );
    stage.check("a list and a watch of the older version are converted", |stage| {
        let list = stage.get(&["gardens.v1alpha1.ecosystem.coracle.dev", "-n", NAMESPACE])?;
        let items = list["items"].as_array().context("items")?;
        ensure!(items.len() == 3, "{} gardens", items.len());
        for item in items {
            is(item, "/apiVersion", &json!("ecosystem.coracle.dev/v1alpha1"))?;
            ensure!(item["spec"]["rows"].is_number(), "{}", item["spec"]);
        }
        let path = format!("/apis/ecosystem.coracle.dev/v1alpha1/namespaces/{NAMESPACE}/gardens?watch=true&timeoutSeconds=2");
        let events = stage.k(&["get", "--raw", &path])?;
        let events: Vec<Value> = events.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        ensure!(events.len() == 3, "{} events", events.len());
        for event in events {
            ensure!(event["object"]["spec"]["rows"].is_number(), "{event}");
        }
        Ok(())
    });
    stage.check("its webhooks default and refuse", |stage| {
        stage.eventually(|| {
            stage.apply(&newer("bare", "crop: {name: moss}"))?;
            let bare = garden(stage, "v1", "bare")?;
            let outcome = is(&bare, "/spec/beds", &json!(2));
            stage.k(&[
                "delete",
                "gardens",
                "bare",
                "-n",
                NAMESPACE,
                "--timeout=60s",
            ])?;
            outcome
        })?;
        let apply = ["apply", "--server-side", "-f", "-"];
        says(
            &stage.refusal(&apply, &newer("weed", "crop: {name: knotweed}"))?,
            &["knotweed is not planted here"],
        )
    });
    stage.check(
        "a webhook for the newer version is asked about the older one too",
        |stage| {
            // Match policies are "Equivalent" unless they say otherwise.
            let weed = older("weed", 1).replace("beans", "knotweed");
            let apply = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
            says(
                &stage.refusal(&apply, &weed)?,
                &["knotweed is not planted here"],
            )
        },
    );
    Ok(())
}

fn migration(stage: &mut Stage<'_>) -> Result<()> {
    stage.check(
        "what is stored is moved, and the older version is dropped",
        |stage| {
            let definition = stage.get(&["crd", DEFINITION])?;
            is(
                &definition,
                "/status/storedVersions",
                &json!(["v1alpha1", "v1"]),
            )?;
            let gardens = stage.get(&["gardens.v1.ecosystem.coracle.dev", "-A"])?;
            stage.k_with(&["replace", "-f", "-"], &gardens.to_string())?;
            let patch = r#"--patch={"status":{"storedVersions":["v1"]}}"#;
            stage.k(&[
                "patch",
                "crd",
                DEFINITION,
                "--subresource=status",
                "--type=merge",
                patch,
            ])?;
            stage.apply(&stage.manifest("garden/last-definition.yaml")?)?;
            stage.eventually(|| {
                let gone = stage.k(&["get", "--raw", "/apis/ecosystem.coracle.dev/v1alpha1"]);
                ensure!(gone.is_err(), "the older version is still served");
                Ok(())
            })
        },
    );
    stage.check(
        "everything is read and reconciled without the conversion",
        |stage| {
            for (name, beds) in [("front", 6), ("back", 6), ("side", 10)] {
                is(&garden(stage, "v1", name)?, "/spec/beds", &json!(beds))?;
            }
            let patch = r#"--patch={"spec":{"beds":8}}"#;
            stage.k(&[
                "patch",
                "gardens",
                "back",
                "-n",
                NAMESPACE,
                "--type=merge",
                patch,
            ])?;
            stage.eventually(|| planted(stage, "v1", "back", "8", "v1"))
        },
    );
    stage.check("gardens go, each with its finalizer", |stage| {
        stage.k(&[
            "delete",
            "gardens",
            "--all",
            "-n",
            NAMESPACE,
            "--timeout=60s",
        ])?;
        for name in ["front", "back", "side"] {
            let heap = stage.get(&[&format!("configmap/{name}-compost"), "-n", NAMESPACE])?;
            is(&heap, "/data/release", &json!("v1"))?;
        }
        Ok(())
    });
    Ok(())
}

/// Someone holds the operator's lease.
fn leads(stage: &Stage<'_>) -> Result<()> {
    stage.eventually(|| {
        let lease = stage.get(&["lease/garden", "-n", NAMESPACE])?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        ensure!(!holder.is_empty(), "nobody leads");
        Ok(())
    })
}

fn older(name: &str, rows: u32) -> String {
    format!(
        "apiVersion: ecosystem.coracle.dev/v1alpha1\nkind: Garden\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\nspec: {{rows: {rows}, crop: beans}}\n"
    )
}

fn newer(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: ecosystem.coracle.dev/v1\nkind: Garden\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\nspec: {{{spec}}}\n"
    )
}

fn garden(stage: &Stage<'_>, version: &str, name: &str) -> Result<Value> {
    let resource = format!("gardens.{version}.ecosystem.coracle.dev");
    stage.get(&[&resource, name, "-n", NAMESPACE])
}

/// A garden has its plan from this release, and its condition for its present generation.
fn planted(stage: &Stage<'_>, version: &str, name: &str, beds: &str, release: &str) -> Result<()> {
    let plan = stage.get(&[&format!("configmap/{name}-plan"), "-n", NAMESPACE])?;
    is(&plan, "/data/beds", &json!(beds))?;
    is(&plan, "/data/release", &json!(release))?;
    let garden = garden(stage, version, name)?;
    ensure!(
        condition(&garden, "Planted") == Some("True"),
        "{}",
        garden["status"]
    );
    is(
        &garden,
        "/status/conditions/0/observedGeneration",
        &garden["metadata"]["generation"],
    )
}
