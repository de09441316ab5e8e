//! Change feeds from an informer's cache to its consumers. A feed never blocks the reflector and
//! never loses the newest state of an object.

use std::sync::Arc;

use environment::work;

use crate::{
    Object,
    cache::Cache,
    lifetime::ReflectorLifetime,
    mailbox::{Change, Delivery, Mailbox},
};

/// One consumer's feed. A new subscription begins with every cached object as `Added`.
pub struct Subscription<K> {
    pub(crate) mailbox: Arc<Mailbox<K>>,
    pub(crate) _cache: Arc<Cache<K>>,
    pub(crate) _lifetime: Arc<ReflectorLifetime>,
}

impl<K: Object> Subscription<K> {
    /// Waits for the next change. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Change<K> {
        self.next_delivery().await.change
    }

    pub async fn next_delivery(&mut self) -> Delivery<K> {
        loop {
            if let Some(delivery) = self.mailbox.pop() {
                work::visit(1);
                return delivery;
            }
            self.mailbox.notified().await;
        }
    }

    /// The next change, if there is one already.
    pub fn try_next(&mut self) -> Option<Change<K>> {
        self.mailbox.pop().map(|delivery| delivery.change)
    }
}
