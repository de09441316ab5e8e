//! One container's configuration for CRI. Pure: environment, mounts and image are given.

use std::collections::{BTreeMap, HashMap};

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{expansion::expand, security};
use crate::{image::Image, pod_spec::definition_hash, resources, runtime::label};

pub struct Parts<'a> {
    pub restart_count: i32,
    pub image: &'a Image,
    pub environment: Vec<(String, String)>,
    pub mounts: Vec<v1::Mount>,
    pub devices: Vec<v1::Device>,
    pub machine: Machine<'a>,
    /// Whether containers without a seccomp profile get the runtime's.
    pub seccomp_default: bool,
    /// The container whose processes an ephemeral container is to see.
    pub target_id: Option<String>,
}

/// The properties of the machine that a container's limits depend on.
pub struct Machine<'a> {
    /// Bytes.
    pub memory: i64,
    /// Bytes of huge pages, by the resource's name.
    pub huge_pages: &'a BTreeMap<String, i64>,
    /// Each container's swap must be limited.
    pub limits_swap: bool,
}

pub fn config(
    pod: &Pod,
    container: &Container,
    parts: Parts<'_>,
) -> Result<v1::ContainerConfig, security::Error> {
    let known: BTreeMap<String, String> = parts.environment.iter().cloned().collect();
    let expanded = |words: &Option<Vec<String>>| -> Vec<String> {
        let words = words.iter().flatten();
        words.map(|word| expand(word, &known)).collect()
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let metadata = &pod.metadata;
    let labels = HashMap::from([
        (label::POD_NAME.to_owned(), text(&metadata.name)),
        (label::POD_NAMESPACE.to_owned(), text(&metadata.namespace)),
        (label::POD_UID.to_owned(), text(&metadata.uid)),
        (label::CONTAINER_NAME.to_owned(), container.name.clone()),
    ]);
    let mut annotations = HashMap::from([
        (label::HASH.to_owned(), definition_hash(container)),
        (
            label::RESTART_COUNT.to_owned(),
            parts.restart_count.to_string(),
        ),
        (
            label::TERMINATION_MESSAGE_PATH.to_owned(),
            text(&container.termination_message_path),
        ),
        (
            label::TERMINATION_MESSAGE_POLICY.to_owned(),
            text(&container.termination_message_policy),
        ),
    ]);
    let grace = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds);
    if let Some(grace) = grace {
        annotations.insert(
            label::TERMINATION_GRACE_PERIOD.to_owned(),
            grace.to_string(),
        );
    }
    let mut security_context =
        security::container(pod, container, parts.image, parts.seccomp_default)?;
    if let (Some(target_id), Some(options)) =
        (parts.target_id, &mut security_context.namespace_options)
    {
        options.pid = v1::NamespaceMode::Target as i32;
        options.target_id = target_id;
    }
    let stop_signal = container
        .lifecycle
        .as_ref()
        .and_then(|lifecycle| lifecycle.stop_signal.as_deref())
        .and_then(v1::Signal::from_str_name)
        .unwrap_or(v1::Signal::RuntimeDefault);
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: container.name.clone(),
            attempt: parts.restart_count as u32,
        }),
        image: Some(v1::ImageSpec {
            image: parts.image.reference.clone(),
            user_specified_image: text(&container.image),
            ..Default::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: text(&container.working_dir),
        envs: parts
            .environment
            .into_iter()
            .map(|(key, value)| v1::KeyValue {
                key,
                value: value.into_bytes(),
            })
            .collect(),
        mounts: parts.mounts,
        devices: parts.devices,
        labels,
        annotations,
        log_path: format!("{}/{}.log", container.name, parts.restart_count),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(limits(pod, container, &parts.machine)),
            security_context: Some(security_context),
        }),
        stop_signal: stop_signal as i32,
        ..Default::default()
    })
}

/// Brings CPU limits to the period that this node enforces them in, `None` for not at all.
pub fn enforce_cpu(limits: &mut v1::LinuxContainerResources, period: Option<i64>) {
    limits.cpu_quota = match (limits.cpu_quota, period) {
        (quota, Some(period)) if quota > 0 => resources::quota_in(quota, period),
        _ => 0,
    };
    limits.cpu_period = period.unwrap_or(0);
}

/// Also what a running container's limits are changed to.
pub fn limits(
    pod: &Pod,
    container: &Container,
    machine: &Machine<'_>,
) -> v1::LinuxContainerResources {
    let cpu_limit = resources::effective_limit(pod, container, "cpu")
        .and_then(resources::milli)
        .filter(|limit| *limit > 0);
    let memory_limit =
        resources::effective_limit(pod, container, "memory").and_then(resources::whole);
    v1::LinuxContainerResources {
        cpu_period: resources::CPU_PERIOD,
        cpu_quota: cpu_limit.map_or(0, resources::cpu_quota),
        cpu_shares: resources::cpu_shares(resources::effective_cpu_request(container)) as i64,
        memory_limit_in_bytes: memory_limit.unwrap_or(0),
        // Memory and swap together: no more than the memory alone.
        memory_swap_limit_in_bytes: memory_limit.filter(|_| machine.limits_swap).unwrap_or(0),
        oom_score_adj: resources::oom_score_adjust(pod, container, machine.memory),
        hugepage_limits: huge_pages(pod, container, machine.huge_pages),
        ..Default::default()
    }
}

/// Every size that the machine has pages of is limited, to nothing where nothing is asked for.
fn huge_pages(
    pod: &Pod,
    container: &Container,
    present: &BTreeMap<String, i64>,
) -> Vec<v1::HugepageLimit> {
    present
        .iter()
        .filter(|(_, bytes)| **bytes > 0)
        .filter_map(|(name, _)| {
            let size = name.strip_prefix("hugepages-")?;
            let limit = resources::effective_limit(pod, container, name).and_then(resources::whole);
            Some(v1::HugepageLimit {
                // The kernel's way to write the sizes.
                page_size: size.replace('i', "B"),
                limit: limit.unwrap_or(0).max(0).cast_unsigned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn huge_pages_and_swap_are_limited_where_the_machine_has_them() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "c",
            "resources": {"limits": {"memory": "64Mi", "hugepages-2Mi": "8Mi"}}}]}}))
        .expect("a pod");
        let container = &pod.spec.as_ref().expect("spec").containers[0];
        let sizes = [("hugepages-1Gi", 1 << 30), ("hugepages-2Mi", 4 << 20)];
        let sizes = sizes.map(|(name, bytes)| (name.to_owned(), bytes));
        let mut machine = Machine {
            memory: 1 << 30,
            huge_pages: &BTreeMap::from(sizes),
            limits_swap: true,
        };
        let limits = super::limits(&pod, container, &machine);
        let found: Vec<(&str, u64)> = (limits.hugepage_limits.iter())
            .map(|limit| (limit.page_size.as_str(), limit.limit))
            .collect();
        assert_eq!(found, [("1GB", 0), ("2MB", 8 << 20)]);
        assert_eq!(limits.memory_swap_limit_in_bytes, 64 << 20);
        let none = BTreeMap::from([("hugepages-2Mi".to_owned(), 0)]);
        (machine.huge_pages, machine.limits_swap) = (&none, false);
        let limits = super::limits(&pod, container, &machine);
        assert!(limits.hugepage_limits.is_empty());
        assert_eq!(limits.memory_swap_limit_in_bytes, 0);
    }

    #[test]
    fn a_container_becomes_its_cri_configuration() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
            "spec": {"containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c"],
                "args": ["echo $(A)"], "resources": {"limits": {"cpu": "500m", "memory": "64Mi"},
                "requests": {"cpu": "500m", "memory": "64Mi"}}}]},
        }))
        .expect("a pod");
        let container = pod.spec.as_ref().expect("spec").containers[0].clone();
        let image = Image {
            reference: "sha256:abc".to_owned(),
            ..Image::default()
        };
        let config = config(
            &pod,
            &container,
            Parts {
                restart_count: 3,
                image: &image,
                environment: vec![("A".to_owned(), "1".to_owned())],
                mounts: Vec::new(),
                devices: Vec::new(),
                machine: Machine {
                    memory: 1 << 30,
                    huge_pages: &BTreeMap::new(),
                    limits_swap: false,
                },
                seccomp_default: false,
                target_id: None,
            },
        )
        .expect("a config");
        assert_eq!(config.args, ["echo 1"]);
        assert_eq!(config.log_path, "c/3.log");
        assert_eq!(config.annotations[label::RESTART_COUNT], "3");
        let resources = config.linux.expect("linux").resources.expect("resources");
        assert_eq!(resources.cpu_quota, 50_000);
        let enforced = |period| {
            let mut limits = resources.clone();
            enforce_cpu(&mut limits, period);
            (limits.cpu_quota, limits.cpu_period)
        };
        assert_eq!(enforced(Some(100_000)), (50_000, 100_000));
        assert_eq!(enforced(Some(10_000)), (5_000, 10_000));
        assert_eq!(enforced(Some(1_000)), (1_000, 1_000));
        assert_eq!(enforced(None), (0, 0));
        assert_eq!(resources.cpu_shares, 512);
        assert_eq!(resources.memory_limit_in_bytes, 64 << 20);
        assert_eq!(resources.oom_score_adj, -997);
    }
}
