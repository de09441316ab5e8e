//! Services with their EndpointSlices, kept in step with two subscriptions. The proxy and DNS each
//! hold one; both need "the slices of a Service", which the informers' caches do not index.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Change, ObjectKey};
use environment::work;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

#[derive(Default)]
pub struct ServiceIndex {
    services: BTreeMap<ObjectKey, Arc<Service>>,
    /// By Service, then by slice name.
    slices: BTreeMap<ObjectKey, BTreeMap<String, Arc<EndpointSlice>>>,
}

impl ServiceIndex {
    pub fn service(&self, key: &ObjectKey) -> Option<&Service> {
        work::visit(1);
        self.services.get(key).map(|service| &**service)
    }

    pub fn slices(&self, key: &ObjectKey) -> impl Iterator<Item = &EndpointSlice> + Clone {
        self.slices
            .get(key)
            .into_iter()
            .flat_map(|slices| slices.values().map(|slice| &**slice))
            .inspect(|_| work::visit(1))
    }

    /// Whether the namespace holds any Service.
    pub fn knows_namespace(&self, namespace: &str) -> bool {
        let from = ObjectKey::new(namespace, "");
        self.services
            .range(from..)
            .next()
            .is_some_and(|(key, _)| key.namespace == namespace)
    }

    /// Takes a change in and returns the Service it concerns.
    pub fn note_service(&mut self, change: Change<Service>) -> Option<ObjectKey> {
        match change {
            Change::Added(new) | Change::Modified { new, .. } => {
                let key = ObjectKey::of(&*new);
                self.services.insert(key.clone(), new);
                Some(key)
            }
            Change::Deleted(old) => {
                let key = ObjectKey::of(&*old);
                self.services.remove(&key);
                Some(key)
            }
            Change::Resynced => None,
        }
    }

    /// Takes a change in and returns the Services it concerns: two when a slice changes hands.
    pub fn note_slice(&mut self, change: Change<EndpointSlice>) -> Vec<ObjectKey> {
        let (old, new) = match change {
            Change::Added(new) => (None, Some(new)),
            Change::Modified { old, new } => (Some(old), Some(new)),
            Change::Deleted(old) => (Some(old), None),
            Change::Resynced => (None, None),
        };
        let mut concerned = Vec::new();
        if let Some(old) = old
            && let Some(service) = service_of(&old)
        {
            if let Some(slices) = self.slices.get_mut(&service) {
                slices.remove(old.metadata.name.as_deref().unwrap_or_default());
                if slices.is_empty() {
                    self.slices.remove(&service);
                }
            }
            concerned.push(service);
        }
        if let Some(new) = new
            && let Some(service) = service_of(&new)
        {
            let name = new.metadata.name.clone().unwrap_or_default();
            self.slices
                .entry(service.clone())
                .or_default()
                .insert(name, new);
            if !concerned.contains(&service) {
                concerned.push(service);
            }
        }
        concerned
    }
}

fn service_of(slice: &EndpointSlice) -> Option<ObjectKey> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME_LABEL)?;
    Some(ObjectKey::new(
        slice.metadata.namespace.as_deref().unwrap_or_default(),
        name,
    ))
}
