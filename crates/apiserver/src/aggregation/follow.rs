//! Follows APIServices, and for those of extension servers their Services and EndpointSlices, and
//! keeps everything in step: the table of extension servers, what is done for each of them, and the
//! APIServices of our own.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::strategy::api_service;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::documents::{self, Documents};
use super::{Registrar, availability};
use crate::cache::{CachedObject, Change, From, Initial, Requirement, ResourceCache, Watch};
use crate::extension_servers::{Remote, Specification};
use crate::server::Server;
use crate::service_endpoints::SERVICE_NAME;

/// After a watch was cut off or a write failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Follows until `stop`.
pub(crate) async fn follow(server: Weak<Server>, registrar: Registrar, stop: CancellationToken) {
    let mut own = OwnServices {
        registrar,
        unsettled: BTreeSet::new(),
        retry: None,
    };
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = follow_once(&server, &mut own) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// The APIServices of our own, and those among them that could not be written and are tried again.
struct OwnServices {
    registrar: Registrar,
    unsettled: BTreeSet<String>,
    /// When they are tried again.
    retry: Option<Instant>,
}

impl OwnServices {
    async fn settle(&mut self, server: &Arc<Server>, names: impl IntoIterator<Item = String>) {
        for (name, problem) in self.registrar.settle(server, names).await {
            tracing::warn!(name, %problem, "an APIService of this server could not be written");
            self.unsettled.insert(name);
        }
        if !self.unsettled.is_empty() {
            self.retry.get_or_insert_with(|| Instant::now() + PAUSE);
        }
    }

    /// Waits until it is time to try again, and returns what is to be tried.
    async fn next_retry(&mut self) -> BTreeSet<String> {
        match self.retry {
            None => std::future::pending().await,
            Some(at) => tokio::time::sleep_until(at).await,
        }
        self.retry = None;
        std::mem::take(&mut self.unsettled)
    }
}

/// The Services and slices of the cluster, watched only while an extension server needs them.
struct Network {
    services: Watch,
    slices: Watch,
}

/// What is followed next.
enum Event {
    ApiService(Option<Arc<Change>>),
    Service(Option<Arc<Change>>),
    Slice(Option<Arc<Change>>),
    /// Kinds of these group versions came or went.
    Kinds(Vec<(String, String)>),
    /// The APIServices of these names are tried again.
    Retry(BTreeSet<String>),
}

/// Follows until a watch is cut off, or the server is gone.
async fn follow_once(server: &Weak<Server>, own: &mut OwnServices) {
    let Some(running) = server.upgrade() else {
        return;
    };
    let kind = running.cache.named("apiregistration.k8s.io", "apiservices");
    let Some(mut api_services) = watch(&running, kind) else {
        return;
    };
    if let Initial::State(snapshot) = &api_services.subscription.initial {
        let table = running.extensions.table();
        let known: Vec<String> = table.iter().map(|remote| remote.name.clone()).collect();
        let gone = known.iter().filter(|name| snapshot.get(name).is_none());
        gone.for_each(|name| drop(running.extensions.set(name, None)));
        for (_, entry) in snapshot.iter() {
            take_in(&running, entry).await;
        }
    }
    let changed_versions = running.kinds.changed_versions();
    drop(running);
    let mut network: Option<Network> = None;
    loop {
        let Some(running) = server.upgrade() else {
            return;
        };
        match (running.extensions.table().is_empty(), &network) {
            (true, Some(_)) => network = None,
            (false, None) => {
                network = begin(&running);
                // What happened before the watch began is looked at now.
                wake_all(&running);
            }
            _ => {}
        }
        drop(running);
        let event = tokio::select! {
            biased;
            change = api_services.subscription.changes.recv() => Event::ApiService(change),
            event = next_of(&mut network) => event,
            versions = changed_versions.next() => Event::Kinds(versions),
            names = own.next_retry() => Event::Retry(names),
        };
        let Some(running) = server.upgrade() else {
            return;
        };
        match event {
            Event::ApiService(None) | Event::Service(None) | Event::Slice(None) => return,
            Event::ApiService(Some(change)) => {
                let entry = change.current.as_ref().or(change.previous.as_ref());
                let Some(name) = entry.map(|entry| entry.name().to_string()) else {
                    continue;
                };
                match &change.current {
                    Some(entry) => take_in(&running, entry).await,
                    None => drop(running.extensions.set(&name, None)),
                }
                own.settle(&running, [name]).await;
            }
            Event::Service(Some(change)) => each(&change, |entry| {
                wake(&running, entry.namespace(), entry.name());
            }),
            Event::Slice(Some(change)) => each(&change, |entry| {
                let service = entry.label(SERVICE_NAME).unwrap_or_default();
                wake(&running, entry.namespace(), service);
            }),
            Event::Kinds(versions) => {
                let names = versions.into_iter();
                let names = names.map(|(group, version)| format!("{version}.{group}"));
                own.settle(&running, names).await;
            }
            Event::Retry(names) => own.settle(&running, names).await,
        }
    }
}

fn watch(server: &Server, kind: Arc<ResourceCache>) -> Option<Watch> {
    Watch::begin(&server.cache, kind, From::State, Requirement::default()).ok()
}

fn begin(server: &Server) -> Option<Network> {
    let cache = &server.cache;
    let slices = cache.named("discovery.k8s.io", "endpointslices");
    Some(Network {
        services: watch(server, cache.named("", "services"))?,
        slices: watch(server, slices)?,
    })
}

/// The next event of the network; never, where it is not watched.
async fn next_of(network: &mut Option<Network>) -> Event {
    match network {
        None => std::future::pending().await,
        Some(network) => tokio::select! {
            biased;
            change = network.services.subscription.changes.recv() => Event::Service(change),
            change = network.slices.subscription.changes.recv() => Event::Slice(change),
        },
    }
}

/// The object before and after a change: what it was labelled with may have changed.
fn each(change: &Change, mut act: impl FnMut(&CachedObject)) {
    for entry in [&change.previous, &change.current].into_iter().flatten() {
        act(entry);
    }
}

fn wake(server: &Server, namespace: &str, service: &str) {
    for remote in server.extensions.table().of_service(namespace, service) {
        remote.lasting.wake();
    }
}

fn wake_all(server: &Server) {
    for remote in server.extensions.table().iter() {
        remote.lasting.wake();
    }
}

/// Takes in what an APIService says now.
async fn take_in(server: &Arc<Server>, entry: &Arc<CachedObject>) {
    let Ok(object) = entry.object() else {
        return;
    };
    let name = entry.name();
    let Some(specification) = Specification::of(&object) else {
        server.extensions.set(name, None);
        if !api_service::is_remote(&object)
            && !availability::is_settled_local(&object)
            && let Err(problem) = availability::write_local(server, name).await
        {
            tracing::warn!(name, %problem, "the availability of an APIService could not be written");
        }
        return;
    };
    let available = api_service::condition(&object, "Available");
    let is_available = available.is_some_and(|one| one.str_at(&["status"]) == "True");
    let extensions = &server.extensions;
    if let Some(remote) = extensions.set(name, Some((specification, is_available))) {
        start(server, remote);
    }
}

/// Does for an extension server what is done in the background.
fn start(server: &Arc<Server>, remote: Arc<Remote>) {
    let weak = Arc::downgrade(server);
    tokio::spawn(availability::keep(weak.clone(), remote.clone()));
    for documents in [Documents::Discovery, Documents::OpenApi] {
        tokio::spawn(documents::keep(weak.clone(), remote.clone(), documents));
    }
}
