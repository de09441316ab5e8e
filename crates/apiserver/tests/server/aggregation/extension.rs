//! An extension API server on the loopback address: real TLS, a client certificate demanded, and
//! handlers that show what arrived.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use api::Value;
use apiserver::{AggregationConfig, DialServices, FrontProxy};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

use crate::harness::{Authority, Client};

pub const GROUP: &str = "wardle.example.com";
pub const ROOT: &str = "/apis/wardle.example.com/v1alpha1";
pub const API_SERVICE: &str = "v1alpha1.wardle.example.com";

/// Leads the addresses of a test's endpoints to the loopback address.
#[derive(Default)]
pub struct Loopback(Mutex<BTreeMap<SocketAddr, SocketAddr>>);

impl Loopback {
    pub fn lead(&self, from: &str, to: SocketAddr) {
        self.0.lock().insert(from.parse().unwrap(), to);
    }
}

impl DialServices for Loopback {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> {
        let known = self.0.lock().get(&address).copied();
        Box::pin(async move {
            match known {
                Some(address) => TcpStream::connect(address).await,
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

/// The front proxy's authority, and what the API server is given of it.
pub fn front_proxy(dialer: Arc<Loopback>) -> (Authority, AggregationConfig) {
    let authority = Authority::new();
    let (certificate_pem, key_pem) = authority.issue("front-proxy-client", &[], false);
    let config = AggregationConfig {
        front_proxy: Some(FrontProxy {
            ca_pem: authority.pem.clone(),
            allowed_names: vec!["front-proxy-client".to_string()],
            certificate_pem,
            key_pem,
        }),
        dialer,
    };
    (authority, config)
}

/// An extension server that runs.
pub struct Extension {
    pub address: SocketAddr,
    /// Signs its certificate.
    pub ca_pem: String,
    pub state: Arc<State>,
}

pub struct State {
    group: String,
    version: String,
    /// Connections that were accepted.
    pub connections: AtomicUsize,
    /// Whether it answers nothing any more.
    pub hangs: AtomicBool,
    /// What discovery answers.
    pub code: AtomicUsize,
    /// Lines for its watches.
    pub events: broadcast::Sender<String>,
    /// Other answers, by path.
    pub answers: Mutex<BTreeMap<String, Value>>,
}

impl Extension {
    /// Serves for a Service; whoever shows no certificate of `front_proxy` is not served.
    pub async fn start(front_proxy: &Authority, service: &str) -> Extension {
        Extension::of(front_proxy, service, GROUP, "v1alpha1").await
    }

    pub async fn of(
        front_proxy: &Authority,
        service: &str,
        group: &str,
        version: &str,
    ) -> Extension {
        let authority = Authority::new();
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let parameters = rcgen::CertificateParams::new(vec![service.to_string()]).unwrap();
        let certificate = parameters.signed_by(&key, &authority.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        let trusted = CertificateDer::from_pem_slice(front_proxy.pem.as_bytes()).unwrap();
        roots.add(trusted).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            group: group.to_string(),
            version: version.to_string(),
            connections: AtomicUsize::new(0),
            hangs: AtomicBool::new(false),
            code: AtomicUsize::new(200),
            events: broadcast::channel(16).0,
            answers: Mutex::default(),
        });
        tokio::spawn(accept(listener, tls, state.clone()));
        Extension {
            address,
            ca_pem: authority.pem,
            state,
        }
    }

    /// Makes the Service, its slice and the APIService that lead here.
    pub async fn register(&self, admin: &Client, loopback: &Loopback, endpoint: &str) {
        let (name, group) = (
            format!("{}.{}", self.state.version, self.state.group),
            &self.state.group,
        );
        let namespace = api::document!({"metadata": {"name": "wardle"}});
        let made = admin.post("/api/v1/namespaces", &namespace).await;
        assert!(matches!(made.code, 201 | 409));
        let service = api::document!({
            "metadata": {"name": "api"}, "spec": {"ports": [{"port": 443, "targetPort": 8443}]},
        });
        let services = "/api/v1/namespaces/wardle/services";
        let made = admin.post(services, &service).await;
        assert!(matches!(made.code, 201 | 409));
        self.publish(admin, loopback, "api", endpoint).await;
        let object = self.api_service(&name, group);
        admin
            .post("/apis/apiregistration.k8s.io/v1/apiservices", &object)
            .await
            .expect(201);
    }

    pub fn api_service(&self, name: &str, group: &str) -> Value {
        use base64::Engine;
        let bundle = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem);
        api::document!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name},
            "spec": {
                "group": group.to_string(), "version": self.state.version.as_str(),
                "groupPriorityMinimum": 2000, "versionPriority": 200, "caBundle": bundle,
                "service": {"namespace": "wardle", "name": "api"},
            },
        })
    }

    /// Makes a slice that leads here.
    pub async fn publish(
        &self,
        admin: &Client,
        loopback: &Loopback,
        service: &str,
        endpoint: &str,
    ) {
        loopback.lead(&format!("{endpoint}:8443"), self.address);
        let slice = api::document!({
            "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": [{"name": "", "port": 8443, "protocol": "TCP"}],
            "endpoints": [{"addresses": [endpoint], "conditions": {"ready": true}}],
        });
        let slices = "/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices";
        admin.post(slices, &slice).await.expect(201);
    }
}

async fn accept(listener: TcpListener, tls: rustls::ServerConfig, state: Arc<State>) {
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), state.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            state.connections.fetch_add(1, Ordering::SeqCst);
            let service = hyper::service::service_fn(move |request| {
                let state = state.clone();
                async move { Ok::<_, Infallible>(answer(&state, request).await) }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
            let _ = served.await;
        });
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

fn json(code: u16, document: &Value) -> Answer {
    typed(code, "application/json", document)
}

fn typed(code: u16, kind: &str, document: &Value) -> Answer {
    Response::builder()
        .status(code)
        .header("content-type", kind)
        .body(Full::new(Bytes::from(document.to_json())).boxed())
        .unwrap()
}

async fn answer(state: &State, mut request: Request<Incoming>) -> Answer {
    if state.hangs.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let State { group, version, .. } = state;
    let path = request.uri().path().to_string();
    let resource = api::document!({
        "resource": "flunders", "singularResource": "flunder", "scope": "Namespaced",
        "responseKind": {"group": group.as_str(), "version": version.as_str(), "kind": "Flunder"},
        "verbs": ["get", "list", "watch"],
    });
    let code = state.code.load(Ordering::SeqCst) as u16;
    if request.headers().contains_key("upgrade") {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let (mut reader, mut writer) = tokio::io::split(&mut stream);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        });
        return Response::builder()
            .status(101)
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .body(Full::default().boxed())
            .unwrap();
    }
    if let Some(known) = state.answers.lock().get(&path) {
        return json(200, known);
    }
    match path.as_str() {
        "/apis" => typed(
            200,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            &api::document!({"items": [{"metadata": {"name": group.as_str()},
                "versions": [{"version": version.as_str(), "resources": [resource]}]}]}),
        ),
        "/openapi/v3" => {
            let own = format!("apis/{group}/{version}");
            let mut index = api::document!({"paths": {"apis": {"serverRelativeURL": "/x"}}});
            let url = format!("/openapi/v3/{own}?hash=ABC");
            index.set(&["paths", &own], api::document!({"serverRelativeURL": url}));
            json(200, &index)
        }
        "/openapi/v2" => {
            let mut document = api::document!({
                "definitions": {"wardle.Flunder": {"type": "object"}},
            });
            let flunders = format!("/apis/{group}/{version}/flunders");
            let schema = api::document!({"$ref": "#/definitions/wardle.Flunder"});
            let item = api::document!({"get": {"responses": {"200": {"schema": schema}}}});
            document.set(&["paths", &flunders], item);
            json(200, &document)
        }
        path if path == format!("/apis/{group}/{version}") => json(
            code,
            &api::document!({"kind": "APIResourceList", "apiVersion": "v1", "resources": []}),
        ),
        path if path.ends_with("/redirect") => Response::builder()
            .status(302)
            .header("location", "https://192.0.2.9/")
            .body(Full::default().boxed())
            .unwrap(),
        path if path.ends_with("/flunders") && request.uri().query() == Some("watch=1") => {
            let events = tokio_stream_of(state.events.subscribe());
            Response::new(BodyExt::boxed(StreamBody::new(events)))
        }
        _ => echo(request).await,
    }
}

fn tokio_stream_of(
    receiver: broadcast::Receiver<String>,
) -> impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let first = futures::stream::iter([Ok(Frame::data(Bytes::from("begin\n")))]);
    let rest = futures::stream::unfold(receiver, |mut receiver| async {
        let line = receiver.recv().await.ok()?;
        Some((Ok(Frame::data(Bytes::from(line))), receiver))
    });
    first.chain(rest)
}

/// What arrived, as JSON.
async fn echo(request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut headers = Value::object();
    for name in parts.headers.keys() {
        let values = parts.headers.get_all(name).iter();
        let values: Vec<Value> = values.map(|value| value.to_str().unwrap().into()).collect();
        headers.set(&[name.as_str()], values);
    }
    json(
        200,
        &api::document!({
            "method": parts.method.as_str(),
            "path": parts.uri.path_and_query().unwrap().as_str(),
            "headers": headers, "body": String::from_utf8_lossy(&body).into_owned(),
        }),
    )
}
