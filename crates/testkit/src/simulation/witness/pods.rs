//! Pods, by their controllers.

use serde_json::Value;

use super::{State, lives, owner, text};
use crate::simulation::violation::Violation;

pub struct Pod {
    pub name: String,
    pub replica_set: Option<String>,
    pub stateful_set: Option<String>,
    pub daemon_set: Option<String>,
    pub job: Option<(String, String)>,
    /// The node for which its DaemonSet created it.
    pub node: String,
    pub terminating: bool,
    pub ended: bool,
    pub succeeded: bool,
    /// Ready and not being deleted.
    pub available: bool,
    /// It is being deleted by something other than its controller.
    pub evicted: bool,
}

impl Pod {
    fn of(pod: &Value) -> Pod {
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
        let holds = |kind: &str| {
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| text(one, "/type") == kind && text(one, "/status") == "True")
        };
        let ready = holds("Ready");
        let phase = text(pod, "/status/phase");
        let index = pod
            .pointer("/metadata/annotations/batch.kubernetes.io~1job-completion-index")
            .and_then(Value::as_str);
        let ended = matches!(phase, "Succeeded" | "Failed");
        Pod {
            name: text(pod, "/metadata/name").to_owned(),
            replica_set: owner(pod, "ReplicaSet").map(str::to_owned),
            stateful_set: owner(pod, "StatefulSet").map(str::to_owned),
            daemon_set: owner(pod, "DaemonSet").map(str::to_owned),
            job: owner(pod, "Job")
                .zip(index)
                .map(|(job, index)| (job.to_owned(), index.to_owned())),
            node: node(pod).to_owned(),
            terminating: !lives(pod),
            ended,
            succeeded: phase == "Succeeded",
            available: ready && lives(pod) && !ended,
            evicted: holds("DisruptionTarget"),
        }
    }

    /// Whether it runs or will run, and is not being deleted.
    pub fn is_active(&self) -> bool {
        !self.terminating && !self.ended
    }
}

/// The node of a pod, or the node for which its DaemonSet created it.
fn node(pod: &Value) -> &str {
    match text(pod, "/spec/nodeName") {
        "" => text(
            pod,
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/\
             nodeSelectorTerms/0/matchFields/0/values/0",
        ),
        bound => bound,
    }
}

impl State {
    pub(super) fn pod_changed(
        &mut self,
        uid: String,
        new: Option<&Value>,
    ) -> Result<(), Violation> {
        let old = self.pods.remove(&uid);
        let Some(new) = new.map(Pod::of) else {
            return match old {
                Some(old) => self.pod_goes(&old),
                None => Ok(()),
            };
        };
        tracing::debug!(
            name = new.name,
            created = old.is_none(),
            available = new.available,
            terminating = new.terminating,
            ended = new.ended,
            "pod"
        );
        let (created, job) = (old.is_none(), new.job.clone());
        let succeeded = new.succeeded && !old.as_ref().is_some_and(|old| old.succeeded);
        let (is_going, is_unready) = match &old {
            Some(old) => (
                new.terminating && !old.terminating,
                old.available && !new.available && !new.terminating,
            ),
            None => (false, false),
        };
        let replica_set = new.replica_set.clone();
        let stateful_set = new.stateful_set.clone();
        self.pods.insert(uid.clone(), new);
        if is_unready {
            replica_set
                .iter()
                .for_each(|set| self.disrupt_deployment(set));
            stateful_set.iter().for_each(|set| self.disrupt_set(set));
        }
        let judged = match (created, old) {
            (true, _) => self.pod_comes(&uid),
            (false, Some(old)) if is_going => self.pod_goes(&old),
            _ => Ok(()),
        };
        if let Some(deployment) = replica_set
            .as_ref()
            .and_then(|set| self.replica_sets.get(set)?.deployment.clone())
        {
            self.recover(&deployment);
        }
        if let Some(set) = &stateful_set {
            self.recover_set(set);
        }
        judged?;
        match job {
            Some((job, index)) if succeeded => self.index_completes(&uid, &job, &index),
            _ => Ok(()),
        }
    }

    /// A pod was created.
    fn pod_comes(&self, uid: &str) -> Result<(), Violation> {
        let pod = &self.pods[uid];
        if let Some(set) = &pod.replica_set {
            self.check_number(set, &pod.name)?;
        }
        if let Some(set) = &pod.stateful_set {
            self.check_order(set, pod)?;
        }
        if let Some(set) = &pod.daemon_set {
            self.check_node(set, pod)?;
        }
        if let Some((job, index)) = &pod.job {
            self.check_index(uid, job, index)?;
        }
        Ok(())
    }

    /// A pod's deletion was requested, or it was deleted at once.
    fn pod_goes(&mut self, old: &Pod) -> Result<(), Violation> {
        if old.terminating {
            return Ok(());
        }
        if let Some(set) = &old.stateful_set
            && !old.evicted
        {
            self.check_departure(set, &old.name)?;
        }
        match &old.replica_set {
            Some(set) if old.available => self.available_pod_goes(&set.clone(), &old.name),
            _ => Ok(()),
        }
    }

    fn check_number(&self, set: &str, name: &str) -> Result<(), Violation> {
        let Some(asked) = self.replica_sets.get(set) else {
            return Ok(());
        };
        let most = asked.versions.iter().map(|size| size.replicas).max();
        let most = most.unwrap_or(0);
        let active = self
            .pods
            .values()
            .filter(|pod| pod.is_active() && pod.replica_set.as_deref() == Some(set))
            .count() as i64;
        match active > most {
            true => Err(Violation::new(format!(
                "{name} is one too many: {} has {active} pods and asked for {most}",
                asked.name
            ))),
            false => Ok(()),
        }
    }
}
