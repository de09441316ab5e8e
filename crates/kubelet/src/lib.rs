//! The kubelet: takes the pods bound to this node from the API, runs them through CRI, and reports
//! their status to the API. It reaches containers only over CRI, and keeps nothing that it could
//! not find again in the runtime, on disk and in the API.
//!
//! Modules import from their own layer or from one below it, never in a circle (`cargo xtask tidy`
//! checks that):
//!
//! | layer | modules |
//! |---|---|
//! | top: builds and runs the parts | this file, `assembly`, `startup` |
//! | the node as a whole | `server`, `eviction`, `shutdown`, `node` (registration and lease), `container_gc` |
//! | pods | `pods` (all of them: intake and list), `static_pods`, `pod` (one: plan, worker and its actions, status) |
//! | services, each owner of its state | `images`, `image_gc`, `volumes`, `cgroups`, `admission`, `probes`, `hooks`, `stats`, `log_rotation`, `referenced`, `tokens` |
//! | handles that many share | `telemetry` (with `events` and `spans`), `node_settings`, `node_object`, `node_pressure`, `shutdown_state` |
//! | records and pure rules | `configuration`, `capacity`, `container` (CRI's form of a container), `image`, `pod_spec`, `resources`, `runtime` (what CRI reports), `measures`, `backoff`, `token_bucket`, `log_format`, `notices`, `http_get` |

mod admission;
mod assembly;
mod backoff;
mod capacity;
mod cgroups;
mod configuration;
mod container;
mod container_gc;
mod events;
mod eviction;
mod hooks;
mod http_get;
mod image;
mod image_gc;
mod images;
mod log_format;
mod log_rotation;
mod measures;
mod node;
mod node_object;
mod node_pressure;
mod node_settings;
mod notices;
mod pod;
mod pod_spec;
mod pods;
mod probes;
mod referenced;
mod resources;
mod runtime;
mod server;
mod shutdown;
mod shutdown_state;
mod spans;
mod startup;
mod static_pods;
mod stats;
mod telemetry;
mod token_bucket;
mod tokens;
mod volumes;

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc};

use environment::Environment;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use self::assembly::Kubelet;
pub use self::{
    configuration::{Configuration, Error as ConfigurationError, ShutdownGracePeriod},
    shutdown::SystemBus,
};

pub struct Config {
    pub node_name: String,
    pub node_ip: IpAddr,
    /// The directory of the kubelet: pods and their volumes are below it.
    pub root: PathBuf,
    /// A file system in memory for volumes that must not reach a disk. Without it each of them gets a
    /// tmpfs of its own.
    pub secret_root: Option<PathBuf>,
    /// Logs are `<log_dir>/<namespace>_<name>_<uid>/<container>/<n>.log`.
    pub log_dir: PathBuf,
    pub cri_socket: PathBuf,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    pub listen: std::net::TcpListener,
    /// Must ask for client certificates.
    pub tls: Arc<rustls::ServerConfig>,
    /// The cgroup below which `kubepods` is made, e.g. `/coracle-1a2b3c`.
    pub cgroup_root: String,
    pub pod_cidr: String,
    pub labels: BTreeMap<String, String>,
    pub configuration: Configuration,
    /// Whether the kubelet ends when the API server refuses the node for good, instead of trying for
    /// ever.
    pub gives_up: bool,
    /// Where the machine's shutdown is announced.
    pub system_bus: SystemBus,
    pub environment: Environment,
    pub recorder: trace::Recorder,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the kubelet's directory {path} could not be made")]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the server refuses node {node}: {why}")]
    Refused { node: String, why: String },
    #[error("the runtime client could not be made")]
    Cri(#[from] cri::Error),
    #[error(
        "running with swap on is not supported, please disable swap or set failSwapOn to false"
    )]
    Swap,
    #[error("whether the machine swaps could not be read")]
    Swaps(#[source] std::io::Error),
    #[error("the image credential providers could not be set up")]
    CredentialProviders(#[from] images::ProvidersError),
    #[error("the kubelet's server could not listen")]
    Listen(#[source] std::io::Error),
}

/// Runs until `shutdown`. Pods keep running; a kubelet that is started later finds them again.
pub fn run(
    config: Config,
    client: kube::Client,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), Error>> {
    // Boxed, so that all of it is compiled here, for speed: the body of an async function is compiled
    // where it is awaited.
    Box::pin(run_all(config, client, shutdown))
}

async fn run_all(
    config: Config,
    client: kube::Client,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let Some((kubelet, socket)) = Kubelet::build(config, client, &shutdown).await? else {
        return Ok(());
    };
    kubelet.announce();
    let (hint_sender, hints) = Kubelet::hints();
    let (static_pods, manifests) = kubelet.read_manifests().await;
    let (_, registered, ..) = tokio::join!(
        kubelet.watch_runtime(hint_sender, &shutdown),
        kubelet.keep_registered(&shutdown),
        kubelet.serve(socket, &shutdown),
        kubelet.serve_health(&shutdown),
        kubelet.run_pods(hints, manifests, &shutdown),
        kubelet.follow_manifests(static_pods, &shutdown),
        kubelet.evict(&shutdown),
        kubelet.collect_images(&shutdown),
        kubelet.rotate_logs(&shutdown),
        kubelet.watch_machine_shutdown(&shutdown),
    );
    registered
}
