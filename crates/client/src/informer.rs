//! Informers: a shared, current copy of all objects of a kind, maintained by one reflector each.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    sync::Arc,
};

use environment::Environment;
use parking_lot::Mutex;

use crate::{
    Object,
    cache::Cache,
    index::Terms,
    lifetime::ReflectorLifetime,
    metadata::Metadata,
    reflector::{Reflector, Scope, Source},
    subscription::Subscription,
};

/// The informers of one process or identity. Cheap to clone. Two informers of the same kind and
/// scope share one reflector. Reflectors end when the last handle of any kind is dropped, or with
/// [`Informers::shut_down`].
#[derive(Clone)]
pub struct Informers {
    shared: Arc<Shared>,
}

struct Shared {
    client: kube::Client,
    environment: Environment,
    informers: Mutex<BTreeMap<(TypeId, Scope), Arc<dyn Any + Send + Sync>>>,
    lifetime: Arc<ReflectorLifetime>,
}

impl Informers {
    /// The reflector of a kind starts with the first use of the kind, as a task of the current tokio
    /// runtime.
    pub fn new(client: kube::Client, environment: Environment) -> Informers {
        Informers {
            shared: Arc::new(Shared {
                client,
                environment,
                informers: Mutex::new(BTreeMap::new()),
                lifetime: Arc::new(ReflectorLifetime::new()),
            }),
        }
    }

    /// New informers for the same client, with empty caches. Their objects are never older than this
    /// call: a leader must not act on what it knew before it was elected.
    pub fn with_empty_caches(&self) -> Informers {
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
                tokio::spawn(reflector.run(shared.lifetime.stop()));
                cache
            })
            .clone();
        let cache = cache
            .downcast::<Cache<K>>()
            .expect("the map's key contains the type of its value");
        Informer {
            cache,
            environment: shared.environment.clone(),
            lifetime: shared.lifetime.clone(),
        }
    }

    /// The metadata of everything listed at `path` (`/apis/<group>/<version>/<plural>`), for kinds
    /// that are only known at run time. Not shared: its reflector ends with its last handle.
    pub fn metadata_at(&self, path: &str) -> Informer<Metadata> {
        let shared = &self.shared;
        let lifetime = ReflectorLifetime::within(&shared.lifetime);
        let cache = Arc::new(Cache::<Metadata>::new());
        let reflector = Reflector::new(
            shared.client.clone(),
            shared.environment.clone(),
            Source::metadata(path),
            cache.clone(),
        );
        tokio::spawn(reflector.run(lifetime.stop()));
        Informer {
            cache,
            environment: shared.environment.clone(),
            lifetime: Arc::new(lifetime),
        }
    }

    /// Ends all reflectors. The caches keep their objects.
    pub fn shut_down(&self) {
        self.shared.lifetime.end();
    }
}

/// A handle on one kind's cache. Cheap to clone.
pub struct Informer<K> {
    cache: Arc<Cache<K>>,
    environment: Environment,
    lifetime: Arc<ReflectorLifetime>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Informer<K> {
        Informer {
            cache: self.cache.clone(),
            environment: self.environment.clone(),
            lifetime: self.lifetime.clone(),
        }
    }
}

impl<K: Object> Informer<K> {
    /// Waits until the cache has received a first complete list.
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

    /// The number of objects in the namespace, without visiting them.
    pub fn count_in(&self, namespace: &str) -> usize {
        self.cache.count_in(namespace)
    }

    /// An index of the objects by terms that are read from them. Callers with the same name share one
    /// index, whose terms are those of the first caller.
    pub fn index(&self, name: &'static str, terms: Terms<K>) -> Index<K> {
        self.cache.add_index(name, terms);
        Index {
            cache: self.cache.clone(),
            name,
            _lifetime: self.lifetime.clone(),
        }
    }

    /// A feed of changes that begins with every cached object as `Added`.
    pub fn subscribe(&self) -> Subscription<K> {
        Subscription {
            mailbox: self.cache.subscribe(self.environment.now_micros()),
            _cache: self.cache.clone(),
            _lifetime: self.lifetime.clone(),
        }
    }
}

/// A handle on one index of a cache. Cheap to clone.
pub struct Index<K> {
    cache: Arc<Cache<K>>,
    name: &'static str,
    _lifetime: Arc<ReflectorLifetime>,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Index<K> {
        Index {
            cache: self.cache.clone(),
            name: self.name,
            _lifetime: self._lifetime.clone(),
        }
    }
}

impl<K: Object> Index<K> {
    /// The objects under `term`, ordered by namespace and name.
    pub fn get(&self, term: &str) -> Vec<Arc<K>> {
        self.cache.indexed(self.name, &[term.to_owned()])
    }

    /// The objects under any of `terms`, each once, ordered by namespace and name.
    pub fn get_any(&self, terms: &[String]) -> Vec<Arc<K>> {
        self.cache.indexed(self.name, terms)
    }

    /// The number of objects under `term`.
    pub fn count(&self, term: &str) -> usize {
        self.cache.indexed_count(self.name, term)
    }
}
