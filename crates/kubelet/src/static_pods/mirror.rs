//! Mirror pods: what the API shows of the static pods of this node. One task per name makes the
//! mirror, makes it again when somebody deletes it or the manifest changes, and removes it when
//! the static pod is no more.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api,
    api::{DeleteParams, PostParams, Preconditions},
};
use tokio::{sync::watch, task::JoinSet};

use super::{HASH, Key, key};
use crate::{node_object::NodeObject, pod_spec::annotation};

const MIRROR: &str = "kubernetes.io/config.mirror";
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);

pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// The static pod of a name and its mirror, as far as there are any.
#[derive(Clone, Default)]
struct Pair {
    of: Option<Arc<Pod>>,
    mirror: Option<Arc<Pod>>,
}

/// The next step for a static pod and its mirror.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Create,
    Delete,
    End,
}

impl Pair {
    fn step(&self) -> Step {
        match (&self.of, &self.mirror) {
            (None, None) => Step::End,
            (Some(_), None) => Step::Create,
            (Some(of), Some(mirror))
                if annotation(mirror, MIRROR) == annotation(of, HASH)
                    && mirror.metadata.deletion_timestamp.is_none() =>
            {
                Step::Nothing
            }
            (_, Some(_)) => Step::Delete,
        }
    }
}

/// The API as far as creating and deleting mirror pods needs it.
#[derive(Clone)]
struct MirrorApi {
    client: kube::Client,
    node_object: NodeObject,
}

/// The mirrors of this node.
pub struct Mirrors {
    api: MirrorApi,
    pairs: BTreeMap<Key, watch::Sender<Pair>>,
    tasks: JoinSet<Key>,
}

impl Mirrors {
    pub fn new(client: kube::Client, node_object: NodeObject) -> Mirrors {
        Mirrors {
            api: MirrorApi {
                client,
                node_object,
            },
            pairs: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// The static pod that is to be shown.
    pub fn show(&mut self, pod: Arc<Pod>) {
        self.change(key(&pod), |pair| pair.of = Some(pod));
    }

    /// The static pod of that name is no more on this node.
    pub fn hide(&mut self, key: Key) {
        self.change(key, |pair| pair.of = None);
    }

    /// The API has this mirror now, or none.
    pub fn found(&mut self, key: Key, mirror: Option<Arc<Pod>>) {
        self.change(key, |pair| pair.mirror = mirror);
    }

    pub fn of(&self, key: &Key) -> Option<Arc<Pod>> {
        self.pairs.get(key)?.borrow().mirror.clone()
    }

    /// Forgets names that nothing is left of. Never ends while there are tasks; cancel safe.
    pub async fn tidy(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(key)) => {
                let over = |sender: &watch::Sender<Pair>| sender.borrow().step() == Step::End;
                if self.pairs.get(&key).is_some_and(over) {
                    self.pairs.remove(&key);
                }
            }
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }

    fn change(&mut self, key: Key, change: impl FnOnce(&mut Pair)) {
        let sender = self.pairs.entry(key.clone()).or_default();
        sender.send_modify(change);
        // Its task may have ended just now: then the channel has no receiver.
        if sender.is_closed() {
            self.tasks
                .spawn(keep(self.api.clone(), key, sender.subscribe()));
        }
    }
}

async fn keep(api: MirrorApi, key: Key, mut pair: watch::Receiver<Pair>) -> Key {
    let mut pause = FIRST_RETRY;
    loop {
        let now = pair.borrow_and_update().clone();
        let done = match now.step() {
            Step::End => return key,
            Step::Nothing => true,
            Step::Create => create(&api, now.of.as_deref()).await,
            Step::Delete => delete(&api, now.mirror.as_deref()).await,
        };
        let again = async {
            match done {
                // The watch shows the result.
                true => std::future::pending().await,
                false => tokio::time::sleep(pause).await,
            }
        };
        tokio::select! {
            changed = pair.changed() => match changed {
                Ok(()) => pause = FIRST_RETRY,
                Err(_) => return key,
            },
            () = again => pause = (pause * 2).min(LAST_RETRY),
        }
    }
}

async fn create(mirrors: &MirrorApi, pod: Option<&Pod>) -> bool {
    let (Some(pod), Some(uid)) = (pod, mirrors.node_object.uid()) else {
        return false;
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(mirrors.client.clone(), namespace);
    let mirror = mirror_of(pod, mirrors.node_object.name(), uid);
    match api.create(&PostParams::default(), &mirror).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(pod = key(pod).1, %error, "a mirror pod was not made");
            false
        }
    }
}

async fn delete(mirrors: &MirrorApi, mirror: Option<&Pod>) -> bool {
    let Some(mirror) = mirror else {
        return true;
    };
    let (namespace, name) = key(mirror);
    let api: Api<Pod> = Api::namespaced(mirrors.client.clone(), &namespace);
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: mirror.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&name, &parameters).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => true,
        Err(error) => {
            tracing::warn!(pod = name, %error, "a mirror pod was not deleted");
            false
        }
    }
}

fn mirror_of(pod: &Pod, node_name: &str, node_uid: String) -> Pod {
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let hash = annotations.get(HASH).cloned().unwrap_or_default();
    annotations.insert(MIRROR.to_owned(), hash);
    Pod {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node_name.to_owned(),
                uid: node_uid,
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: pod.spec.clone(),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.annotations = Some([(name.to_owned(), value.to_owned())].into());
        Arc::new(pod)
    }

    #[test]
    fn a_static_pod_and_its_mirror_decide_the_next_step() {
        let step = |of, mirror| Pair { of, mirror }.step();
        let of = || Some(with(HASH, "1"));
        assert_eq!(step(None, None), Step::End);
        assert_eq!(step(of(), None), Step::Create);
        assert_eq!(step(of(), Some(with(MIRROR, "1"))), Step::Nothing);
        assert_eq!(step(of(), Some(with(MIRROR, "0"))), Step::Delete);
        assert_eq!(step(None, Some(with(MIRROR, "1"))), Step::Delete);
    }

    #[test]
    fn a_mirror_belongs_to_its_node() {
        let mirror = mirror_of(&with(HASH, "1"), "n1", "u".to_owned());
        assert!(is_mirror(&mirror));
        let owners = mirror.metadata.owner_references.unwrap_or_default();
        assert_eq!(
            (owners[0].kind.as_str(), owners[0].controller),
            ("Node", Some(true))
        );
        assert_eq!(mirror.metadata.uid, None);
    }
}
