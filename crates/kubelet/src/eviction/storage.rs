//! Pods that use more of the node's disk than their limits allow. Pure.

use k8s_openapi::api::core::v1::Pod;

use crate::{
    resources,
    stats::{Layout, PodSample, Usage},
};

/// Whether anything of the pod's disk use is limited.
pub fn is_limited(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let volumes = spec.volumes.iter().flatten();
    let mut sized = volumes.filter_map(|volume| volume.empty_dir.as_ref());
    sized.any(|source| source.size_limit.is_some()) || total(pod).is_some()
}

/// A limit that is exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// As metrics name it.
    pub signal: &'static str,
    pub message: String,
}

impl Excess {
    fn new(signal: &'static str, message: String) -> Option<Excess> {
        Some(Excess { signal, message })
    }
}

/// Why the pod must be evicted, if it must.
pub fn excess(pod: &Pod, sample: &PodSample, layout: Layout) -> Option<Excess> {
    let spec = pod.spec.as_ref()?;
    for volume in spec.volumes.iter().flatten() {
        let Some(limit) = volume
            .empty_dir
            .as_ref()
            .and_then(|source| source.size_limit.as_ref())
        else {
            continue;
        };
        let allowed = resources::whole(limit).filter(|limit| *limit > 0);
        let used = sample
            .volumes
            .get(&volume.name)
            .and_then(|volume| Some(volume.usage?.bytes));
        if let (Some(allowed), Some(used)) = (allowed, used)
            && used as i64 > allowed
        {
            let message = format!(
                "Usage of EmptyDir volume \"{}\" exceeds the limit \"{}\". ",
                volume.name, limit.0
            );
            return Excess::new("emptydirfs.limit", message);
        }
    }
    if let Some(total) = total(pod)
        && at_least(sample.disk()) > total
    {
        let message = format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {}. ",
            super::rank::binary(total)
        );
        return Excess::new("ephemeralpodfs.limit", message);
    }
    for container in &spec.containers {
        let Some(limit) = limit(container) else {
            continue;
        };
        let used = sample
            .containers
            .iter()
            .find(|one| one.name == container.name)
            .map_or(0, |one| match layout {
                Layout::Shared => at_least([one.rootfs, one.logs]),
                // Layers are on another disk.
                _ => at_least([one.logs]),
            });
        if used > limit {
            let text = container
                .resources
                .as_ref()
                .and_then(|all| all.limits.as_ref()?.get("ephemeral-storage"))
                .map(|quantity| quantity.0.clone())
                .unwrap_or_default();
            let message = format!(
                "Container {} exceeded its local ephemeral storage limit \"{text}\". ",
                container.name
            );
            return Excess::new("ephemeralcontainerfs.limit", message);
        }
    }
    None
}

/// The bytes that are known of: what could not be measured never costs a pod its place.
fn at_least(parts: impl IntoIterator<Item = Option<Usage>>) -> i64 {
    Usage::at_least(parts).map_or(0, |known| known.bytes as i64)
}

/// What all containers together may use, if any of them has a limit.
fn total(pod: &Pod) -> Option<i64> {
    resources::pod_limit_of_any(pod, "ephemeral-storage")
}

fn limit(container: &k8s_openapi::api::core::v1::Container) -> Option<i64> {
    resources::limit_whole(container, "ephemeral-storage").filter(|limit| *limit > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{ContainerSample, VolumeSample};

    fn check(volume: u64, log: u64, expected: Option<&str>) {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            "containers": [{"name": "a", "resources": {"limits": {"ephemeral-storage": "1Mi"}}},
                {"name": "b", "resources": {"limits": {"ephemeral-storage": "2Mi"}}}],
        }}))
        .expect("a pod");
        let mut sample = PodSample {
            containers: vec![ContainerSample {
                name: "a".to_owned(),
                logs: Some(Usage {
                    bytes: log,
                    inodes: Some(1),
                }),
                ..ContainerSample::default()
            }],
            ..PodSample::default()
        };
        let usage = Some(Usage {
            bytes: volume,
            inodes: Some(1),
        });
        sample.volumes.insert(
            "v".to_owned(),
            VolumeSample {
                usage,
                in_memory: false,
                ..VolumeSample::default()
            },
        );
        assert!(is_limited(&pod));
        let message = excess(&pod, &sample, Layout::Shared).map(|excess| excess.message);
        assert_eq!(message.as_deref(), expected);
    }

    #[test]
    fn volumes_and_containers_have_limits() {
        check(1 << 20, 1 << 20, None);
        check(
            2 << 20,
            0,
            Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "),
        );
        check(
            0,
            2 << 20,
            Some("Container a exceeded its local ephemeral storage limit \"1Mi\". "),
        );
    }

    #[test]
    fn one_limit_is_enough_to_limit_the_pod() {
        let pod = |spec: serde_json::Value| -> Pod {
            serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod")
        };
        let limited = |name: &str, amount: &str| serde_json::json!({"name": name, "resources": {"limits": {"ephemeral-storage": amount}}});
        let one = pod(serde_json::json!({"containers": [limited("a", "1Mi"), {"name": "b"}]}));
        let mut sample = PodSample::default();
        let layer = |bytes| {
            Some(Usage {
                bytes,
                inodes: Some(1),
            })
        };
        for (name, bytes) in [("a", 1), ("b", 2 << 20)] {
            sample.containers.push(ContainerSample {
                name: name.to_owned(),
                rootfs: layer(bytes),
                ..ContainerSample::default()
            });
        }
        let found = excess(&one, &sample, Layout::Shared);
        assert_eq!(
            found.map(|excess| excess.message).as_deref(),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ")
        );
        let none = pod(serde_json::json!({"containers": [{"name": "a"}]}));
        assert!(!is_limited(&none) && excess(&none, &sample, Layout::Shared).is_none());
        // A sidecar's limit counts, and what the runtime class adds.
        let mut sidecar = limited("s", "1Mi");
        sidecar["restartPolicy"] = serde_json::json!("Always");
        let both = pod(serde_json::json!({
            "initContainers": [sidecar, limited("i", "1Ki")],
            "containers": [{"name": "a"}], "overhead": {"ephemeral-storage": "1Mi"}}));
        assert!(is_limited(&both));
        assert_eq!(total(&both), Some((2 << 20) + 1024));
    }
}
