//! `/metrics` and `/metrics/probes` in Prometheus' text form, with upstream's names; a page of any
//! metrics. Pure.

use std::{collections::BTreeMap, fmt::Write};

use crate::{counters::Counters, probes::ProbeCounts};

/// A page of metrics under construction.
#[derive(Default)]
pub struct Page {
    text: String,
}

impl Page {
    pub fn has(&self, name: &str) -> bool {
        self.text.contains(&format!("# TYPE {name} "))
    }

    /// Begins a metric. `kind` is `counter` or `gauge`.
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

/// The kubelet itself.
pub fn own(
    node_name: &str,
    pods: usize,
    containers: &BTreeMap<&str, usize>,
    (shutdown_start, shutdown_end): (f64, f64),
    counters: &Counters,
) -> String {
    let mut page = Page::default();
    for family in counters.read() {
        page.metric(family.name, "counter", family.help);
        for (label, count) in &family.counts {
            let pair = (family.label, label.as_str());
            let labels = if family.label.is_empty() {
                vec![]
            } else {
                vec![pair]
            };
            page.value(family.name, &labels, *count as f64, None);
        }
    }
    page.metric(
        "kubelet_node_name",
        "gauge",
        "[ALPHA] The node's name. The count is always 1.",
    );
    page.value("kubelet_node_name", &[("node", node_name)], 1.0, None);
    page.metric(
        "kubelet_running_pods",
        "gauge",
        "[BETA] Number of pods that have a running pod sandbox",
    );
    page.value("kubelet_running_pods", &[], pods as f64, None);
    page.metric(
        "kubelet_running_containers",
        "gauge",
        "[BETA] Number of containers currently running",
    );
    for (state, count) in containers {
        page.value(
            "kubelet_running_containers",
            &[("container_state", state)],
            *count as f64,
            None,
        );
    }
    for (which, seconds) in [("start", shutdown_start), ("end", shutdown_end)] {
        let name = format!("kubelet_graceful_shutdown_{which}_time_seconds");
        let help =
            format!("[ALPHA] Last graceful shutdown {which} time since unix epoch in seconds");
        page.metric(&name, "gauge", &help);
        page.value(&name, &[], seconds, None);
    }
    page.metric(
        "kubernetes_build_info",
        "gauge",
        "[ALPHA] A metric with a constant '1' value labeled by version and platform.",
    );
    let labels = [
        ("git_version", "v1.36.4"),
        ("major", "1"),
        ("minor", "36"),
        ("platform", "linux"),
    ];
    page.value("kubernetes_build_info", &labels, 1.0, None);
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters;

    #[test]
    fn the_kubelets_own_figures_have_lines() {
        let counters = Counters::default();
        counters.add(counters::EVICTIONS, "memory.available");
        let running = BTreeMap::from([("running", 4)]);
        let text = own("n1", 3, &running, (0.0, 0.0), &counters);
        assert!(text.contains("kubelet_evictions{eviction_signal=\"memory.available\"} 1\n"));
        assert!(text.contains("kubelet_started_pods_total 0\n"), "{text}");
        assert!(text.contains("kubelet_running_containers{container_state=\"running\"} 4\n"));
    }
}
