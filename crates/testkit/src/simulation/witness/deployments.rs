//! Deployments and their ReplicaSets: the number of pods stays within maxSurge, and no pod is deleted
//! that is needed for maxUnavailable.

use serde_json::Value;

use super::{State, Versions, lives, number, owner, text};
use crate::simulation::violation::Violation;

pub struct Deployment {
    name: String,
    versions: Versions<Limits>,
    /// A pod was lost to something other than the rollout. Until all pods are available again,
    /// availability is not guaranteed.
    pub disrupted: bool,
}

/// The limits of one version of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    replicas: i64,
    /// The maximal number of pods and the minimal number of available ones during a rollout.
    most: i64,
    least: i64,
    recreate: bool,
    /// A paused Deployment is only scaled, as upstream's: its newest ReplicaSet grows at once.
    paused: bool,
}

pub struct ReplicaSet {
    pub name: String,
    pub deployment: Option<String>,
    pub versions: Versions<Size>,
}

/// The limits of one version of a ReplicaSet.
#[derive(Clone, Copy)]
pub struct Size {
    pub replicas: i64,
    /// The number of the Deployment's pods that had to stay available when this was written.
    least: i64,
}

impl Limits {
    fn of(deployment: &Value) -> Limits {
        let replicas = number(deployment, "/spec/replicas");
        let recreate = text(deployment, "/spec/strategy/type") == "Recreate";
        let amount = |field: &str, up: bool| {
            let path = format!("/spec/strategy/rollingUpdate/{field}");
            match deployment.pointer(&path) {
                Some(Value::Number(number)) => number.as_i64().unwrap_or(0),
                Some(Value::String(percent)) => {
                    let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or(0);
                    (replicas * percent + if up { 99 } else { 0 }) / 100
                }
                _ => 0,
            }
        };
        let surge = amount("maxSurge", true);
        let mut unavailable = amount("maxUnavailable", false);
        // With both limits at zero a rollout could not start.
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Limits {
            replicas,
            most: replicas + if recreate { 0 } else { surge },
            least: if recreate { 0 } else { replicas - unavailable },
            recreate,
            paused: deployment.pointer("/spec/paused") == Some(&Value::Bool(true)),
        }
    }
}

impl State {
    pub(super) fn deployment_changed(
        &mut self,
        uid: String,
        new: Option<&Value>,
    ) -> Result<(), Violation> {
        let Some(new) = new.filter(|new| lives(new)) else {
            self.deployments.remove(&uid);
            return Ok(());
        };
        let entry = self.deployments.entry(uid.clone());
        let deployment = entry.or_insert_with(|| Deployment {
            name: text(new, "/metadata/name").to_owned(),
            versions: Versions::default(),
            disrupted: false,
        });
        tracing::debug!(
            deployment = deployment.name,
            generation = number(new, "/metadata/generation"),
            observed = number(new, "/status/observedGeneration"),
            limits = ?Limits::of(new),
        );
        deployment.versions.add(new, || Limits::of(new));
        self.recover(&uid);
        Ok(())
    }

    pub(super) fn replica_set_changed(
        &mut self,
        uid: String,
        new: Option<&Value>,
    ) -> Result<(), Violation> {
        let Some(new) = new.filter(|new| lives(new)) else {
            self.replica_sets.remove(&uid);
            return Ok(());
        };
        let deployment = owner(new, "Deployment").map(str::to_owned);
        let limits = self.limits(deployment.as_deref());
        let entry = self.replica_sets.entry(uid.clone());
        let set = entry.or_insert_with(|| ReplicaSet {
            name: text(new, "/metadata/name").to_owned(),
            deployment: deployment.clone(),
            versions: Versions::default(),
        });
        let before = set.versions.newest().map_or(0, |size| size.replicas);
        let replicas = number(new, "/spec/replicas");
        tracing::debug!(
            set = set.name,
            before,
            replicas,
            status = ?new.pointer("/status"),
        );
        let least = limits.iter().map(|limits| limits.least).min();
        tracing::debug!(
            name = set.name,
            replicas,
            available = number(new, "/status/availableReplicas"),
            generation = number(new, "/metadata/generation"),
            observed = number(new, "/status/observedGeneration"),
            ?limits,
            "ReplicaSet"
        );
        set.versions.add(new, || Size {
            replicas,
            least: least.unwrap_or(0),
        });
        if replicas <= before || limits.is_empty() {
            return Ok(());
        }
        let name = set.name.clone();
        let total: i64 = self
            .sets_of(deployment.as_deref())
            .filter_map(|(_, set)| set.versions.newest())
            .map(|size| size.replicas)
            .sum();
        let most = limits.iter().map(|limits| limits.most).max().unwrap_or(0);
        if total > most {
            return Err(Violation::new(format!(
                "{name} grew to {replicas}: {total} in all where {limits:?} allow {most}"
            )));
        }
        // A ReplicaSet with pods may always be scaled, as upstream's.
        let begins = before == 0;
        if begins
            && limits
                .iter()
                .all(|limits| limits.recreate && !limits.paused)
        {
            let others = self.pods.values().filter(|pod| {
                let set = pod.replica_set.as_ref();
                !pod.ended
                    && set.is_some_and(|set| *set != uid)
                    && set
                        .and_then(|set| self.replica_sets.get(set))
                        .is_some_and(|set| set.deployment == deployment)
            });
            if let Some(other) = others.into_iter().next() {
                return Err(Violation::new(format!(
                    "{name} grew to {replicas} before {} was gone (Recreate)",
                    other.name
                )));
            }
        }
        Ok(())
    }

    /// An available pod is being deleted.
    pub(super) fn available_pod_goes(&mut self, set: &str, pod: &str) -> Result<(), Violation> {
        let Some(set) = self.replica_sets.get(set) else {
            return Ok(());
        };
        let Some(uid) = set.deployment.clone() else {
            return Ok(());
        };
        let Some(deployment) = self.deployments.get(&uid) else {
            return Ok(());
        };
        if deployment.disrupted {
            return Ok(());
        }
        let asked = set.versions.iter().map(|size| size.least);
        let limits = deployment.versions.iter().map(|limits| limits.least);
        let least = asked.chain(limits).min().unwrap_or(0);
        let available = self.available(&uid);
        match available < least {
            true => Err(Violation::new(format!(
                "{pod} was taken from {}: {available} are left available where {least} must be",
                deployment.name
            ))),
            false => Ok(()),
        }
    }

    /// A pod has become unready without a deletion.
    pub(super) fn disrupt_deployment(&mut self, set: &str) {
        let deployment = self
            .replica_sets
            .get(set)
            .and_then(|set| set.deployment.clone());
        if let Some(deployment) = deployment
            && let Some(deployment) = self.deployments.get_mut(&deployment)
        {
            deployment.disrupted = true;
        }
    }

    /// Availability is guaranteed again once enough pods are available.
    pub(super) fn recover(&mut self, uid: &str) {
        let available = self.available(uid);
        if let Some(deployment) = self.deployments.get_mut(uid)
            && deployment.disrupted
            && deployment
                .versions
                .iter()
                .all(|limits| available >= limits.replicas)
        {
            deployment.disrupted = false;
        }
    }

    fn available(&self, deployment: &str) -> i64 {
        let available = self.pods.values().filter(|pod| {
            let set = pod.replica_set.as_ref();
            pod.available
                && set
                    .and_then(|set| self.replica_sets.get(set))
                    .is_some_and(|set| set.deployment.as_deref() == Some(deployment))
        });
        available.count() as i64
    }

    fn limits(&self, deployment: Option<&str>) -> Vec<Limits> {
        deployment
            .and_then(|uid| self.deployments.get(uid))
            .map(|deployment| deployment.versions.iter().copied().collect())
            .unwrap_or_default()
    }

    fn sets_of(&self, deployment: Option<&str>) -> impl Iterator<Item = (&String, &ReplicaSet)> {
        self.replica_sets
            .iter()
            .filter(move |(_, set)| set.deployment.as_deref() == deployment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(replicas: i64, generation: i64, observed: i64) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": {"name": "web", "uid": "d", "generation": generation},
            "spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}},
            "status": {"observedGeneration": observed},
        })
    }

    fn set(name: &str, replicas: i64, generation: i64) -> Value {
        json!({
            "kind": "ReplicaSet",
            "metadata": {"name": name, "uid": name, "generation": generation,
                "ownerReferences": [{"kind": "Deployment", "uid": "d", "controller": true}]},
            "spec": {"replicas": replicas},
            "status": {"observedGeneration": generation},
        })
    }

    fn pod(name: &str, set: &str, ready: bool, going: bool) -> Value {
        let mut pod = json!({
            "kind": "Pod",
            "metadata": {"name": name, "uid": name,
                "ownerReferences": [{"kind": "ReplicaSet", "uid": set, "controller": true}]},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        });
        if going {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        pod
    }

    fn state(objects: &[Value]) -> State {
        let mut state = State::default();
        for object in objects {
            state.change(None, Some(object)).expect("a good beginning");
        }
        state
    }

    #[test]
    fn more_pods_than_max_surge_allows_are_a_violation() {
        let mut state = state(&[deployment(4, 1, 1), set("old", 4, 1)]);
        // maxSurge is a quarter of four, rounded up.
        state.change(None, Some(&set("new", 1, 1))).expect("within");
        let problem = state.change(None, Some(&set("new", 2, 2)));
        assert!(problem.unwrap_err().to_string().contains("6 in all"));
    }

    #[test]
    fn old_versions_are_allowed_until_the_controller_has_observed_a_new_one() {
        let mut state = state(&[deployment(4, 1, 1), set("only", 4, 1)]);
        state
            .change(None, Some(&deployment(2, 2, 1)))
            .expect("an edit");
        state
            .change(None, Some(&set("new", 1, 1)))
            .expect("the first version allows it");
        state
            .change(None, Some(&deployment(2, 2, 2)))
            .expect("observed");
        assert!(state.change(None, Some(&set("new", 2, 2))).is_err());
    }

    #[test]
    fn too_few_available_pods_are_a_violation_except_after_a_disruption() {
        let objects = [
            deployment(3, 1, 1),
            set("web", 3, 1),
            pod("a", "web", true, false),
            pod("b", "web", true, false),
            pod("c", "web", true, false),
        ];
        let mut calm = state(&objects);
        calm.change(None, Some(&pod("a", "web", true, true)))
            .expect("one may be missing");
        assert!(
            calm.change(None, Some(&pod("b", "web", true, true)))
                .is_err()
        );

        let mut struck = state(&objects);
        struck
            .change(None, Some(&pod("c", "web", false, false)))
            .expect("a node was lost");
        struck
            .change(None, Some(&pod("a", "web", true, true)))
            .expect("nothing is promised now");
    }

    #[test]
    fn more_pods_than_a_replica_set_wants_are_a_violation() {
        let mut state = state(&[
            deployment(1, 1, 1),
            set("web", 1, 1),
            pod("a", "web", true, false),
        ]);
        assert!(
            state
                .change(None, Some(&pod("b", "web", false, false)))
                .is_err()
        );
    }
}
