//! Which owner controls an object.
//!
//! Upstream decides in `GetControllerOf` and `IsControlledBy`
//! (`k8s.io/apimachinery/pkg/apis/meta/v1`): the first owner reference with `controller: true`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The owner that controls the object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// Whether the object with `uid` controls this one.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_controlling_reference_decides() {
        let owner = |uid: &str, controller: Option<bool>| OwnerReference {
            uid: uid.to_owned(),
            controller,
            ..OwnerReference::default()
        };
        let meta = ObjectMeta {
            owner_references: Some(vec![
                owner("a", None),
                owner("b", Some(false)),
                owner("c", Some(true)),
                owner("d", Some(true)),
            ]),
            ..ObjectMeta::default()
        };
        assert_eq!(controller_of(&meta).map(|owner| &*owner.uid), Some("c"));
        assert!(is_controlled_by(&meta, "c"));
        assert!(!is_controlled_by(&meta, "d"));
        assert!(controller_of(&ObjectMeta::default()).is_none());
    }
}
