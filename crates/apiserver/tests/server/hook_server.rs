//! A webhook on the loopback address: real TCP, real TLS, and answers that a test decides about.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::Value;
use base64::Engine;
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::harness::{Authority, Client};

pub const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// What the hook answers.
pub enum Reply {
    Json(Value),
    /// A code, a header and a body.
    Raw(u16, Option<(&'static str, String)>, Vec<u8>),
    /// The answer comes when the test says so.
    When(Arc<Notify>, Box<Reply>),
    /// Never answers.
    Never,
    /// Begins its answer, with this, and never ends it.
    Begun(Vec<u8>),
}

type Respond = dyn Fn(&str, &Value) -> Reply + Send + Sync;

/// A hook, and what it was asked.
pub struct HookServer {
    pub address: SocketAddr,
    pub authority: String,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    reviews: Mutex<VecDeque<(String, Value)>>,
    arrived: Notify,
}

/// How the hook shows itself.
pub struct Identity {
    pub names: Vec<String>,
    pub is_expired: bool,
    pub protocols: Vec<&'static str>,
    pub address: &'static str,
}

impl Default for Identity {
    fn default() -> Identity {
        Identity {
            names: vec!["127.0.0.1".to_string()],
            is_expired: false,
            protocols: vec!["http/1.1"],
            address: "127.0.0.1:0",
        }
    }
}

impl HookServer {
    pub async fn start(respond: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Self {
        HookServer::with(Identity::default(), respond).await
    }

    pub async fn with(
        identity: Identity,
        respond: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
    ) -> HookServer {
        let authority = Authority::new();
        let tls = server_config(&authority, &identity);
        let listener = TcpListener::bind(identity.address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let (noted, respond): (_, Arc<Respond>) = (seen.clone(), Arc::new(respond));
        tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(tls);
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, noted, respond) = (acceptor.clone(), noted.clone(), respond.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    noted.connections.fetch_add(1, Ordering::SeqCst);
                    let service = hyper::service::service_fn(move |request| {
                        answer(noted.clone(), respond.clone(), request)
                    });
                    let builder =
                        hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        HookServer {
            address,
            authority: authority.pem,
            seen,
        }
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// What it was asked since the last time, in order: path and `AdmissionReview`.
    pub fn take(&self) -> Vec<(String, Value)> {
        self.seen.reviews.lock().drain(..).collect()
    }

    /// The requests of [`HookServer::take`] alone.
    pub fn requests(&self) -> Vec<Value> {
        let taken = self.take().into_iter();
        taken
            .map(|(_, review)| review.get("request").cloned().unwrap())
            .collect()
    }

    /// Waits until it has been asked at least so often since the last `take`.
    pub async fn asked(&self, times: usize) {
        loop {
            let mut arrived = std::pin::pin!(self.seen.arrived.notified());
            arrived.as_mut().enable();
            if self.seen.reviews.lock().len() >= times {
                return;
            }
            arrived.await;
        }
    }

    /// The `clientConfig` that leads to it.
    pub fn config(&self, path: &str) -> Value {
        api::document!({
            "url": format!("https://{}{path}", self.address),
            "caBundle": base64::engine::general_purpose::STANDARD.encode(&self.authority),
        })
    }

    /// A hook for these operations on these resources of any group.
    pub fn hook(&self, name: &str, operations: &[&str], resources: &[&str]) -> Value {
        let texts =
            |items: &[&str]| -> Vec<Value> { items.iter().map(|it| Value::from(*it)).collect() };
        let mut rule = api::document!({"apiGroups": ["*"], "apiVersions": ["*"]});
        rule.set(&["operations"], texts(operations));
        rule.set(&["resources"], texts(resources));
        let mut hook = api::document!({
            "name": format!("{name}.example.com"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        });
        hook.set(&["clientConfig"], self.config(&format!("/{name}")));
        hook.set(&["rules"], vec![rule]);
        hook
    }
}

async fn answer(
    seen: Arc<Seen>,
    respond: Arc<Respond>,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let path = request.uri().path().to_string();
    let body = request
        .into_body()
        .collect()
        .await
        .map(|body| body.to_bytes());
    let review = Value::from_json(&body.unwrap_or_default()).unwrap_or_default();
    let mut reply = respond(&path, &review);
    seen.reviews.lock().push_back((path, review));
    seen.arrived.notify_waiters();
    loop {
        reply = match reply {
            Reply::When(moment, then) => {
                moment.notified().await;
                *then
            }
            Reply::Never => std::future::pending().await,
            Reply::Json(document) => {
                let body = document.to_json();
                Reply::Raw(
                    200,
                    Some(("content-type", "application/json".to_string())),
                    body,
                )
            }
            Reply::Raw(code, header, body) => {
                let mut response = Response::builder().status(code);
                if let Some((name, value)) = header {
                    response = response.header(name, value);
                }
                return Ok(response.body(Full::new(body.into()).boxed()).unwrap());
            }
            Reply::Begun(part) => {
                let first = futures::stream::iter([Ok(Frame::data(part.into()))]);
                let endless = first.chain(futures::stream::pending());
                return Ok(Response::new(BodyExt::boxed(StreamBody::new(endless))));
            }
        };
    }
}

fn server_config(authority: &Authority, identity: &Identity) -> Arc<rustls::ServerConfig> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let mut parameters = rcgen::CertificateParams::new(identity.names.clone()).unwrap();
    parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    if identity.is_expired {
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2021, 1, 1);
    }
    let certificate = parameters.signed_by(&key, &authority.issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    let protocols = identity.protocols.iter();
    config.alpn_protocols = protocols.map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Writes a configuration with these hooks, and waits until the server knows it.
pub async fn configure(admin: &Client, path: &str, name: &str, hooks: Vec<Value>) -> Value {
    let mut configuration = api::document!({"metadata": {"name": name}});
    configuration.set(&["webhooks"], hooks);
    let made = admin.post(path, &configuration).await.expect(201);
    // Reading an object waits until the cache has everything that was written before.
    admin.get(&format!("{path}/{name}")).await.expect(200);
    made
}

/// An `AdmissionReview` that answers this one.
pub fn review(asked: &Value, response: Value) -> Value {
    let mut review = api::document!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
    });
    let mut response = response;
    response.set(&["uid"], asked.str_at(&["request", "uid"]));
    review.set(&["response"], response);
    review
}

pub fn allowed(asked: &Value) -> Reply {
    Reply::Json(review(asked, api::document!({"allowed": true})))
}

pub fn denied(asked: &Value, status: Value) -> Reply {
    let mut response = api::document!({"allowed": false});
    response.set(&["status"], status);
    Reply::Json(review(asked, response))
}

/// Allows, with these operations as a patch.
pub fn patched(asked: &Value, operations: &Value) -> Reply {
    let patch = base64::engine::general_purpose::STANDARD.encode(operations.to_json());
    let response = api::document!({"allowed": true, "patch": patch, "patchType": "JSONPatch"});
    Reply::Json(review(asked, response))
}
