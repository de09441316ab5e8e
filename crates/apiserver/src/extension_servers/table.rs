//! Which group version belongs to which extension API server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::backend::{Backend, BackendError};
use super::discovered::Discovered;
use super::specification::Specification;

/// The server of one group version.
pub(crate) struct Remote {
    /// Of the APIService.
    pub name: String,
    pub specification: Specification,
    /// As the APIService's condition says.
    pub is_available: bool,
    /// How it is reached, or why it cannot be, which every request for it is answered with.
    pub backend: Result<Arc<Backend>, Arc<BackendError>>,
    pub lasting: Arc<Lasting>,
}

/// What stays known of a server while its APIService leads to it.
pub(crate) struct Lasting {
    /// What it said about itself. Held for moments only.
    pub discovered: Mutex<Discovered>,
    /// The ready endpoints of its Service; forgotten when the Service or its slices change.
    pub endpoints: Mutex<Option<Arc<Vec<SocketAddr>>>>,
    /// Its Service or its endpoints changed: it is to be looked at now, and its documents are to be
    /// fetched again.
    pub check: Notify,
    pub fetch_discovery: Notify,
    pub fetch_openapi: Notify,
    /// Ends what is done for it in the background.
    pub stop: CancellationToken,
}

impl Lasting {
    pub fn new(stop: CancellationToken) -> Lasting {
        Lasting {
            discovered: Mutex::default(),
            endpoints: Mutex::default(),
            check: Notify::new(),
            fetch_discovery: Notify::new(),
            fetch_openapi: Notify::new(),
            stop,
        }
    }

    /// The Service or its endpoints changed.
    pub fn wake(&self) {
        *self.endpoints.lock() = None;
        self.check.notify_one();
        self.fetch_discovery.notify_one();
        self.fetch_openapi.notify_one();
    }
}

/// All group versions that extension servers serve.
#[derive(Clone, Default)]
pub(crate) struct Table {
    by_name: BTreeMap<String, Arc<Remote>>,
    /// Names of APIServices by namespace and name of their Service.
    by_service: BTreeMap<(String, String), Vec<String>>,
}

impl Table {
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn named(&self, name: &str) -> Option<&Arc<Remote>> {
        self.by_name.get(name)
    }

    pub fn find(&self, group: &str, version: &str) -> Option<&Arc<Remote>> {
        // The name of every APIService is made of the two.
        self.by_name.get(&format!("{version}.{group}"))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Remote>> {
        self.by_name.values()
    }

    /// Whether one of them serves something in the group.
    pub fn has_group(&self, group: &str) -> bool {
        self.iter()
            .any(|remote| remote.specification.group == group)
    }

    /// Those behind a Service.
    pub fn of_service(&self, namespace: &str, name: &str) -> Vec<Arc<Remote>> {
        let key = (namespace.to_string(), name.to_string());
        let names = self.by_service.get(&key).into_iter().flatten();
        names
            .filter_map(|name| self.by_name.get(name).cloned())
            .collect()
    }

    pub fn insert(&mut self, remote: Arc<Remote>) {
        self.remove(&remote.name);
        let service = &remote.specification.service;
        let key = (service.namespace.clone(), service.name.clone());
        let names = self.by_service.entry(key).or_default();
        names.push(remote.name.clone());
        self.by_name.insert(remote.name.clone(), remote);
    }

    pub fn remove(&mut self, name: &str) {
        let Some(removed) = self.by_name.remove(name) else {
            return;
        };
        let service = &removed.specification.service;
        let key = (service.namespace.clone(), service.name.clone());
        if let Some(names) = self.by_service.get_mut(&key) {
            names.retain(|known| known != name);
            if names.is_empty() {
                self.by_service.remove(&key);
            }
        }
    }
}
