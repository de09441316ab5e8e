//! A server per test, and a client that speaks paths and JSON.

use std::sync::Arc;

use api::Value;
use apiserver::{AdmissionConfig, AggregationConfig, ApiServer, Config, Identity, InProcess};
use bytes::Bytes;
use environment::Environment;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};
use tower::Service;

pub struct Cluster {
    pub server: ApiServer,
}

pub struct Authority {
    pub pem: String,
    pub issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub fn new() -> Authority {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, "test-ca");
        let certificate = parameters.self_signed(&key).unwrap();
        Authority {
            pem: certificate.pem(),
            issuer: rcgen::Issuer::new(parameters, key),
        }
    }

    /// Certificate and key in PEM.
    pub fn issue(&self, user: &str, groups: &[&str], server: bool) -> (String, String) {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let names = vec!["localhost".to_string(), "127.0.0.1".to_string()];
        let mut parameters = rcgen::CertificateParams::new(names).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, user);
        for group in groups {
            parameters
                .distinguished_name
                .push(rcgen::DnType::OrganizationName, *group);
        }
        parameters.extended_key_usages = vec![match server {
            true => rcgen::ExtendedKeyUsagePurpose::ServerAuth,
            false => rcgen::ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// What an operator decides.
#[derive(Default)]
pub struct Decisions {
    pub admission: AdmissionConfig,
    pub aggregation: AggregationConfig,
    pub runtime_config: api::catalogue::RuntimeConfig,
    pub feature_gates: api::features::FeatureGates,
}

impl Cluster {
    pub async fn start() -> Cluster {
        Cluster::with(
            Authority::new(),
            Environment::simulated(1, 1_800_000_000_000_000),
        )
        .await
    }

    /// One whose operator decided about admission.
    pub async fn admitting(admission: AdmissionConfig) -> Cluster {
        Cluster::decided(Decisions {
            admission,
            ..Decisions::default()
        })
        .await
    }

    /// One whose operator decided something.
    pub async fn decided(decisions: Decisions) -> Cluster {
        let environment = Environment::simulated(1, 1_800_000_000_000_000);
        let disk = SimulatedDisk::new(1).mount();
        let store = Embedded::open(disk, environment.clone(), Options::default())
            .await
            .unwrap();
        let (address, authority) = ("192.0.2.1:6443", Authority::new());
        Cluster::start_at(address, false, store, authority, environment, decisions).await
    }

    /// One whose operator decided about aggregation.
    pub async fn aggregating(authority: Authority, aggregation: AggregationConfig) -> Cluster {
        let environment = Environment::simulated(1, 1_800_000_000_000_000);
        let disk = SimulatedDisk::new(1).mount();
        let store = Embedded::open(disk, environment.clone(), Options::default())
            .await
            .unwrap();
        let decisions = Decisions {
            aggregation,
            ..Decisions::default()
        };
        let address = "192.0.2.1:6443";
        Cluster::start_at(address, false, store, authority, environment, decisions).await
    }

    pub async fn with(authority: Authority, environment: Environment) -> Cluster {
        let disk = SimulatedDisk::new(1).mount();
        let store = Embedded::open(disk, environment.clone(), Options::default())
            .await
            .unwrap();
        Cluster::over(store, authority, environment).await
    }

    pub async fn over(
        store: Arc<dyn store::Store>,
        authority: Authority,
        environment: Environment,
    ) -> Cluster {
        Cluster::at("192.0.2.1:6443", false, store, authority, environment).await
    }

    /// A server at `address`, perhaps one of several over `store`.
    pub async fn at(
        address: &str,
        shares_store: bool,
        store: Arc<dyn store::Store>,
        authority: Authority,
        environment: Environment,
    ) -> Cluster {
        let decisions = Decisions::default();
        Cluster::start_at(
            address,
            shares_store,
            store,
            authority,
            environment,
            decisions,
        )
        .await
    }

    async fn start_at(
        address: &str,
        shares_store: bool,
        store: Arc<dyn store::Store>,
        authority: Authority,
        environment: Environment,
        decisions: Decisions,
    ) -> Cluster {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let server = ApiServer::start(Config {
            store,
            environment: environment.clone(),
            timelines: trace::Timelines::open(None, environment).unwrap(),
            client_ca_pem: authority.pem,
            service_account_key_pem: key.serialize_pem(),
            issuer: "https://kubernetes.default.svc.cluster.local".to_string(),
            service_range: "10.96.0.0/12".to_string(),
            dns_service_ip: "10.96.0.10".to_string(),
            advertise: address.parse().unwrap(),
            kubelet_client: None,
            aggregation: decisions.aggregation,
            cluster_domain: "cluster.local".to_string(),
            shares_store,
            compaction: apiserver::COMPACTION,
            admission: decisions.admission,
            runtime_config: decisions.runtime_config,
            feature_gates: decisions.feature_gates,
        })
        .await
        .unwrap();
        Cluster { server }
    }

    /// Ends as a server does that is told to.
    pub async fn stop(self) {
        let shutdown = tokio_util::sync::CancellationToken::new();
        shutdown.cancel();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tls = rustls::ServerConfig::builder().with_no_client_auth();
        let tls =
            tls.with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        let served = self.server.serve(listener, Arc::new(tls), shutdown).await;
        served.unwrap();
    }

    pub fn admin(&self) -> Client {
        self.client(Identity::administrator())
    }

    pub fn client(&self, identity: Identity) -> Client {
        Client {
            service: self.server.in_process(identity),
            headers: HeaderMap::new(),
        }
    }

    /// A namespace with its default ServiceAccount, as the controllers would make it.
    pub async fn namespace(&self, name: &str) {
        let admin = self.admin();
        if name != "default" {
            let namespace = api::document!({"metadata": {"name": name}});
            admin
                .post("/api/v1/namespaces", &namespace)
                .await
                .expect(201);
        }
        let account = api::document!({"metadata": {"name": "default"}});
        admin
            .post(
                &format!("/api/v1/namespaces/{name}/serviceaccounts"),
                &account,
            )
            .await
            .expect(201);
    }
}

#[derive(Clone)]
pub struct Client {
    service: InProcess,
    headers: HeaderMap,
}

pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        Value::from_json(&self.bytes)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&self.bytes)))
    }

    #[track_caller]
    pub fn expect(self, code: u16) -> Value {
        let text = String::from_utf8_lossy(&self.bytes).into_owned();
        assert_eq!(self.code, code, "{text}");
        self.json()
    }

    /// The failure's reason and message.
    #[track_caller]
    pub fn failure(self, code: u16, reason: &str) -> String {
        let status = self.expect(code);
        assert_eq!(status.str_at(&["kind"]), "Status", "{status}");
        assert_eq!(status.str_at(&["reason"]), reason, "{status}");
        assert_eq!(
            status.get("code").and_then(Value::as_i64),
            Some(code.into())
        );
        status.str_at(&["message"]).to_string()
    }
}

impl Client {
    pub fn with_header(mut self, name: &'static str, value: &str) -> Client {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub async fn send(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Answer {
        let response = self.open(method, path, content_type, body).await;
        let (code, headers) = (response.status(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            code: StatusCode::as_u16(&code),
            headers,
            bytes,
        }
    }

    pub async fn open(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> http::Response<apiserver::Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        let request = request
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        self.service.clone().call(request).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", b"").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "application/json", &body.to_json())
            .await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, "application/json", &body.to_json())
            .await
    }

    pub async fn merge(&self, path: &str, body: &Value) -> Answer {
        let body = body.to_json();
        self.send("PATCH", path, "application/merge-patch+json", &body)
            .await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", b"").await
    }

    pub async fn watch(&self, path: &str) -> Events {
        let response = self.open("GET", path, "", b"").await;
        assert_eq!(response.status(), 200);
        Events {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }
}

/// The lines of a watch.
pub struct Events {
    body: apiserver::Body,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event's type and object; `None` when the stream ended.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let event = Value::from_json(&line).unwrap();
                let object = event.get("object").cloned().unwrap();
                return Some((event.str_at(&["type"]).to_string(), object));
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// The next event as `TYPE name`.
    pub async fn summary(&mut self) -> String {
        match self.next().await {
            Some((kind, object)) => format!("{kind} {}", object.str_at(&["metadata", "name"])),
            None => "END".to_string(),
        }
    }
}

pub fn config_map(name: &str) -> Value {
    api::document!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub fn pod(name: &str) -> Value {
    api::document!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    })
}
