//! Fetches what an extension API server says about itself, in the background: at once, when its
//! Service changes, and on a slow period.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{discovery, openapi, resolve};
use crate::extension_servers::{BackendError, Remote};
use crate::server::Server;
use crate::service_endpoints::ResolveError;

/// How often documents are fetched again while all is well, as upstream does.
const PERIOD: Duration = Duration::from_secs(60);
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// A server without usable OpenAPI documents is asked ever more seldom.
const LONGEST_OPENAPI_RETRY: Duration = Duration::from_secs(3600);

/// Why documents could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchFailure {
    #[error(transparent)]
    Backend(Arc<BackendError>),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Discovery(#[from] discovery::DiscoveryError),
    #[error(transparent)]
    OpenApi(#[from] openapi::OpenApiError),
}

/// What is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Documents {
    Discovery,
    OpenApi,
}

/// Keeps documents of one server up to date until its APIService leads elsewhere.
pub(super) async fn keep(server: Weak<Server>, remote: Arc<Remote>, documents: Documents) {
    let lasting = &remote.lasting;
    let (longest, changed) = match documents {
        Documents::Discovery => (PERIOD, &lasting.fetch_discovery),
        Documents::OpenApi => (LONGEST_OPENAPI_RETRY, &lasting.fetch_openapi),
    };
    let mut pace = Pace::new(longest);
    while let Some(running) = server.upgrade() {
        let fetching = async {
            match documents {
                Documents::Discovery => fetch_discovery(&running, &remote).await,
                Documents::OpenApi => fetch_openapi(&running, &remote).await,
            }
        };
        let Some(fetched) = until_stopped(&remote, fetching).await else {
            return;
        };
        drop(running);
        if let Err(problem) = &fetched {
            let problem = environment::chain(problem);
            tracing::debug!(api_service = remote.name, ?documents, %problem, "no documents of an extension server");
            if documents == Documents::Discovery {
                lasting.discovered.lock().version = None;
            }
        }
        if !pace
            .wait(&remote, fetched.is_ok(), changed.notified())
            .await
        {
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
