//! The objects of the scenario.

use serde_json::{Value, json};

/// Real nodes have this image under the names of both versions.
pub fn image(version: &str) -> String {
    format!("registry.test/swap/work:{version}")
}

/// A pod template that runs until it is stopped.
pub fn template(app: &str, version: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": image(version),
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "1000000"],
                "ports": [{"name": "http", "containerPort": 80}],
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
            }],
        },
    })
}

/// The patch that gives a workload another version of its image.
pub fn version(version: &str) -> Value {
    let mut template = template("", version);
    template["metadata"].take();
    json!({"spec": {"template": {"spec": template["spec"]}}})
}

pub fn deployment(name: &str, replicas: i64, strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "strategy": strategy,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, "v1"),
        },
    })
}

/// A Job whose pods exit with the code at their index in `codes`; `never` does not exit.
pub fn job(name: &str, codes: &str, spec: Value) -> Value {
    let mut template = template(name, "v1");
    template["spec"]["restartPolicy"] = "Never".into();
    // Terminated pods are evicted from a tainted node too, so that their node must be determined.
    template["spec"]["affinity"] = elsewhere("node-2");
    let container = &mut template["spec"]["containers"][0];
    container["env"] = json!([{"name": "EXIT_CODES", "value": codes}]);
    container["command"] = json!([
        "sh",
        "-c",
        "code=$(echo $EXIT_CODES | cut -d, -f$((${JOB_COMPLETION_INDEX:-0} + 1))); \
         [ $code != never ] || sleep 1000000; exit $code"
    ]);
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, "backoffLimit": 2},
    });
    if let (Some(own), Value::Object(more)) = (job["spec"].as_object_mut(), spec) {
        own.extend(more);
    }
    job
}

pub fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

/// Affinity to all nodes except one.
pub fn elsewhere(node: &str) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}]}]}}})
}
