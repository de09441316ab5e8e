//! The ConfigMaps and Secrets that the pod refers to, and the tasks that wake the worker when
//! something outside of it changes.

use std::{future::Future, sync::Arc};

use client::Subscription;
use tokio::task::JoinSet;

use crate::{pod::mailbox::Mailbox, referenced::Fixable, volumes::HeldObjects};

#[derive(Default)]
pub(super) struct Watches {
    held: HeldObjects,
    tasks: JoinSet<()>,
}

impl Watches {
    pub fn held(&self) -> HeldObjects {
        self.held.clone()
    }

    /// Watches these objects; changes reach the worker through its mailbox.
    pub fn hold(&mut self, held: HeldObjects, mailbox: &Arc<Mailbox>) {
        self.held = held;
        for held in self.held.config_maps.values() {
            let watch = pass_on(held.subscribe(), mailbox.clone());
            self.tasks.spawn(watch);
        }
        for held in self.held.secrets.values() {
            let watch = pass_on(held.subscribe(), mailbox.clone());
            self.tasks.spawn(watch);
        }
    }

    /// Runs something that will wake the worker.
    pub fn spawn(&mut self, watch: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(watch);
    }

    /// The pod ends: nothing needs to be watched any more.
    pub fn end(&mut self) {
        self.tasks.abort_all();
    }
}

async fn pass_on<K: Fixable>(mut changes: Subscription<K>, mailbox: Arc<Mailbox>) {
    loop {
        changes.next().await;
        mailbox.objects_changed();
    }
}
