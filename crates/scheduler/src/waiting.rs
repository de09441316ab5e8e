//! Pods that have a node but whose binding a plugin holds back, until it approves or rejects it or
//! until the time it asked for is over.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

use crate::framework::BindError;

/// No plugin may hold a pod back for longer.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// A handle on the pods that wait for a plugin's permission; cheap to clone.
#[derive(Clone, Default)]
pub struct WaitingPods {
    pods: Arc<Mutex<BTreeMap<String, Waiting>>>,
}

struct Waiting {
    pending: BTreeSet<&'static str>,
    answer: oneshot::Sender<Result<(), BindError>>,
}

/// The end of a pod's waiting.
pub(crate) struct Answer {
    receiver: oneshot::Receiver<Result<(), BindError>>,
    uid: String,
    pods: WaitingPods,
    limit: Duration,
    /// Whose time is over first.
    first: &'static str,
}

impl WaitingPods {
    /// The uids of all pods that wait.
    pub fn uids(&self) -> Vec<String> {
        self.pods.lock().keys().cloned().collect()
    }

    /// The plugin has nothing against the pod any more. It is bound when all have said so.
    pub fn allow(&self, uid: &str, plugin: &str) {
        let mut pods = self.pods.lock();
        if let Some(waiting) = pods.get_mut(uid) {
            waiting.pending.remove(plugin);
            if waiting.pending.is_empty()
                && let Some(waiting) = pods.remove(uid)
            {
                let _ = waiting.answer.send(Ok(()));
            }
        }
    }

    /// The pod is not bound; it is tried again later.
    pub fn reject(&self, uid: &str, plugin: &'static str, message: &str) {
        if let Some(waiting) = self.pods.lock().remove(uid) {
            let _ = waiting.answer.send(Err(BindError::NotPermitted {
                plugin,
                message: message.to_owned(),
            }));
        }
    }

    pub(crate) fn add(&self, uid: &str, plugins: &BTreeMap<&'static str, Duration>) -> Answer {
        let (answer, receiver) = oneshot::channel();
        let waiting = Waiting {
            pending: plugins.keys().copied().collect(),
            answer,
        };
        self.pods.lock().insert(uid.to_owned(), waiting);
        let first = plugins.iter().min_by_key(|(_, limit)| **limit);
        let (first, limit) = first.map_or(("", LONGEST), |(name, limit)| (*name, *limit));
        Answer {
            receiver,
            uid: uid.to_owned(),
            pods: self.clone(),
            limit: limit.min(LONGEST),
            first,
        }
    }
}

impl Answer {
    pub(crate) async fn wait(mut self) -> Result<(), BindError> {
        if let Ok(answered) = timeout(self.limit, &mut self.receiver).await {
            // There is no answer any more when the scheduler stops.
            return answered.unwrap_or_else(|_| {
                Err(BindError::NotPermitted {
                    plugin: self.first,
                    message: "there was no answer".to_owned(),
                })
            });
        }
        let message = format!(
            "rejected due to timeout after waiting {}s at plugin {}",
            self.limit.as_secs(),
            self.first
        );
        self.pods.reject(&self.uid, self.first, &message);
        // An answer may have come in the same moment.
        self.receiver.await.unwrap_or_else(|_| {
            Err(BindError::NotPermitted {
                plugin: self.first,
                message,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugins() -> BTreeMap<&'static str, Duration> {
        [("A", Duration::from_secs(5)), ("B", Duration::from_secs(3))].into()
    }

    #[tokio::test(start_paused = true)]
    async fn all_must_allow_and_one_may_reject() {
        let waiting = WaitingPods::default();
        let answer = waiting.add("u", &plugins());
        waiting.allow("u", "A");
        assert_eq!(waiting.uids(), ["u"]);
        waiting.allow("u", "B");
        assert!(answer.wait().await.is_ok());
        let answer = waiting.add("u", &plugins());
        waiting.allow("u", "B");
        waiting.reject("u", "A", "no");
        assert_eq!(answer.wait().await.expect_err("no").to_string(), "no");
        let answer = waiting.add("u", &plugins());
        let over = answer.wait().await.expect_err("too long").to_string();
        assert_eq!(over, "rejected due to timeout after waiting 3s at plugin B");
        assert!(waiting.uids().is_empty());
    }
}
