//! Counts and times the requests to the kubelet's server, by method and the beginning of the path.

use http::{Method, Uri};
use tokio::time::Instant;

use crate::measures::{Counter, Histogram, Measures};

const PATHS: [&str; 18] = [
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "healthz",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "pprof",
    "run",
    "runningpods",
    "stats",
];

/// A request under way, over when dropped.
pub struct Timed<'a> {
    measures: &'a Measures,
    labels: [&'static str; 4],
    began: Instant,
}

impl Timed<'_> {
    pub fn begin<'a>(measures: &'a Measures, method: &Method, uri: &Uri) -> Timed<'a> {
        let path = bucket(uri.path());
        let lasting = matches!(path, "exec" | "attach" | "debug");
        let labels = [
            verb(method),
            path,
            "readwrite",
            if lasting { "true" } else { "false" },
        ];
        measures.count(Counter::HttpRequests, &labels);
        Timed {
            measures,
            labels,
            began: Instant::now(),
        }
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let histogram = Histogram::HttpRequestsDuration;
        self.measures.time(histogram, &self.labels, took);
    }
}

fn bucket(path: &str) -> &'static str {
    let path = path.trim_start_matches('/');
    let depth = if path.starts_with("metrics/") { 2 } else { 1 };
    let end = path.match_indices('/').nth(depth - 1);
    let root = end.map_or(path, |(at, _)| &path[..at]);
    let known = PATHS.iter().find(|known| **known == root);
    known.copied().unwrap_or("other")
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        "CONNECT" => "CONNECT",
        "TRACE" => "TRACE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_metrics_are_labelled_by_the_first_part_of_the_path() {
        for (path, expected) in [
            ("/pods", "pods"),
            ("/metrics", "metrics"),
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/other/x", "other"),
            ("/containerLogs/a/b/c", "containerLogs"),
            ("/exec/a/b/c", "exec"),
            ("/", "other"),
            ("/podsx", "other"),
        ] {
            assert_eq!(bucket(path), expected, "{path}");
        }
    }
}
