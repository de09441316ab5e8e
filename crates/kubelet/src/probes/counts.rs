//! How often each probe of each container succeeded and failed, for `/metrics/probes`. Forgotten
//! with the pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub uid: String,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub kind: &'static str,
    pub result: &'static str,
}

#[derive(Default)]
pub struct ProbeCounts(Mutex<BTreeMap<Key, u64>>);

impl ProbeCounts {
    pub fn count(&self, pod: &Pod, container: &str, kind: &'static str, good: bool) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let metadata = &pod.metadata;
        let key = Key {
            uid: text(&metadata.uid),
            namespace: text(&metadata.namespace),
            pod: text(&metadata.name),
            container: container.to_owned(),
            kind,
            result: if good { "successful" } else { "failed" },
        };
        *self.0.lock().entry(key).or_insert(0) += 1;
    }

    pub fn forget(&self, uid: &str) {
        self.0.lock().retain(|key, _| key.uid != uid);
    }

    pub fn read(&self) -> Vec<(Key, u64)> {
        let counts = self.0.lock();
        counts
            .iter()
            .map(|(key, count)| (key.clone(), *count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_end_with_the_pod() {
        let pod: Pod =
            serde_json::from_value(serde_json::json!({"metadata": {"uid": "u"}})).expect("a pod");
        let counts = ProbeCounts::default();
        for good in [true, true, false] {
            counts.count(&pod, "c", "Liveness", good);
        }
        let found: Vec<(&str, u64)> = counts
            .read()
            .iter()
            .map(|(key, n)| (key.result, *n))
            .collect();
        assert_eq!(found, [("failed", 1), ("successful", 2)]);
        counts.forget("u");
        assert!(counts.read().is_empty());
    }
}
