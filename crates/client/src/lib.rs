//! The client side of the API: connections, informers, the work queue and what controllers share.
//!
//! Nothing here knows a kind by name except the Event recorder. Everything runs deterministically
//! on one thread under paused time: timers are tokio's, randomness and wall time are injected.

pub mod connect;
pub mod controller;
pub mod election;
pub mod events;
pub mod index;
pub mod retry;
pub mod service_account;

mod backoff;
mod cache;
mod informer;
mod metadata;
mod reflector;
mod spans;
mod subscription;
mod transport;
mod work_queue;

pub use index::{Index, Terms};
pub use informer::{Informer, Informers, Scope};
pub use metadata::Metadata;
pub use spans::SpanForwarder;
pub use subscription::{Change, Delivery, Subscription};
pub use work_queue::WorkQueue;

/// What an informer can hold: a typed object, or a projection that declares only the fields its
/// consumers read and implements [`kube::Resource`].
pub trait Object:
    kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: kube::Resource<DynamicType = ()>
        + serde::de::DeserializeOwned
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The key of an object in caches and queues; the namespace is empty for cluster-wide kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> ObjectKey {
        ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub fn of<K: kube::Resource>(object: &K) -> ObjectKey {
        let meta = object.meta();
        ObjectKey {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            formatter.write_str(&self.name)
        } else {
            write!(formatter, "{}/{}", self.namespace, self.name)
        }
    }
}
