//! The flags that describe a cluster, shared by `coracle up` and `coracle server`.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Result;
use api::catalogue::RuntimeConfig;
use api::features::FeatureGates;
use clap::Args;

use crate::claims::canonical;
use crate::flags;
use crate::layout::Settings;
use crate::storage::StoreArguments;

#[derive(Args, Clone)]
pub struct ClusterArguments {
    /// Port of the API server; 0 chooses any free port [default: 6443, or the next free port]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Name of this machine's node [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = flags::node_name)]
    pub node_name: Option<String>,
    /// Address at which other machines reach this node [default: the address of the default route]
    #[arg(long, value_name = "ADDRESS", value_parser = flags::node_address)]
    pub node_ip: Option<IpAddr>,
    /// Address range of the pods [default: 10.244.0.0/16, or the next free range]
    #[arg(long, value_name = "CIDR", value_parser = flags::pod_range)]
    pub pod_range: Option<String>,
    /// Address range of the Services [default: 10.96.0.0/12, or the next free range]
    #[arg(long, value_name = "CIDR", value_parser = flags::service_range)]
    pub service_range: Option<String>,
    /// CRI socket of another container runtime, such as unix:///run/containerd/containerd.sock
    #[arg(long, value_name = "SOCKET", value_parser = flags::socket_path)]
    pub container_runtime_endpoint: Option<PathBuf>,
    /// Components that should not run: scheduler, controllers, node, proxy, dns
    #[arg(long, value_name = "COMPONENT,...", value_delimiter = ',', value_parser = ["scheduler", "controllers", "node", "proxy", "dns"])]
    pub disable: Vec<String>,
    /// KubeSchedulerConfiguration of the scheduler [default: scheduler.yaml in the data directory]
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,
    /// Admission plugins to enable in addition to the default ones
    #[arg(long, value_name = "PLUGIN,...", value_delimiter = ',', value_parser = apiserver::OPTIONAL_PLUGINS)]
    pub enable_admission_plugins: Vec<String>,
    /// Built-in API versions and resources to serve or not, such as batch/v1=false
    #[arg(long, value_name = "KEY=BOOL,...", default_value = "", hide_default_value = true, value_parser = RuntimeConfig::parse)]
    pub runtime_config: RuntimeConfig,
    /// Kubernetes' feature gates to switch on or off, such as WatchList=false
    #[arg(long, value_name = "GATE=BOOL,...", default_value = "", hide_default_value = true, value_parser = FeatureGates::parse)]
    pub feature_gates: FeatureGates,
    #[command(flatten)]
    pub store: StoreArguments,
    /// Log filter, such as info, debug or kubelet=debug,info
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = flags::log_filter)]
    pub log: String,
    /// Write log lines as JSON
    #[arg(long)]
    pub log_json: bool,
}

impl ClusterArguments {
    /// The flags that `up` passes on to the server of its keeper. Choices that are stored in the
    /// data directory's settings are not repeated.
    pub fn forwarded(&self) -> Vec<String> {
        let mut arguments = vec![format!("--log={}", self.log)];
        if !self.disable.is_empty() {
            arguments.push(format!("--disable={}", self.disable.join(",")));
        }
        if !self.enable_admission_plugins.is_empty() {
            let plugins = self.enable_admission_plugins.join(",");
            arguments.push(format!("--enable-admission-plugins={plugins}"));
        }
        let runtime_config = self.runtime_config.to_string();
        if !runtime_config.is_empty() {
            arguments.push(format!("--runtime-config={runtime_config}"));
        }
        let feature_gates = self.feature_gates.to_string();
        if !feature_gates.is_empty() {
            arguments.push(format!("--feature-gates={feature_gates}"));
        }
        if self.log_json {
            arguments.push("--log-json".to_string());
        }
        if let Some(file) = &self.scheduler_config {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            arguments.push(format!("--scheduler-config={}", file.display()));
        }
        arguments.extend(self.store.forwarded());
        arguments
    }

    pub fn enabled(&self, component: &str) -> bool {
        !self.disable.iter().any(|disabled| disabled == component)
    }

    /// Rejects flags that contradict what was chosen when the data directory was created.
    pub fn check_unchanged(&self, settings: &Settings) -> Result<()> {
        let port = self.port.filter(|port| *port != 0);
        let pod_range = self.pod_range.as_deref().map(canonical);
        let service_range = self.service_range.as_deref().map(canonical);
        flags::reject_change("--port", port, Some(settings.api_port))?;
        flags::reject_change(
            "--pod-range",
            pod_range,
            Some(canonical(&settings.pod_range)),
        )?;
        flags::reject_change(
            "--service-range",
            service_range,
            Some(canonical(&settings.service_range)),
        )?;
        flags::reject_node_change(
            settings,
            self.node_name.as_deref(),
            self.node_ip,
            self.container_runtime_endpoint.as_deref(),
        )
    }
}
