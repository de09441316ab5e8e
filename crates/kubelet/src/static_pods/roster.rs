//! The static pods that this node runs. A manifest that changes is a new pod of the same name: it
//! waits until its predecessor has ended. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use super::{Key, key};

#[derive(Default)]
pub struct Roster {
    entries: BTreeMap<Key, StaticPod>,
}

struct StaticPod {
    /// The one that runs or is ending.
    current: Arc<Pod>,
    /// The pod of the manifest now; `None` once the manifest is gone.
    wanted: Option<Arc<Pod>>,
    /// The current one was ended, and does not come back even if it is wanted again: it is
    /// started anew as its own successor.
    stopping: bool,
}

/// The static pods to end and to start after a change.
#[derive(Debug, Default, PartialEq)]
pub struct Moves {
    pub start: Vec<Arc<Pod>>,
    pub stop: Vec<Arc<Pod>>,
}

impl Roster {
    /// The manifests are now these.
    pub fn follow(&mut self, listed: &[Arc<Pod>]) -> Moves {
        let mut moves = Moves::default();
        let mut listed: BTreeMap<Key, Arc<Pod>> =
            listed.iter().map(|pod| (key(pod), pod.clone())).collect();
        for (key, entry) in &mut self.entries {
            entry.wanted = listed.remove(key);
            if !entry.stopping && !entry.is_wanted() {
                entry.stopping = true;
                moves.stop.push(entry.current.clone());
            }
        }
        for (key, pod) in listed {
            moves.start.push(pod.clone());
            let entry = StaticPod {
                current: pod.clone(),
                wanted: Some(pod),
                stopping: false,
            };
            self.entries.insert(key, entry);
        }
        moves
    }

    /// The pod of that UID is no more on this node: its successor, should there be one.
    pub fn ended(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let (key, entry) = self
            .entries
            .iter_mut()
            .find(|(_, entry)| entry.current.metadata.uid.as_deref() == Some(uid))?;
        if !entry.stopping {
            return None;
        }
        match entry.wanted.clone() {
            Some(next) => {
                entry.current = next.clone();
                entry.stopping = false;
                Some(next)
            }
            None => {
                let key = key.clone();
                self.entries.remove(&key);
                None
            }
        }
    }

    /// The pod that runs, or is ending, under that name.
    pub fn current(&self, key: &Key) -> Option<&Arc<Pod>> {
        self.entries.get(key).map(|entry| &entry.current)
    }
}

impl StaticPod {
    fn is_wanted(&self) -> bool {
        self.wanted
            .as_ref()
            .is_some_and(|wanted| wanted.metadata.uid == self.current.metadata.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn pod(name: &str, uid: &str) -> Arc<Pod> {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        Arc::new(Pod {
            metadata,
            ..Pod::default()
        })
    }

    #[test]
    fn a_successor_waits_for_its_predecessor() {
        let mut roster = Roster::default();
        let (first, second) = (pod("a", "1"), pod("a", "2"));
        let moves = roster.follow(std::slice::from_ref(&first));
        assert_eq!((moves.start, moves.stop), (vec![first.clone()], vec![]));
        let moves = roster.follow(std::slice::from_ref(&second));
        assert_eq!((moves.start, moves.stop), (vec![], vec![first.clone()]));
        assert_eq!(
            roster.follow(std::slice::from_ref(&second)),
            Moves::default()
        );
        assert_eq!(roster.ended("1"), Some(second.clone()));
        assert_eq!(
            roster.ended("2"),
            None,
            "it ended by itself and stays known"
        );
        assert_eq!(roster.current(&key(&second)), Some(&second));
        assert_eq!(roster.follow(&[]).stop, std::slice::from_ref(&second));
        assert_eq!(roster.ended("2"), None);
        assert_eq!(roster.current(&key(&second)), None);
    }

    #[test]
    fn a_manifest_removed_and_restored_while_its_pod_ends_runs_again() {
        let mut roster = Roster::default();
        let only = pod("a", "1");
        let listed = std::slice::from_ref(&only);
        assert_eq!(roster.follow(listed).start, listed);
        assert_eq!(roster.follow(&[]).stop, listed);
        assert_eq!(roster.follow(listed), Moves::default(), "it still ends");
        assert_eq!(roster.ended("1"), Some(only.clone()));
        assert_eq!(roster.ended("1"), None, "it runs, and was not ended");
        assert_eq!(
            roster.follow(&[]).stop,
            listed,
            "and can be taken away again"
        );
    }
}
