//! ControllerRevisions: the snapshots of a template that a StatefulSet or DaemonSet can go back
//! to. What to do about them is planned here once for both; not a controller.

mod snapshot;

pub use snapshot::{Snapshot, template_of};

use std::sync::Arc;

use client::{Object, retry};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::Api;
use kube::api::PostParams;

use crate::owned_pods::of_uid;
use crate::{Error, meta};

/// The actions after which the newest revision is that of the current template.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// It is already.
    Keep(Arc<ControllerRevision>),
    /// An older one equals the current template: it becomes the newest.
    Renumber(Arc<ControllerRevision>, i64),
    Create(i64),
}

/// Sorts by revision, the oldest first.
pub fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by_key(|revision| {
        (
            revision.revision,
            meta::created(&revision.metadata),
            revision.metadata.name.clone(),
        )
    });
}

/// `revisions` are sorted.
pub fn step(revisions: &[Arc<ControllerRevision>], snapshot: &Snapshot) -> Step {
    let newest = revisions.last();
    let equal = revisions.iter().rev().find(|one| snapshot.equals(one));
    match (equal, newest) {
        (Some(equal), Some(newest)) if Arc::ptr_eq(equal, newest) || snapshot.equals(newest) => {
            Step::Keep(newest.clone())
        }
        (Some(equal), newest) => {
            Step::Renumber(equal.clone(), newest.map_or(0, |one| one.revision) + 1)
        }
        (None, newest) => Step::Create(newest.map_or(0, |one| one.revision) + 1),
    }
}

/// The oldest revisions beyond `limit` that neither `live` names.
pub fn surplus(
    revisions: &[Arc<ControllerRevision>],
    live: impl Fn(&ControllerRevision) -> bool,
    limit: i32,
) -> Vec<Arc<ControllerRevision>> {
    let dead: Vec<_> = revisions.iter().filter(|one| !live(one)).collect();
    let surplus = dead.len().saturating_sub(limit.max(0) as usize);
    dead.into_iter().take(surplus).cloned().collect()
}

/// Carries out a [`Step`]. A name that is taken by other content is a collision of hashes: the
/// count in `collisions` grows and the next name differs.
/// The label `hash_label` of a new revision carries the hash in its name.
pub async fn ensure_revision<Owner>(
    client: &kube::Client,
    owner: &Owner,
    hash_label: &str,
    snapshot: &Snapshot,
    step: Step,
    collisions: &mut i32,
) -> Result<Arc<ControllerRevision>, Error>
where
    Owner: Object + kube::Resource<Scope = NamespaceResourceScope>,
{
    let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
    let api: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    let number = match step {
        Step::Keep(revision) => return Ok(revision),
        Step::Renumber(revision, number) => {
            let mut updated = (*revision).clone();
            updated.revision = number;
            let name = revision.metadata.name.as_deref().unwrap_or_default();
            let updated = api.replace(name, &PostParams::default(), &updated).await?;
            return Ok(Arc::new(updated));
        }
        Step::Create(number) => number,
    };
    loop {
        let revision = snapshot.revision(owner, hash_label, number, *collisions);
        match api.create(&PostParams::default(), &revision).await {
            Ok(created) => return Ok(Arc::new(created)),
            Err(error) if retry::is_already_exists(&error) => {
                let name = revision.metadata.name.as_deref().unwrap_or_default();
                let existing = api.get(name).await?;
                // The cache was late, or an answer was lost.
                let uid = owner.meta().uid.as_deref().unwrap_or_default();
                if snapshot.equals(&existing)
                    && semantics::owner::is_controlled_by(&existing.metadata, uid)
                {
                    return Ok(Arc::new(existing));
                }
                *collisions += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

pub async fn forget(
    client: &kube::Client,
    revisions: Vec<Arc<ControllerRevision>>,
) -> Result<(), Error> {
    for revision in revisions {
        let namespace = revision.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
        let name = revision.metadata.name.as_deref().unwrap_or_default();
        let uid = revision.metadata.uid.as_deref().unwrap_or_default();
        match api.delete(name, &of_uid(uid)).await {
            Ok(_) => {}
            Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::StatefulSet;
    use k8s_openapi::api::core::v1::PodTemplateSpec;

    fn template(image: &str) -> PodTemplateSpec {
        serde_json::from_value(serde_json::json!({
            "metadata": {"labels": {"app": "db"}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }))
        .unwrap()
    }

    fn revision(image: &str, number: i64) -> Arc<ControllerRevision> {
        let owner = StatefulSet::default();
        let mut made = Snapshot::of(&template(image)).revision(&owner, "hash", number, 0);
        made.metadata.name = Some(format!("r{number}"));
        Arc::new(made)
    }

    #[test]
    fn a_template_is_kept_renumbered_or_made() {
        let revisions = [revision("v1", 1), revision("v2", 2)];
        let check = |image: &str, expected: Step| {
            assert_eq!(step(&revisions, &Snapshot::of(&template(image))), expected);
        };
        check("v2", Step::Keep(revisions[1].clone()));
        check("v1", Step::Renumber(revisions[0].clone(), 3));
        check("v3", Step::Create(3));
        assert_eq!(step(&[], &Snapshot::of(&template("v1"))), Step::Create(1));
    }

    #[test]
    fn a_revision_gives_back_the_template_it_was_made_of() {
        let restored = template_of(&revision("v1", 1)).unwrap();
        assert_eq!(restored, template("v1"));
    }

    #[test]
    fn the_oldest_unused_revisions_are_deleted_first() {
        let all: Vec<_> = (1..=5).map(|n| revision(&format!("v{n}"), n)).collect();
        let live = |one: &ControllerRevision| one.revision >= 4;
        let gone: Vec<i64> = surplus(&all, live, 1).iter().map(|r| r.revision).collect();
        assert_eq!(gone, [1, 2]);
    }

    #[test]
    fn collisions_change_the_name_and_nothing_else() {
        let owner = StatefulSet::default();
        let snapshot = Snapshot::of(&template("v1"));
        let (first, second) = (
            snapshot.revision(&owner, "hash", 1, 0),
            snapshot.revision(&owner, "hash", 1, 1),
        );
        assert_ne!(first.metadata.name, second.metadata.name);
        assert_eq!(first.data, second.data);
    }
}
