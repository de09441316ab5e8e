//! Adding and removing one finalizer of ours, on the version of the object we looked at.

use client::{Object, retry};
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;

use crate::Error;

/// What a protecting controller does about its finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Keep,
    Add,
    Remove,
}

/// A live object gets the finalizer; a terminating one loses it when nothing uses the object.
pub fn step<K: Object>(object: &K, finalizer: &str, in_use: bool) -> Step {
    let present = has(object, finalizer);
    let deleting = object.meta().deletion_timestamp.is_some();
    match (deleting, present) {
        (false, false) => Step::Add,
        (true, true) if !in_use => Step::Remove,
        _ => Step::Keep,
    }
}

pub fn has<K: Object>(object: &K, finalizer: &str) -> bool {
    let finalizers = object.meta().finalizers.iter().flatten();
    finalizers.into_iter().any(|name| name == finalizer)
}

/// Carries a step out; an object that is gone is fine.
pub async fn carry_out<K: Object + Serialize + std::fmt::Debug>(
    api: &Api<K>,
    object: &K,
    finalizer: &str,
    step: Step,
) -> Result<(), Error> {
    let mut updated = object.clone();
    let finalizers = updated.meta_mut().finalizers.get_or_insert_default();
    match step {
        Step::Keep => return Ok(()),
        Step::Add => finalizers.push(finalizer.to_string()),
        Step::Remove => finalizers.retain(|name| name != finalizer),
    }
    let name = object.meta().name.as_deref().unwrap_or_default();
    match api.replace(name, &PostParams::default(), &updated).await {
        Err(error) if !retry::is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolume;

    #[test]
    fn objects_get_the_finalizer_and_keep_it_while_in_use() {
        let object = |finalizers: &[&str], deleting: bool| -> PersistentVolume {
            let mut object = PersistentVolume::default();
            object.metadata.finalizers = Some(finalizers.iter().map(|f| f.to_string()).collect());
            object.metadata.deletion_timestamp = deleting.then_some(
                k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
            );
            object
        };
        assert_eq!(step(&object(&[], false), "f", true), Step::Add);
        assert_eq!(step(&object(&["f"], false), "f", false), Step::Keep);
        assert_eq!(step(&object(&["f"], true), "f", true), Step::Keep);
        assert_eq!(step(&object(&["f"], true), "f", false), Step::Remove);
        assert_eq!(step(&object(&["g"], true), "f", false), Step::Keep);
    }
}
