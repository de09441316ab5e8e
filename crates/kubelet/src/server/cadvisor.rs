//! `/metrics/cadvisor`: the part of cAdvisor's metrics that dashboards are built on, of containers,
//! of pods (`container=""`) and of the whole machine (`id="/"`). Pure.

use cri::v1;
use files::disk_space::Space;

use super::metrics::Page;
use crate::stats::{ContainerSample, Cpu, Machine, Memory, PodSample};

const NANOS: f64 = 1e9;

/// The labels of the rows of one container, pod or machine.
struct Subject<'a> {
    container: &'a str,
    /// Its path in the cgroup hierarchy.
    id: String,
    image: &'a str,
    name: &'a str,
    namespace: &'a str,
    pod: &'a str,
    cpu: Option<&'a Cpu>,
    memory: Option<&'a Memory>,
    detail: Option<&'a ContainerSample>,
}

impl Subject<'_> {
    fn labels(&self) -> Vec<(&str, &str)> {
        vec![
            ("container", self.container),
            ("id", &self.id),
            ("image", self.image),
            ("name", self.name),
            ("namespace", self.namespace),
            ("pod", self.pod),
        ]
    }
}

/// `more`: the metrics that the runtime itself reports, of which only names that are not here are used.
pub fn page(
    machine: &Machine,
    cpus: usize,
    space: Option<Space>,
    pods: &[PodSample],
    more: &RuntimeMetrics,
) -> String {
    let whole_cpu = machine.cpu_total.map(|total| Cpu {
        total,
        ..Cpu::default()
    });
    let whole_memory = Memory {
        working_set: machine.memory_used(),
        usage: machine.memory_usage(),
        rss: machine.memory_anonymous,
        page_faults: machine.page_faults,
        major_page_faults: machine.major_page_faults,
        ..Memory::default()
    };
    let subjects = subjects(pods, whole_cpu.as_ref(), &whole_memory);
    let mut page = Page::default();
    processor_and_memory(&mut page, &subjects);
    files(&mut page, &subjects, space);
    network(&mut page, pods);
    more.write(&mut page);
    for (name, help, value) in [
        (
            "machine_cpu_cores",
            "Processors of the machine",
            Some(cpus as f64),
        ),
        (
            "machine_memory_bytes",
            "Memory of the machine in bytes",
            machine.memory_total.map(|bytes| bytes as f64),
        ),
        (
            "machine_scrape_error",
            "1 if there was an error while getting machine metrics, 0 otherwise.",
            Some(f64::from(machine.memory_total.is_none())),
        ),
    ] {
        page.metric(name, "gauge", help);
        if let Some(value) = value {
            page.value(name, &[], value, None);
        }
    }
    page.finish()
}

fn subjects<'a>(
    pods: &'a [PodSample],
    whole_cpu: Option<&'a Cpu>,
    whole_memory: &'a Memory,
) -> Vec<Subject<'a>> {
    let mut subjects = vec![Subject {
        container: "",
        id: "/".to_owned(),
        image: "",
        name: "",
        namespace: "",
        pod: "",
        cpu: whole_cpu,
        memory: Some(whole_memory),
        detail: None,
    }];
    for pod in pods {
        subjects.push(Subject {
            container: "",
            id: pod.cgroup.clone(),
            image: "",
            name: "",
            namespace: &pod.namespace,
            pod: &pod.name,
            cpu: pod.cpu.as_ref(),
            memory: pod.memory.as_ref(),
            detail: None,
        });
        subjects.extend(pod.containers.iter().map(|container| Subject {
            container: &container.name,
            id: format!("{}/{}", pod.cgroup, container.id),
            image: &container.image,
            name: &container.id,
            namespace: &pod.namespace,
            pod: &pod.name,
            cpu: container.cpu.as_ref(),
            memory: container.memory.as_ref(),
            detail: Some(container),
        }));
    }
    subjects
}

fn processor_and_memory(page: &mut Page, subjects: &[Subject<'_>]) {
    let name = "container_cpu_usage_seconds_total";
    page.metric(name, "counter", "Processor seconds used so far");
    for subject in subjects {
        if let Some(cpu) = subject.cpu {
            let mut labels = subject.labels();
            labels.push(("cpu", "total"));
            page.value(name, &labels, cpu.total as f64 / NANOS, None);
        }
    }
    type Of = fn(&Memory) -> Option<u64>;
    let gauges: [(&str, &str, Of); 3] = [
        (
            "container_memory_usage_bytes",
            "Memory in use in bytes, caches included",
            |memory| memory.usage,
        ),
        (
            "container_memory_working_set_bytes",
            "Memory worked with, in bytes",
            |memory| memory.working_set,
        ),
        (
            "container_memory_rss",
            "Resident memory in bytes",
            |memory| memory.rss,
        ),
    ];
    for (name, help, of) in gauges {
        page.metric(name, "gauge", help);
        for subject in subjects {
            if let Some(value) = subject.memory.and_then(of) {
                page.value(name, &subject.labels(), value as f64, None);
            }
        }
    }
    let name = "container_memory_failures_total";
    let help = "Page faults so far, by kind";
    page.metric(name, "counter", help);
    for subject in subjects {
        let Some(memory) = subject.memory else {
            continue;
        };
        for (kind, count) in [
            ("pgfault", memory.page_faults),
            ("pgmajfault", memory.major_page_faults),
        ] {
            let Some(count) = count else { continue };
            for scope in ["container", "hierarchy"] {
                let mut labels = subject.labels();
                labels.extend([("failure_type", kind), ("scope", scope)]);
                page.value(name, &labels, count as f64, None);
            }
        }
    }
}

fn files(page: &mut Page, subjects: &[Subject<'_>], space: Option<Space>) {
    type Of = fn(&ContainerSample, Option<Space>) -> Option<f64>;
    let families: [(&str, &str, Of); 5] = [
        (
            "container_fs_usage_bytes",
            "Bytes that the container has on the file system",
            |one, _| Some(one.rootfs?.bytes as f64),
        ),
        (
            "container_fs_limit_bytes",
            "Bytes that the file system can hold",
            |_, space| Some(space?.capacity as f64),
        ),
        (
            "container_fs_inodes_total",
            "Number of Inodes",
            |_, space| Some(space?.inodes as f64),
        ),
        (
            "container_fs_inodes_free",
            "Inodes of the file system that are free",
            |_, space| Some(space?.inodes_free as f64),
        ),
        (
            "container_start_time_seconds",
            "When it started, in seconds of Unix time",
            |one, _| (one.started_at > 0).then_some(one.started_at as f64 / NANOS),
        ),
    ];
    for (name, help, of) in families {
        page.metric(name, "gauge", help);
        for subject in subjects {
            let value = subject.detail.and_then(|container| of(container, space));
            if let Some(value) = value {
                page.value(name, &subject.labels(), value, None);
            }
        }
    }
}

fn network(page: &mut Page, pods: &[PodSample]) {
    type Of = fn(&crate::stats::NetworkSample) -> Option<u64>;
    let families: [(&str, Of); 4] = [
        ("container_network_receive_bytes_total", |one| one.received),
        ("container_network_receive_errors_total", |one| {
            one.receive_errors
        }),
        ("container_network_transmit_bytes_total", |one| one.sent),
        ("container_network_transmit_errors_total", |one| {
            one.send_errors
        }),
    ];
    for (name, of) in families {
        let help = "Cumulative count of the pod's network traffic";
        page.metric(name, "counter", help);
        for pod in pods {
            for interface in &pod.network {
                let Some(count) = of(interface) else { continue };
                let labels = [
                    ("container", ""),
                    ("id", pod.cgroup.as_str()),
                    ("image", ""),
                    ("interface", &interface.interface),
                    ("name", ""),
                    ("namespace", &pod.namespace),
                    ("pod", &pod.name),
                ];
                page.value(name, &labels, count as f64, None);
            }
        }
    }
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
                if let Some(value) = &metric.value {
                    page.value(name, &labels, value.value as f64, None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Usage;

    #[test]
    fn the_machine_pods_and_containers_have_rows() {
        let memory = || {
            Some(Memory {
                rss: Some(5),
                major_page_faults: Some(2),
                ..Memory::default()
            })
        };
        let pod = PodSample {
            name: "p".to_owned(),
            namespace: "n".to_owned(),
            cgroup: "/x/kubepods/podu".to_owned(),
            memory: memory(),
            containers: vec![ContainerSample {
                name: "c".to_owned(),
                id: "i".to_owned(),
                memory: memory(),
                rootfs: Some(Usage {
                    bytes: 9,
                    inodes: Some(3),
                }),
                ..ContainerSample::default()
            }],
            ..PodSample::default()
        };
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
        let space = Space {
            capacity: 1000,
            inodes: 100,
            inodes_free: 60,
            ..Space::default()
        };
        let machine = Machine {
            memory_anonymous: Some(6),
            ..Machine::default()
        };
        let text = page(&machine, 2, Some(space), &[pod], &more);
        let container = "{container=\"c\",id=\"/x/kubepods/podu/i\",image=\"\",name=\"i\",namespace=\"n\",pod=\"p\"";
        let pod = "{container=\"\",id=\"/x/kubepods/podu\",image=\"\",name=\"\",namespace=\"n\",pod=\"p\"";
        let root = "{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"";
        for line in [
            format!("container_memory_rss{container}}} 5\n"),
            format!("container_memory_rss{pod}}} 5\n"),
            format!("container_memory_rss{root}}} 6\n"),
            format!(
                "container_memory_failures_total{container},failure_type=\"pgmajfault\",scope=\"container\"}} 2\n"
            ),
            format!("container_fs_inodes_total{container}}} 100\n"),
            format!("container_fs_limit_bytes{container}}} 1000\n"),
            "machine_cpu_cores 2\n".to_owned(),
            "container_oom_events_total{container=\"c\"} 7\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        assert_eq!(text.matches("# TYPE container_memory_rss ").count(), 1);
        let unknown = [
            format!("\ncontainer_memory_usage_bytes{root}"),
            format!("\ncontainer_cpu_usage_seconds_total{root}"),
            "\nmachine_memory_bytes ".to_owned(),
        ];
        for line in unknown {
            assert!(!text.contains(&line), "{line} is in {text}");
        }
        assert!(text.contains("\nmachine_scrape_error 1\n"));
    }
}
