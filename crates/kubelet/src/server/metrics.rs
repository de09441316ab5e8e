//! `/metrics/resource`, `/metrics/cadvisor` and `/metrics/probes` in Prometheus' text
//! form, with upstream's names. Pure.

use std::fmt::Write;

use cri::v1;

use crate::{
    probes::ProbeCounts,
    stats::{Machine, PodSample, Space},
};

/// A page of metrics under construction.
#[derive(Default)]
pub struct Page {
    text: String,
}

impl Page {
    fn has(&self, name: &str) -> bool {
        self.text.contains(&format!("# TYPE {name} "))
    }

    /// Begins a metric. `kind` is `counter`, `gauge` or `histogram`.
    pub fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64, millis: Option<i64>) {
        self.text.push_str(name);
        if !labels.is_empty() {
            self.text.push('{');
            for (index, (key, value)) in labels.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                let _ = write!(self.text, "{comma}{key}=\"{}\"", escaped(value));
            }
            self.text.push('}');
        }
        let _ = write!(self.text, " {value}");
        if let Some(millis) = millis {
            let _ = write!(self.text, " {millis}");
        }
        self.text.push('\n');
    }

    pub fn finish(self) -> String {
        self.text
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

const NANOS: f64 = 1e9;

/// CPU and memory of node, pods and containers: what the metrics server reads.
pub fn resource(machine: &Machine, pods: &[PodSample], millis: i64) -> String {
    let mut page = Page::default();
    let at = Some(millis);
    page.metric(
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
    );
    each_container(pods, |pod, container| {
        if let Some(cpu) = &container.cpu {
            page.value(
                "container_cpu_usage_seconds_total",
                &[
                    ("container", &container.name),
                    ("namespace", &pod.namespace),
                    ("pod", &pod.name),
                ],
                cpu.total as f64 / NANOS,
                at,
            );
        }
    });
    page.metric(
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
    );
    each_container(pods, |pod, container| {
        if let Some(memory) = &container.memory {
            page.value(
                "container_memory_working_set_bytes",
                &[
                    ("container", &container.name),
                    ("namespace", &pod.namespace),
                    ("pod", &pod.name),
                ],
                memory.working_set as f64,
                at,
            );
        }
    });
    page.metric(
        "container_start_time_seconds",
        "gauge",
        "[STABLE] Start time of the container since unix epoch in seconds",
    );
    each_container(pods, |pod, container| {
        page.value(
            "container_start_time_seconds",
            &[
                ("container", &container.name),
                ("namespace", &pod.namespace),
                ("pod", &pod.name),
            ],
            container.started_at as f64 / NANOS,
            None,
        );
    });
    page.metric(
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
    );
    page.value(
        "node_cpu_usage_seconds_total",
        &[],
        machine.cpu_total as f64 / NANOS,
        at,
    );
    page.metric(
        "node_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the node in bytes",
    );
    let used = machine
        .memory_total
        .saturating_sub(machine.memory_available);
    page.value("node_memory_working_set_bytes", &[], used as f64, at);
    page.metric(
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
    );
    for pod in pods {
        if let Some(cpu) = &pod.cpu {
            page.value(
                "pod_cpu_usage_seconds_total",
                &[("namespace", &pod.namespace), ("pod", &pod.name)],
                cpu.total as f64 / NANOS,
                at,
            );
        }
    }
    page.metric(
        "pod_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the pod in bytes",
    );
    for pod in pods {
        if let Some(memory) = &pod.memory {
            page.value(
                "pod_memory_working_set_bytes",
                &[("namespace", &pod.namespace), ("pod", &pod.name)],
                memory.working_set as f64,
                at,
            );
        }
    }
    page.metric(
        "resource_scrape_error",
        "gauge",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
    );
    page.value("resource_scrape_error", &[], 0.0, None);
    page.finish()
}

/// The part of cAdvisor's metrics that dashboards are built on.
/// `more`: what the runtime itself tells, of which only names that are not here are taken.
pub fn cadvisor(
    machine: &Machine,
    cpus: usize,
    space: Space,
    pods: &[PodSample],
    more: &RuntimeMetrics,
) -> String {
    type Of = fn(&crate::stats::ContainerSample) -> Option<f64>;
    let containers: [(&str, &str, &str, Of); 8] = [
        (
            "container_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed in seconds.",
            |one| one.cpu.as_ref().map(|cpu| cpu.total as f64 / NANOS),
        ),
        (
            "container_memory_usage_bytes",
            "gauge",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
            |one| one.memory.as_ref().map(|memory| memory.usage as f64),
        ),
        (
            "container_memory_working_set_bytes",
            "gauge",
            "Current working set in bytes.",
            |one| one.memory.as_ref().map(|memory| memory.working_set as f64),
        ),
        (
            "container_memory_rss",
            "gauge",
            "Size of RSS in bytes.",
            |one| one.memory.as_ref().map(|memory| memory.rss as f64),
        ),
        (
            "container_memory_failures_total",
            "counter",
            "Cumulative count of memory allocation failures.",
            |one| one.memory.as_ref().map(|memory| memory.page_faults as f64),
        ),
        (
            "container_fs_usage_bytes",
            "gauge",
            "Number of bytes that are consumed by the container on this filesystem.",
            |one| Some(one.rootfs.bytes as f64),
        ),
        (
            "container_fs_inodes_total",
            "gauge",
            "Number of Inodes",
            |one| Some(one.rootfs.inodes as f64),
        ),
        (
            "container_start_time_seconds",
            "gauge",
            "Start time of the container since unix epoch in seconds.",
            |one| Some(one.started_at as f64 / NANOS),
        ),
    ];
    let mut page = Page::default();
    for (name, kind, help, of) in containers {
        page.metric(name, kind, help);
        each_container(pods, |pod, container| {
            if let Some(value) = of(container) {
                let mut labels = vec![
                    ("container", container.name.as_str()),
                    ("id", &container.id),
                    ("image", &container.image),
                    ("name", &container.id),
                    ("namespace", &pod.namespace),
                    ("pod", &pod.name),
                ];
                labels.extend_from_slice(match name {
                    "container_cpu_usage_seconds_total" => &[("cpu", "total")],
                    "container_memory_failures_total" => {
                        &[("failure_type", "pgfault"), ("scope", "container")]
                    }
                    _ => &[],
                });
                page.value(name, &labels, value, None);
            }
        });
    }
    type OfNetwork = fn(&crate::stats::NetworkSample) -> u64;
    let network: [(&str, OfNetwork); 4] = [
        ("container_network_receive_bytes_total", |one| one.received),
        ("container_network_receive_errors_total", |one| {
            one.receive_errors
        }),
        ("container_network_transmit_bytes_total", |one| one.sent),
        ("container_network_transmit_errors_total", |one| {
            one.send_errors
        }),
    ];
    for (name, of) in network {
        page.metric(
            name,
            "counter",
            "Cumulative count of the pod's network traffic",
        );
        for pod in pods {
            for interface in &pod.network {
                let labels = [
                    ("interface", interface.interface.as_str()),
                    ("namespace", &pod.namespace),
                    ("pod", &pod.name),
                ];
                page.value(name, &labels, of(interface) as f64, None);
            }
        }
    }
    more.write(&mut page);
    for (name, help, value) in [
        (
            "machine_cpu_cores",
            "Number of logical CPU cores.",
            cpus as f64,
        ),
        (
            "machine_memory_bytes",
            "Amount of memory installed on the machine.",
            machine.memory_total as f64,
        ),
        (
            "machine_scrape_error",
            "1 if there was an error while getting machine metrics, 0 otherwise.",
            0.0,
        ),
        (
            "container_fs_limit_bytes",
            "Number of bytes that can be consumed on this filesystem.",
            space.capacity as f64,
        ),
    ] {
        page.metric(name, "gauge", help);
        page.value(name, &[], value, None);
    }
    page.finish()
}

/// Metrics in CRI's form: descriptors, and values of pods and containers.
#[derive(Default)]
pub struct RuntimeMetrics {
    pub descriptors: Vec<v1::MetricDescriptor>,
    pub values: Vec<v1::Metric>,
}

impl RuntimeMetrics {
    fn write(&self, page: &mut Page) {
        for descriptor in &self.descriptors {
            let name = descriptor.name.as_str();
            if page.has(name) {
                continue;
            }
            let values: Vec<&v1::Metric> =
                self.values.iter().filter(|one| one.name == name).collect();
            let Some(first) = values.first() else {
                continue;
            };
            let kind = match first.metric_type == v1::MetricType::Counter as i32 {
                true => "counter",
                false => "gauge",
            };
            page.metric(name, kind, &descriptor.help);
            for metric in values {
                let keys = descriptor.label_keys.iter().map(String::as_str);
                let texts = metric.label_values.iter().map(String::as_str);
                let labels: Vec<(&str, &str)> = keys.zip(texts).collect();
                let value = metric.value.as_ref().map_or(0, |value| value.value);
                page.value(name, &labels, value as f64, None);
            }
        }
    }
}

/// How often each probe succeeded and failed.
pub fn probes(counts: &ProbeCounts) -> String {
    let mut page = Page::default();
    page.metric(
        "prober_probe_total",
        "counter",
        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
    );
    for (key, count) in counts.read() {
        let labels = [
            ("container", key.container.as_str()),
            ("namespace", &key.namespace),
            ("pod", &key.pod),
            ("pod_uid", &key.uid),
            ("probe_type", key.kind),
            ("result", key.result),
        ];
        page.value("prober_probe_total", &labels, count as f64, None);
    }
    page.finish()
}

fn each_container<'a>(
    pods: &'a [PodSample],
    mut visit: impl FnMut(&'a PodSample, &'a crate::stats::ContainerSample),
) {
    for pod in pods {
        for container in &pod.containers {
            visit(pod, container);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{ContainerSample, Cpu, Memory};

    #[test]
    fn containers_and_pods_have_lines() {
        let pod = PodSample {
            name: "p".to_owned(),
            namespace: "n".to_owned(),
            cpu: Some(Cpu {
                total: 2_500_000_000,
                rate: None,
            }),
            containers: vec![ContainerSample {
                name: "c\"x".to_owned(),
                memory: Some(Memory {
                    working_set: 42,
                    ..Memory::default()
                }),
                ..ContainerSample::default()
            }],
            ..PodSample::default()
        };
        let text = resource(&Machine::default(), std::slice::from_ref(&pod), 7);
        assert!(
            text.contains("pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} 2.5 7\n"),
            "{text}"
        );
        assert!(text.contains(
            "container_memory_working_set_bytes{container=\"c\\\"x\",namespace=\"n\",pod=\"p\"} 42 7\n"
        ));
        let of = |name: &str| v1::Metric {
            name: name.to_owned(),
            label_values: vec!["c".to_owned()],
            value: Some(v1::UInt64Value { value: 7 }),
            ..Default::default()
        };
        let descriptor = |name: &str| v1::MetricDescriptor {
            name: name.to_owned(),
            help: "h".to_owned(),
            label_keys: vec!["container".to_owned()],
        };
        let names = ["container_memory_rss", "container_oom_events_total"];
        let more = RuntimeMetrics {
            descriptors: names.map(descriptor).to_vec(),
            values: names.map(of).to_vec(),
        };
        let text = cadvisor(&Machine::default(), 2, Space::default(), &[pod], &more);
        assert!(text.contains("machine_cpu_cores 2\n"));
        assert!(
            text.contains("container_oom_events_total{container=\"c\"} 7\n"),
            "{text}"
        );
        assert_eq!(text.matches("# TYPE container_memory_rss ").count(), 1);
    }
}
