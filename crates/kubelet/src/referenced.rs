//! ConfigMaps and Secrets that pods of this node refer to: one small watch per object, shared by
//! the pods that refer to it and ended with the last of them. An immutable object is watched only until
//! it has been read.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use client::{Informer, Informers, Object, Scope, Subscription};
use environment::Environment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;

/// How long a first read may take before it counts as failed.
const FIRST_READ: Duration = Duration::from_secs(10);

/// An object that may be immutable.
pub trait Fixable: Object {
    fn is_immutable(&self) -> bool;
}

impl Fixable for ConfigMap {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl Fixable for Secret {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

/// The referenced objects of one kind. Cheap to clone.
pub struct Referenced<K> {
    client: kube::Client,
    environment: Environment,
    entries: Arc<Mutex<BTreeMap<(String, String), Weak<WatchedObject<K>>>>>,
}

struct WatchedObject<K> {
    namespace: String,
    name: String,
    informer: Informer<K>,
    /// Of this object alone.
    informers: Informers,
}

/// A reference to one object, which is watched while the reference lives.
pub struct Held<K>(Arc<WatchedObject<K>>);

impl<K> Clone for Referenced<K> {
    fn clone(&self) -> Referenced<K> {
        Referenced {
            client: self.client.clone(),
            environment: self.environment.clone(),
            entries: self.entries.clone(),
        }
    }
}

impl<K> Clone for Held<K> {
    fn clone(&self) -> Held<K> {
        Held(self.0.clone())
    }
}

impl<K: Fixable> Referenced<K> {
    pub fn new(client: kube::Client, environment: Environment) -> Referenced<K> {
        Referenced {
            client,
            environment,
            entries: Arc::default(),
        }
    }

    pub fn hold(&self, namespace: &str, name: &str) -> Held<K> {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| entry.strong_count() > 0);
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(entry) = entries.get(&key).and_then(Weak::upgrade) {
            return Held(entry);
        }
        // Informers of its own: dropping the last hold ends exactly this watch.
        let informers = Informers::new(self.client.clone(), self.environment.clone());
        let informer = informers.within::<K>(Scope {
            namespace: Some(namespace.to_owned()),
            field_selector: Some(format!("metadata.name={name}")),
            label_selector: None,
        });
        let entry = Arc::new(WatchedObject {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            informer,
            informers,
        });
        entries.insert(key, Arc::downgrade(&entry));
        Held(entry)
    }
}

impl<K: Fixable> Held<K> {
    /// The object, `Some(None)` if it does not exist, `None` if that could not be found out.
    pub async fn get(&self) -> Option<Option<Arc<K>>> {
        let entry = &self.0;
        tokio::time::timeout(FIRST_READ, entry.informer.synced())
            .await
            .ok()?;
        let found = entry.informer.get(&entry.namespace, &entry.name);
        if found.as_ref().is_some_and(|object| object.is_immutable()) {
            // The watch ends, what it brought stays.
            entry.informers.shut_down();
        }
        Some(found)
    }

    pub fn subscribe(&self) -> Subscription<K> {
        self.0.informer.subscribe()
    }
}
