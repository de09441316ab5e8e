//! A Deployment with its ReplicaSets as the controller sees them, and the actions it can take.
//! Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::template;
use crate::meta;

/// One Deployment as the controller sees it.
pub struct Observed<'a> {
    pub deployment: &'a Deployment,
    /// The sets this Deployment controls.
    pub sets: &'a [Arc<ReplicaSet>],
    /// Pods of former templates that have not ended.
    pub old_pods_exist: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Make the set of the current template.
    Create {
        replicas: i32,
        revision: i64,
    },
    /// Also writes the sizes the scaling was made for; `from` and `to` may then be equal.
    Scale {
        set: String,
        from: i32,
        to: i32,
    },
    /// The set of the current template lacks something the Deployment says about it.
    Refresh {
        set: String,
        annotations: BTreeMap<String, String>,
        min_ready_seconds: i32,
    },
    RecordRevision {
        revision: i64,
    },
    /// Remove a set beyond the history limit.
    Forget {
        set: String,
    },
}

impl<'a> Observed<'a> {
    /// The set of the current template; of several, the oldest.
    pub fn new_set(&self) -> Option<&'a Arc<ReplicaSet>> {
        self.sets
            .iter()
            .filter(|set| template::same(self.deployment, set))
            .min_by_key(|set| age_key(set))
    }

    /// All others, the oldest first.
    pub fn old_sets(&self) -> Vec<&'a Arc<ReplicaSet>> {
        let new = self.new_set().map(|set| &set.metadata.uid);
        let mut old: Vec<&Arc<ReplicaSet>> = self
            .sets
            .iter()
            .filter(|set| Some(&set.metadata.uid) != new)
            .collect();
        old.sort_by_key(|set| age_key(set));
        old
    }
}

/// The wanted number of pods of the set.
pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

/// How many pods of the set are available and will stay: those beyond its size are about to go,
/// also when its status does not say so yet.
pub fn available(set: &ReplicaSet) -> i32 {
    set.status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0)
        .min(replicas(set))
}

/// The action that gives the set another size, if it has another.
pub fn scale(set: &ReplicaSet, to: i32) -> Vec<Action> {
    let from = replicas(set);
    if from == to {
        return Vec::new();
    }
    vec![Action::Scale {
        set: name(set),
        from,
        to,
    }]
}

pub fn name(set: &ReplicaSet) -> String {
    set.metadata.name.clone().unwrap_or_default()
}

fn age_key(set: &ReplicaSet) -> (i64, String) {
    (meta::created(&set.metadata), name(set))
}
