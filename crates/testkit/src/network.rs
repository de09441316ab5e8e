//! In-process connections between components and the API server: they are refused while the server
//! is down, break when either end crashes, and delay, lose and cut requests as a seed determines.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use apiserver::{ApiServer, Identity};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body as RequestBody;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tower::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How unreliable the connections are. Probabilities are in thousandths per request.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub longest_delay: Duration,
    /// The request never arrives.
    pub lost_before: u32,
    /// The request takes effect, but its response is lost.
    pub lost_after: u32,
    /// The longest lifetime of a watch.
    pub longest_watch: Duration,
}

impl Faults {
    pub const MODERATE: Faults = Faults {
        longest_delay: Duration::from_millis(20),
        lost_before: 20,
        lost_after: 20,
        longest_watch: Duration::from_secs(60),
    };

    pub const SEVERE: Faults = Faults {
        longest_delay: Duration::from_millis(500),
        lost_before: 150,
        lost_after: 150,
        longest_watch: Duration::from_secs(5),
    };
}

/// The network between all components. Clones are the same network.
#[derive(Clone, Default)]
pub struct Network {
    switchboard: Arc<Mutex<Switchboard>>,
}

#[derive(Default)]
struct Switchboard {
    server: Option<Server>,
    faults: Option<(Faults, StdRng)>,
    acknowledged: u64,
    requests: BTreeMap<String, u64>,
}

#[derive(Clone)]
struct Server {
    api: ApiServer,
    life: CancellationToken,
}

/// The faults of one request.
#[derive(Default)]
struct Fate {
    delay: Duration,
    lost_before: bool,
    lost_after: bool,
    watch_ends: Option<Duration>,
}

impl Network {
    pub fn connect(&self, api: ApiServer) {
        let life = CancellationToken::new();
        self.switchboard.lock().server = Some(Server { api, life });
    }

    /// Disconnects the server: requests in flight and watches break.
    pub fn disconnect(&self) {
        if let Some(server) = self.switchboard.lock().server.take() {
            server.life.cancel();
        }
    }

    /// The server, while there is one.
    pub fn server(&self) -> Option<ApiServer> {
        let switchboard = self.switchboard.lock();
        switchboard.server.as_ref().map(|server| server.api.clone())
    }

    /// Sets how unreliable the connections are from now on; `seed` determines the faults.
    pub fn degrade(&self, faults: Faults, seed: u64) {
        self.switchboard.lock().faults = Some((faults, StdRng::seed_from_u64(seed)));
    }

    pub fn heal(&self) {
        self.switchboard.lock().faults = None;
    }

    /// The newest resourceVersion that any successful write has returned to its caller.
    pub fn acknowledged(&self) -> u64 {
        self.switchboard.lock().acknowledged
    }

    /// The number of requests of each user.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        self.switchboard.lock().requests.clone()
    }

    /// A client that acts as `identity` until `life` ends. After that its requests are not sent and
    /// never return, as those of a dead process.
    pub fn client(&self, identity: Identity, life: CancellationToken) -> kube::Client {
        let transport = Transport {
            network: self.clone(),
            identity,
            life,
        };
        client::connect::from_service(transport)
    }

    fn fate(&self, user: &str) -> Fate {
        let mut switchboard = self.switchboard.lock();
        *switchboard.requests.entry(user.to_owned()).or_default() += 1;
        let Some((faults, random)) = &mut switchboard.faults else {
            return Fate::default();
        };
        let up_to = |random: &mut StdRng, longest: Duration| {
            Duration::from_micros(random.random_range(0..=longest.as_micros() as u64))
        };
        Fate {
            delay: up_to(random, faults.longest_delay),
            lost_before: random.random_range(0..1000) < faults.lost_before,
            lost_after: random.random_range(0..1000) < faults.lost_after,
            watch_ends: Some(up_to(random, faults.longest_watch)),
        }
    }
}

/// One component's connection.
#[derive(Clone)]
struct Transport {
    network: Network,
    identity: Identity,
    life: CancellationToken,
}

impl Service<Request<RequestBody>> for Transport {
    type Response = Response<Wire>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Wire>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let transport = self.clone();
        Box::pin(async move {
            tokio::select! {
                biased;
                () = transport.life.cancelled() => std::future::pending().await,
                response = transport.send(request) => response,
            }
        })
    }
}

impl Transport {
    async fn send(&self, request: Request<RequestBody>) -> Result<Response<Wire>, BoxError> {
        let user = self.identity.user();
        tracing::debug!(user, method = %request.method(), uri = %request.uri(), "request");
        let fate = self.network.fate(user);
        tokio::time::sleep(fate.delay).await;
        if fate.lost_before {
            return Err(broken("the request was lost"));
        }
        let Some(server) = self.network.switchboard.lock().server.clone() else {
            let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "no server");
            return Err(refused.into());
        };
        let is_write = request.method() != Method::GET;
        let mut service = server.api.in_process(self.identity.clone());
        let response = tokio::select! {
            biased;
            () = server.life.cancelled() => return Err(broken("the server died")),
            response = service.call(request) => match response {
                Ok(response) => response,
                Err(never) => match never {},
            },
        };
        if fate.lost_after {
            return Err(broken("the answer was lost"));
        }
        let (parts, body) = response.into_parts();
        let body = if is_write {
            let bytes = body.collect().await?.to_bytes();
            if parts.status.is_success() {
                self.acknowledge(&bytes);
            }
            Full::new(bytes)
                .map_err(|never: Infallible| match never {})
                .boxed_unsync()
        } else {
            body.boxed_unsync()
        };
        let (server_life, caller_life) = (server.life, self.life.clone());
        let cut = Box::pin(async move {
            let age = async {
                match fate.watch_ends {
                    Some(age) => tokio::time::sleep(age).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = server_life.cancelled() => {}
                () = caller_life.cancelled() => {}
                () = age => {}
            }
        });
        Ok(Response::from_parts(
            parts,
            Wire {
                body,
                cut: Some(cut),
            },
        ))
    }

    fn acknowledge(&self, body: &[u8]) {
        let version = serde_json::from_slice::<Written<'_>>(body)
            .ok()
            .and_then(|written| written.metadata.resource_version?.parse().ok())
            .unwrap_or(0);
        let mut switchboard = self.network.switchboard.lock();
        switchboard.acknowledged = switchboard.acknowledged.max(version);
    }
}

/// The fields of a response from which an acknowledged write is recognized. The others are not
/// decoded, to keep the network cheap.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    metadata: WrittenMetadata<'a>,
}

#[derive(Deserialize)]
struct WrittenMetadata<'a> {
    #[serde(rename = "resourceVersion")]
    resource_version: Option<&'a str>,
}

/// A response body that breaks when the connection is cut.
struct Wire {
    body: UnsyncBoxBody<Bytes, BoxError>,
    /// Completes when the connection is cut; `None` afterwards.
    cut: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Body for Wire {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(cut) = &mut self.cut else {
            return Poll::Ready(None);
        };
        if cut.as_mut().poll(context).is_ready() {
            self.cut = None;
            return Poll::Ready(Some(Err(broken("the connection was cut"))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}

fn broken(reason: &str) -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, reason).into()
}
