//! Fetches what an extension API server says about itself, in the background: at once, when its
//! Service changes, and on a slow period.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{discovery, openapi, resolve};
use crate::extension_servers::Remote;
use crate::server::Server;

/// How often documents are fetched again while all is well, as upstream does.
const PERIOD: Duration = Duration::from_secs(60);
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// A server without usable OpenAPI documents is asked ever more seldom.
const LONGEST_OPENAPI_RETRY: Duration = Duration::from_secs(3600);

/// Why documents could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchFailure {
    #[error("{0}")]
    Backend(String),
    #[error(transparent)]
    Resolve(#[from] resolve::ResolveError),
    #[error(transparent)]
    Discovery(#[from] discovery::DiscoveryError),
    #[error(transparent)]
    OpenApi(#[from] openapi::OpenApiError),
}

/// Keeps the discovery of one server until its APIService leads elsewhere.
pub(super) async fn keep_discovery(server: Weak<Server>, remote: Arc<Remote>) {
    let mut pace = Pace::new(PERIOD);
    while let Some(running) = server.upgrade() {
        let fetched = until_stopped(&remote, fetch_discovery(&running, &remote)).await;
        let Some(fetched) = fetched else {
            return;
        };
        drop(running);
        if let Err(problem) = &fetched {
            let problem = environment::chain(problem);
            tracing::debug!(api_service = remote.name, %problem, "no discovery of an extension server");
            remote.lasting.discovered.lock().version = None;
        }
        let changed = remote.lasting.fetch_discovery.notified();
        if !pace.wait(&remote, fetched.is_ok(), changed).await {
            return;
        }
    }
}

/// Keeps the OpenAPI documents of one server until its APIService leads elsewhere.
pub(super) async fn keep_openapi(server: Weak<Server>, remote: Arc<Remote>) {
    let mut pace = Pace::new(LONGEST_OPENAPI_RETRY);
    while let Some(running) = server.upgrade() {
        let fetched = until_stopped(&remote, fetch_openapi(&running, &remote)).await;
        let Some(fetched) = fetched else {
            return;
        };
        drop(running);
        if let Err(problem) = &fetched {
            let problem = environment::chain(problem);
            tracing::debug!(api_service = remote.name, %problem, "no OpenAPI of an extension server");
        }
        let changed = remote.lasting.fetch_openapi.notified();
        if !pace.wait(&remote, fetched.is_ok(), changed).await {
            return;
        }
    }
}

/// The result of `work`, unless the APIService leads elsewhere before it is done.
async fn until_stopped<T>(remote: &Remote, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = remote.lasting.stop.cancelled() => None,
        done = work => Some(done),
    }
}

/// How long to wait between two attempts.
struct Pace {
    retry: Duration,
    longest: Duration,
}

impl Pace {
    fn new(longest: Duration) -> Pace {
        Pace {
            retry: FIRST_RETRY,
            longest,
        }
    }

    /// Waits for the next attempt; false if there is none.
    async fn wait(
        &mut self,
        remote: &Remote,
        is_done: bool,
        changed: impl Future<Output = ()>,
    ) -> bool {
        let pause = match is_done {
            true => PERIOD,
            false => self.retry,
        };
        self.retry = match is_done {
            true => FIRST_RETRY,
            false => (self.retry * 2).min(self.longest),
        };
        tokio::select! {
            biased;
            () = remote.lasting.stop.cancelled() => return false,
            () = changed => self.retry = FIRST_RETRY,
            () = tokio::time::sleep(pause) => {}
        }
        true
    }
}

async fn fetch_discovery(server: &Server, remote: &Remote) -> Result<(), FetchFailure> {
    let backend = remote.backend.clone().map_err(FetchFailure::Backend)?;
    let address = resolve::endpoint(server, remote)?;
    let permit = server.extensions.discoveries.acquire().await;
    let version = discovery::fetch(&backend, address, &remote.specification).await;
    drop(permit);
    remote.lasting.discovered.lock().version = Some(Arc::new(version?));
    Ok(())
}

async fn fetch_openapi(server: &Server, remote: &Remote) -> Result<(), FetchFailure> {
    let backend = remote.backend.clone().map_err(FetchFailure::Backend)?;
    let address = resolve::endpoint(server, remote)?;
    let specification = &remote.specification;
    let permit = server.extensions.openapi.acquire().await;
    let v3 = openapi::fetch_v3(&backend, address, specification).await?;
    remote.lasting.discovered.lock().v3 = v3;
    let known = remote.lasting.discovered.lock().v2.clone();
    let v2 = openapi::fetch_v2(&backend, address, specification, known.as_deref()).await?;
    drop(permit);
    if let Some(v2) = v2 {
        remote.lasting.discovered.lock().v2 = Some(Arc::new(v2));
    }
    Ok(())
}
