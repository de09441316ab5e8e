//! Helm, from its module: a chart with a definition and an object of it is installed, upgraded,
//! rolled back and removed.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::stage::{Stage, is, says};
use crate::judges::command::text;

const NAMESPACE: &str = "chart";

pub fn judge(stage: &mut Stage<'_>) -> Result<()> {
    let path = stage.manifest_path("chart");
    let chart = text(&path)?.to_string();
    let installed = stage.check(
        "helm installs a chart with a definition and its object",
        |stage| {
            helm(
                stage,
                &[
                    "install",
                    "boat",
                    &chart,
                    "--create-namespace",
                    "--wait",
                    "--timeout=120s",
                ],
            )?;
            is(&boat(stage)?, "/spec/oars", &json!(2))?;
            says(&helm(stage, &["list"])?, &["boat", "deployed"])
        },
    );
    ensure!(installed, "nothing can be judged without it");
    stage.check("helm upgrades it", |stage| {
        helm(
            stage,
            &[
                "upgrade",
                "boat",
                &chart,
                "--set",
                "oars=4",
                "--wait",
                "--timeout=120s",
            ],
        )?;
        is(&boat(stage)?, "/spec/oars", &json!(4))
    });
    stage.check("an upgrade to what the schema forbids fails", |stage| {
        let error = helm(stage, &["upgrade", "boat", &chart, "--set", "oars=40"]);
        let error = error.err().context("it was accepted")?;
        says(
            &format!("{error:#}"),
            &["spec.oars in body should be less than or equal to 8"],
        )?;
        is(&boat(stage)?, "/spec/oars", &json!(4))
    });
    stage.check("helm rolls it back and removes it", |stage| {
        helm(
            stage,
            &["rollback", "boat", "1", "--wait", "--timeout=120s"],
        )?;
        is(&boat(stage)?, "/spec/oars", &json!(2))?;
        helm(stage, &["uninstall", "boat", "--wait", "--timeout=120s"])?;
        ensure!(boat(stage).is_err(), "its object is still there");
        // Definitions of a chart outlive it.
        stage.get(&["crd/boats.chart.coracle.dev"]).map(drop)
    });
    stage.k(&["delete", "crd/boats.chart.coracle.dev", "--timeout=60s"])?;
    stage.k(&["delete", "namespace", NAMESPACE, "--timeout=120s"])?;
    Ok(())
}

fn boat(stage: &Stage<'_>) -> Result<serde_json::Value> {
    stage.get(&["boats.chart.coracle.dev/boat", "-n", NAMESPACE])
}

fn helm(stage: &Stage<'_>, arguments: &[&str]) -> Result<String> {
    let program = stage.programs.helm.as_ref().context("helm")?;
    let done = stage
        .client(program)
        .args(arguments)
        .args(["-n", NAMESPACE])
        .stdin(Stdio::null())
        .output()?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "helm {}: {}",
        arguments.join(" "),
        errors.trim()
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
