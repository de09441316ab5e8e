//! The client side of the API: connections, informers, the work queue and leader election.
//!
//! Nothing here depends on a kind except the Event recorder. Everything runs deterministically on
//! one thread under paused time: timers are tokio's, randomness and wall time are injected.

pub mod connect;
pub mod controller;
pub mod election;
pub mod events;
pub mod index;
pub mod retry;
pub mod service_account;

mod backoff;
mod cache;
mod decode;
mod informer;
mod lifetime;
mod mailbox;
mod metadata;
mod reflector;
mod spans;
mod subscription;
mod transport;
mod work_queue;

pub use index::Terms;
pub use informer::{Index, Informer, Informers};
pub use mailbox::{Change, Delivery};
pub use metadata::Metadata;
pub use reflector::Scope;
pub use spans::SpanForwarder;
pub use subscription::Subscription;
pub use work_queue::WorkQueue;

/// The type of an informer's objects: a typed object, or a projection that implements
/// [`kube::Resource`] and declares only the fields that its consumers read.
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
