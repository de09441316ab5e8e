//! What to do with an object whose owners the API was asked about. Pure.

use super::node::{FOREGROUND, Node, ORPHAN};

/// Whether an owner exists and stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It exists and stays.
    Solid,
    /// It is being deleted and waits for its dependents.
    Waiting,
    /// It does not exist.
    Gone,
}

/// The action for an object whose owners have been looked at.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Keep,
    /// Other owners remain: only these references are stale.
    DropReferences(Vec<String>),
    Delete {
        propagation: Propagation,
        /// It is part of a circle: its owners must not wait for it any longer.
        unblock_owners: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The action for an object whose owners have these standings and that has these `dependents`
/// itself.
pub fn decide(finalizers: &[String], owners: &[(String, Standing)], dependents: &[Node]) -> Action {
    let with = |standing| {
        owners
            .iter()
            .filter(move |(_, found)| *found == standing)
            .map(|(uid, _)| uid.clone())
    };
    if owners.is_empty() {
        return Action::Keep;
    }
    if with(Standing::Solid).next().is_some() {
        let stale: Vec<String> = with(Standing::Gone)
            .chain(with(Standing::Waiting))
            .collect();
        return match stale.is_empty() {
            true => Action::Keep,
            false => Action::DropReferences(stale),
        };
    }
    if with(Standing::Waiting).next().is_some() && !dependents.is_empty() {
        return Action::Delete {
            propagation: Propagation::Foreground,
            unblock_owners: dependents.iter().any(Node::waits_for_dependents),
        };
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    Action::Delete {
        propagation: match () {
            () if has(ORPHAN) => Propagation::Orphan,
            () if has(FOREGROUND) => Propagation::Foreground,
            () => Propagation::Background,
        },
        unblock_owners: false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::fixtures::node;
    use super::*;

    fn owners(standings: &[Standing]) -> Vec<(String, Standing)> {
        let numbered = standings.iter().enumerate();
        numbered
            .map(|(index, standing)| (index.to_string(), *standing))
            .collect()
    }

    #[test]
    fn an_object_is_deleted_when_no_owner_remains() {
        use Standing::{Gone, Solid, Waiting};
        let delete = |propagation| Action::Delete {
            propagation,
            unblock_owners: false,
        };
        let leaf = |standings: &[Standing]| decide(&[], &owners(standings), &[]);
        assert_eq!(leaf(&[]), Action::Keep);
        assert_eq!(leaf(&[Solid]), Action::Keep);
        assert_eq!(
            leaf(&[Solid, Gone, Waiting]),
            Action::DropReferences(vec!["1".into(), "2".into()])
        );
        assert_eq!(leaf(&[Gone]), delete(Propagation::Background));
        assert_eq!(leaf(&[Waiting]), delete(Propagation::Background));
        let finalizers = [ORPHAN.to_string()];
        assert_eq!(
            decide(&finalizers, &owners(&[Gone]), &[]),
            delete(Propagation::Orphan)
        );
        let child = [node("child", &["x"], &[], false)];
        assert_eq!(
            decide(&[], &owners(&[Waiting]), &child),
            delete(Propagation::Foreground)
        );
        assert_eq!(
            decide(&[], &owners(&[Gone]), &child),
            delete(Propagation::Background)
        );
    }
}
