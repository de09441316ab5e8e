//! The normalized state of a cluster: all objects without generated names, hashes, addresses, times
//! and placements. Two control planes behaved alike if their normalized states are equal.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use super::scenario_client::{PAUSE, ScenarioClient, WAIT_LIMIT};
use super::{NAMESPACES, text};

/// One line per object, sorted.
pub type NormalizedState = Vec<String>;

const NAMESPACED: [&str; 18] = [
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/apis/apps/v1/namespaces/{}/statefulsets",
    "/apis/apps/v1/namespaces/{}/daemonsets",
    "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "/apis/batch/v1/namespaces/{}/cronjobs",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/replicationcontrollers",
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/endpoints",
    "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "/api/v1/namespaces/{}/persistentvolumeclaims",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "/api/v1/namespaces/{}/resourcequotas",
    "/api/v1/namespaces/{}/serviceaccounts",
    "/api/v1/namespaces/{}/configmaps",
    "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
];
const CLUSTER_WIDE: [&str; 5] = [
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/networking.k8s.io/v1/servicecidrs",
];

/// The state of a cluster once it no longer changes.
pub async fn settled(client: &ScenarioClient) -> Result<NormalizedState> {
    let deadline = tokio::time::Instant::now() + WAIT_LIMIT;
    let mut last = read(client).await?;
    let mut same = 0;
    // Controllers may be about to write once more: the state has settled after several equal reads.
    while same < 8 {
        if tokio::time::Instant::now() > deadline {
            bail!("the state of the cluster did not settle within {WAIT_LIMIT:?}");
        }
        tokio::time::sleep(PAUSE * 2).await;
        let now = read(client).await?;
        match now == last {
            true => same += 1,
            false => same = 0,
        }
        last = now;
    }
    Ok(last)
}

async fn read(client: &ScenarioClient) -> Result<NormalizedState> {
    let mut objects = Vec::new();
    for namespace in NAMESPACES {
        for path in NAMESPACED {
            let path = path.replace("{}", namespace);
            for object in client.list(&path).await? {
                objects.push((resource(&path), object));
            }
        }
    }
    for path in CLUSTER_WIDE {
        for object in client.list(path).await? {
            let name = text(&object, "/metadata/name");
            if name.starts_with("swap") || name.starts_with("node-") {
                objects.push((resource(path), object));
            }
        }
    }
    Ok(normalize(objects))
}

fn resource(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Normalizes objects, each with its resource. Owners come before their dependents.
fn normalize(objects: Vec<(String, Value)>) -> NormalizedState {
    let aliases = Aliases::of(&objects);
    let mut lines: NormalizedState = objects
        .into_iter()
        .map(|(resource, object)| {
            let uid = text(&object, "/metadata/uid").to_owned();
            let alias = aliases.by_uid.get(&uid).cloned().unwrap_or_default();
            let mut object = reduce(&resource, object);
            tidy(&mut object, &aliases);
            forget_revisions(object.pointer_mut("/status/conditions"));
            format!("{resource} {alias} {object}")
        })
        .collect();
    lines.sort();
    lines
}

/// Removes revisions from the messages of conditions (`web@2` becomes `web`): the ReplicaSet that made
/// the last progress depends on timing.
fn forget_revisions(conditions: Option<&mut Value>) {
    for condition in conditions.map(list).into_iter().flatten() {
        let mut message = String::new();
        for (index, part) in text(condition, "/message").split('@').enumerate() {
            message.push_str(match index {
                0 => part,
                _ => part.trim_start_matches(|c: char| c.is_ascii_digit()),
            });
        }
        condition["message"] = message.into();
    }
}

/// Stable names for objects with generated names.
#[derive(Default)]
struct Aliases {
    by_uid: BTreeMap<String, String>,
    /// Generated names and hashes with their replacements, the longest first.
    words: Vec<(String, String)>,
}

impl Aliases {
    fn of(objects: &[(String, Value)]) -> Aliases {
        let mut aliases = Aliases::default();
        for (resource, object) in objects {
            let name = text(object, "/metadata/name");
            let owner = text(object, "/metadata/ownerReferences/0/uid");
            let owner = aliases.by_uid.get(owner).cloned();
            let alias = match (resource.as_str(), owner) {
                ("replicasets", _) => {
                    let app = text(object, "/metadata/labels/app");
                    let revision = annotation(object, "deployment.kubernetes.io/revision");
                    let alias = format!("{app}@{revision}");
                    let hash = text(object, "/metadata/labels/pod-template-hash");
                    aliases.word(hash, &format!("hash({alias})"));
                    alias
                }
                ("controllerrevisions", Some(owner)) => {
                    let alias = format!("{owner}@{}", object["revision"]);
                    let hash = text(object, "/metadata/labels/controller.kubernetes.io~1hash");
                    aliases.word(hash, &format!("hash({alias})"));
                    let hash = text(object, "/metadata/labels/controller-revision-hash");
                    aliases.word(hash, &format!("hash({alias})"));
                    alias
                }
                ("jobs", Some(owner)) => format!("{owner}/job"),
                ("endpointslices", Some(owner)) => format!("{owner}/slice"),
                ("pods", Some(owner)) if is_ordinal(name, &owner) => name.to_owned(),
                ("pods", Some(owner)) => {
                    let index = annotation(object, "batch.kubernetes.io/job-completion-index");
                    format!("{owner}/pod{index}")
                }
                _ => name.to_owned(),
            };
            if alias != name {
                aliases.word(name, &alias);
            }
            let uid = text(object, "/metadata/uid").to_owned();
            aliases.word(&uid, &format!("uid({alias})"));
            aliases.by_uid.insert(uid, alias);
        }
        // It is not determined which of several equal volumes was bound.
        for (resource, object) in objects {
            let name = text(object, "/metadata/name");
            if resource == "persistentvolumes"
                && text(object, "/spec/storageClassName") == "swap-waits"
            {
                aliases.word(name, "one-of-the-volumes");
                let uid = text(object, "/metadata/uid").to_owned();
                aliases.by_uid.insert(uid, "one-of-the-volumes".to_owned());
            }
        }
        aliases
            .words
            .sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        aliases
    }

    fn word(&mut self, word: &str, alias: &str) {
        if !word.is_empty() {
            self.words.push((word.to_owned(), alias.to_owned()));
        }
    }

    fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (word, alias) in &self.words {
            if text.contains(word.as_str()) {
                text = text.replace(word.as_str(), alias);
            }
        }
        text
    }
}

/// The name without the suffix of a pod of `owner`.
fn without_made_up_name(message: &str, owner: &str) -> String {
    let prefix = format!("\"{owner}-");
    let Some((before, after)) = message.split_once(&prefix) else {
        return message.to_owned();
    };
    let after = after.split_once('"').map_or("", |(_, after)| after);
    format!("{before}{prefix}\"{after}")
}

fn is_uid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// `db-0` of `db`.
fn is_ordinal(name: &str, owner: &str) -> bool {
    let ordinal = name
        .strip_prefix(owner)
        .and_then(|rest| rest.strip_prefix('-'));
    ordinal.is_some_and(|ordinal| ordinal.parse::<u32>().is_ok())
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key]
        .as_str()
        .unwrap_or_default()
}

/// Keeps the fields of an object that controllers and schedulers decide.
fn reduce(resource: &str, mut object: Value) -> Value {
    let generation = object["metadata"]["generation"].clone();
    let name = text(&object, "/metadata/name").to_owned();
    for condition in list(&mut object["status"]["conditions"]) {
        let message = without_made_up_name(text(condition, "/message"), &name);
        condition["message"] = message.into();
    }
    let metadata = &mut object["metadata"];
    for field in [
        "managedFields",
        "generation",
        "name",
        "uid",
        "resourceVersion",
        "selfLink",
    ] {
        remove(metadata, field);
    }
    if let Some(observed) = object.pointer_mut("/status/observedGeneration") {
        *observed = (*observed == generation).into();
    }
    match resource {
        "pods" => reduce_pod(&mut object),
        "nodes" => {
            let ready = super::condition(&object, "Ready").to_owned();
            let taints = object["spec"]["taints"].take();
            let has_range = object["spec"]["podCIDR"].is_string();
            object = json!({"ready": ready, "taints": taints, "has a pod range": has_range});
        }
        "configmaps" => {
            let keys: Vec<String> = object["data"]
                .as_object()
                .map(|data| data.keys().cloned().collect())
                .unwrap_or_default();
            object["data"] = json!(keys);
        }
        // Only one of the API servers knows the usage of its pods.
        "horizontalpodautoscalers" if name == "grown" || name == "capped" => {
            remove(&mut object, "status");
        }
        "endpointslices" => {
            for endpoint in list(&mut object["endpoints"]) {
                // The node of a pod is not determined.
                for field in ["addresses", "nodeName", "zone", "hints"] {
                    remove(endpoint, field);
                }
            }
            sort(&mut object["endpoints"]);
        }
        "endpoints" => {
            for subset in list(&mut object["subsets"]) {
                for kind in ["addresses", "notReadyAddresses"] {
                    for address in list(&mut subset[kind]) {
                        remove(address, "nodeName");
                    }
                }
            }
        }
        _ => {}
    }
    sort_by(&mut object["status"]["conditions"], |one| {
        text(one, "/type").to_owned()
    });
    object
}

fn reduce_pod(pod: &mut Value) {
    let status = json!({
        "phase": pod["status"]["phase"],
        "ready": super::condition(pod, "Ready"),
        "scheduled": super::condition(pod, "PodScheduled"),
        "disrupted": super::condition(pod, "DisruptionTarget"),
    });
    pod["status"] = status;
    let daemon = text(pod, "/metadata/ownerReferences/0/kind") == "DaemonSet";
    if !daemon && pod["spec"]["nodeName"].is_string() {
        pod["spec"]["nodeName"] = "some node".into();
    }
    for volume in list(&mut pod["spec"]["volumes"]) {
        shorten(volume, "kube-api-access-");
    }
    for container in list(&mut pod["spec"]["containers"]) {
        for mount in list(&mut container["volumeMounts"]) {
            shorten(mount, "kube-api-access-");
        }
    }
}

/// Removes the generated part from the name of a volume.
fn shorten(named: &mut Value, prefix: &str) {
    if text(named, "/name").starts_with(prefix) {
        named["name"] = prefix.into();
    }
}

/// Replaces generated values everywhere.
fn tidy(value: &mut Value, aliases: &Aliases) {
    match value {
        Value::String(text) => {
            let new = match () {
                () if text.parse::<k8s_openapi::jiff::Timestamp>().is_ok() => "<time>".to_owned(),
                () if text.parse::<std::net::IpAddr>().is_ok() && !text.starts_with("192.0.2.") => {
                    "<address>".to_owned()
                }
                () => match aliases.apply(text) {
                    // The reference is to a deleted object.
                    uid if is_uid(&uid) => "<uid>".to_owned(),
                    other => other,
                },
            };
            *text = new;
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                tidy(item, aliases);
            }
        }
        Value::Object(fields) => {
            // A known difference, see docs/differences.md.
            fields.remove("endpoints.kubernetes.io/last-change-trigger-time");
            // The resource version at which a reference was read.
            fields.remove("resourceVersion");
            let old = std::mem::replace(fields, Map::new());
            for (key, mut field) in old {
                tidy(&mut field, aliases);
                let is_empty = field.as_object().is_some_and(Map::is_empty);
                if !field.is_null() && !is_empty {
                    fields.insert(aliases.apply(&key), field);
                }
            }
            // The order of endpoints depends on their addresses.
            for field in ["endpoints", "addresses", "notReadyAddresses"] {
                if let Some(unordered) = fields.get_mut(field) {
                    sort(unordered);
                }
            }
        }
        _ => {}
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Value::Object(fields) = object {
        fields.remove(field);
    }
}

fn list(value: &mut Value) -> &mut [Value] {
    match value {
        Value::Array(items) => items,
        _ => &mut [],
    }
}

fn sort(value: &mut Value) {
    sort_by(value, Value::to_string);
}

fn sort_by(value: &mut Value, key: impl Fn(&Value) -> String) {
    list(value).sort_by_key(|one| key(one));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica_set(hash: &str, replicas: i64) -> (String, Value) {
        let object = json!({
            "metadata": {
                "name": format!("web-{hash}"), "uid": hash, "generation": 4,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": "web", "pod-template-hash": hash},
                "annotations": {"deployment.kubernetes.io/revision": "2"},
            },
            "status": {"replicas": replicas, "observedGeneration": 4},
        });
        ("replicasets".to_owned(), object)
    }

    fn pod(hash: &str, suffix: &str, node: &str, ready: &str) -> (String, Value) {
        let object = json!({
            "metadata": {
                "name": format!("web-{hash}-{suffix}"), "uid": suffix,
                "labels": {"pod-template-hash": hash},
                "ownerReferences": [{"kind": "ReplicaSet", "name": format!("web-{hash}"), "uid": hash}],
            },
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": ready}]},
        });
        ("pods".to_owned(), object)
    }

    #[test]
    fn generated_names_and_placements_do_not_matter() {
        let ours = normalize(vec![
            replica_set("abc", 1),
            pod("abc", "x1", "node-1", "True"),
        ]);
        let theirs = normalize(vec![
            replica_set("5f6d", 1),
            pod("5f6d", "zz", "node-2", "True"),
        ]);
        assert_eq!(ours, theirs);
        assert!(ours[1].contains("hash(web@2)"), "{ours:?}");
    }

    #[test]
    fn different_counts_and_conditions_differ() {
        let good = normalize(vec![
            replica_set("abc", 1),
            pod("abc", "x1", "node-1", "True"),
        ]);
        let unready = normalize(vec![
            replica_set("abc", 1),
            pod("abc", "x1", "node-1", "False"),
        ]);
        let more = normalize(vec![
            replica_set("abc", 2),
            pod("abc", "x1", "node-1", "True"),
        ]);
        let none = normalize(vec![replica_set("abc", 1)]);
        for other in [unready, more, none] {
            assert_ne!(good, other);
        }
    }
}
