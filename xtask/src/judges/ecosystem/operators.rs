//! Operators from their own modules, as pods with their own identity: prometheus-operator with its own
//! manifests, and sample-controller.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{Stage, condition, is, says};

const PROMETHEUS: &str = "github.com/prometheus-operator/prometheus-operator";
const SAMPLE: &str = "k8s.io/sample-controller";

pub fn prometheus(stage: &mut Stage<'_>) -> Result<()> {
    let sources = stage.programs.folder(PROMETHEUS)?.to_path_buf();
    let examples = sources.join("example/rbac/prometheus-operator");
    let runs = stage.check(
        "prometheus-operator runs with its own manifests and role",
        |stage| {
            stage.apply_files(&[sources.join("example/prometheus-operator-crd")])?;
            let part = |name: &str| examples.join(format!("prometheus-operator-{name}.yaml"));
            let parts = [
                "service-account",
                "cluster-role",
                "cluster-role-binding",
                "service",
                "deployment",
            ];
            stage.apply_files(&parts.map(part))?;
            stage.wait_rollout("default", "deployment/prometheus-operator")
        },
    );
    ensure!(runs, "nothing can be judged without it");
    stage.apply(&stage.manifest("prometheus.yaml")?)?;
    let namespace = ["-n", "monitored"];
    let get = |stage: &Stage<'_>, object: &str| stage.get(&[&[object], &namespace[..]].concat());
    let made = stage.check(
        "a Prometheus becomes a StatefulSet, which it owns",
        |stage| {
            let made = stage.eventually(|| {
                let set = get(stage, "statefulset/prometheus-shop")?;
                is(
                    &set,
                    "/metadata/ownerReferences/0/kind",
                    &json!("Prometheus"),
                )?;
                is(&set, "/metadata/ownerReferences/0/controller", &json!(true))
            });
            stage.with_logs("default", made)
        },
    );
    ensure!(made, "nothing can be judged without it");
    stage.check(
        "its configuration is a Secret with the targets of the ServiceMonitor",
        |stage| {
            stage.eventually(|| {
                let secret = get(stage, "secret/prometheus-shop")?;
                let data = secret["data"].as_object().context("data")?;
                ensure!(data.contains_key("prometheus.yaml.gz"), "{:?}", data.keys());
                let configuration = configuration(&secret)?;
                says(
                    &configuration,
                    &["serviceMonitor/monitored/shop/0", "scrape_interval: 15s"],
                )
            })
        },
    );
    stage.check(
        "its rules are a ConfigMap with those of the PrometheusRule",
        |stage| {
            stage.eventually(|| {
                let map = get(stage, "configmap/prometheus-shop-rulefiles-0")?;
                says(&map["data"].to_string(), &["alert: Slow"])
            })
        },
    );
    stage.check("its pods run and the Prometheus is available", |stage| {
        stage.wait_rollout("monitored", "statefulset/prometheus-shop")?;
        let available = stage.eventually(|| {
            let object = get(stage, "prometheus/shop")?;
            for kind in ["Available", "Reconciled"] {
                ensure!(
                    condition(&object, kind) == Some("True"),
                    "{}",
                    object["status"]
                );
            }
            is(&object, "/status/availableReplicas", &json!(1))
        });
        stage.with_logs("monitored", available)
    });
    stage.check("a change is carried on to the StatefulSet", |stage| {
        let patch = r#"--patch={"spec":{"replicas":2,"podMetadata":{"labels":{"changed":"yes"}}}}"#;
        stage.k(&[
            "patch",
            "prometheus/shop",
            "-n",
            "monitored",
            "--type=merge",
            patch,
        ])?;
        stage.eventually(|| {
            let set = get(stage, "statefulset/prometheus-shop")?;
            is(&set, "/spec/replicas", &json!(2))?;
            is(
                &set,
                "/spec/template/metadata/labels/changed",
                &json!("yes"),
            )
        })?;
        stage.wait_rollout("monitored", "statefulset/prometheus-shop")
    });
    stage.check(
        "kubectl scale changes the shards of the Prometheus",
        |stage| {
            // The scale of this kind is its number of shards.
            let shard = [
                "statefulset/prometheus-shop-shard-1",
                "-n",
                "monitored",
                "--ignore-not-found",
            ];
            for (replicas, is_there) in [("--replicas=2", true), ("--replicas=1", false)] {
                stage.k(&["scale", "prometheus/shop", "-n", "monitored", replicas])?;
                stage.eventually(|| {
                    let found = stage.k(&[&["get"], &shard[..]].concat())?;
                    ensure!(found.is_empty() != is_there, "after {replicas}: {found:?}");
                    Ok(())
                })?;
            }
            Ok(())
        },
    );
    stage.check("a StatefulSet that is deleted comes back", |stage| {
        let before = get(stage, "statefulset/prometheus-shop")?;
        stage.k(&[
            "delete",
            "statefulset/prometheus-shop",
            "-n",
            "monitored",
            "--timeout=90s",
        ])?;
        stage.eventually(|| {
            let after = get(stage, "statefulset/prometheus-shop")?;
            ensure!(
                after["metadata"]["uid"] != before["metadata"]["uid"],
                "it is still the old one"
            );
            Ok(())
        })
    });
    stage.check("a Prometheus that goes takes all with it", |stage| {
        stage.k(&[
            "delete",
            "prometheus/shop",
            "-n",
            "monitored",
            "--timeout=90s",
        ])?;
        stage.eventually(|| {
            let left = stage.k(&["get", "statefulsets,pods", "-n", "monitored", "-o", "name"])?;
            ensure!(left.is_empty(), "left: {left}");
            Ok(())
        })
    });
    stage.k(&["delete", "namespace", "monitored", "--timeout=120s"])?;
    stage.k(&["delete", "deployment/prometheus-operator", "-n", "default"])?;
    Ok(())
}

/// The configuration is compressed.
fn configuration(secret: &Value) -> Result<String> {
    let packed = secret["data"]["prometheus.yaml.gz"]
        .as_str()
        .context("a configuration")?;
    crate::judges::command::output(
        std::process::Command::new("sh")
            .args(["-c", "printf %s \"$PACKED\" | base64 -d | gzip -d"])
            .env("PACKED", packed),
    )
}

pub fn sample_controller(stage: &mut Stage<'_>) -> Result<()> {
    let examples = stage.programs.folder(SAMPLE)?.join("artifacts/examples");
    let runs = stage.check("sample-controller runs with a role of its own", |stage| {
        stage.apply_files(&[examples.join("crd-status-subresource.yaml")])?;
        stage.k(&[
            "wait",
            "--for=condition=Established",
            "crd/foos.samplecontroller.k8s.io",
            "--timeout=30s",
        ])?;
        stage.apply(&stage.manifest("sample-controller.yaml")?)?;
        stage.wait_rollout("sample", "deployment/sample-controller")
    });
    ensure!(runs, "nothing can be judged without it");
    let manifest = std::fs::read_to_string(examples.join("example-foo.yaml"))?;
    stage.check(
        "a Foo becomes a Deployment whose pod is counted in its status",
        |stage| {
            stage.k_with(
                &["apply", "--server-side", "-n", "sample", "-f", "-"],
                &manifest,
            )?;
            let counted = stage.eventually(|| {
                let deployment = stage.get(&["deployment/example-foo", "-n", "sample"])?;
                is(
                    &deployment,
                    "/metadata/ownerReferences/0/kind",
                    &json!("Foo"),
                )?;
                let object = stage.get(&["foo/example-foo", "-n", "sample"])?;
                is(&object, "/status/availableReplicas", &json!(1))
            });
            stage.with_logs("sample", counted)
        },
    );
    stage.check("a Foo with too many replicas is refused", |stage| {
        let patch = r#"--patch={"spec":{"replicas":11}}"#;
        let words = [
            "patch",
            "foo/example-foo",
            "-n",
            "sample",
            "--type=merge",
            patch,
        ];
        says(
            &stage.refusal(&words, "")?,
            &["spec.replicas in body should be less than or equal to 10"],
        )
    });
    stage.check(
        "a Foo that grows makes its Deployment grow, and an event says so",
        |stage| {
            let patch = r#"--patch={"spec":{"replicas":2}}"#;
            stage.k(&[
                "patch",
                "foo/example-foo",
                "-n",
                "sample",
                "--type=merge",
                patch,
            ])?;
            stage.eventually(|| {
                let object = stage.get(&["foo/example-foo", "-n", "sample"])?;
                is(&object, "/status/availableReplicas", &json!(2))
            })?;
            let events = stage.k(&["events", "-n", "sample", "--for=foo/example-foo"])?;
            says(&events, &["Foo synced successfully"])
        },
    );
    stage.check("a Foo that goes takes its Deployment with it", |stage| {
        stage.k(&["delete", "foo/example-foo", "-n", "sample", "--timeout=60s"])?;
        stage.eventually(|| {
            let left = stage.k(&[
                "get",
                "deployment/example-foo",
                "-n",
                "sample",
                "--ignore-not-found",
            ])?;
            ensure!(left.is_empty(), "it is still there");
            Ok(())
        })
    });
    stage.k(&["delete", "namespace", "sample", "--timeout=120s"])?;
    Ok(())
}
