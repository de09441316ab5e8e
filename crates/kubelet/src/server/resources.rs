//! `/metrics/resource`: CPU, memory and swap of node, pods and containers, as the metrics server
//! reads them. Pure.

use super::metrics::Page;
use crate::stats::{ContainerSample, Machine, PodSample};

const NANOS: f64 = 1e9;

type Of<T> = fn(&T) -> Option<f64>;

/// Name, kind, help, value.
type Family<T> = (&'static str, &'static str, &'static str, Of<T>);

const CONTAINERS: [Family<ContainerSample>; 4] = [
    (
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Processor seconds used by the container so far",
        |one| one.cpu.as_ref().map(|cpu| cpu.total as f64 / NANOS),
    ),
    (
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Memory that the container works with, in bytes",
        |one| Some(one.memory.as_ref()?.working_set? as f64),
    ),
    (
        "container_swap_limit_bytes",
        "gauge",
        "[ALPHA] Swap that the container may use, in bytes",
        |one| {
            let swap = one.swap?;
            Some((swap.available? + swap.usage) as f64)
        },
    ),
    (
        "container_swap_usage_bytes",
        "gauge",
        "[ALPHA] Swap that the container uses, in bytes",
        |one| one.swap.map(|swap| swap.usage as f64),
    ),
];

const PODS: [Family<PodSample>; 3] = [
    (
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Processor seconds used by the pod so far",
        |pod| pod.cpu.as_ref().map(|cpu| cpu.total as f64 / NANOS),
    ),
    (
        "pod_memory_working_set_bytes",
        "gauge",
        "[STABLE] Memory that the pod works with, in bytes",
        |pod| Some(pod.memory.as_ref()?.working_set? as f64),
    ),
    (
        "pod_swap_usage_bytes",
        "gauge",
        "[ALPHA] Swap that the pod uses, in bytes",
        |pod| pod.swap().map(|swap| swap.usage as f64),
    ),
];

const NODE: [Family<Machine>; 3] = [
    (
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Processor seconds used by the node so far",
        |machine| Some(machine.cpu_total? as f64 / NANOS),
    ),
    (
        "node_memory_working_set_bytes",
        "gauge",
        "[STABLE] Memory that the node works with, in bytes",
        |machine| Some(machine.memory_used()? as f64),
    ),
    (
        "node_swap_usage_bytes",
        "gauge",
        "[ALPHA] Swap that the node uses, in bytes",
        |machine| Some(machine.swap_used()? as f64),
    ),
];

pub fn page(machine: &Machine, pods: &[PodSample], millis: i64) -> String {
    let mut page = Page::default();
    let at = Some(millis);
    let containers = || {
        let pods = pods.iter();
        pods.flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
    };
    let labels = |pod: &PodSample, container: &ContainerSample| {
        [
            ("container", container.name.clone()),
            ("namespace", pod.namespace.clone()),
            ("pod", pod.name.clone()),
        ]
    };
    for (name, kind, help, of) in CONTAINERS {
        page.metric(name, kind, help);
        for (pod, container) in containers() {
            if let Some(value) = of(container) {
                let labels = labels(pod, container);
                page.value(name, &borrowed(&labels), value, at);
            }
        }
    }
    let name = "container_start_time_seconds";
    let help = "[STABLE] When the container started, in seconds of Unix time";
    page.metric(name, "gauge", help);
    for (pod, container) in containers().filter(|(_, container)| container.started_at > 0) {
        let labels = labels(pod, container);
        let started = container.started_at as f64 / NANOS;
        page.value(name, &borrowed(&labels), started, None);
    }
    for (name, kind, help, of) in NODE {
        page.metric(name, kind, help);
        if let Some(value) = of(machine) {
            page.value(name, &[], value, at);
        }
    }
    for (name, kind, help, of) in PODS {
        page.metric(name, kind, help);
        for pod in pods {
            if let Some(value) = of(pod) {
                let labels = [("namespace", pod.namespace.as_str()), ("pod", &pod.name)];
                page.value(name, &labels, value, at);
            }
        }
    }
    result(&mut page, 0.0);
    page.finish()
}

/// The runtime did not answer.
pub fn failed() -> String {
    let mut page = Page::default();
    result(&mut page, 1.0);
    page.finish()
}

fn result(page: &mut Page, errors: f64) {
    let help = "Whether the figures of containers could not be read: 1 or 0";
    page.metric(
        "resource_scrape_error",
        "gauge",
        &format!("[STABLE] {help}"),
    );
    page.value("resource_scrape_error", &[], errors, None);
    let old = format!("[ALPHA] (Deprecated since 1.29.0) {help}");
    page.metric("scrape_error", "gauge", &old);
    page.value("scrape_error", &[], errors, None);
}

fn borrowed<'a>(labels: &'a [(&'a str, String); 3]) -> [(&'a str, &'a str); 3] {
    labels
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Cpu, Memory, Swap};

    #[test]
    fn containers_pods_and_the_node_have_lines() {
        let pod = PodSample {
            name: "p".to_owned(),
            namespace: "n".to_owned(),
            cpu: Some(Cpu {
                total: 2_500_000_000,
                ..Cpu::default()
            }),
            containers: vec![ContainerSample {
                name: "c\"x".to_owned(),
                memory: Some(Memory {
                    working_set: Some(42),
                    ..Memory::default()
                }),
                swap: Some(Swap {
                    usage: 3,
                    available: Some(4),
                }),
                ..ContainerSample::default()
            }],
            ..PodSample::default()
        };
        let machine = Machine {
            swap_total: Some(10),
            swap_free: Some(8),
            ..Machine::default()
        };
        let text = page(&machine, &[pod], 7);
        for line in [
            "pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} 2.5 7\n",
            "container_memory_working_set_bytes{container=\"c\\\"x\",namespace=\"n\",pod=\"p\"} 42 7\n",
            "container_swap_limit_bytes{container=\"c\\\"x\",namespace=\"n\",pod=\"p\"} 7 7\n",
            "pod_swap_usage_bytes{namespace=\"n\",pod=\"p\"} 3 7\n",
            "node_swap_usage_bytes 2 7\n",
            "\nscrape_error 0\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(
            !text.contains("\nnode_memory_working_set_bytes "),
            "unknown"
        );
        assert!(failed().contains("resource_scrape_error 1\n"));
        assert!(!failed().contains("node_cpu"));
    }
}
