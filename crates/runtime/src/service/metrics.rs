//! The metrics that CRI hands to kubelets in place of cAdvisor's: the same names and labels, read
//! from cgroup files and the network namespace when asked for.

use std::{path::Path, sync::Arc};

use cri::v1::{ContainerMetrics, Metric, MetricDescriptor, MetricType, PodSandboxMetrics};
use files::disk_usage::usage;

use super::{
    container_table::ContainerTable,
    host::Host,
    stats::{Interface, interface_table},
};
use crate::{
    cgroups::{read_flat, read_number},
    records::{ContainerRecord, SandboxRecord},
};

/// On every metric.
const LABELS: [&str; 6] = ["container", "id", "image", "name", "namespace", "pod"];

/// Name, help, further labels.
const DESCRIPTORS: &[(&str, &str, &[&str])] = &[
    (
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed",
        &["cpu"],
    ),
    (
        "container_cpu_user_seconds_total",
        "Cumulative user cpu time consumed",
        &[],
    ),
    (
        "container_cpu_system_seconds_total",
        "Cumulative system cpu time consumed",
        &[],
    ),
    (
        "container_cpu_cfs_periods_total",
        "Elapsed enforcement periods",
        &[],
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        "Throttled periods",
        &[],
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "Total time throttled",
        &[],
    ),
    ("container_memory_usage_bytes", "Current memory usage", &[]),
    (
        "container_memory_working_set_bytes",
        "Current working set",
        &[],
    ),
    ("container_memory_rss", "Size of anonymous memory", &[]),
    ("container_memory_cache", "Page cache memory", &[]),
    (
        "container_memory_mapped_file",
        "Size of memory mapped files",
        &[],
    ),
    ("container_memory_swap", "Swap usage", &[]),
    (
        "container_memory_failcnt",
        "Times the memory limit was hit",
        &[],
    ),
    (
        "container_memory_max_usage_bytes",
        "Most memory used so far",
        &[],
    ),
    (
        "container_memory_failures_total",
        "Page faults",
        &["failure_type", "scope"],
    ),
    (
        "container_oom_events_total",
        "Processes killed because memory ran out",
        &[],
    ),
    ("container_processes", "Processes running", &[]),
    (
        "container_threads_max",
        "Most tasks allowed, 0 if unlimited",
        &[],
    ),
    (
        "container_fs_usage_bytes",
        "Bytes of the writable layer",
        &["device"],
    ),
    (
        "container_fs_inodes_total",
        "Inodes of the writable layer",
        &["device"],
    ),
    (
        "container_spec_cpu_period",
        "CPU period of the container",
        &[],
    ),
    (
        "container_spec_cpu_quota",
        "CPU quota of the container",
        &[],
    ),
    (
        "container_spec_cpu_shares",
        "CPU share of the container",
        &[],
    ),
    (
        "container_spec_memory_limit_bytes",
        "Memory limit, 0 if unlimited",
        &[],
    ),
    (
        "container_start_time_seconds",
        "Start time since the Unix epoch",
        &[],
    ),
    (
        "container_last_seen",
        "When the numbers were read, since the Unix epoch",
        &[],
    ),
    (
        "container_network_receive_bytes_total",
        "Bytes received",
        &["interface"],
    ),
    (
        "container_network_receive_packets_total",
        "Packets received",
        &["interface"],
    ),
    (
        "container_network_receive_errors_total",
        "Errors while receiving",
        &["interface"],
    ),
    (
        "container_network_receive_packets_dropped_total",
        "Packets dropped while receiving",
        &["interface"],
    ),
    (
        "container_network_transmit_bytes_total",
        "Bytes sent",
        &["interface"],
    ),
    (
        "container_network_transmit_packets_total",
        "Packets sent",
        &["interface"],
    ),
    (
        "container_network_transmit_errors_total",
        "Errors while sending",
        &["interface"],
    ),
    (
        "container_network_transmit_packets_dropped_total",
        "Packets dropped while sending",
        &["interface"],
    ),
];

pub fn descriptors() -> Vec<MetricDescriptor> {
    DESCRIPTORS
        .iter()
        .map(|(name, help, further)| MetricDescriptor {
            name: (*name).into(),
            help: (*help).into(),
            label_keys: LABELS
                .iter()
                .chain(further.iter())
                .map(|label| (*label).to_owned())
                .collect(),
        })
        .collect()
}

/// Metrics of one thing, all with the same first labels and time.
struct Collector {
    labels: Vec<String>,
    timestamp: i64,
    metrics: Vec<Metric>,
}

impl Collector {
    fn add(&mut self, name: &str, kind: MetricType, further: &[&str], value: u64) {
        let labels = self.labels.iter().cloned();
        self.metrics.push(Metric {
            name: name.into(),
            timestamp: self.timestamp,
            metric_type: kind.into(),
            label_values: labels
                .chain(further.iter().map(|label| (*label).to_owned()))
                .collect(),
            value: Some(cri::v1::UInt64Value { value }),
        });
    }

    fn count(&mut self, name: &str, further: &[&str], value: Option<u64>) {
        if let Some(value) = value {
            self.add(name, MetricType::Counter, further, value);
        }
    }

    fn gauge(&mut self, name: &str, further: &[&str], value: Option<u64>) {
        if let Some(value) = value {
            self.add(name, MetricType::Gauge, further, value);
        }
    }
}

pub struct Metrics {
    host: Arc<Host>,
    containers: Arc<ContainerTable>,
}

/// Everything here blocks: the size of a writable layer is found by walking it.
impl Metrics {
    pub fn new(host: Arc<Host>, containers: Arc<ContainerTable>) -> Metrics {
        Metrics { host, containers }
    }

    pub fn of_sandbox(&self, record: &SandboxRecord) -> PodSandboxMetrics {
        let mut pod = self.collector(record, "POD", &record.id, "");
        self.cpu_metrics(&mut pod, &record.cgroup);
        self.memory_metrics(&mut pod, &record.cgroup);
        if record.netns.is_some()
            && let Ok(table) = std::fs::read_to_string(format!("/proc/{}/net/dev", record.pid))
        {
            for interface in interface_table(&table) {
                network_metrics(&mut pod, &interface);
            }
        }
        let running = self
            .containers
            .of_sandbox(&record.id)
            .into_iter()
            .filter(|container| container.is_running());
        PodSandboxMetrics {
            pod_sandbox_id: record.id.clone(),
            metrics: pod.metrics,
            container_metrics: running
                .map(|container| self.container_metrics(record, &container))
                .collect(),
        }
    }

    fn container_metrics(
        &self,
        sandbox: &SandboxRecord,
        record: &ContainerRecord,
    ) -> ContainerMetrics {
        let metadata = record.config.metadata.clone().unwrap_or_default();
        let image = record.config.image.clone().unwrap_or_default();
        let image = [image.user_specified_image, image.image]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        let mut found = self.collector(sandbox, &metadata.name, &record.id, &image);
        self.cpu_metrics(&mut found, &record.cgroup);
        self.memory_metrics(&mut found, &record.cgroup);
        let used = usage(&self.host.snapshot(&record.id).upper());
        let (bytes, inodes) = used.unzip();
        found.gauge("container_fs_usage_bytes", &[""], bytes);
        found.gauge("container_fs_inodes_total", &[""], inodes);
        let limits = record
            .config
            .linux
            .as_ref()
            .and_then(|linux| linux.resources.clone())
            .unwrap_or_default();
        let positive = |value: i64| u64::try_from(value).ok();
        for (name, value) in [
            ("container_spec_cpu_period", limits.cpu_period),
            ("container_spec_cpu_quota", limits.cpu_quota),
            ("container_spec_cpu_shares", limits.cpu_shares),
            (
                "container_spec_memory_limit_bytes",
                limits.memory_limit_in_bytes,
            ),
            (
                "container_start_time_seconds",
                record.started_at / 1_000_000_000,
            ),
        ] {
            found.gauge(name, &[], positive(value));
        }
        ContainerMetrics {
            container_id: record.id.clone(),
            metrics: found.metrics,
        }
    }

    fn collector(&self, sandbox: &SandboxRecord, name: &str, id: &str, image: &str) -> Collector {
        let pod = sandbox.config.metadata.clone().unwrap_or_default();
        let timestamp = self.host.now_nanos();
        let mut collector = Collector {
            labels: vec![
                name.into(),
                id.into(),
                image.into(),
                id.into(),
                pod.namespace,
                pod.name,
            ],
            timestamp,
            metrics: Vec::new(),
        };
        let seen = u64::try_from(timestamp / 1_000_000_000).ok();
        collector.gauge("container_last_seen", &[], seen);
        collector
    }

    fn cpu_metrics(&self, found: &mut Collector, group: &str) {
        let hierarchies = self.host.hierarchies();
        let legacy = |controller: &str| hierarchies.legacy_path(controller, group);
        // Nanoseconds throughout.
        let [used, user, system] = match (legacy("cpuacct"), hierarchies.unified_path(group)) {
            (Some(directory), _) => {
                // `cpuacct.stat` counts in ticks of a hundredth of a second.
                let ticks =
                    |key| Some(read_flat(&directory.join("cpuacct.stat"), key)? * 10_000_000);
                [
                    read_number(&directory.join("cpuacct.usage")),
                    ticks("user"),
                    ticks("system"),
                ]
            }
            (None, Some(directory)) => ["usage_usec", "user_usec", "system_usec"]
                .map(|key| Some(read_flat(&directory.join("cpu.stat"), key)? * 1000)),
            (None, None) => return,
        };
        let seconds = |nanos: Option<u64>| nanos.map(|nanos| nanos / 1_000_000_000);
        found.count(
            "container_cpu_usage_seconds_total",
            &["total"],
            seconds(used),
        );
        found.count("container_cpu_user_seconds_total", &[], seconds(user));
        found.count("container_cpu_system_seconds_total", &[], seconds(system));
        let (stat, throttled, unit) = match (legacy("cpu"), hierarchies.unified_path(group)) {
            (Some(directory), _) => (directory.join("cpu.stat"), "throttled_time", 1),
            (None, Some(directory)) => (directory.join("cpu.stat"), "throttled_usec", 1000),
            (None, None) => return,
        };
        let flat = |key| read_flat(&stat, key);
        found.count("container_cpu_cfs_periods_total", &[], flat("nr_periods"));
        found.count(
            "container_cpu_cfs_throttled_periods_total",
            &[],
            flat("nr_throttled"),
        );
        found.count(
            "container_cpu_cfs_throttled_seconds_total",
            &[],
            seconds(flat(throttled).map(|time| time * unit)),
        );
    }

    fn memory_metrics(&self, found: &mut Collector, group: &str) {
        let hierarchies = self.host.hierarchies();
        if let Some(directory) = hierarchies.legacy_path("memory", group) {
            memory_v1(found, &directory);
        } else if let Some(directory) = hierarchies.unified_path(group) {
            memory_v2(found, &directory);
        }
        let kills = hierarchies.known_oom_kills(group);
        found.count("container_oom_events_total", &[], kills);
        let processes = hierarchies.count_processes(group);
        found.gauge("container_processes", &[], processes);
        let most = hierarchies
            .legacy_path("pids", group)
            .or_else(|| hierarchies.unified_path(group))
            .and_then(|directory| most_tasks(&directory.join("pids.max")));
        found.gauge("container_threads_max", &[], most);
    }
}

/// A number, or `max` where there is no limit, which becomes 0.
fn most_tasks(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    match text.trim() {
        "max" => Some(0),
        number => number.parse().ok(),
    }
}

fn memory_v1(found: &mut Collector, directory: &Path) {
    let number = |name: &str| read_number(&directory.join(name));
    let usage = number("memory.usage_in_bytes");
    found.count("container_memory_failcnt", &[], number("memory.failcnt"));
    let most = number("memory.max_usage_in_bytes");
    found.gauge("container_memory_max_usage_bytes", &[], most);
    let keys = [
        "total_inactive_file",
        "total_rss",
        "total_cache",
        "total_mapped_file",
        "total_swap",
        "total_pgfault",
        "total_pgmajfault",
    ];
    memory(found, &directory.join("memory.stat"), usage, keys);
}

fn memory_v2(found: &mut Collector, directory: &Path) {
    let number = |name: &str| read_number(&directory.join(name));
    let usage = number("memory.current");
    let hits = read_flat(&directory.join("memory.events"), "max");
    found.count("container_memory_failcnt", &[], hits);
    found.gauge(
        "container_memory_max_usage_bytes",
        &[],
        number("memory.peak"),
    );
    found.gauge("container_memory_swap", &[], number("memory.swap.current"));
    let keys = [
        "inactive_file",
        "anon",
        "file",
        "file_mapped",
        "",
        "pgfault",
        "pgmajfault",
    ];
    memory(found, &directory.join("memory.stat"), usage, keys);
}

/// `keys` are those of inactive files, anonymous memory, cache, mapped files, swap and faults.
fn memory(found: &mut Collector, stat: &Path, usage: Option<u64>, keys: [&str; 7]) {
    let flat = |key: &str| read_flat(stat, key);
    let [inactive, anonymous, cache, mapped, swap, faults, major] = keys.map(flat);
    found.gauge("container_memory_usage_bytes", &[], usage);
    let working = usage.zip(inactive);
    let working = working.map(|(usage, inactive)| usage.saturating_sub(inactive));
    found.gauge("container_memory_working_set_bytes", &[], working);
    found.gauge("container_memory_rss", &[], anonymous);
    found.gauge("container_memory_cache", &[], cache);
    found.gauge("container_memory_mapped_file", &[], mapped);
    found.gauge("container_memory_swap", &[], swap);
    for (kind, value) in [("pgfault", faults), ("pgmajfault", major)] {
        found.count(
            "container_memory_failures_total",
            &[kind, "hierarchy"],
            value,
        );
    }
}

fn network_metrics(found: &mut Collector, interface: &Interface) {
    for (direction, counted) in [
        ("receive", interface.received),
        ("transmit", interface.sent),
    ] {
        for (what, value) in [
            ("bytes", counted.bytes),
            ("packets", counted.packets),
            ("errors", counted.errors),
            ("packets_dropped", counted.dropped),
        ] {
            found.count(
                &format!("container_network_{direction}_{what}_total"),
                &[&interface.name],
                Some(value),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_descriptor_with_as_many_labels() {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("memory.usage_in_bytes", "4096\n"),
            (
                "memory.stat",
                "total_inactive_file 96\ntotal_rss 1\nanon 1\ninactive_file 96\npgfault 7\n",
            ),
            ("memory.current", "4096\n"),
            ("memory.events", "max 3\n"),
        ] {
            std::fs::write(directory.path().join(file), text).unwrap();
        }
        let mut found = Collector {
            labels: vec![String::new(); LABELS.len()],
            timestamp: 1,
            metrics: Vec::new(),
        };
        memory_v1(&mut found, directory.path());
        memory_v2(&mut found, directory.path());
        let table = "h\nh\neth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n";
        for interface in interface_table(table) {
            network_metrics(&mut found, &interface);
        }
        assert!(found.metrics.len() > 12, "{}", found.metrics.len());
        let described = descriptors();
        for metric in &found.metrics {
            let descriptor = described
                .iter()
                .find(|descriptor| descriptor.name == metric.name)
                .unwrap_or_else(|| panic!("{} is not described", metric.name));
            assert_eq!(
                descriptor.label_keys.len(),
                metric.label_values.len(),
                "{}",
                metric.name
            );
        }
        let working = found
            .metrics
            .iter()
            .find(|metric| metric.name == "container_memory_working_set_bytes");
        let value = working.and_then(|metric| metric.value);
        assert_eq!(value.map(|value| value.value), Some(4000));
    }
}
