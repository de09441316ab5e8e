//! Who owns a claim, and so with whom it goes: `persistentVolumeClaimRetentionPolicy`. Pure.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::identity;
use crate::meta;

/// Whether claims go when the set is deleted, and when their pod is scaled away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    delete_with_set: bool,
    delete_when_scaled: bool,
}

impl Policy {
    fn of(set: &StatefulSet) -> Policy {
        let policy = set.spec.as_ref();
        let policy = policy.and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
        let deletes = |value: Option<&String>| value.is_some_and(|value| value == "Delete");
        Policy {
            delete_with_set: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
            delete_when_scaled: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
        }
    }
}

/// The claim's owners as the policy wants them, when they are not so already.
pub fn corrected_owners(
    set: &StatefulSet,
    pod: &Pod,
    claim: &PersistentVolumeClaim,
) -> Option<Vec<OwnerReference>> {
    let owners = claim.metadata.owner_references.clone().unwrap_or_default();
    if is_stale(&owners, "StatefulSet", &set.metadata) || is_stale(&owners, "Pod", &pod.metadata) {
        // It belongs to a predecessor of the same name and will be collected with it.
        return None;
    }
    let mut wanted: Vec<OwnerReference> = owners
        .iter()
        .filter(|owner| !refers(owner, "StatefulSet", &set.metadata))
        .filter(|owner| !refers(owner, "Pod", &pod.metadata))
        .cloned()
        .collect();
    let policy = Policy::of(set);
    let retains_all = !policy.delete_with_set && !policy.delete_when_scaled;
    let foreign = wanted.iter().any(|owner| owner.controller == Some(true));
    if !foreign && !retains_all {
        let scaled_down =
            identity::ordinal(set, pod).is_none_or(|ordinal| !identity::is_wanted(set, ordinal));
        if scaled_down && policy.delete_when_scaled {
            wanted.push(meta::owner_reference(pod));
        } else if policy.delete_with_set {
            wanted.push(meta::owner_reference(set));
        }
    }
    let key = |owner: &OwnerReference| (owner.uid.clone(), owner.controller);
    let mut before: Vec<_> = owners.iter().map(key).collect();
    let mut after: Vec<_> = wanted.iter().map(key).collect();
    before.sort();
    after.sort();
    (before != after).then_some(wanted)
}

/// Whether a claim still belongs to a former pod of this name: the new one must wait until it is
/// collected, or it would lose its volume right after starting.
pub fn belongs_to_former_pod(set: &StatefulSet, pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let owners = claim.metadata.owner_references.clone().unwrap_or_default();
    Policy::of(set).delete_when_scaled && is_stale(&owners, "Pod", &pod.metadata)
}

fn refers(
    owner: &OwnerReference,
    kind: &str,
    object: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> bool {
    owner.kind == kind && Some(&owner.name) == object.name.as_ref()
}

fn is_stale(
    owners: &[OwnerReference],
    kind: &str,
    object: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> bool {
    owners
        .iter()
        .find(|owner| refers(owner, kind, object))
        .is_some_and(|owner| Some(&owner.uid) != object.uid.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(deleted: &str, scaled: &str) -> StatefulSet {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "db", "uid": "set"},
            "spec": {
                "replicas": 2, "selector": {}, "serviceName": "db", "template": {},
                "persistentVolumeClaimRetentionPolicy":
                    {"whenDeleted": deleted, "whenScaled": scaled},
            },
        }))
        .unwrap()
    }

    fn pod(ordinal: i32) -> Pod {
        let name = format!("db-{ordinal}");
        serde_json::from_value(serde_json::json!({"metadata": {"name": name, "uid": name}}))
            .unwrap()
    }

    fn claim(owners: &[(&str, &str, &str)]) -> PersistentVolumeClaim {
        let owners: Vec<_> = owners
            .iter()
            .map(|(kind, name, uid)| {
                serde_json::json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid,
                    "controller": true, "blockOwnerDeletion": true})
            })
            .collect();
        serde_json::from_value(serde_json::json!({"metadata": {"ownerReferences": owners}}))
            .unwrap()
    }

    #[test]
    fn owners_follow_the_policy_and_the_scale() {
        let (none, by_set) = (claim(&[]), claim(&[("StatefulSet", "db", "set")]));
        let by_pod = claim(&[("Pod", "db-5", "db-5")]);
        for (deleted, scaled, ordinal, before, expected) in [
            ("Retain", "Retain", 0, &none, None),
            ("Retain", "Retain", 0, &by_set, Some(vec![])),
            ("Delete", "Retain", 0, &none, Some(vec!["set"])),
            ("Delete", "Retain", 0, &by_set, None),
            ("Delete", "Retain", 5, &none, Some(vec!["set"])),
            ("Retain", "Delete", 0, &none, None),
            ("Retain", "Delete", 5, &none, Some(vec!["db-5"])),
            ("Retain", "Delete", 5, &by_pod, None),
            ("Delete", "Delete", 0, &none, Some(vec!["set"])),
            ("Delete", "Delete", 5, &by_set, Some(vec!["db-5"])),
        ] {
            let corrected = corrected_owners(&set(deleted, scaled), &pod(ordinal), before);
            let uids = corrected.map(|owners| {
                let uids = owners.into_iter().map(|owner| owner.uid);
                uids.collect::<Vec<_>>()
            });
            let expected = expected.map(|uids| {
                let uids = uids.into_iter().map(str::to_owned);
                uids.collect::<Vec<_>>()
            });
            assert_eq!(uids, expected, "{deleted} {scaled} {ordinal}");
        }
    }

    #[test]
    fn another_controller_of_the_claim_is_left_alone() {
        let foreign = claim(&[("Backup", "nightly", "b")]);
        assert_eq!(
            corrected_owners(&set("Delete", "Delete"), &pod(0), &foreign),
            None
        );
    }

    #[test]
    fn a_claim_of_a_former_pod_is_waited_for() {
        let former = claim(&[("Pod", "db-0", "older")]);
        assert!(belongs_to_former_pod(
            &set("Retain", "Delete"),
            &pod(0),
            &former
        ));
        assert!(!belongs_to_former_pod(
            &set("Retain", "Retain"),
            &pod(0),
            &former
        ));
        assert_eq!(
            corrected_owners(&set("Retain", "Delete"), &pod(0), &former),
            None
        );
    }
}
