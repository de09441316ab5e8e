//! What to do next with a Deployment's ReplicaSets. Pure.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::annotations::{self, REVISION, revision};
use super::observed::{Action, Observed, available, name, replicas, scale};
use super::rolling::Limits;
use super::{scaling, status};
use crate::meta;

pub fn plan(observed: &Observed<'_>) -> Vec<Action> {
    let deployment = observed.deployment;
    let limits = Limits::of(deployment);
    let old = observed.old_sets();
    let newest_revision = old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
    let paused = deployment
        .spec
        .as_ref()
        .is_some_and(|spec| spec.paused == Some(true));
    let mut actions = observed
        .new_set()
        .map(|set| keep_current(deployment, set, newest_revision))
        .unwrap_or_default();
    if paused || scaling::is_due(observed) {
        actions.extend(scaling::plan(observed));
        if paused {
            actions.extend(forget_surplus(deployment, &old));
        }
        return actions;
    }
    let rollout = match observed.new_set() {
        Some(new) if limits.recreate => recreate(observed, &limits, new, &old),
        Some(new) => roll(&limits, new, &old),
        None if limits.recreate
            && (observed.old_pods_exist || old.iter().any(|set| !is_empty(set))) =>
        {
            scale_all_to_zero(&old)
        }
        None => {
            let replicas = if limits.recreate {
                limits.wanted
            } else {
                room_for_new(&limits, sum(&old), 0)
            };
            vec![Action::Create {
                replicas,
                revision: newest_revision,
            }]
        }
    };
    // Until the new pods serve, the former sets are the way back.
    let settled = rollout.is_empty() && sum(&old) == 0 && status::is_complete(deployment);
    actions.extend(rollout);
    if settled {
        actions.extend(forget_surplus(deployment, &old));
    }
    actions
}

/// Annotations, revision and readiness rule of the current set, and the revision on the Deployment.
fn keep_current(deployment: &Deployment, new: &ReplicaSet, newest_revision: i64) -> Vec<Action> {
    let mut actions = Vec::new();
    let missing = annotations::missing_on(deployment, new, newest_revision);
    let wanted = deployment.spec.as_ref();
    let wanted = wanted.and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let present = new.spec.as_ref();
    let present = present.and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    if !missing.is_empty() || wanted != present {
        actions.push(Action::Refresh {
            set: name(new),
            annotations: missing,
            min_ready_seconds: wanted,
        });
    }
    let current = revision(new).max(newest_revision);
    let recorded = meta::annotation(&deployment.metadata, REVISION);
    if recorded != Some(&current.to_string()) {
        actions.push(Action::RecordRevision { revision: current });
    }
    actions
}

/// Old sets go to nothing, their pods end, then the new set grows.
fn recreate(
    observed: &Observed<'_>,
    limits: &Limits,
    new: &ReplicaSet,
    old: &[&Arc<ReplicaSet>],
) -> Vec<Action> {
    if sum(old) > 0 {
        scale_all_to_zero(old)
    } else if observed.old_pods_exist || old.iter().any(|set| !is_empty(set)) {
        Vec::new()
    } else {
        scale(new, limits.wanted)
    }
}

/// One step of a rolling update: first the new set grows into the room there is, then the old ones
/// shrink as far as availability allows.
fn roll(limits: &Limits, new: &ReplicaSet, old: &[&Arc<ReplicaSet>]) -> Vec<Action> {
    let size = replicas(new);
    if size > limits.wanted {
        return scale(new, limits.wanted);
    }
    let grown = (size + room_for_new(limits, sum(old), size)).min(limits.wanted);
    if grown > size {
        return scale(new, grown);
    }
    let old_total = sum(old);
    if old_total == 0 {
        return Vec::new();
    }
    let new_unavailable = size - available(new);
    let mut removable = size + old_total - limits.minimum_available() - new_unavailable;
    if removable <= 0 {
        return Vec::new();
    }
    let mut targets: Vec<(&Arc<ReplicaSet>, i32)> =
        old.iter().map(|set| (*set, replicas(set))).collect();
    // Pods that are not available are deleted first.
    for (set, target) in &mut targets {
        let unhealthy = (*target - available(set)).clamp(0, removable);
        *target -= unhealthy;
        removable -= unhealthy;
    }
    let available_total: i32 = available(new) + old.iter().map(|set| available(set)).sum::<i32>();
    let mut spare = (available_total - limits.minimum_available()).min(removable);
    for (_, target) in &mut targets {
        let step = (*target).min(spare).max(0);
        *target -= step;
        spare -= step;
    }
    targets
        .into_iter()
        .flat_map(|(set, target)| scale(set, target))
        .collect()
}

/// How many pods the new set may have beyond `size` while the old ones hold `old_total`.
fn room_for_new(limits: &Limits, old_total: i32, size: i32) -> i32 {
    let room = limits.maximum() - old_total - size;
    room.clamp(0, (limits.wanted - size).max(0))
}

fn scale_all_to_zero(sets: &[&Arc<ReplicaSet>]) -> Vec<Action> {
    sets.iter().flat_map(|set| scale(set, 0)).collect()
}

/// Sets beyond the history limit, the oldest first; one that still has pods stays.
fn forget_surplus(deployment: &Deployment, old: &[&Arc<ReplicaSet>]) -> Vec<Action> {
    let limit = deployment.spec.as_ref();
    let limit = limit
        .and_then(|spec| spec.revision_history_limit)
        .unwrap_or(10);
    let mut alive: Vec<&&Arc<ReplicaSet>> = old
        .iter()
        .filter(|set| set.metadata.deletion_timestamp.is_none())
        .collect();
    alive.sort_by_key(|set| revision(set));
    let surplus = alive.len().saturating_sub(limit.max(0) as usize);
    alive
        .into_iter()
        .take(surplus)
        .filter(|set| is_empty(set))
        .map(|set| Action::Forget { set: name(set) })
        .collect()
}

/// Whether the set wants no pods, and its controller says that it has none: our own look at pods
/// may not show those that it has just made.
fn is_empty(set: &ReplicaSet) -> bool {
    let status = set.status.clone().unwrap_or_default();
    replicas(set) == 0
        && status.replicas == 0
        && status.observed_generation >= set.metadata.generation
}

fn sum(sets: &[&Arc<ReplicaSet>]) -> i32 {
    sets.iter().map(|set| replicas(set)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(replicas: i32, image: &str, strategy: serde_json::Value) -> Deployment {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "annotations": {REVISION: "2"}},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "strategy": strategy,
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": image}]},
                },
            },
        }))
        .unwrap()
    }

    fn set(name: &str, image: &str, size: i32, available: i32, revision: i64) -> Arc<ReplicaSet> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "uid": name, "annotations": {REVISION: revision.to_string()}},
                "spec": {
                    "replicas": size, "selector": {},
                    "template": {
                        "metadata": {"labels": {"app": "web", "pod-template-hash": name}},
                        "spec": {"containers": [{"name": "c", "image": image}]},
                    },
                },
                "status": {"replicas": size, "availableReplicas": available},
            }))
            .unwrap(),
        )
    }

    fn check(
        deployment: &Deployment,
        sets: &[Arc<ReplicaSet>],
        old_pods: bool,
        expected: &[Action],
    ) {
        let observed = Observed {
            deployment,
            sets,
            old_pods_exist: old_pods,
        };
        assert_eq!(plan(&observed), expected);
    }

    fn scaled(set: &str, from: i32, to: i32) -> Action {
        Action::Scale {
            set: set.to_string(),
            from,
            to,
        }
    }

    #[test]
    fn a_new_deployment_makes_its_set() {
        let wanted = deployment(3, "v1", serde_json::json!({}));
        check(
            &wanted,
            &[],
            false,
            &[Action::Create {
                replicas: 3,
                revision: 1,
            }],
        );
    }

    #[test]
    fn a_rolling_update_keeps_within_surge_and_availability() {
        let strategy = serde_json::json!({"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
        let wanted = deployment(3, "v2", strategy);
        let old = |size, available| set("old", "v1", size, available, 1);
        let new = |size, available| set("new", "v2", size, available, 2);
        check(
            &wanted,
            &[old(3, 3)],
            true,
            &[Action::Create {
                replicas: 1,
                revision: 2,
            }],
        );
        check(&wanted, &[old(3, 3), new(1, 0)], true, &[]);
        check(
            &wanted,
            &[old(3, 3), new(1, 1)],
            true,
            &[scaled("old", 3, 2)],
        );
        check(
            &wanted,
            &[old(2, 2), new(1, 1)],
            true,
            &[scaled("new", 1, 2)],
        );
        check(&wanted, &[old(0, 0), new(3, 3)], false, &[]);
        // An old pod that is not available is replaced at once; it served no requests.
        check(
            &wanted,
            &[old(3, 2), new(1, 1)],
            true,
            &[scaled("old", 3, 2)],
        );
    }

    #[test]
    fn recreate_waits_for_the_old_pods() {
        let wanted = deployment(2, "v2", serde_json::json!({"type": "Recreate"}));
        let old = |size| set("old", "v1", size, size, 1);
        check(&wanted, &[old(2)], true, &[scaled("old", 2, 0)]);
        check(&wanted, &[old(0)], true, &[]);
        check(
            &wanted,
            &[old(0)],
            false,
            &[Action::Create {
                replicas: 2,
                revision: 2,
            }],
        );
    }

    #[test]
    fn a_rollback_gives_the_former_set_the_newest_revision() {
        let wanted = deployment(1, "v1", serde_json::json!({}));
        let sets = [set("first", "v1", 0, 0, 1), set("second", "v2", 1, 1, 2)];
        let observed = Observed {
            deployment: &wanted,
            sets: &sets,
            old_pods_exist: true,
        };
        let actions = plan(&observed);
        let Action::Refresh {
            set, annotations, ..
        } = &actions[0]
        else {
            panic!("{actions:?}");
        };
        assert_eq!(set, "first");
        assert_eq!(annotations[REVISION], "3");
        assert_eq!(
            annotations["deployment.kubernetes.io/revision-history"],
            "1"
        );
        assert_eq!(actions[1], Action::RecordRevision { revision: 3 });
        assert_eq!(actions[2], scaled("first", 0, 1));
    }

    #[test]
    fn old_sets_beyond_the_history_limit_are_forgotten() {
        let mut wanted = deployment(1, "v9", serde_json::json!({}));
        wanted.spec.as_mut().unwrap().revision_history_limit = Some(1);
        let sets = [
            set("a", "v1", 0, 0, 1),
            set("b", "v2", 0, 0, 0),
            set("new", "v9", 1, 1, 2),
        ];
        check(&wanted, &sets, false, &[]);
        // Only when the rollout is through.
        wanted.status = Some(k8s_openapi::api::apps::v1::DeploymentStatus {
            replicas: Some(1),
            updated_replicas: Some(1),
            available_replicas: Some(1),
            ..Default::default()
        });
        check(&wanted, &sets, false, &[Action::Forget { set: "b".into() }]);
    }

    #[test]
    fn scaling_follows_the_wanted_number() {
        let wanted = deployment(5, "v1", serde_json::json!({}));
        check(
            &wanted,
            &[set("new", "v1", 2, 2, 2)],
            false,
            &[scaled("new", 2, 5)],
        );
        let wanted = deployment(1, "v1", serde_json::json!({}));
        check(
            &wanted,
            &[set("new", "v1", 4, 4, 2)],
            false,
            &[scaled("new", 4, 1)],
        );
    }
}
