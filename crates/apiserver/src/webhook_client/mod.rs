//! The HTTPS client for webhooks: what the server asks others while it answers a request, be it
//! admission or the conversion of custom resources. A hook is a Service, which the server resolves
//! to an endpoint itself, or a URL.
//!
//! Everything is bounded: how long a call takes, how large its answer is, how many calls of one
//! hook are under way and how many connections lie idle. Whoever holds a [`Channel`] keeps its
//! connections; they go with the last configuration that names the hook.

mod channel;
mod conversion;
mod dial;
mod resolve;
mod target;
pub(crate) mod tls;
pub(crate) mod words;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub(crate) use channel::{Channel, Limits};
#[allow(unused_imports)] // For the kinds that are converted by webhooks.
pub(crate) use conversion::{ConversionHook, convert};
pub(crate) use resolve::{CachedServices, ResolveServices};
pub(crate) use target::{Target, TargetError};
pub(crate) use words::Failure;
#[cfg(test)]
pub(crate) use {crate::service_endpoints::ResolveError, resolve::Place};

/// Why there is no channel to a hook.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

/// The channels to all hooks that are configured.
pub(crate) struct WebhookClient {
    services: Arc<dyn ResolveServices>,
    /// Channels by what leads to them, so that hooks of the same server share its connections. Held
    /// for moments only. Channels that nobody holds any more are swept when one is added.
    channels: Mutex<HashMap<Target, Weak<Channel>>>,
}

impl WebhookClient {
    pub fn new(services: Arc<dyn ResolveServices>) -> WebhookClient {
        WebhookClient {
            services,
            channels: Mutex::default(),
        }
    }

    /// The channel to a hook. Nothing is dialled before the first call.
    pub fn channel(&self, target: Target) -> Result<Arc<Channel>, Error> {
        let mut channels = self.channels.lock();
        if let Some(known) = channels.get(&target).and_then(Weak::upgrade) {
            return Ok(known);
        }
        channels.retain(|_, channel| channel.strong_count() > 0);
        let made = Arc::new(Channel::new(target.clone(), self.services.clone())?);
        channels.insert(target, Arc::downgrade(&made));
        Ok(made)
    }
}
