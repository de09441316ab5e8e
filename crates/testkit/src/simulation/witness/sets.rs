//! StatefulSets keep their order, DaemonSets have one pod per node (two while they surge).

use serde_json::Value;

use super::pods::Pod;
use super::{State, Versions, lives, number, text};
use crate::simulation::violation::Violation;

pub struct StatefulSet {
    name: String,
    ordered: bool,
    versions: Versions<i64>,
    /// A pod was lost to something other than its controller.
    pub disrupted: bool,
}

pub struct DaemonSet {
    versions: Versions<i64>,
}

impl State {
    pub(super) fn stateful_set_changed(
        &mut self,
        uid: String,
        new: Option<&Value>,
    ) -> Result<(), Violation> {
        let Some(new) = new.filter(|new| lives(new)) else {
            self.stateful_sets.remove(&uid);
            return Ok(());
        };
        let entry = self.stateful_sets.entry(uid);
        let set = entry.or_insert_with(|| StatefulSet {
            name: text(new, "/metadata/name").to_owned(),
            ordered: text(new, "/spec/podManagementPolicy") != "Parallel",
            versions: Versions::default(),
            disrupted: false,
        });
        tracing::debug!(
            name = set.name,
            replicas = number(new, "/spec/replicas"),
            generation = number(new, "/metadata/generation"),
            observed = number(new, "/status/observedGeneration"),
            "StatefulSet"
        );
        set.versions.add(new, || number(new, "/spec/replicas"));
        Ok(())
    }

    pub(super) fn daemon_set_changed(
        &mut self,
        uid: String,
        new: Option<&Value>,
    ) -> Result<(), Violation> {
        let Some(new) = new.filter(|new| lives(new)) else {
            self.daemon_sets.remove(&uid);
            return Ok(());
        };
        let entry = self.daemon_sets.entry(uid);
        let set = entry.or_insert_with(|| DaemonSet {
            versions: Versions::default(),
        });
        set.versions.add(new, || {
            number(new, "/spec/updateStrategy/rollingUpdate/maxSurge")
        });
        Ok(())
    }

    /// A pod of a StatefulSet is created: it must be wanted, and its predecessors must be ready.
    pub(super) fn check_order(&self, set: &str, pod: &Pod) -> Result<(), Violation> {
        let Some(set_state) = self.stateful_sets.get(set) else {
            return Ok(());
        };
        let most = set_state.versions.iter().copied().max().unwrap_or(0);
        let ordinal = ordinal(&pod.name);
        if ordinal >= most {
            return Err(Violation::new(format!(
                "{} comes where {most} are wanted",
                pod.name
            )));
        }
        if !set_state.ordered || set_state.disrupted {
            return Ok(());
        }
        let ready = |wanted: i64| {
            self.pods.values().any(|pod| {
                pod.stateful_set.as_deref() == Some(set)
                    && ordinal_of(pod) == wanted
                    && pod.available
            })
        };
        match (0..ordinal).find(|before| !ready(*before)) {
            Some(missing) => Err(Violation::new(format!(
                "{} comes before {}-{missing} is ready",
                pod.name, set_state.name
            ))),
            None => Ok(()),
        }
    }

    /// A pod of an ordered StatefulSet is deleted: its successors must be gone.
    pub(super) fn check_departure(&self, set: &str, name: &str) -> Result<(), Violation> {
        let Some(set_state) = self.stateful_sets.get(set) else {
            return Ok(());
        };
        if !set_state.ordered || set_state.disrupted {
            return Ok(());
        }
        let others = self.pods.values().find(|pod| {
            pod.stateful_set.as_deref() == Some(set)
                && pod.terminating
                && ordinal_of(pod) > ordinal(name)
        });
        match others {
            Some(other) => Err(Violation::new(format!(
                "{name} goes while {} is still going",
                other.name
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn disrupt_set(&mut self, set: &str) {
        if let Some(set) = self.stateful_sets.get_mut(set) {
            set.disrupted = true;
        }
    }

    /// The order is guaranteed again once all wanted pods exist.
    pub(super) fn recover_set(&mut self, uid: &str) {
        let available = self
            .pods
            .values()
            .filter(|pod| pod.available && pod.stateful_set.as_deref() == Some(uid))
            .count() as i64;
        if let Some(set) = self.stateful_sets.get_mut(uid)
            && set.disrupted
            && set.versions.iter().all(|replicas| available == *replicas)
        {
            set.disrupted = false;
        }
    }

    /// A pod of a DaemonSet is created: its node must have no other, or one that it replaces.
    pub(super) fn check_node(&self, set: &str, pod: &Pod) -> Result<(), Violation> {
        let Some(set_state) = self.daemon_sets.get(set) else {
            return Ok(());
        };
        let surge = set_state.versions.iter().copied().max().unwrap_or(0);
        let there = self
            .pods
            .values()
            .filter(|other| {
                other.daemon_set.as_deref() == Some(set)
                    && other.node == pod.node
                    && other.is_active()
            })
            .count() as i64;
        match there > 1 + surge.min(1) {
            true => Err(Violation::new(format!(
                "{} makes {there} on {}",
                pod.name, pod.node
            ))),
            false => Ok(()),
        }
    }
}

fn ordinal(name: &str) -> i64 {
    let ordinal = name.rsplit('-').next().and_then(|last| last.parse().ok());
    ordinal.unwrap_or(0)
}

fn ordinal_of(pod: &Pod) -> i64 {
    ordinal(&pod.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, kind: &str, ready: bool, node: &str) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"name": name, "uid": name,
                "ownerReferences": [{"kind": kind, "uid": "s", "controller": true}]},
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        })
    }

    #[test]
    fn a_stateful_set_pod_created_out_of_order_is_a_violation() {
        let set = json!({"kind": "StatefulSet",
            "metadata": {"name": "db", "uid": "s", "generation": 1}, "spec": {"replicas": 3}});
        let mut state = State::default();
        let mut change = |object: &Value| state.change(None, Some(object));
        change(&set).expect("a set");
        change(&pod("db-0", "StatefulSet", false, "")).expect("the first");
        assert!(change(&pod("db-1", "StatefulSet", false, "")).is_err());
        change(&pod("db-0", "StatefulSet", true, "")).expect("it is ready");
        change(&pod("db-1", "StatefulSet", true, "")).expect("the second is there already");
        change(&pod("db-2", "StatefulSet", false, "")).expect("the third in its turn");
        assert!(change(&pod("db-3", "StatefulSet", false, "")).is_err());
    }

    #[test]
    fn a_stateful_set_pod_deleted_out_of_order_is_a_violation_unless_evicted() {
        let set = json!({"kind": "StatefulSet",
            "metadata": {"name": "db", "uid": "s", "generation": 1}, "spec": {"replicas": 3}});
        let going = |mut pod: Value| {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            pod
        };
        let mut evicted = pod("db-0", "StatefulSet", true, "");
        evicted["status"]["conditions"] = json!([
            {"type": "Ready", "status": "True"}, {"type": "DisruptionTarget", "status": "True"}]);
        for (first, expected) in [
            (pod("db-0", "StatefulSet", true, ""), false),
            (evicted, true),
        ] {
            let mut state = State::default();
            let mut change = |object: &Value| state.change(None, Some(object));
            change(&set).expect("a set");
            change(&first).expect("the first");
            for name in ["db-1", "db-2"] {
                change(&pod(name, "StatefulSet", true, "")).expect("all");
            }
            change(&going(pod("db-2", "StatefulSet", true, ""))).expect("the last goes first");
            assert_eq!(change(&going(first)).is_ok(), expected);
        }
    }

    #[test]
    fn two_daemon_pods_on_one_node_are_a_violation() {
        let set = json!({"kind": "DaemonSet",
            "metadata": {"name": "agent", "uid": "s", "generation": 1}, "spec": {}});
        let mut state = State::default();
        let mut change = |object: &Value| state.change(None, Some(object));
        change(&set).expect("a set");
        change(&pod("a", "DaemonSet", true, "n1")).expect("one");
        change(&pod("b", "DaemonSet", true, "n2")).expect("another node");
        assert!(change(&pod("c", "DaemonSet", true, "n1")).is_err());
    }
}
