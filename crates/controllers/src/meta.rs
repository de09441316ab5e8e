//! What several controllers read from metadata, and since when pods are ready. The rules that other
//! components share are in crate `semantics`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use semantics::pod;

/// A reference by which `owner` controls another object.
pub fn owner_reference<K: kube::Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Being deleted, but its containers have not ended.
pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && !pod::is_terminal(pod)
}

/// The node a pod is bound to, or nothing.
pub fn node_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// Since when a ready pod has been ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = pod::condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Ready, and for at least `min_ready_seconds`.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    pod::is_ready(pod)
        && (min_ready_seconds <= 0
            || ready_since(pod).is_some_and(|since| {
                since.as_second() + i64::from(min_ready_seconds) <= now.as_second()
            }))
}

/// When the next of these ready pods will have become available by waiting, if one will.
pub fn next_availability<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    pods.filter(|pod| pod::is_ready(pod))
        .filter_map(ready_since)
        .map(|since| since.as_second() + i64::from(min_ready_seconds) - now.as_second())
        .filter(|seconds| *seconds > 0)
        .min()
        .map(|seconds| Duration::from_secs(seconds as u64))
}

pub fn label<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(name).map(String::as_str)
}

pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Seconds since the epoch; 0 for an object that was never stored.
pub fn created(meta: &ObjectMeta) -> i64 {
    let created = meta.creation_timestamp.as_ref();
    created.map_or(0, |time| time.0.as_second())
}
