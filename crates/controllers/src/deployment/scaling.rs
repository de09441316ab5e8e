//! What happens to the sets when the wanted number changes: also in the middle of a rollout each
//! set keeps its share, so that a risk that was being taken slowly is not taken at once. Pure.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::annotations;
use super::observed::{Action, Observed, available, name, replicas, scale};
use super::rolling::Limits;
use crate::meta;

/// Whether some set was last scaled for another number than the one wanted now.
pub fn is_due(observed: &Observed<'_>) -> bool {
    let wanted = Limits::of(observed.deployment).wanted;
    observed
        .sets
        .iter()
        .filter(|set| replicas(set) > 0)
        .any(|set| annotations::desired(set).is_some_and(|desired| desired != wanted))
}

pub fn plan(observed: &Observed<'_>) -> Vec<Action> {
    let limits = Limits::of(observed.deployment);
    let new = observed.new_set();
    let old = observed.old_sets();
    let mut active: Vec<&Arc<ReplicaSet>> = old
        .iter()
        .copied()
        .chain(new)
        .filter(|set| replicas(set) > 0)
        .collect();
    match active.as_slice() {
        [] => {
            let latest = new.or_else(|| old.last().copied());
            return latest.map_or_else(Vec::new, |set| scale(set, limits.wanted));
        }
        [only] => return scale(only, limits.wanted),
        _ => {}
    }
    if new.is_some_and(|set| is_saturated(set, limits.wanted)) {
        return old.iter().flat_map(|set| scale(set, 0)).collect();
    }
    if limits.recreate {
        return Vec::new();
    }
    let allowed = if limits.wanted > 0 {
        limits.maximum()
    } else {
        0
    };
    let to_add = allowed - active.iter().map(|set| replicas(set)).sum::<i32>();
    // The biggest first; among equals newer ones gain first and older ones lose first.
    active.sort_by_key(|set| {
        let created = meta::created(&set.metadata);
        let age = if to_add > 0 { -created } else { created };
        (-replicas(set), age, name(set))
    });
    let mut added = 0;
    let mut sizes: Vec<i32> = Vec::new();
    for set in &active {
        let share = if to_add == 0 {
            0
        } else {
            share(observed.deployment, &limits, set, to_add, added)
        };
        added += share;
        sizes.push(replicas(set) + share);
    }
    // The remainder of rounding goes to the biggest.
    sizes[0] = (sizes[0] + to_add - added).max(0);
    active
        .iter()
        .zip(sizes)
        .filter(|(set, size)| {
            replicas(set) != *size
                || annotations::desired(set) != Some(limits.wanted)
                || annotations::maximum(set) != Some(limits.maximum())
        })
        .map(|(set, size)| Action::Scale {
            set: name(set),
            from: replicas(set),
            to: size,
        })
        .collect()
}

/// The new set has all pods it should ever have, and they are available.
fn is_saturated(set: &ReplicaSet, wanted: i32) -> bool {
    replicas(set) == wanted && annotations::desired(set) == Some(wanted) && available(set) == wanted
}

/// How many of `to_add` pods (negative: to take away) fall to one set.
fn share(
    deployment: &Deployment,
    limits: &Limits,
    set: &ReplicaSet,
    to_add: i32,
    added: i32,
) -> i32 {
    let room = to_add - added;
    if replicas(set) == 0 || room == 0 {
        return 0;
    }
    let fraction = fraction(deployment, limits, set);
    if to_add > 0 {
        fraction.min(room)
    } else {
        fraction.max(room)
    }
}

fn fraction(deployment: &Deployment, limits: &Limits, set: &ReplicaSet) -> i32 {
    if limits.wanted == 0 {
        return -replicas(set);
    }
    let before = annotations::maximum(set)
        .filter(|maximum| *maximum > 0)
        .or_else(|| deployment.status.as_ref()?.replicas)
        .unwrap_or(0);
    if before <= 0 {
        return 0;
    }
    let size = f64::from(replicas(set)) * f64::from(limits.maximum()) / f64::from(before);
    size.round() as i32 - replicas(set)
}
