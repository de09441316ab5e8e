//! What a validating policy and a webhook add to a request. The requests are dry runs, so that the
//! store's own work does not hide it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use super::caller::Caller;
use super::hook::Hook;
use super::objects::median;
use crate::load::drive::{Load, LoadOutcome, Target, drive, same};
use crate::load::{OTHER_PARTS, Server};

const ROUNDS: usize = 5;
const REQUESTS: usize = 10_000;
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/bench/configmaps?dryRun=All";

pub async fn run(binary: &Path) -> Result<()> {
    let server = Server::coracle(binary, OTHER_PARTS).await?;
    let mut caller = Caller::open(&server.target).await?;
    policy(&server.target, &mut caller).await?;
    webhook(&server.target, &mut caller).await
}

fn map(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
        .to_string()
}

fn load(target: &Target, connections: usize, count: usize) -> Result<LoadOutcome> {
    let load = Load {
        connections,
        count,
        requests: same(target.request("POST", MAPS, "", &map("one"))),
        code: 201,
    };
    drive(target, &load)
}

/// Creates of a ConfigMap named `probe` are refused, or no more.
async fn until(caller: &mut Caller, is_refused: bool) -> Result<()> {
    for _ in 0..1000 {
        let code = caller.code("POST", MAPS, &map("probe")).await?;
        if (code != 201) == is_refused {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("what was registered has no effect")
}

async fn policy(target: &Target, caller: &mut Caller) -> Result<()> {
    let policies = format!("{REGISTRATION}/validatingadmissionpolicies");
    let bindings = format!("{REGISTRATION}/validatingadmissionpolicybindings");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "bench"},
        "spec": {
            "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "object.metadata.name != 'probe' && (!has(object.data) || object.data.all(key, object.data[key].size() < 1000))"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "bench"},
        "spec": {"policyName": "bench", "validationActions": ["Deny"]},
    });
    let (mut without, mut with) = (Vec::new(), Vec::new());
    load(target, 16, REQUESTS)?;
    for _ in 0..ROUNDS {
        without.push(load(target, 16, REQUESTS)?);
        if caller.code("POST", &policies, &policy.to_string()).await? == 404 {
            println!("policies are not served");
            return Ok(());
        }
        caller.post(&bindings, &binding.to_string()).await?;
        until(caller, true).await?;
        with.push(load(target, 16, REQUESTS)?);
        for collection in [&bindings, &policies] {
            let path = format!("{collection}/bench");
            caller.code("DELETE", &path, "{}").await?;
        }
        until(caller, false).await?;
    }
    let [without, with] = [without, with].map(median);
    let micros = |outcome: &LoadOutcome| outcome.cpu.as_secs_f64() * 1e6;
    println!(
        "a validating policy: {:.1} µs of CPU with, {:.1} µs without: {:.1} µs",
        micros(&with),
        micros(&without),
        micros(&with) - micros(&without)
    );
    Ok(())
}

async fn webhook(target: &Target, caller: &mut Caller) -> Result<()> {
    let hook = Hook::start()?;
    let collection = format!("{REGISTRATION}/validatingwebhookconfigurations");
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "bench"},
        "webhooks": [{
            "name": "bench.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("https://localhost:{}/", hook.address.port()), "caBundle": hook.authority},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        }],
    });
    let count = REQUESTS / 5;
    let (mut without, mut with, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(load(target, 1, count)?);
        caller.post(&collection, &configuration.to_string()).await?;
        until(caller, true).await?;
        with.push(load(target, 1, count)?);
        caller
            .code("DELETE", &format!("{collection}/bench"), "{}")
            .await?;
        until(caller, false).await?;
        // The hook itself, asked with a review of the same length.
        let review = format!(
            r#"{{"request":{{"uid":"x","padding":"{}"}}}}"#,
            "p".repeat(1500)
        );
        let direct = Target {
            address: hook.address,
            ..target.clone()
        };
        alone.push(drive(
            &direct,
            &Load {
                connections: 1,
                count,
                requests: same(direct.request("POST", "/", "", &review)),
                code: 200,
            },
        )?);
    }
    let [without, with, alone] = [without, with, alone].map(median);
    let millis = |outcome: &LoadOutcome| 1e3 / outcome.per_second;
    println!(
        "a webhook: a request takes {:.3} ms with, {:.3} ms without; the hook alone {:.3} ms: {:.3} ms added",
        millis(&with),
        millis(&without),
        millis(&alone),
        millis(&with) - millis(&without) - millis(&alone)
    );
    Ok(())
}
