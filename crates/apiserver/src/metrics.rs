//! What is counted about requests, under upstream's names. Rendering is `endpoints`'.

use std::cmp::Ordering as CmpOrdering;
use std::collections::BTreeMap;
use std::sync::Arc;
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
    /// How many events went out to the watches of each resource. Held for moments only.
    watched: Mutex<Vec<(Arc<Resource>, Arc<AtomicU64>)>>,
    reading: AtomicU64,
    writing: AtomicU64,
    /// Held for moments only. The keys are names of served kinds, so there are only so many.
    pub requests: Mutex<BTreeMap<Served, Requests>>,
}

/// What a request was for. Cheap to clone, as it shares the resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    pub verb: &'static str,
    /// `None` for paths that are not resources.
    pub resource: Option<Arc<Resource>>,
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
        let Some(resource) = &info.resource else {
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
            subresource: subresource.map_or("", |subresource| subresource.name),
            resource: Some(resource.clone()),
            scope,
        }
    }

    pub fn is_long_running(&self) -> bool {
        self.verb == "WATCH"
            || matches!(self.subresource, "log" | "exec" | "attach" | "portforward")
    }

    /// The group, version and plural of the resource, as the labels have them.
    pub fn names(&self) -> (&str, &str, &str) {
        match &self.resource {
            Some(resource) => (&resource.group, &resource.version, &resource.plural),
            None => ("", "", ""),
        }
    }

    fn order(&self) -> impl Ord + '_ {
        (self.verb, self.names(), self.subresource, self.scope)
    }
}

impl PartialEq for Served {
    fn eq(&self, other: &Served) -> bool {
        self.cmp(other) == CmpOrdering::Equal
    }
}

impl Eq for Served {}

impl PartialOrd for Served {
    fn partial_cmp(&self, other: &Served) -> Option<CmpOrdering> {
        Some(self.cmp(other))
    }
}

impl Ord for Served {
    fn cmp(&self, other: &Served) -> CmpOrdering {
        self.order().cmp(&other.order())
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
    /// Where a watch of this resource counts the events that it sent.
    pub fn watch_events_of(&self, resource: &Arc<Resource>) -> Arc<AtomicU64> {
        let mut watched = self.watched.lock();
        match watched.iter().find(|(known, _)| known == resource) {
            Some((_, counter)) => counter.clone(),
            None => {
                let counter = Arc::default();
                watched.push((resource.clone(), Arc::clone(&counter)));
                counter
            }
        }
    }

    /// The resources that were watched, and how many events went out.
    pub fn watch_events(&self) -> Vec<(Arc<Resource>, u64)> {
        let watched = self.watched.lock();
        let counted = watched
            .iter()
            .map(|(resource, counter)| (resource.clone(), counter.load(Ordering::Relaxed)));
        let mut counted: Vec<_> = counted.filter(|(_, number)| *number > 0).collect();
        counted.sort_by(|(left, _), (right, _)| names(left).cmp(&names(right)));
        counted
    }

    /// Drops what was counted about a kind that is served no more.
    pub fn forget(&self, resource: &Resource) {
        self.watched
            .lock()
            .retain(|(known, _)| **known != *resource);
        let mut requests = self.requests.lock();
        requests.retain(|served, _| served.resource.as_deref() != Some(resource));
    }

    /// The requests that are being answered: those that read, or those that write.
    pub fn in_flight(&self, reads: bool) -> &AtomicU64 {
        match reads {
            true => &self.reading,
            false => &self.writing,
        }
    }

    pub fn record(&self, served: Served, code: u16, took: Duration) {
        let is_long_running = served.is_long_running();
        let mut requests = self.requests.lock();
        let requests = requests.entry(served).or_default();
        *requests.by_code.entry(code).or_default() += 1;
        if !is_long_running {
            let seconds = took.as_secs_f64();
            let bucket = BUCKETS.partition_point(|bound| *bound < seconds);
            requests.durations[bucket] += 1;
            requests.seconds += seconds;
        }
    }
}

fn names(resource: &Resource) -> (&str, &str, &str) {
    (&resource.group, &resource.plural, &resource.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_what_they_are_for() {
        let metrics = Metrics::default();
        let uri: http::Uri = "/api/v1/namespaces/a/pods/b".parse().unwrap();
        let query = crate::query::Query::default();
        let info = RequestInfo::parse(
            api::catalogue::built_in(),
            &http::Method::GET,
            uri.path(),
            &query,
        )
        .unwrap();
        let served = Served::of(&info);
        metrics.record(served.clone(), 200, Duration::from_millis(30));
        metrics.record(served.clone(), 404, Duration::from_secs(100));
        let requests = metrics.requests.lock();
        let counted = &requests[&served];
        assert_eq!(
            (served.verb, served.names().2, served.scope),
            ("GET", "pods", "resource")
        );
        assert_eq!(counted.by_code, BTreeMap::from([(200, 1), (404, 1)]));
        assert_eq!(
            (counted.durations[2], counted.durations[BUCKETS.len()]),
            (1, 1)
        );
    }
}
