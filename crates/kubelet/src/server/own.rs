//! `/metrics`: the kubelet itself, in Prometheus' text form with upstream's names. Pure.

use std::collections::BTreeMap;

use files::disk_space::Space;
use k8s_openapi::api::core::v1::Pod;

use super::metrics::Page;
use crate::{
    measures::{Description, Measures, Observations},
    pod_spec::is_static,
    stats::Process,
    volumes::Claim,
};

/// The figures that are read for one page.
#[derive(Default)]
pub struct Gauges<'a> {
    pub node_name: &'a str,
    /// Sandboxes that run.
    pub running_pods: usize,
    /// The number of containers by state.
    pub containers: BTreeMap<&'static str, usize>,
    /// Start and end, in seconds since the epoch.
    pub shutdown: (f64, f64),
    /// The pods that it is to run, by whether they are static.
    pub desired: [usize; 2],
    /// The pods that use resources of the node.
    pub active: [usize; 2],
    pub ephemeral_containers: usize,
    pub cgroup_version: u8,
    /// When the loop that takes pods last came around, in seconds since the epoch.
    pub last_seen: f64,
    /// The hash of the credential providers' configuration, if there is one.
    pub provider_config: Option<&'a str>,
    pub process: Process,
    /// Claims that pods have mounted, and the file systems they are on.
    pub claims: Vec<(Claim, Space)>,
}

impl Gauges<'_> {
    pub fn count_pods(&mut self, desired: &[impl AsRef<Pod>], active: &[impl AsRef<Pod>]) {
        let ephemeral = |pod: &Pod| {
            let spec = pod.spec.as_ref();
            spec.and_then(|spec| Some(spec.ephemeral_containers.as_ref()?.len()))
        };
        for pod in desired {
            self.desired[usize::from(is_static(pod.as_ref()))] += 1;
            self.ephemeral_containers += ephemeral(pod.as_ref()).unwrap_or(0);
        }
        for pod in active {
            self.active[usize::from(is_static(pod.as_ref()))] += 1;
        }
    }
}

pub fn page(gauges: &Gauges<'_>, measures: &Measures) -> String {
    let mut page = Page::default();
    let counters = measures.counters();
    let histograms = measures.histograms();
    for family in &counters {
        let Description {
            name, labels, help, ..
        } = family.description;
        page.metric(name, "counter", help);
        for (values, count) in &family.series {
            page.value(name, &pairs(labels, values), *count as f64, None);
        }
    }
    for family in &histograms {
        let Description { name, help, .. } = family.description;
        page.metric(name, "histogram", help);
        for (values, seen) in &family.series {
            histogram(&mut page, family.description, values, seen);
        }
    }
    // Begun, and not yet over.
    let (name, timed) = (
        "kubelet_http_inflight_requests",
        "kubelet_http_requests_duration_seconds",
    );
    page.metric(name, "gauge", "[ALPHA] Requests being served now");
    let over = histograms
        .iter()
        .find(|family| family.description.name == timed);
    let begun = counters
        .iter()
        .find(|family| family.description.name == "kubelet_http_requests_total");
    if let Some(family) = begun {
        for (values, begun) in &family.series {
            let over = over.into_iter().flat_map(|family| &family.series);
            let over = over.filter(|(labels, _)| labels == values);
            let over: u64 = over.map(|(_, seen)| seen.count()).sum();
            let labels = pairs(family.description.labels, values);
            page.value(name, &labels, begun.saturating_sub(over) as f64, None);
        }
    }
    gauges_of_pods(&mut page, gauges);
    gauges_of_node(&mut page, gauges);
    gauges_of_claims(&mut page, &gauges.claims);
    page.finish()
}

fn pairs<'a>(labels: &[&'a str], values: &'a [Box<str>]) -> Vec<(&'a str, &'a str)> {
    let values = values.iter().map(|value| &**value);
    labels.iter().copied().zip(values).collect()
}

fn histogram(page: &mut Page, description: &Description, values: &[Box<str>], seen: &Observations) {
    let labels = pairs(description.labels, values);
    let bucket = format!("{}_bucket", description.name);
    let mut total = 0;
    let bounds = description.buckets.iter().map(|bound| bound.to_string());
    for (index, bound) in bounds.chain(["+Inf".to_owned()]).enumerate() {
        total += seen.buckets.get(index).copied().unwrap_or(0);
        let mut labels = labels.clone();
        labels.push(("le", &bound));
        page.value(&bucket, &labels, total as f64, None);
    }
    page.value(
        &format!("{}_sum", description.name),
        &labels,
        seen.sum,
        None,
    );
    let count = format!("{}_count", description.name);
    page.value(&count, &labels, total as f64, None);
}

fn gauges_of_pods(page: &mut Page, gauges: &Gauges<'_>) {
    page.metric(
        "kubelet_running_pods",
        "gauge",
        "[ALPHA] Pods whose sandbox runs",
    );
    page.value(
        "kubelet_running_pods",
        &[],
        gauges.running_pods as f64,
        None,
    );
    page.metric(
        "kubelet_running_containers",
        "gauge",
        "[ALPHA] Containers by state, as the runtime reports it",
    );
    for (state, count) in &gauges.containers {
        let labels = [("container_state", *state)];
        page.value("kubelet_running_containers", &labels, *count as f64, None);
    }
    for (name, help, counts) in [
        (
            "kubelet_desired_pods",
            "[ALPHA] Pods that this node was given, static ones apart",
            gauges.desired,
        ),
        (
            "kubelet_active_pods",
            "[ALPHA] Pods that count when another one asks to be admitted, static ones apart",
            gauges.active,
        ),
    ] {
        page.metric(name, "gauge", help);
        for (count, label) in counts.into_iter().zip(["", "true"]) {
            page.value(name, &[("static", label)], count as f64, None);
        }
    }
    for (name, help, count) in [
        (
            "kubelet_mirror_pods",
            "[ALPHA] Static pods that have, or want, a mirror in the API",
            gauges.active[1],
        ),
        (
            "kubelet_managed_ephemeral_containers",
            "[ALPHA] Ephemeral containers of this node's pods",
            gauges.ephemeral_containers,
        ),
    ] {
        page.metric(name, "gauge", help);
        page.value(name, &[], count as f64, None);
    }
}

fn gauges_of_node(page: &mut Page, gauges: &Gauges<'_>) {
    let (shutdown_start, shutdown_end) = gauges.shutdown;
    let process = &gauges.process;
    let plain: [(&str, &str, &str, Option<f64>); 11] = [
        (
            "kubelet_graceful_shutdown_start_time_seconds",
            "gauge",
            "[ALPHA] When the last graceful shutdown began, in seconds of Unix time",
            Some(shutdown_start),
        ),
        (
            "kubelet_graceful_shutdown_end_time_seconds",
            "gauge",
            "[ALPHA] When the last graceful shutdown ended, in seconds of Unix time",
            Some(shutdown_end),
        ),
        (
            "kubelet_pleg_last_seen_seconds",
            "gauge",
            "[ALPHA] When pods were last listed from the runtime, in seconds of Unix time",
            Some(gauges.last_seen),
        ),
        (
            "kubelet_cgroup_version",
            "gauge",
            "[ALPHA] Which version of control groups the machine has",
            Some(f64::from(gauges.cgroup_version)),
        ),
        (
            "process_cpu_seconds_total",
            "counter",
            "Processor seconds used by this process",
            process.cpu_seconds,
        ),
        (
            "process_max_fds",
            "gauge",
            "Descriptors that this process may have",
            process.max_files.map(|count| count as f64),
        ),
        (
            "process_open_fds",
            "gauge",
            "Descriptors that this process has",
            process.open_files.map(|count| count as f64),
        ),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory of this process in bytes",
            process.resident.map(|bytes| bytes as f64),
        ),
        (
            "process_virtual_memory_bytes",
            "gauge",
            "Address space of this process in bytes",
            process.virtual_size.map(|bytes| bytes as f64),
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "When this process started, in seconds of Unix time",
            process.started,
        ),
        (
            "process_threads",
            "gauge",
            "Threads of this process",
            process.threads.map(|count| count as f64),
        ),
    ];
    for (name, kind, help, value) in plain {
        page.metric(name, kind, help);
        if let Some(value) = value {
            page.value(name, &[], value, None);
        }
    }
    let build = [
        ("git_version", "v1.36.4"),
        ("major", "1"),
        ("minor", "36"),
        ("platform", "linux"),
    ];
    let provider = gauges.provider_config.map(|hash| [("hash", hash)]);
    for (name, help, labels) in [
        (
            "kubelet_node_name",
            "[ALPHA] Names the node; always 1",
            Some([("node", gauges.node_name)].as_slice()),
        ),
        (
            "kubelet_metrics_provider",
            "[ALPHA] Where the figures of containers come from; always 1",
            Some([("provider", "cri")].as_slice()),
        ),
        (
            "kubelet_credential_provider_config_info",
            "[ALPHA] The credential provider configuration in use, by its hash; always 1",
            provider.as_ref().map(|labels| labels.as_slice()),
        ),
        (
            "kubernetes_build_info",
            "[ALPHA] Which build this is; always 1",
            Some(build.as_slice()),
        ),
    ] {
        if let Some(labels) = labels {
            page.metric(name, "gauge", help);
            page.value(name, labels, 1.0, None);
        }
    }
}

fn gauges_of_claims(page: &mut Page, claims: &[(Claim, Space)]) {
    type Figure = fn(&Space) -> u64;
    let families: [(&str, &str, Figure); 6] = [
        (
            "kubelet_volume_stats_capacity_bytes",
            "[ALPHA] Size of the claim's volume in bytes",
            |space| space.capacity,
        ),
        (
            "kubelet_volume_stats_available_bytes",
            "[ALPHA] Bytes of the claim's volume that pods may still take",
            |space| space.available,
        ),
        (
            "kubelet_volume_stats_used_bytes",
            "[ALPHA] Bytes of the claim's volume in use",
            |space| space.used,
        ),
        (
            "kubelet_volume_stats_inodes",
            "[ALPHA] Inodes that the claim's volume can have",
            |space| space.inodes,
        ),
        (
            "kubelet_volume_stats_inodes_free",
            "[ALPHA] Inodes of the claim's volume that are free",
            |space| space.inodes_free,
        ),
        (
            "kubelet_volume_stats_inodes_used",
            "[ALPHA] Inodes of the claim's volume in use",
            Space::inodes_used,
        ),
    ];
    for (name, help, figure) in families {
        page.metric(name, "gauge", help);
        for (claim, space) in claims {
            let labels = [
                ("namespace", claim.namespace.as_str()),
                ("persistentvolumeclaim", &claim.name),
            ];
            page.value(name, &labels, figure(space) as f64, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::{Counter, Histogram};

    #[test]
    fn families_have_their_lines() {
        let measures = Measures::default();
        measures.count(Counter::Evictions, &["memory.available"]);
        measures.observe(Histogram::PodWorkerDuration, &["create"], 0.02);
        measures.observe(Histogram::PodWorkerDuration, &["create"], 0.3);
        let labels = ["GET", "pods", "readwrite", "false"];
        measures.count(Counter::HttpRequests, &labels);
        measures.count(Counter::HttpRequests, &labels);
        measures.observe(Histogram::HttpRequestsDuration, &labels, 0.1);
        let gauges = Gauges {
            node_name: "n1",
            running_pods: 3,
            containers: BTreeMap::from([("running", 4)]),
            desired: [2, 1],
            claims: vec![(
                Claim {
                    namespace: "n".to_owned(),
                    name: "data".to_owned(),
                },
                Space {
                    inodes: 10,
                    inodes_free: 4,
                    ..Space::default()
                },
            )],
            ..Gauges::default()
        };
        let text = page(&gauges, &measures);
        for line in [
            "kubelet_evictions{eviction_signal=\"memory.available\"} 1",
            "kubelet_started_pods_total 0",
            "kubelet_running_containers{container_state=\"running\"} 4",
            "kubelet_node_name{node=\"n1\"} 1",
            "kubelet_desired_pods{static=\"true\"} 1",
            "# TYPE kubelet_pod_worker_duration_seconds histogram",
            "kubelet_pod_worker_duration_seconds_bucket{operation_type=\"create\",le=\"0.01\"} 0",
            "kubelet_pod_worker_duration_seconds_bucket{operation_type=\"create\",le=\"0.025\"} 1",
            "kubelet_pod_worker_duration_seconds_bucket{operation_type=\"create\",le=\"0.5\"} 2",
            "kubelet_pod_worker_duration_seconds_bucket{operation_type=\"create\",le=\"+Inf\"} 2",
            "kubelet_pod_worker_duration_seconds_sum{operation_type=\"create\"} 0.32",
            "kubelet_pod_worker_duration_seconds_count{operation_type=\"create\"} 2",
            "kubelet_pod_start_duration_seconds_bucket{le=\"+Inf\"} 0",
            "kubelet_volume_stats_inodes_used{namespace=\"n\",persistentvolumeclaim=\"data\"} 6",
            "kubelet_http_inflight_requests{method=\"GET\",path=\"pods\",server_type=\"readwrite\",long_running=\"false\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("credential_provider_config_info"));
        let mut names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "no family twice");
    }
}
