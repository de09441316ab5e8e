//! Admission webhooks as pods behind a Service: an injector of sidecars, and a policy that refuses
//! images from elsewhere.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{Stage, is, says};

const NAMESPACE: &str = "hooks";
const PLACE: &str = "hooked";

pub fn judge(stage: &mut Stage<'_>) -> Result<()> {
    stage.k(&["create", "namespace", NAMESPACE])?;
    let authority = stage.serving_certificate(NAMESPACE, "hooks", "certificates")?;
    let deployed = stage.check("the webhooks run as pods", |stage| {
        stage.apply(&stage.manifest("hooks.yaml")?)?;
        stage.wait_rollout(NAMESPACE, "deployment/hooks")
    });
    ensure!(deployed, "nothing can be judged without them");
    stage.apply(
        &stage
            .manifest("hooked.yaml")?
            .replace("AUTHORITY", &authority),
    )?;
    stage.check(
        "a pod that asks for it gets a second container, which runs",
        |stage| {
            // The configuration is live when it acts.
            stage.eventually(|| {
                let pod = run(
                    stage,
                    "asks",
                    "registry.test/ecosystem/standin:1",
                    "hooks.coracle.dev/inject=yes",
                )?;
                let is_injected = containers(&pod) == 2;
                if !is_injected {
                    stage.k(&["delete", "pod", "-n", PLACE, "asks", "--now"])?;
                }
                ensure!(is_injected, "it has {} containers", containers(&pod));
                is(&pod, "/spec/containers/1/name", &json!("sidecar"))?;
                is(
                    &pod,
                    "/metadata/annotations/hooks.coracle.dev~1injected",
                    &json!("yes"),
                )
            })?;
            let ready = stage.k(&[
                "wait",
                "--for=condition=Ready",
                "pod/asks",
                "-n",
                PLACE,
                "--timeout=120s",
            ]);
            stage.with_logs(PLACE, ready)?;
            let pod = stage.get(&["pod", "-n", PLACE, "asks"])?;
            let statuses = pod["status"]["containerStatuses"]
                .as_array()
                .context("statuses")?;
            ensure!(
                statuses.iter().all(|status| status["ready"] == true) && statuses.len() == 2,
                "{statuses:?}"
            );
            Ok(())
        },
    );
    stage.check("a pod that does not ask is left alone", |stage| {
        let pod = run(
            stage,
            "plain",
            "registry.test/ecosystem/standin:1",
            "some=label",
        )?;
        ensure!(containers(&pod) == 1, "{}", pod["spec"]["containers"]);
        Ok(())
    });
    stage.check("an image from elsewhere is refused in the webhook's words", |stage| {
        stage.eventually(|| {
            let words = ["run", "-n", PLACE, "foreign", "--image=example.com/other:1"];
            let refusal = stage.refusal(&words, "").inspect_err(|_| {
                let _ = stage.k(&["delete", "pod", "-n", PLACE, "foreign", "--now"]);
            })?;
            says(&refusal, &["admission webhook \"images.hooks.coracle.dev\" denied the request: image example.com/other:1 is not from registry.test/"])
        })
    });
    stage.check("a warning of a webhook reaches the user", |stage| {
        let words = [
            "run",
            "-n",
            PLACE,
            "changing",
            "--image=registry.test/ecosystem/standin:latest",
            "--dry-run=server",
        ];
        let answer = stage.ask(&words, "")?;
        ensure!(answer.succeeded, "{}", answer.errors);
        says(
            &answer.errors,
            &["Warning: image registry.test/ecosystem/standin:latest can change"],
        )
    });
    stage.check("pods of a Deployment pass the same webhooks", |stage| {
        stage.apply(&stage.manifest("hooked-deployment.yaml")?)?;
        stage.wait_rollout(PLACE, "deployment/work")?;
        let pods = stage.get(&["pods", "-n", PLACE, "-l", "app=work"])?;
        for pod in pods["items"].as_array().context("pods")? {
            ensure!(containers(pod) == 2, "{}", pod["spec"]["containers"]);
        }
        Ok(())
    });
    stage.check("a change to an image from elsewhere is refused", |stage| {
        let words = ["patch", "pod", "-n", PLACE, "plain", "--type=json",
            r#"--patch=[{"op":"replace","path":"/spec/containers/0/image","value":"example.com/other:1"}]"#];
        says(&stage.refusal(&words, "")?, &["image example.com/other:1 is not from registry.test/"])
    });
    stage.check(
        "without its pods a webhook that must answer lets nothing pass",
        |stage| {
            stage.k(&["scale", "-n", NAMESPACE, "deployment/hooks", "--replicas=0"])?;
            stage.k(&[
                "wait",
                "--for=delete",
                "pod",
                "-n",
                NAMESPACE,
                "--all",
                "--timeout=90s",
            ])?;
            let words = [
                "run",
                "-n",
                PLACE,
                "late",
                "--image=registry.test/ecosystem/standin:1",
            ];
            says(
                &stage.refusal(&words, "")?,
                &["failed calling webhook \"images.hooks.coracle.dev\": failed to call webhook: "],
            )
        },
    );
    stage.check("and with them again everything does", |stage| {
        stage.k(&["scale", "-n", NAMESPACE, "deployment/hooks", "--replicas=1"])?;
        stage.wait_rollout(NAMESPACE, "deployment/hooks")?;
        stage.eventually(|| {
            run(
                stage,
                "late",
                "registry.test/ecosystem/standin:1",
                "some=label",
            )
            .map(drop)
        })
    });
    stage.k(&[
        "delete",
        "mutatingwebhookconfiguration/hooks",
        "validatingwebhookconfiguration/hooks",
    ])?;
    stage.k(&["delete", "namespace", NAMESPACE, PLACE, "--timeout=120s"])?;
    Ok(())
}

/// Makes a pod; returns it as the server has it.
fn run(stage: &Stage<'_>, name: &str, image: &str, label: &str) -> Result<Value> {
    let image = format!("--image={image}");
    let label = format!("--labels={label}");
    let printed = stage.k(&["run", "-n", PLACE, name, &image, &label, "-o", "json"])?;
    Ok(serde_json::from_str(&printed)?)
}

fn containers(pod: &Value) -> usize {
    pod["spec"]["containers"].as_array().map_or(0, Vec::len)
}
