//! Who leaves first, and what is said about it. Pure.

use std::sync::Arc;

use api::quantity::{Format, Quantity};
use k8s_openapi::api::core::v1::Pod;

use super::thresholds::{Level, Signal, Threshold};
use crate::{resources, stats::PodSample};

/// The first to leave first: who uses more than was asked for, then the less important, then who
/// is furthest above its request.
pub fn order(
    mut candidates: Vec<(Arc<Pod>, PodSample)>,
    signal: Signal,
) -> Vec<(Arc<Pod>, PodSample)> {
    candidates.sort_by_key(|(pod, sample)| {
        let (used, request) = (used(sample, signal), request(pod, signal));
        let priority = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.priority)
            .unwrap_or(0);
        let exceeds = request.is_some_and(|request| used > request);
        let above = used - request.unwrap_or(0);
        (!exceeds, priority, std::cmp::Reverse(above))
    });
    candidates
}

pub fn message(
    pod: &Pod,
    sample: &PodSample,
    threshold: &Threshold,
    level: Option<&Level>,
) -> String {
    let resource = threshold.signal.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    if let Some(level) = level
        && let Some(quantity) = threshold.quantity(level.capacity)
    {
        let shown = if threshold.value.ends_with('%') {
            binary(quantity)
        } else {
            threshold.value.clone()
        };
        text.push_str(&format!(
            "Threshold quantity: {shown}, available: {}. ",
            kibi(level.available)
        ));
    }
    let Some(spec) = &pod.spec else { return text };
    for container in &sample.containers {
        let declared = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .find(|declared| declared.name == container.name);
        let Some(declared) = declared else { continue };
        let used = match resource {
            "memory" => container.memory.as_ref().map(|memory| memory.working_set),
            "ephemeral-storage" => Some(container.rootfs.bytes + container.logs.bytes),
            _ => None,
        };
        let asked = resources::request_whole(declared, resource);
        if let Some(used) = used.filter(|used| *used as i64 > asked) {
            let request = declared
                .resources
                .as_ref()
                .and_then(|all| all.requests.as_ref()?.get(resource))
                .map_or_else(|| "0".to_owned(), |quantity| quantity.0.clone());
            text.push_str(&format!(
                "Container {} was using {}, request is {request}, has larger consumption of {resource}. ",
                container.name,
                binary(used as i64)
            ));
        }
    }
    text
}

fn used(sample: &PodSample, signal: Signal) -> i64 {
    let used = match signal.resource() {
        "memory" => sample
            .memory
            .as_ref()
            .map_or(0, |memory| memory.working_set),
        "ephemeral-storage" => sample.disk().bytes,
        "inodes" => sample.disk().inodes,
        _ => sample.processes.unwrap_or(0),
    };
    used as i64
}

/// `None` where nothing can be asked for: then nobody exceeds.
fn request(pod: &Pod, signal: Signal) -> Option<i64> {
    match signal.resource() {
        resource @ ("memory" | "ephemeral-storage") => Some(resources::pod_request(pod, resource)),
        _ => None,
    }
}

/// As Go prints a quantity of bytes.
pub fn binary(bytes: i64) -> String {
    Quantity::from_units(bytes, Format::BinarySi).to_string()
}

fn kibi(bytes: i64) -> String {
    binary(bytes / 1024 * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{ContainerSample, Memory};

    fn candidate(name: &str, priority: i32, request: &str, used: u64) -> (Arc<Pod>, PodSample) {
        let pod = serde_json::json!({
            "metadata": {"name": name},
            "spec": {"priority": priority, "containers": [
                {"name": "c", "resources": {"requests": {"memory": request}}}]},
        });
        let memory = Some(Memory {
            working_set: used,
            ..Memory::default()
        });
        let sample = PodSample {
            memory: memory.clone(),
            containers: vec![ContainerSample {
                name: "c".to_owned(),
                memory,
                ..ContainerSample::default()
            }],
            ..PodSample::default()
        };
        (
            Arc::new(serde_json::from_value(pod).expect("a pod")),
            sample,
        )
    }

    #[test]
    fn exceeding_then_priority_then_excess() {
        let all = vec![
            candidate("modest", 0, "10Mi", 5 << 20),
            candidate("important", 100, "1Mi", 50 << 20),
            candidate("little", 0, "10Mi", 11 << 20),
            candidate("much", 0, "10Mi", 90 << 20),
        ];
        let names: Vec<String> = order(all, Signal::MemoryAvailable)
            .into_iter()
            .filter_map(|(pod, _)| pod.metadata.name.clone())
            .collect();
        assert_eq!(names, ["much", "little", "important", "modest"]);
    }

    #[test]
    fn the_message_names_threshold_and_offenders() {
        let (pod, sample) = candidate("p", 0, "1Mi", 3 << 20);
        let threshold = Threshold {
            signal: Signal::MemoryAvailable,
            value: "100Mi".to_owned(),
            grace: None,
            reclaim: None,
        };
        let level = Level {
            available: 50 << 20,
            capacity: 1 << 30,
        };
        assert_eq!(
            message(&pod, &sample, &threshold, Some(&level)),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container c was using 3Mi, request is 1Mi, has larger consumption of memory. "
        );
    }
}
