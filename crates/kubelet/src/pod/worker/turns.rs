//! The order in which containers end with their pod: a sidecar ends after the containers that may
//! still need it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use semantics::pod::is_sidecar;
use tokio::sync::watch;

use crate::{pod::plan::Busy, runtime::Observed};

pub(super) struct Turns {
    /// Names of the containers that run.
    alive: watch::Sender<BTreeSet<String>>,
}

/// The wait of one sidecar for its turn to end.
#[derive(Clone)]
pub(super) struct Turn {
    after: BTreeSet<String>,
    alive: watch::Receiver<BTreeSet<String>>,
}

impl Turn {
    /// Waits until all containers have ended that end before this one.
    pub async fn wait(&mut self) {
        let after = &self.after;
        // An error means that the worker has ended: then there is nothing to wait for.
        let _ = self.alive.wait_for(|alive| alive.is_disjoint(after)).await;
    }
}

impl Turns {
    pub fn new() -> Turns {
        Turns {
            alive: watch::Sender::new(BTreeSet::new()),
        }
    }

    /// The turn of a container when the pod ends: a sidecar waits for the app containers and for
    /// the sidecars that were started after it, other containers wait for nothing.
    pub fn of(&self, pod: &Pod, container: &str) -> Option<Turn> {
        let spec = pod.spec.as_ref()?;
        let sidecars = || {
            let init = spec.init_containers.iter().flatten();
            init.filter(|container| is_sidecar(container))
        };
        if !sidecars().any(|one| one.name == container) {
            return None;
        }
        let later = sidecars().skip_while(|one| one.name != container).skip(1);
        let others = spec.containers.iter().chain(later);
        Some(Turn {
            after: others.map(|one| one.name.clone()).collect(),
            alive: self.alive.subscribe(),
        })
    }

    /// Publishes which containers still run to those that wait for their turn.
    pub fn publish(&self, observed: &Observed, busy: &Busy) {
        if self.alive.receiver_count() == 0 {
            return;
        }
        let running = observed.running().map(|record| record.name.clone());
        let alive: BTreeSet<String> = running.chain(busy.starting.iter().cloned()).collect();
        self.alive.send_if_modified(|known| {
            let is_changed = *known != alive;
            *known = alive;
            is_changed
        });
    }
}
