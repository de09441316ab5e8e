//! This node's Node object, as the watch delivers it.

use std::sync::Arc;

use client::Informer;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

/// Cheap to clone.
#[derive(Clone)]
pub struct NodeObject {
    name: String,
    informer: Informer<Node>,
    last: Arc<Mutex<Option<Arc<Node>>>>,
}

impl NodeObject {
    /// `informer` must watch the Node of this `name`.
    pub fn new(name: String, informer: Informer<Node>) -> NodeObject {
        NodeObject {
            name,
            informer,
            last: Arc::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Node as the API has it now; `None` if it is not registered.
    pub fn registered(&self) -> Option<Arc<Node>> {
        self.informer.get("", &self.name)
    }

    /// The Node as the API has it, as it was last seen if it was deleted, or as it will register if
    /// it never was there.
    pub fn last_known(&self) -> Option<Arc<Node>> {
        let found = self.registered();
        let mut last = self.last.lock();
        if found.is_some() {
            *last = found;
        }
        last.clone()
    }

    /// Sets the form in which the node will register.
    pub fn will_register(&self, node: Node) {
        *self.last.lock() = Some(Arc::new(node));
    }

    /// The UID of the registered Node.
    pub fn uid(&self) -> Option<String> {
        self.registered()?.metadata.uid.clone()
    }

    pub fn is_cordoned(&self) -> bool {
        let node = self.registered();
        let spec = node.as_ref().and_then(|node| node.spec.as_ref());
        spec.and_then(|spec| spec.unschedulable) == Some(true)
    }
}
