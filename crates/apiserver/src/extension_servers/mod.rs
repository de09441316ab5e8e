//! The API servers behind APIServices: which group version is whose, how they are reached, and what
//! they said about themselves. This is the state; [`crate::aggregation`] fills it and acts on it.

mod backend;
mod config;
mod discovered;
mod specification;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::Error;

pub(crate) use backend::{Backend, BackendError};
pub(crate) use config::Trust;
pub use config::{AggregationConfig, DialServices, DirectDialer, FrontProxy};
pub(crate) use discovered::V2Part;
pub(crate) use specification::{ServiceReference, Specification};
pub(crate) use table::{Lasting, Remote, Table};

/// How many servers are looked at, and described, at the same time.
const MOST_PROBES: usize = 16;
/// How many OpenAPI documents are fetched at the same time: they are large.
const MOST_OPENAPI: usize = 4;

/// The extension API servers of a cluster.
pub(crate) struct ExtensionServers {
    pub trust: Trust,
    dialing: backend::Dialing,
    /// Swapped as a whole when an APIService changes; held for moments only.
    table: RwLock<Arc<Table>>,
    /// Connections, shared by the APIServices of one Service. Held for moments only; what nobody
    /// uses any more is swept when one is added.
    backends: Mutex<BTreeMap<Specification, Weak<Backend>>>,
    /// Taken in the background, so that many servers that hang take no more than
    /// this; each kind of question has its own.
    pub probes: Semaphore,
    pub discoveries: Semaphore,
    pub openapi: Semaphore,
    /// Ends everything that is done in the background.
    stop: CancellationToken,
}

impl ExtensionServers {
    pub fn new(
        config: &AggregationConfig,
        client_ca_pem: &str,
        stop: CancellationToken,
    ) -> Result<ExtensionServers, Error> {
        let front_proxy = config.front_proxy.as_ref();
        Ok(ExtensionServers {
            trust: Trust {
                client_ca_pem: client_ca_pem.to_string(),
                front_proxy: front_proxy
                    .map(|proxy| (proxy.ca_pem.clone(), proxy.allowed_names.clone())),
            },
            dialing: backend::Dialing::new(config)?,
            table: RwLock::default(),
            backends: Mutex::default(),
            probes: Semaphore::new(MOST_PROBES),
            discoveries: Semaphore::new(MOST_PROBES),
            openapi: Semaphore::new(MOST_OPENAPI),
            stop,
        })
    }

    /// The group versions that extension servers serve now.
    pub fn table(&self) -> Arc<Table> {
        self.table.read().clone()
    }

    /// The server that a path belongs to, if that is not this one. The path is decoded.
    pub fn of_path(&self, path: &str) -> Option<Arc<Remote>> {
        let table = self.table.read();
        if table.is_empty() {
            return None;
        }
        let (group, version) = group_version(path)?;
        table.find(group, version).cloned()
    }

    /// Takes in what an APIService says; what is known of a server stays while its Service does.
    /// Returns the entry if it is new or leads elsewhere than before.
    pub fn set(&self, name: &str, wanted: Option<(Specification, bool)>) -> Option<Arc<Remote>> {
        let before = self.table.read().named(name).cloned();
        let Some((specification, is_available)) = wanted else {
            if let Some(before) = before {
                before.lasting.stop.cancel();
                self.change(|table| table.remove(name));
            }
            return None;
        };
        let lasting = match &before {
            Some(before) if before.specification == specification => {
                if before.is_available == is_available {
                    return None;
                }
                Some(before.lasting.clone())
            }
            Some(before) => {
                before.lasting.stop.cancel();
                None
            }
            None => None,
        };
        let is_new = lasting.is_none();
        let made = Arc::new(Remote {
            name: name.to_string(),
            backend: self.backend(&specification),
            specification,
            is_available,
            lasting: lasting.unwrap_or_else(|| Arc::new(Lasting::new(self.stop.child_token()))),
        });
        self.change(|table| table.insert(made.clone()));
        is_new.then_some(made)
    }

    /// A check found the server available: requests are passed on before the condition of the
    /// APIService says so, because clients wait for the condition.
    pub fn found_available(&self, remote: &Remote) {
        let known = self.table.read().named(&remote.name).cloned();
        let is_same = |known: &Arc<Remote>| known.specification == remote.specification;
        if known.is_some_and(|known| is_same(&known)) {
            self.set(&remote.name, Some((remote.specification.clone(), true)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.table.write();
        let mut changed = Table::clone(&table);
        change(&mut changed);
        *table = Arc::new(changed);
    }

    fn backend(&self, specification: &Specification) -> Result<Arc<Backend>, Arc<BackendError>> {
        let shared = Specification {
            group: String::new(),
            version: String::new(),
            group_priority: 0,
            version_priority: 0,
            ..specification.clone()
        };
        let mut backends = self.backends.lock();
        if let Some(known) = backends.get(&shared).and_then(Weak::upgrade) {
            return Ok(known);
        }
        backends.retain(|_, backend| backend.strong_count() > 0);
        let made = Backend::new(&self.dialing, &shared);
        let made = Arc::new(made.map_err(Arc::new)?);
        backends.insert(shared, Arc::downgrade(&made));
        Ok(made)
    }
}

/// The group version that a path is about: `/apis/<group>/<version>` and below, and all of `/api`.
fn group_version(path: &str) -> Option<(&str, &str)> {
    if path == "/api" || path.starts_with("/api/") {
        return Some(("", "v1"));
    }
    let mut segments = path.strip_prefix("/apis/")?.split('/');
    let (group, version) = (segments.next()?, segments.next()?);
    (!group.is_empty() && !version.is_empty()).then_some((group, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_one_group_version() {
        let check = |path: &str, expected| assert_eq!(group_version(path), expected, "{path}");
        check("/apis/a.io/v1", Some(("a.io", "v1")));
        check("/apis/a.io/v1/", Some(("a.io", "v1")));
        check("/apis/a.io/v1/namespaces/x/pods", Some(("a.io", "v1")));
        check("/api", Some(("", "v1")));
        check("/api/v1/pods", Some(("", "v1")));
        for path in [
            "/apis",
            "/apis/a.io",
            "/apis/a.io/",
            "//apis/a.io/v1",
            "/apisx",
        ] {
            check(path, None);
        }
    }
}
