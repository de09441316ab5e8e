//! Extension API servers with their own manifests: sample-apiserver as a pod with an etcd of its own,
//! and metrics-server, which takes `metrics.k8s.io` over from the server.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{Stage, condition, is, says};

const SAMPLE: &str = "k8s.io/sample-apiserver";
const METRICS: &str = "sigs.k8s.io/metrics-server";
const GROUP: &str = "wardle.example.com";

pub fn judge(stage: &mut Stage<'_>) -> Result<()> {
    let artifacts = stage.programs.folder(SAMPLE)?.join("artifacts");
    let runs = stage.check("sample-apiserver runs with its own manifests", |stage| {
        let part = |name: &str| artifacts.join(format!("example/{name}.yaml"));
        let parts = [
            "ns",
            "sa",
            "auth-delegator",
            "auth-reader",
            "rbac",
            "rbac-bind",
            "service",
            "deployment",
        ];
        stage.apply_files(&parts.map(part))?;
        stage.apply(&stage.manifest("sample-apiserver.yaml")?)?;
        stage.wait_rollout("wardle", "deployment/wardle-server")?;
        stage.apply_files(&[part("apiservice")])?;
        let available = stage.k(&[
            "wait",
            "--for=condition=Available",
            "apiservice/v1alpha1.wardle.example.com",
            "--timeout=120s",
        ]);
        stage.with_logs("wardle", available).map(drop)
    });
    ensure!(runs, "nothing can be judged without it");
    stage.check(
        "its kinds are merged into discovery, in both forms",
        |stage| {
            let printed = stage.eventually(|| {
                let printed = stage.k(&["api-resources", "--api-group", GROUP, "--no-headers"])?;
                says(&printed, &["flunders", "fischers"])?;
                Ok(printed)
            })?;
            ensure!(printed.lines().count() == 2, "{printed}");
            let groups = stage.raw("/apis")?;
            let groups = groups["groups"].as_array().context("groups")?;
            ensure!(
                groups.iter().any(|group| group["name"] == GROUP),
                "the group is not in /apis"
            );
            Ok(())
        },
    );
    stage.check("its OpenAPI is served by us", |stage| {
        stage.eventually(|| {
            let index = stage.raw("/openapi/v3")?;
            let url =
                index["paths"]["apis/wardle.example.com/v1alpha1"]["serverRelativeURL"].as_str();
            let document = stage.raw(url.context("no path of its version")?)?;
            says(
                &document["components"]["schemas"].to_string(),
                &["FlunderSpec"],
            )
        })?;
        says(
            &stage.k(&["explain", "flunders.spec"])?,
            &["KIND:       Flunder", "reference"],
        )
    });
    stage.check("a Flunder is made, listed, patched, watched and deleted through us", |stage| {
        let flunder = artifacts.join("flunders/01-flunder.yaml");
        let mut watch = stage.client(&stage.programs.tools.join("kubectl"));
        let watch = watch
            .args(["get", "flunders", "-w", "--output-watch-events", "-o"])
            .arg("custom-columns=EVENT:type,NAME:object.metadata.name,LABEL:object.metadata.labels.changed")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let process = u64::from(watch.id());
        let flow = flow(stage, &flunder);
        crate::judges::cleanup::stop_process(process);
        let seen = watch.wait_with_output()?;
        flow?;
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        says(&seen, &["ADDED", "MODIFIED", "DELETED", "my-first-flunder"])
    });
    stage.check("its own validation and admission are passed on", |stage| {
        stage.apply("apiVersion: wardle.example.com/v1alpha1\nkind: Fischer\nmetadata: {name: one}\ndisallowedFlunders: [forbidden]\n")?;
        let flunder = "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: forbidden, namespace: default}\n";
        stage.eventually(|| {
            let refusal = stage.refusal(&["create", "-f", "-"], flunder).inspect_err(|_| {
                let _ = stage.k(&["delete", "flunder/forbidden"]);
            })?;
            says(&refusal, &["this name may not be used"])
        })?;
        stage.k(&["delete", "fischer/one"]).map(drop)
    });
    stage.check("our authorization guards it, and it learns who asks", |stage| {
        let refusal = stage.refusal(&["get", "flunders", "--as=nobody"], "")?;
        says(&refusal, &["flunders.wardle.example.com is forbidden: User \"nobody\" cannot list resource \"flunders\""])?;
        stage.k(&["create", "clusterrole", "flunders", "--verb=get,list,watch", "--resource=flunders.wardle.example.com"])?;
        stage.k(&["create", "clusterrolebinding", "flunders", "--clusterrole=flunders", "--user=nobody"])?;
        stage.eventually(|| stage.k(&["get", "flunders", "--as=nobody"]).map(drop))
    });
    stage.check("a namespace that goes takes its Flunders with it", |stage| {
        stage.k(&["create", "namespace", "pond"])?;
        let flunder = "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: small, namespace: pond}\n";
        stage.k_with(&["create", "-f", "-"], flunder)?;
        stage.k(&["delete", "namespace", "pond", "--timeout=90s"])?;
        let left = stage.k(&["get", "flunders", "-A", "-o", "name"])?;
        ensure!(left.is_empty(), "left: {left}");
        Ok(())
    });
    stage.check(
        "without its pod it is not available, and the rest of discovery is",
        |stage| {
            stage.k(&[
                "scale",
                "deployment/wardle-server",
                "-n",
                "wardle",
                "--replicas=0",
            ])?;
            stage.eventually(|| {
                let service = stage.get(&["apiservice/v1alpha1.wardle.example.com"])?;
                ensure!(
                    condition(&service, "Available") == Some("False"),
                    "{}",
                    service["status"]
                );
                Ok(())
            })?;
            let refusal = stage.refusal(
                &["get", "--raw", "/apis/wardle.example.com/v1alpha1/flunders"],
                "",
            )?;
            says(
                &refusal,
                &["the server is currently unable to handle the request"],
            )?;
            stage.k(&["get", "pods", "-A"]).map(drop)
        },
    );
    stage.k(&["delete", "apiservice/v1alpha1.wardle.example.com"])?;
    stage.check("without its APIService its group is gone", |stage| {
        stage.eventually(|| {
            let refusal =
                stage.refusal(&["get", "--raw", "/apis/wardle.example.com/v1alpha1"], "")?;
            says(
                &refusal,
                &["the server could not find the requested resource"],
            )
        })
    });
    stage.k(&["delete", "namespace", "wardle", "--timeout=120s"])?;
    Ok(())
}

fn flow(stage: &Stage<'_>, flunder: &std::path::Path) -> Result<()> {
    stage.k(&["apply", "-f", crate::judges::command::text(flunder)?])?;
    let list = stage.get(&["flunders", "-A", "-l", "sample-label=true"])?;
    is(&list, "/items/0/metadata/name", &json!("my-first-flunder"))?;
    says(
        &stage.k(&["get", "flunders"])?,
        &["NAME", "my-first-flunder"],
    )?;
    let patch = r#"--patch={"metadata":{"labels":{"changed":"yes"}},"spec":{"reference":"other"}}"#;
    stage.k(&["patch", "flunder/my-first-flunder", "--type=merge", patch])?;
    let patched = stage.get(&["flunder/my-first-flunder"])?;
    is(&patched, "/spec/reference", &json!("other"))?;
    let applied = "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: my-first-flunder, namespace: default, labels: {applied: \"yes\"}}\n";
    stage.apply(applied)?;
    stage.k(&["delete", "flunder/my-first-flunder", "--timeout=60s"])?;
    Ok(())
}

/// metrics-server reads from the kubelet, and its APIService replaces ours.
pub fn judge_metrics(stage: &mut Stage<'_>) -> Result<()> {
    let manifests = stage.programs.folder(METRICS)?.join("manifests/base");
    stage.check(
        "metrics.k8s.io is served before anything is installed",
        |stage| stage.eventually(|| has_usage(&stage.raw("/apis/metrics.k8s.io/v1beta1/nodes")?)),
    );
    let runs = stage.check("metrics-server runs with its own manifests", |stage| {
        let folder = crate::judges::command::text(&manifests)?.to_string();
        // The certificate of our kubelet is by the cluster's authority, which metrics-server does
        // not know unless it is told, as everywhere.
        let built = stage.k(&["kustomize", &folder])?;
        let built = built.replace(
            "- --metric-resolution=15s",
            "- --metric-resolution=15s\n        - --kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        );
        let words = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        stage.k_with(&words, &built)?;
        stage.wait_rollout("kube-system", "deployment/metrics-server")
    });
    ensure!(runs, "nothing can be judged without it");
    stage.check(
        "its APIService is available and requests reach it",
        |stage| {
            stage.eventually(|| {
                let service = stage.get(&["apiservice/v1beta1.metrics.k8s.io"])?;
                is(&service, "/spec/service/name", &json!("metrics-server"))?;
                ensure!(
                    condition(&service, "Available") == Some("True"),
                    "{}",
                    service["status"]
                );
                has_usage(&stage.raw("/apis/metrics.k8s.io/v1beta1/nodes")?)
            })
        },
    );
    stage.check("kubectl top shows nodes and pods by it", |stage| {
        stage.eventually(|| {
            says(&stage.k(&["top", "nodes"])?, &["CPU(cores)"])?;
            says(
                &stage.k(&["top", "pods", "-n", "kube-system"])?,
                &["metrics-server"],
            )
        })
    });
    stage.check("its APIService stays its own after a restart", |stage| {
        stage.restart()?;
        let service = stage.get(&["apiservice/v1beta1.metrics.k8s.io"])?;
        is(&service, "/spec/service/name", &json!("metrics-server"))?;
        stage.eventually(|| has_usage(&stage.raw("/apis/metrics.k8s.io/v1beta1/nodes")?))
    });
    stage.check(
        "without it the server serves metrics.k8s.io again",
        |stage| {
            stage.k(&["delete", "apiservice/v1beta1.metrics.k8s.io"])?;
            stage.k(&[
                "delete",
                "deployment/metrics-server",
                "service/metrics-server",
                "-n",
                "kube-system",
            ])?;
            stage.eventually(|| has_usage(&stage.raw("/apis/metrics.k8s.io/v1beta1/nodes")?))
        },
    );
    Ok(())
}

fn has_usage(list: &Value) -> Result<()> {
    let usage = list.pointer("/items/0/usage/memory");
    ensure!(usage.is_some(), "no usage in {list}");
    Ok(())
}
