//! Which pod is evicted first, and the message about it. Pure.

use std::{collections::BTreeMap, sync::Arc};

use api::quantity::{Format, Quantity};
use k8s_openapi::api::core::v1::Pod;

use super::thresholds::Level;
use crate::{
    configuration::eviction_thresholds::{Signal, Threshold},
    resources,
    stats::{Layout, PodSample, Usage},
};

type Candidate = (Arc<Pod>, Option<PodSample>);

/// The candidates in the order of eviction: first those that use more than they requested, then by
/// priority, then by how far they exceed their request. Pods that could not be measured come last.
pub fn order(mut candidates: Vec<Candidate>, signal: Signal, layout: Layout) -> Vec<Candidate> {
    candidates.sort_by_key(|(pod, sample)| {
        let used = sample
            .as_ref()
            .and_then(|sample| used(sample, signal, layout));
        let request = request(pod, signal);
        let priority = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.priority)
            .unwrap_or(0);
        let exceeds = used
            .zip(request)
            .is_some_and(|(used, request)| used > request);
        let above = used.map(|used| used - request.unwrap_or(0));
        // A pod that could not be measured is evicted last.
        (used.is_none(), !exceeds, priority, std::cmp::Reverse(above))
    });
    candidates
}

/// Why a pod is evicted: a message for people, and annotations for programs that read events.
pub struct Reason {
    pub message: String,
    pub annotations: BTreeMap<String, String>,
}

pub fn reason(
    pod: &Pod,
    sample: Option<&PodSample>,
    threshold: &Threshold,
    level: Option<&Level>,
) -> Reason {
    let resource = threshold.signal.resource();
    let mut message = format!("The node was low on resource: {resource}. ");
    if let Some(level) = level
        && let Some(quantity) = threshold.quantity(level.capacity)
    {
        let shown = if threshold.value.ends_with('%') {
            binary(quantity)
        } else {
            threshold.value.clone()
        };
        message.push_str(&format!(
            "Threshold quantity: {shown}, available: {}. ",
            kibi(level.available)
        ));
    }
    let mut annotations = BTreeMap::new();
    let (Some(spec), Some(sample)) = (&pod.spec, sample) else {
        return Reason {
            message,
            annotations,
        };
    };
    let mut annotate = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    let own = resources::pod_level(pod).and_then(|own| own.requests.as_ref()?.get("memory"));
    if let (Some(request), Some(memory), "memory") = (own, &sample.memory, resource) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let used = memory.working_set.map(|used| binary(used as i64));
        let used = used.unwrap_or_else(|| "an unknown amount".to_owned());
        message.push_str(&format!(
            "Pod {name} was using {used}, request is {}, has larger consumption of {resource}. ",
            request.0
        ));
        annotate("offending_pod", name);
        annotate("offending_pod_usage", used);
    }
    let (mut offenders, mut usages) = (Vec::new(), Vec::new());
    for container in &sample.containers {
        let declared = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .find(|declared| declared.name == container.name);
        let Some(declared) = declared else { continue };
        let used = match resource {
            "memory" => container
                .memory
                .as_ref()
                .and_then(|memory| memory.working_set),
            "ephemeral-storage" => {
                Usage::at_least([container.rootfs, container.logs]).map(|usage| usage.bytes)
            }
            _ => None,
        };
        let asked = resources::request_whole(declared, resource);
        if let Some(used) = used.filter(|used| *used as i64 > asked) {
            let request = declared
                .resources
                .as_ref()
                .and_then(|all| all.requests.as_ref()?.get(resource))
                .map_or_else(|| "0".to_owned(), |quantity| quantity.0.clone());
            let (name, used) = (container.name.clone(), binary(used as i64));
            message.push_str(&format!(
                "Container {name} was using {used}, request is {request}, has larger consumption of {resource}. ",
            ));
            offenders.push(name);
            usages.push(used);
        }
    }
    annotate("offending_containers", offenders.join(","));
    annotate("offending_containers_usage", usages.join(","));
    annotate("starved_resource", resource.to_owned());
    Reason {
        message,
        annotations,
    }
}

fn used(sample: &PodSample, signal: Signal, layout: Layout) -> Option<i64> {
    let disk = || match (layout, signal.is_of_images()) {
        (Layout::Shared, _) | (Layout::ImagesAloneApart, false) => Usage::at_least(sample.disk()),
        (Layout::ImagesApart, false) => Usage::at_least(sample.logs_and_volumes()),
        (Layout::ImagesApart, true) => Usage::at_least(sample.layers()),
        (Layout::ImagesAloneApart, true) => Some(Usage::ZERO),
    };
    let used = match signal.resource() {
        "memory" => sample.memory.as_ref()?.working_set?,
        "ephemeral-storage" => disk()?.bytes,
        "inodes" => disk()?.inodes?,
        _ => sample.processes?,
    };
    Some(used as i64)
}

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
    use crate::stats::{ContainerSample, Memory, VolumeSample};

    fn candidate(name: &str, priority: i32, request: &str, used: u64) -> (Arc<Pod>, PodSample) {
        let pod = serde_json::json!({
            "metadata": {"name": name},
            "spec": {"priority": priority, "containers": [
                {"name": "c", "resources": {"requests": {"memory": request}}}]},
        });
        let memory = Some(Memory {
            working_set: Some(used),
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
    fn pods_are_ranked_by_exceeding_requests_then_priority_then_excess() {
        let all = vec![
            candidate("modest", 0, "10Mi", 5 << 20),
            candidate("important", 100, "1Mi", 50 << 20),
            candidate("little", 0, "10Mi", 11 << 20),
            candidate("much", 0, "10Mi", 90 << 20),
        ];
        let unseen = (candidate("unseen", 0, "10Mi", 0).0, None);
        let all = all.into_iter().map(|(pod, sample)| (pod, Some(sample)));
        let all = all.chain([unseen]).collect();
        assert_eq!(
            names(order(all, Signal::MemoryAvailable, Layout::Shared)),
            ["much", "little", "important", "modest", "unseen"]
        );
    }

    fn names(ordered: Vec<Candidate>) -> Vec<String> {
        ordered
            .into_iter()
            .filter_map(|(pod, _)| pod.metadata.name.clone())
            .collect()
    }

    #[test]
    fn only_usage_on_the_starved_disk_counts() {
        let holding = |name: &str, layer: u64, volume: u64| {
            let usage = |bytes| {
                Some(Usage {
                    bytes,
                    inodes: Some(1),
                })
            };
            let (pod, mut sample) = candidate(name, 0, "1", 0);
            sample.containers[0].rootfs = usage(layer);
            let volume = VolumeSample {
                usage: usage(volume),
                in_memory: false,
                ..VolumeSample::default()
            };
            sample.volumes.insert("v".to_owned(), volume);
            (pod, Some(sample))
        };
        let first = |signal, layout| {
            let all = vec![holding("layer", 100, 1), holding("volume", 1, 200)];
            names(order(all, signal, layout)).remove(0)
        };
        assert_eq!(first(Signal::ImageFsAvailable, Layout::Shared), "volume");
        assert_eq!(
            first(Signal::ImageFsAvailable, Layout::ImagesApart),
            "layer"
        );
        assert_eq!(
            first(Signal::NodeFsAvailable, Layout::ImagesApart),
            "volume"
        );
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
        let reason = reason(&pod, Some(&sample), &threshold, Some(&level));
        assert_eq!(
            reason.message,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container c was using 3Mi, request is 1Mi, has larger consumption of memory. "
        );
        let annotations: Vec<(&str, &str)> = reason
            .annotations
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            annotations,
            [
                ("offending_containers", "c"),
                ("offending_containers_usage", "3Mi"),
                ("starved_resource", "memory")
            ]
        );
    }
}
