//! A node for a test: API server, scripted runtime, kubelet, each on its own in a scratch
//! directory. Cgroups are real and removed with their pods.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use apiserver::{ApiServer, Identity};
use environment::Environment;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use store::{
    disk::SimulatedDisk,
    embedded::{Embedded, Options},
};
use tokio_util::sync::CancellationToken;

use crate::{
    asking::{Administrator, Authority, new_key, value},
    runtime::Runtime,
};

pub const NODE: &str = "node-1";
/// How often, every 10 ms, a test looks for something before it calls it missing.
pub const ATTEMPTS: usize = 12_000;

pub struct Node {
    pub runtime: Runtime,
    pub admin: kube::Client,
    pub directory: tempfile::TempDir,
    pub kubelet_port: u16,
    /// Microseconds by which the node's clock is wrong.
    clock_shift: Arc<AtomicI64>,
    runtime_server: Option<tokio::runtime::Runtime>,
    api: ApiServer,
    tls: Arc<rustls::ServerConfig>,
    configuration: kubelet::Configuration,
    pub cgroup_root: String,
    pub administrator: Administrator,
    /// What the kubelet and the API server trace.
    pub timelines: trace::Timelines,
    /// Memory that volumes of all pods share, where a test wants it.
    pub secret_root: Option<std::path::PathBuf>,
    kubelet: Option<(tokio::task::JoinHandle<()>, CancellationToken)>,
}

impl Node {
    pub async fn start() -> Node {
        Node::start_with(kubelet::Configuration::default()).await
    }

    /// Its place for static pods is set by the node.
    pub async fn start_with(configuration: kubelet::Configuration) -> Node {
        let mut node = Node::prepare(configuration).await;
        node.start_kubelet();
        node
    }

    /// Why the kubelet does not start with this configuration.
    pub async fn refused(configuration: kubelet::Configuration) -> kubelet::Error {
        let mut node = Node::prepare(configuration).await;
        let (config, client) = node.parts_of_kubelet();
        let running = kubelet::run(config, client, CancellationToken::new());
        running.await.expect_err("the kubelet does not start")
    }

    /// All but the kubelet.
    async fn prepare(configuration: kubelet::Configuration) -> Node {
        client::connect::install_crypto_provider();
        let environment = Environment::system();
        let disk = SimulatedDisk::new(1).mount();
        let store = Embedded::open(disk, environment.clone(), Options::default())
            .await
            .expect("a store");
        let authority = Authority::new();
        let timelines = trace::Timelines::open(None, environment.clone()).expect("timelines");
        let api = ApiServer::start(apiserver::Config {
            store,
            environment: environment.clone(),
            timelines: timelines.clone(),
            client_ca_pem: authority.certificate.pem(),
            service_account_key_pem: new_key().serialize_pem(),
            issuer: "https://kubernetes.default.svc.cluster.local".to_owned(),
            service_range: "10.96.0.0/12".to_owned(),
            dns_service_ip: "10.96.0.10".to_owned(),
            advertise: "127.0.0.1:6443".parse().expect("an address"),
            kubelet_client: None,
            aggregation: Default::default(),
            cluster_domain: "cluster.local".to_owned(),
            shares_store: false,
            compaction: apiserver::COMPACTION,
            runtime_config: Default::default(),
            feature_gates: Default::default(),
            admission: apiserver::AdmissionConfig {
                pod_ranges: Some(Arc::new(|_: &str| Ok(Some("10.244.0.0/24".to_owned())))),
                ..apiserver::AdmissionConfig::default()
            },
        })
        .await
        .expect("an API server");
        let roots = Arc::new(authority.roots());
        let verifier = rustls::server::WebPkiClientVerifier::builder(roots)
            .allow_unauthenticated()
            .build()
            .expect("a verifier");
        let (chain, key) = authority.issue("localhost", "system:nodes");
        let mut tls = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .expect("a TLS configuration");
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let admin = client::connect::from_service(api.in_process(Identity::administrator()));
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = Runtime::new();
        let mut node = Node {
            runtime,
            admin,
            directory,
            kubelet_port: 0,
            clock_shift: Arc::default(),
            runtime_server: None,
            api,
            tls: Arc::new(tls),
            configuration,
            cgroup_root: format!("/coracle-test-{}", environment.name_suffix(8)),
            administrator: Administrator::new(&authority),
            timelines,
            secret_root: None,
            kubelet: None,
        };
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("an account");
        let accounts: Api<ServiceAccount> = Api::namespaced(node.admin.clone(), "default");
        let _ = accounts.create(&PostParams::default(), &account).await;
        let clock = Environment::shifted(node.clock_shift.clone());
        node.runtime.state().clock = Some(clock);
        node.start_runtime();
        node
    }

    /// The runtime listens, with all that it knew before.
    pub fn start_runtime(&mut self) {
        let server = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads for the runtime");
        let socket = self.directory.path().join("cri.sock");
        let _ = std::fs::remove_file(&socket);
        {
            let _inside = server.enter();
            self.runtime.serve(&socket);
        }
        self.runtime_server = Some(server);
    }

    /// Every connection to the runtime breaks, and its socket no longer listens.
    pub fn stop_runtime(&mut self) {
        if let Some(server) = self.runtime_server.take() {
            server.shutdown_background();
        }
        let _ = std::fs::remove_file(self.directory.path().join("cri.sock"));
    }

    /// Sets the node's clock.
    pub fn move_clock(&self, micros: i64) {
        self.clock_shift.fetch_add(micros, Ordering::Relaxed);
    }

    /// The kubelet is killed in the middle of whatever it does.
    pub async fn kill_kubelet(&mut self) {
        if let Some((task, shutdown)) = self.kubelet.take() {
            task.abort();
            let _ = task.await;
            // What it had begun on its own ends too.
            shutdown.cancel();
        }
    }

    fn parts_of_kubelet(&mut self) -> (kubelet::Config, kube::Client) {
        let listen = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        self.kubelet_port = listen.local_addr().expect("an address").port();
        let config = kubelet::Config {
            gives_up: false,
            node_name: NODE.to_owned(),
            node_ip: "127.0.0.1".parse().expect("an address"),
            root: self.directory.path().join("kubelet"),
            secret_root: self.secret_root.clone(),
            log_dir: self.directory.path().join("logs"),
            cri_socket: self.directory.path().join("cri.sock"),
            cluster_dns: vec!["10.96.0.10".to_owned()],
            cluster_domain: "cluster.local".to_owned(),
            listen,
            tls: self.tls.clone(),
            cgroup_root: self.cgroup_root.clone(),
            pod_cidr: "10.244.0.0/24".to_owned(),
            labels: BTreeMap::new(),
            configuration: kubelet::Configuration {
                static_pod_path: self.manifests(),
                ..self.configuration.clone()
            },
            system_bus: kubelet::SystemBus {
                socket: self.bus_socket(),
                logind_settings: self.directory.path().join("logind.conf.d"),
            },
            environment: Environment::shifted(self.clock_shift.clone()),
            recorder: trace::Recorder::new(Arc::new(self.timelines.clone())),
        };
        let client = client::connect::from_service(self.api.in_process(Identity::node(NODE)));
        (config, client)
    }

    pub fn start_kubelet(&mut self) {
        let (config, client) = self.parts_of_kubelet();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn({
            let shutdown = shutdown.clone();
            async move {
                kubelet::run(config, client, shutdown)
                    .await
                    .expect("the kubelet ran")
            }
        });
        self.kubelet = Some((task, shutdown));
    }

    pub async fn stop_kubelet(&mut self) {
        if let Some((task, shutdown)) = self.kubelet.take() {
            shutdown.cancel();
            task.await.expect("the kubelet ended");
        }
    }

    /// Where this node looks for static pods. Made by those who want some.
    pub fn manifests(&self) -> std::path::PathBuf {
        self.directory.path().join("manifests")
    }

    /// Where this node looks for the system's message bus.
    pub fn bus_socket(&self) -> std::path::PathBuf {
        self.directory.path().join("bus.sock")
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), "default")
    }

    /// What the kubelet's server answers an administrator.
    pub async fn get(&self, path: &str) -> String {
        self.administrator.get(self.kubelet_port, path).await
    }

    /// Waits until `/metrics` has such a value.
    pub async fn metric(&self, series: &str, wanted: impl Fn(f64) -> bool) {
        let mut page = String::new();
        for _ in 0..ATTEMPTS / 10 {
            page = self.get("/metrics").await;
            if value(&page, series).is_some_and(&wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{series} did not become as wanted: {page}");
    }

    /// Creates a pod bound to this node.
    pub async fn create(&self, name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!(NODE);
        if spec.get("automountServiceAccountToken").is_none() {
            spec["automountServiceAccountToken"] = json!(false);
        }
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}));
        let pod = pod.expect("a pod");
        let created = self.pods().create(&PostParams::default(), &pod).await;
        created.expect("the pod is created")
    }

    /// Waits until the pod is as wanted; shows what it is if that never comes.
    pub async fn wait(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            // A busy machine may answer late, with an error that asks to try again.
            if let Ok(Some(pod)) = self.pods().get_opt(name).await {
                if wanted(&pod) {
                    return pod;
                }
                last = Some(pod);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!(
            "{name} did not get there; calls: {:?}; status: {}",
            self.runtime.calls(),
            serde_json::to_string_pretty(&last.and_then(|pod| pod.status)).unwrap_or_default()
        );
    }

    pub async fn wait_gone(&self, name: &str) {
        for _ in 0..ATTEMPTS {
            if matches!(self.pods().get_opt(name).await, Ok(None)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let last = self.pods().get_opt(name).await.ok().flatten();
        panic!(
            "{name} is still there; calls: {:?}; pod: {}",
            self.runtime.calls(),
            serde_json::to_string_pretty(&last).unwrap_or_default()
        );
    }

    /// Waits until something holds, looking often.
    pub async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        for _ in 0..ATTEMPTS {
            if holds().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never {what}; calls: {:?}", self.runtime.calls());
    }

    /// Ends the kubelet; what it left in the kernel goes with the node.
    pub async fn close(mut self) {
        self.stop_kubelet().await;
    }
}

/// Also when a test fails: no mount and no cgroup stays behind.
impl Drop for Node {
    fn drop(&mut self) {
        if let Some((task, _)) = &self.kubelet {
            task.abort();
        }
        self.stop_runtime();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        for point in points.filter(|point| Path::new(point).starts_with(self.directory.path())) {
            let _ = nix::mount::umount2(point, nix::mount::MntFlags::MNT_DETACH);
        }
        let relative = self.cgroup_root.trim_start_matches('/');
        let mount = Path::new("/sys/fs/cgroup");
        remove_cgroups(&mount.join(relative));
        for hierarchy in std::fs::read_dir(mount).into_iter().flatten().flatten() {
            remove_cgroups(&hierarchy.path().join(relative));
        }
    }
}

fn remove_cgroups(path: &Path) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroups(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(path);
}

pub fn ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .into_iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// `reason` of the first container's waiting state.
pub fn waits_for(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses
        .first()?
        .state
        .as_ref()?
        .waiting
        .as_ref()?
        .reason
        .clone()
}
