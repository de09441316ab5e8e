//! What is counted about requests, under upstream's names. Rendering is `endpoints`'.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::Resource;
use parking_lot::Mutex;

use crate::request::RequestInfo;

/// Upper bounds of upstream's latency buckets, in seconds.
pub(crate) const BUCKETS: [f64; 22] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 60.0,
];

#[derive(Default)]
pub(crate) struct Metrics {
    pub failures: AtomicU64,
    /// Of answers that were compressed for one client.
    pub compressed_bytes: AtomicU64,
    /// How many pieces of watches went out, by the place of the resource in the catalogue.
    watched: OnceLock<Vec<AtomicU64>>,
    reading: AtomicU64,
    writing: AtomicU64,
    /// Held for moments only. The keys are names of served kinds, so there are only so many.
    pub requests: Mutex<BTreeMap<Served, Requests>>,
}

/// What a request was for. Copied, never allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Served {
    pub verb: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    pub scope: &'static str,
}

impl Served {
    pub fn of(info: &RequestInfo) -> Served {
        let verb = match info.verb {
            "get" | "head" => "GET",
            "list" => "LIST",
            "watch" => "WATCH",
            "create" | "post" => "POST",
            "update" | "put" => "PUT",
            "patch" => "PATCH",
            "delete" => "DELETE",
            "deletecollection" => "DELETECOLLECTION",
            _ => "other",
        };
        let Some(resource) = info.resource else {
            return Served {
                verb,
                ..Served::default()
            };
        };
        let subresource = resource.subresource(&info.subresource);
        let scope = match (info.name.is_empty(), info.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        };
        Served {
            verb,
            group: resource.group,
            version: resource.version,
            resource: resource.plural,
            subresource: subresource.map_or("", |subresource| subresource.name),
            scope,
        }
    }

    pub fn is_long_running(self) -> bool {
        self.verb == "WATCH"
            || matches!(self.subresource, "log" | "exec" | "attach" | "portforward")
    }
}

/// How often, and how long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pub by_code: BTreeMap<u16, u64>,
    /// One more than [`BUCKETS`]: the last is for everything above.
    pub durations: [u64; BUCKETS.len() + 1],
    pub seconds: f64,
}

impl Metrics {
    /// Counts the events that a watch sent.
    pub fn watched(&self, resource: &'static Resource, events: u64) {
        let counters = self.counters();
        let found = api::catalogue::resources()
            .iter()
            .position(|known| std::ptr::eq(known, resource));
        if let Some(counter) = found.and_then(|index| counters.get(index)) {
            counter.fetch_add(events, Ordering::Relaxed);
        }
    }

    /// The resources that were watched, and how many events went out.
    pub fn watch_events(&self) -> impl Iterator<Item = (&'static Resource, u64)> {
        let counted = api::catalogue::resources().iter().zip(self.counters());
        counted
            .map(|(resource, counter)| (resource, counter.load(Ordering::Relaxed)))
            .filter(|(_, number)| *number > 0)
    }

    fn counters(&self) -> &[AtomicU64] {
        self.watched.get_or_init(|| {
            let resources = api::catalogue::resources().iter();
            resources.map(|_| AtomicU64::new(0)).collect()
        })
    }

    /// The requests that are being answered: those that read, or those that write.
    pub fn in_flight(&self, reads: bool) -> &AtomicU64 {
        match reads {
            true => &self.reading,
            false => &self.writing,
        }
    }

    pub fn record(&self, served: Served, code: u16, took: Duration) {
        let mut requests = self.requests.lock();
        let requests = requests.entry(served).or_default();
        *requests.by_code.entry(code).or_default() += 1;
        if !served.is_long_running() {
            let seconds = took.as_secs_f64();
            let bucket = BUCKETS.partition_point(|bound| *bound < seconds);
            requests.durations[bucket] += 1;
            requests.seconds += seconds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_what_they_are_for() {
        let metrics = Metrics::default();
        let uri: http::Uri = "/api/v1/namespaces/a/pods/b".parse().unwrap();
        let query = crate::query::Query::default();
        let info = RequestInfo::parse(&http::Method::GET, uri.path(), &query).unwrap();
        let served = Served::of(&info);
        metrics.record(served, 200, Duration::from_millis(30));
        metrics.record(served, 404, Duration::from_secs(100));
        let requests = metrics.requests.lock();
        let counted = &requests[&served];
        assert_eq!(
            (served.verb, served.resource, served.scope),
            ("GET", "pods", "resource")
        );
        assert_eq!(counted.by_code, BTreeMap::from([(200, 1), (404, 1)]));
        assert_eq!(
            (counted.durations[2], counted.durations[BUCKETS.len()]),
            (1, 1)
        );
    }
}
