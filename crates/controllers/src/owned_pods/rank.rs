//! Which pods go first when there are too many. Pure.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::meta;

/// Lower ranks go first.
pub type Rank = (
    bool,
    u8,
    bool,
    i64,
    Reverse<usize>,
    u32,
    Reverse<i32>,
    u32,
    String,
);

/// Unassigned before assigned, Pending before Unknown before Running, not ready before ready, lower
/// deletion cost before higher, more siblings on the node (`doubled_up`) before fewer, ready for a
/// short time before a long one, more restarts before fewer, younger before older. Times count by
/// their order of magnitude, and the UID decides among equals: which of many similar pods go is
/// then spread over nodes and zones.
pub fn rank(pod: &Pod, doubled_up: usize, now: Timestamp) -> Rank {
    let phase = match semantics::pod::phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let cost = meta::annotation(&pod.metadata, "controller.kubernetes.io/pod-deletion-cost")
        .and_then(|cost| cost.parse().ok())
        .unwrap_or(0);
    let ready_for = if semantics::pod::is_ready(pod) {
        meta::ready_since(pod).map_or(0, |since| magnitude(since, now))
    } else {
        0
    };
    let created = pod.metadata.creation_timestamp.as_ref();
    (
        !meta::node_name(pod).is_empty(),
        phase,
        semantics::pod::is_ready(pod),
        cost,
        Reverse(doubled_up),
        ready_for,
        Reverse(restarts(pod)),
        created.map_or(0, |time| magnitude(time.0, now)),
        pod.metadata.uid.clone().unwrap_or_default(),
    )
}

/// The most restarts of any of its containers.
fn restarts(pod: &Pod) -> i32 {
    pod.status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten())
        .map(|container| container.restart_count)
        .max()
        .unwrap_or(0)
}

/// The binary logarithm of a duration in seconds, 0 for less than a second.
fn magnitude(since: Timestamp, now: Timestamp) -> u32 {
    let seconds = (now.as_second() - since.as_second()).max(0) as u64;
    u64::BITS - seconds.leading_zeros()
}
