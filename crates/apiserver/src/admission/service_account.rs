//! ServiceAccount: every pod has one that exists, and its token is mounted unless refused.

use std::sync::Arc;
use std::time::Duration;

use api::{Status, Value};

use super::Admitted;
use crate::cache::{CachedObject, From, Initial, Requirement, Watch, key_of};

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
const TOKEN_SECONDS: i64 = 3607;
/// How long a pod waits for the `default` account that a controller is about to make.
const PATIENCE: Duration = Duration::from_millis(1500);

pub(super) async fn admit(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    if !admitted.is_new_pod() || is_mirror(admitted.object) {
        return Ok(());
    }
    if admitted
        .object
        .str_at(&["spec", "serviceAccountName"])
        .is_empty()
    {
        let old_name = admitted.object.str_at(&["spec", "serviceAccount"]);
        let name = if old_name.is_empty() {
            "default"
        } else {
            old_name
        }
        .to_string();
        admitted.object.set(&["spec", "serviceAccountName"], name);
    }
    let name = admitted
        .object
        .str_at(&["spec", "serviceAccountName"])
        .to_string();
    // The deprecated alias follows.
    admitted
        .object
        .set(&["spec", "serviceAccount"], name.as_str());
    let namespace = admitted.namespace();
    let problems = api::metadata::names::path_segment(&name, false);
    if !problems.is_empty() {
        return Err(admitted.forbidden(format_args!(
            "error looking up service account {namespace}/{name}: invalid resource name {name:?}: [{}]",
            problems.join(" ")
        )));
    }
    let Some(entry) = find(admitted, &namespace, &name).await? else {
        return Err(admitted.forbidden(format_args!(
            "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
        )));
    };
    let account = entry.object()?;
    let automount = |object: &Value, path: &[&str]| object.at(path).and_then(Value::as_bool);
    let mounts = automount(admitted.object, &["spec", "automountServiceAccountToken"])
        .or_else(|| automount(&account, &["automountServiceAccountToken"]))
        .unwrap_or(true);
    if mounts {
        let suffix = admitted.context.server.environment.name_suffix(5);
        mount_token(admitted.object, &suffix);
    }
    let has_secrets = admitted
        .object
        .at(&["spec", "imagePullSecrets"])
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty());
    if let (false, Some(secrets)) = (has_secrets, account.get("imagePullSecrets")) {
        admitted
            .object
            .set(&["spec", "imagePullSecrets"], secrets.clone());
    }
    Ok(())
}

fn is_mirror(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", "kubernetes.io/config.mirror"])
        .is_some()
}

async fn find(
    admitted: &Admitted<'_>,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<CachedObject>>, Status> {
    let server = &admitted.context.server;
    let kind = server.cache.named("", "serviceaccounts");
    match server.objects.find(&kind.resource, namespace, name).await {
        Ok(entry) => return Ok(Some(entry)),
        Err(status) if status.reason != api::Reason::NotFound => return Err(status),
        Err(_) if name != "default" => return Ok(None),
        Err(_) => {}
    }
    let wanted = Requirement::of([("metadata.name", name)]);
    let Ok(mut watch) = Watch::begin(&server.cache, kind, From::State, wanted) else {
        return Ok(None);
    };
    let key = key_of(namespace, name);
    if let Initial::State(snapshot) = &watch.subscription.initial
        && let Some(entry) = snapshot.get(key.as_str())
    {
        return Ok(Some(entry.clone()));
    }
    let appears = async {
        while let Some(change) = watch.subscription.changes.recv().await {
            if let Some(entry) = &change.current
                && *entry.key == *key
            {
                return Some(entry.clone());
            }
        }
        None
    };
    Ok(tokio::time::timeout(PATIENCE, appears).await.ok().flatten())
}

fn mount_token(pod: &mut Value, suffix: &str) {
    let existing = pod
        .at(&["spec", "volumes"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|volume| volume.str_at(&["name"]))
        .find(|name| name.starts_with(VOLUME_PREFIX))
        .map(str::to_string);
    let has_volume = existing.is_some();
    let volume = existing.unwrap_or_else(|| format!("{VOLUME_PREFIX}{suffix}"));
    let mount = api::document!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let containers = pod.at_mut(&["spec", list]).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mounts = container.get("volumeMounts").and_then(Value::as_array);
            let taken = mounts
                .into_iter()
                .flatten()
                .any(|mount| mount.str_at(&["mountPath"]) == TOKEN_PATH);
            if !taken {
                append(container, "volumeMounts", mount.clone());
                needed = true;
            }
        }
    }
    if !needed || has_volume {
        return;
    }
    let source = api::document!({
        "name": volume,
        "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{
                "path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
            }]}},
        ]},
    });
    if let Some(spec) = pod.get_mut("spec") {
        append(spec, "volumes", source);
    }
}

fn append(object: &mut Value, list: &str, item: Value) {
    match object.get_mut(list) {
        Some(Value::Array(items)) => items.push(item),
        _ => object.set(&[list], vec![item]),
    }
}
