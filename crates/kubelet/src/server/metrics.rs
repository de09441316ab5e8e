//! `/metrics/probes` in Prometheus' text form, with upstream's names, and what any page of metrics is
//! written with. Pure.
//!
//! The text form is our own because most values are read at the moment of the request and many carry
//! timestamps, which the encoders of the metrics crates leave out.

use std::fmt::Write;

use crate::probes::ProbeCounts;

/// A page of metrics under construction.
#[derive(Default)]
pub struct Page {
    text: String,
}

impl Page {
    pub fn has(&self, name: &str) -> bool {
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

/// How often each probe succeeded and failed.
pub fn probes(counts: &ProbeCounts) -> String {
    let mut page = Page::default();
    page.metric(
        "prober_probe_total",
        "counter",
        "[BETA] Probes made, by container, kind and result",
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
