//! Informers: a shared, always current copy of one kind, kept by one reflector each.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    sync::Arc,
};

use environment::Environment;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    Object,
    cache::Cache,
    index::{Index, Terms},
    metadata::Metadata,
    reflector::{Reflector, Source},
    subscription::Subscription,
};

/// Which objects of a kind an informer follows; all of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    pub namespace: Option<String>,
    pub field_selector: Option<String>,
    pub label_selector: Option<String>,
}

/// The informers of one process (or one identity). Cheap to clone; the same kind and scope asked
/// for twice share one reflector. Reflectors end when the last handle of any kind is dropped, or
/// on [`Informers::shut_down`].
#[derive(Clone)]
pub struct Informers {
    shared: Arc<Shared>,
}

struct Shared {
    client: kube::Client,
    environment: Environment,
    informers: Mutex<BTreeMap<(TypeId, Scope), Arc<dyn Any + Send + Sync>>>,
    running: Arc<Running>,
}

/// Held by every handle; its drop ends the reflectors.
pub(crate) struct Running {
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl Informers {
    /// Reflectors run as tasks of the current tokio runtime, begun on first use of a kind.
    pub fn new(client: kube::Client, environment: Environment) -> Informers {
        let stop = CancellationToken::new();
        Informers {
            shared: Arc::new(Shared {
                client,
                environment,
                informers: Mutex::new(BTreeMap::new()),
                running: Arc::new(Running {
                    _stop_on_drop: stop.clone().drop_guard(),
                    stop,
                }),
            }),
        }
    }

    /// Others for the same client, which know nothing yet. What they show is never older than this
    /// call: a leader must not act on what it knew before it was elected.
    pub fn anew(&self) -> Informers {
        Informers::new(self.shared.client.clone(), self.shared.environment.clone())
    }

    /// Every object of the kind.
    pub fn of<K: Object>(&self) -> Informer<K> {
        self.within(Scope::default())
    }

    /// The objects of the kind that match a field selector, e.g. `spec.nodeName=worker-1`.
    pub fn with_selector<K: Object>(&self, field_selector: &str) -> Informer<K> {
        self.within(Scope {
            field_selector: Some(field_selector.to_owned()),
            ..Scope::default()
        })
    }

    pub fn within<K: Object>(&self, scope: Scope) -> Informer<K> {
        let shared = &self.shared;
        let mut informers = shared.informers.lock();
        let cache = informers
            .entry((TypeId::of::<K>(), scope.clone()))
            .or_insert_with(|| {
                let cache = Arc::new(Cache::<K>::new());
                let reflector = Reflector::new(
                    shared.client.clone(),
                    shared.environment.clone(),
                    Source::of::<K>(&scope),
                    cache.clone(),
                );
                tokio::spawn(reflector.run(shared.running.stop.clone()));
                cache
            })
            .clone();
        let cache = cache
            .downcast::<Cache<K>>()
            .expect("the map's key holds the type of its value");
        Informer {
            cache,
            environment: shared.environment.clone(),
            running: shared.running.clone(),
        }
    }

    /// The metadata of everything listed at `path` (`/apis/<group>/<version>/<plural>`), for kinds
    /// that are only known at run time. Not shared: its reflector ends with its last handle.
    pub fn metadata_at(&self, path: &str) -> Informer<Metadata> {
        let shared = &self.shared;
        let stop = shared.running.stop.child_token();
        let cache = Arc::new(Cache::<Metadata>::new());
        let reflector = Reflector::new(
            shared.client.clone(),
            shared.environment.clone(),
            Source::metadata(path),
            cache.clone(),
        );
        tokio::spawn(reflector.run(stop.clone()));
        Informer {
            cache,
            environment: shared.environment.clone(),
            running: Arc::new(Running {
                _stop_on_drop: stop.clone().drop_guard(),
                stop,
            }),
        }
    }

    /// Ends all reflectors; caches keep what they have.
    pub fn shut_down(&self) {
        self.shared.running.stop.cancel();
    }
}

/// A handle on one kind's cache. Cheap to clone.
pub struct Informer<K> {
    cache: Arc<Cache<K>>,
    environment: Environment,
    running: Arc<Running>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Informer<K> {
        Informer {
            cache: self.cache.clone(),
            environment: self.environment.clone(),
            running: self.running.clone(),
        }
    }
}

impl<K: Object> Informer<K> {
    /// Waits until a first complete list is in the cache.
    pub async fn synced(&self) {
        self.cache.synced().await;
    }

    pub fn is_synced(&self) -> bool {
        self.cache.is_synced()
    }

    /// The object of that name; `namespace` is empty for cluster-wide kinds.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.cache.get(namespace, name)
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.cache.list()
    }

    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.cache.list_in(namespace)
    }

    /// How many objects the namespace has, without looking at them.
    pub fn count_in(&self, namespace: &str) -> usize {
        self.cache.count_in(namespace)
    }

    /// The objects by terms that are read from them; see [`Index`]. All who ask for the same name
    /// share one index, whose terms are those of the first.
    pub fn index(&self, name: &'static str, terms: Terms<K>) -> Index<K> {
        self.cache.keep_index(name, terms);
        Index {
            cache: self.cache.clone(),
            name,
            _running: self.running.clone(),
        }
    }

    /// A feed of changes that begins with every cached object as `Added`.
    pub fn subscribe(&self) -> Subscription<K> {
        Subscription {
            mailbox: self.cache.subscribe(self.environment.now_micros()),
            _cache: self.cache.clone(),
            _running: self.running.clone(),
        }
    }
}
