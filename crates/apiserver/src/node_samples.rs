//! What a kubelet's counters say: CPU rates between two looks at the same container some time
//! apart, or since its start when there was no look before. Kept by node, as many as there are nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Value;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Two looks closer together say little, in microseconds.
const SHORTEST: i64 = 10_000_000;

/// The newest samples by node. As many as there are nodes.
#[derive(Default)]
pub(crate) struct Samples(Mutex<BTreeMap<String, (Instant, Arc<NodeSample>)>>);

impl Samples {
    /// The newest sample of a node, and when it was taken.
    pub fn newest(&self, node: &str) -> Option<(Instant, Arc<NodeSample>)> {
        self.0.lock().get(node).cloned()
    }

    /// Keeps a sample that was taken now, and forgets the nodes that do not exist.
    pub fn put(&self, node: &str, sample: Arc<NodeSample>, exists: impl Fn(&str) -> bool) {
        let mut samples = self.0.lock();
        samples.insert(node.to_string(), (Instant::now(), sample));
        samples.retain(|name, _| exists(name));
    }
}

/// Counters at one time. Times are microseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    at: i64,
    started: i64,
    cpu_nanoseconds: u64,
    memory: u64,
}

/// The newest reading, and the one its rate is counted from.
#[derive(Clone, Copy, Debug, PartialEq)]
struct History {
    from: Option<Reading>,
    newest: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    pub at: i64,
    pub window: i64,
    /// Billionths of a core.
    pub cpu: u64,
    /// Bytes of the working set.
    pub memory: u64,
}

impl History {
    fn go_on(before: Option<&History>, newest: Reading) -> History {
        let before = before.filter(|before| before.newest.started == newest.started);
        let from = before.and_then(|before| match newest.at - before.newest.at >= SHORTEST {
            true => Some(before.newest),
            false => before.from,
        });
        History { from, newest }
    }

    fn usage(&self) -> Usage {
        let (since, counted) = match self.from {
            Some(from) => (from.at, from.cpu_nanoseconds),
            None => (self.newest.started, 0),
        };
        let window = (self.newest.at - since).max(1_000_000);
        let used = self.newest.cpu_nanoseconds.saturating_sub(counted);
        Usage {
            at: self.newest.at,
            window,
            cpu: (u128::from(used) * 1_000_000 / window as u128) as u64,
            memory: self.newest.memory,
        }
    }
}

/// A pod's UID and a container's name.
type ContainerKey = (String, String);

/// What one kubelet said.
#[derive(Debug, Default)]
pub struct NodeSample {
    node: Option<History>,
    containers: BTreeMap<ContainerKey, History>,
}

impl NodeSample {
    pub fn of(summary: &Value, before: Option<&NodeSample>, now: i64) -> NodeSample {
        let node = summary
            .get("node")
            .and_then(|node| reading(node, now))
            .map(|newest| History::go_on(before.and_then(|b| b.node.as_ref()), newest));
        let mut containers = BTreeMap::new();
        for pod in summary.list_at(&["pods"]) {
            let uid = pod.str_at(&["podRef", "uid"]);
            for container in pod.list_at(&["containers"]) {
                let key = (uid.to_string(), container.str_at(&["name"]).to_string());
                let Some(newest) = reading(container, now) else {
                    continue;
                };
                let known = before.and_then(|before| before.containers.get(&key));
                let history = History::go_on(known, newest);
                containers.insert(key, history);
            }
        }
        NodeSample { node, containers }
    }

    pub fn node(&self) -> Option<Usage> {
        self.node.as_ref().map(History::usage)
    }

    /// By container name.
    pub fn containers(&self, uid: &str) -> impl Iterator<Item = (&str, Usage)> {
        self.containers
            .iter()
            .filter(move |((of, _), _)| of == uid)
            .map(|((_, name), history)| (name.as_str(), history.usage()))
    }
}

fn reading(stats: &Value, now: i64) -> Option<Reading> {
    let time = |text: &str| text.parse().ok().map(jiff::Timestamp::as_microsecond);
    let count = |path: &[&str]| u64::try_from(stats.i64_at(path)?).ok();
    Some(Reading {
        at: time(stats.str_at(&["cpu", "time"])).unwrap_or(now),
        started: time(stats.str_at(&["startTime"]))?,
        cpu_nanoseconds: count(&["cpu", "usageCoreNanoSeconds"])?,
        memory: count(&["memory", "workingSetBytes"])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(time: &str, cpu: i64) -> Value {
        let stats = |name: &str| {
            api::document!({
                "name": name, "startTime": "1970-01-01T00:01:40Z",
                "cpu": {"time": time, "usageCoreNanoSeconds": cpu},
                "memory": {"workingSetBytes": 2048},
            })
        };
        api::document!({
            "node": stats("n"),
            "pods": [{"podRef": {"uid": "u"}, "containers": [stats("a"), {"name": "no figures"}]}],
        })
    }

    fn usage_of(sample: &NodeSample) -> (i64, u64) {
        let all: Vec<(&str, Usage)> = sample.containers("u").collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].0, all[0].1.memory), ("a", 2048));
        assert_eq!(sample.node(), Some(all[0].1));
        (all[0].1.window / 1_000_000, all[0].1.cpu)
    }

    #[test]
    fn rates_are_since_the_start_and_then_since_the_last_look() {
        // 20 s after the start, 2 s of CPU: a tenth of a core.
        let first = NodeSample::of(&summary("1970-01-01T00:02:00Z", 2_000_000_000), None, 0);
        assert_eq!(usage_of(&first), (20, 100_000_000));
        let soon = NodeSample::of(
            &summary("1970-01-01T00:02:05Z", 2_500_000_000),
            Some(&first),
            0,
        );
        assert_eq!(usage_of(&soon), (25, 100_000_000));
        let later = NodeSample::of(
            &summary("1970-01-01T00:02:15Z", 7_500_000_000),
            Some(&soon),
            0,
        );
        assert_eq!(usage_of(&later), (10, 500_000_000));
        let next = NodeSample::of(
            &summary("1970-01-01T00:02:16Z", 7_500_000_000),
            Some(&later),
            0,
        );
        assert_eq!(usage_of(&next).0, 11);
    }
}
