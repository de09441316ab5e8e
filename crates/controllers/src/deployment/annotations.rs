//! The annotations that a Deployment writes on its ReplicaSets: its own, the revision, the former
//! revisions, and the sizes by which a later scaling keeps proportions. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::rolling::Limits;
use crate::meta;

pub const REVISION: &str = "deployment.kubernetes.io/revision";
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
const LONGEST_HISTORY: usize = 2000;

/// Annotations of a Deployment that say nothing about its sets.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAXIMUM,
];

pub fn revision(set: &ReplicaSet) -> i64 {
    number(set, REVISION).unwrap_or(0)
}

/// The wanted number of pods when the set was last scaled.
pub fn desired(set: &ReplicaSet) -> Option<i32> {
    number(set, DESIRED)
}

/// How many pods all sets might have had when this one was last scaled.
pub fn maximum(set: &ReplicaSet) -> Option<i32> {
    number(set, MAXIMUM)
}

/// The annotations that a new set begins with.
pub fn of_new_set(deployment: &Deployment, revision: i64) -> BTreeMap<String, String> {
    let mut annotations = inherited(deployment);
    annotations.extend(sizes(deployment));
    annotations.insert(REVISION.to_string(), revision.to_string());
    annotations
}

pub fn sizes(deployment: &Deployment) -> BTreeMap<String, String> {
    let limits = Limits::of(deployment);
    [
        (DESIRED.to_string(), limits.wanted.to_string()),
        (MAXIMUM.to_string(), limits.maximum().to_string()),
    ]
    .into()
}

/// The annotations to be written on the set of the current template; none when it is up to date. A
/// set that becomes current again gets the newest revision and remembers the one it had.
pub fn missing_on(
    deployment: &Deployment,
    set: &ReplicaSet,
    newest_revision: i64,
) -> BTreeMap<String, String> {
    let mut missing: BTreeMap<String, String> = inherited(deployment)
        .into_iter()
        .filter(|(name, value)| meta::annotation(&set.metadata, name) != Some(value))
        .collect();
    let former = revision(set);
    if former < newest_revision {
        missing.insert(REVISION.to_string(), newest_revision.to_string());
        if former > 0 {
            let history = meta::annotation(&set.metadata, REVISION_HISTORY);
            let history = appended(history.unwrap_or_default(), former);
            missing.insert(REVISION_HISTORY.to_string(), history);
        }
    }
    missing
}

fn inherited(deployment: &Deployment) -> BTreeMap<String, String> {
    let annotations = deployment.metadata.annotations.clone().unwrap_or_default();
    annotations
        .into_iter()
        .filter(|(name, _)| !OWN.contains(&name.as_str()))
        .collect()
}

/// The oldest entries give way when it would become too long.
fn appended(history: &str, revision: i64) -> String {
    let revision = revision.to_string();
    let mut entries: Vec<&str> = history
        .split(',')
        .filter(|entry| !entry.is_empty())
        .collect();
    entries.push(&revision);
    while entries.len() > 1 && entries.join(",").len() > LONGEST_HISTORY {
        entries.remove(0);
    }
    entries.join(",")
}

fn number<T: std::str::FromStr>(set: &ReplicaSet, name: &str) -> Option<T> {
    meta::annotation(&set.metadata, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_becomes_current_again_remembers_its_former_revisions() {
        let deployment: Deployment = serde_json::from_value(serde_json::json!({
            "metadata": {"annotations": {"team": "sea", REVISION: "7"}},
        }))
        .unwrap();
        let set: ReplicaSet = serde_json::from_value(serde_json::json!({
            "metadata": {"annotations": {REVISION: "3", REVISION_HISTORY: "1"}},
        }))
        .unwrap();
        let missing = missing_on(&deployment, &set, 8);
        assert_eq!(missing[REVISION], "8");
        assert_eq!(missing[REVISION_HISTORY], "1,3");
        assert_eq!(missing["team"], "sea");
        assert_eq!(missing.len(), 3);
    }

    #[test]
    fn a_long_history_loses_its_oldest_entries() {
        let mut history = String::new();
        for revision in 1..1000 {
            history = appended(&history, revision);
        }
        assert!(history.len() <= LONGEST_HISTORY);
        assert!(history.ends_with(",999"));
    }
}
