//! KubeletConfiguration v1beta1: the part of it that this kubelet acts on, with upstream's
//! defaults, read from a file and its drop-ins. Later files win, key by key ([`merge`]). Fields
//! that are not ours are accepted, so that a file written for upstream's kubelet can be used, and
//! warned of where they ask for what we do not do ([`fields`]); what is no field at all is warned
//! of, as upstream does. What makes no sense is refused ([`checks`]).

mod cgroup_driver;
mod checks;
pub mod eviction_thresholds;
mod fields;
mod merge;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use environment::go_duration::parse_unsigned as duration;
use serde::Deserialize;

pub use self::cgroup_driver::CgroupDriver;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}")]
    Content {
        path: PathBuf,
        #[source]
        source: ContentError,
    },
}

/// What is wrong with the content of a file.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error(transparent)]
    Yaml(#[from] api::document::yaml::Error),
    #[error(transparent)]
    Type(#[from] serde_json::Error),
    #[error("expected a {KIND} of {API_VERSION}")]
    OtherKind,
    #[error("no apiVersion/kind")]
    NoKind,
    #[error("expected a mapping")]
    NotAMapping,
    #[error(transparent)]
    Field(#[from] checks::InvalidField),
}

#[derive(Clone, Debug, PartialEq, Deserialize, serde::Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Configuration {
    /// `unix:///path` of another runtime than the embedded one; empty for that.
    pub container_runtime_endpoint: String,
    /// `cgroupfs` or `systemd`, for the embedded runtime; another one says which it has.
    pub cgroup_driver: String,
    pub max_pods: i64,
    pub pod_pids_limit: i64,
    pub allowed_unsafe_sysctls: Vec<String>,
    pub system_reserved: BTreeMap<String, String>,
    pub kube_reserved: BTreeMap<String, String>,
    pub eviction_hard: BTreeMap<String, String>,
    pub eviction_soft: BTreeMap<String, String>,
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    pub eviction_max_pod_grace_period: i64,
    pub eviction_minimum_reclaim: BTreeMap<String, String>,
    /// Whether signals that `evictionHard` leaves out keep their defaults.
    pub merge_default_eviction_settings: bool,
    pub eviction_pressure_transition_period: String,
    pub container_log_max_size: String,
    pub container_log_max_files: usize,
    pub container_log_monitor_interval: String,
    pub crash_loop_back_off: CrashLoopBackOff,
    /// One pull at a time. Upstream's default is to do so.
    pub serialize_image_pulls: bool,
    pub max_parallel_image_pulls: Option<usize>,
    pub image_pull_credentials_verification_policy: String,
    pub preloaded_images_verification_allowlist: Vec<String>,
    /// A CredentialProviderConfig or a directory of them, and where its programs are; empty for none.
    /// Flags of upstream's kubelet.
    pub image_credential_provider_config: PathBuf,
    pub image_credential_provider_bin_dir: PathBuf,
    /// An image unused for so long leaves; zero for never.
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: String,
    pub resolv_conf: PathBuf,
    pub node_status_max_images: i64,
    pub node_status_update_frequency: String,
    pub node_status_report_frequency: String,
    pub pods_per_core: i64,
    pub seccomp_default: bool,
    pub enable_system_log_handler: bool,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i64,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i64,
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: String,
    pub node_lease_duration_seconds: i32,
    /// A manifest or a directory of them; empty for none.
    pub static_pod_path: PathBuf,
    pub shutdown_grace_period: String,
    pub shutdown_grace_period_critical_pods: String,
    pub shutdown_grace_period_by_pod_priority: Vec<ShutdownGracePeriod>,
    pub register_with_taints: Vec<k8s_openapi::api::core::v1::Taint>,
    /// Whether the Node object is made if it is not there.
    pub register_node: bool,
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Instead of the cluster's own.
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    /// Whether CPU limits are enforced.
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: String,
    /// A list such as `0-1,4`: these are for the machine.
    #[serde(rename = "reservedSystemCPUs")]
    pub reserved_system_cpus: String,
    pub enforce_node_allocatable: Vec<String>,
    /// Whether to refuse a machine that swaps; unset for no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_swap_on: Option<bool>,
    pub memory_swap: MemorySwap,
    /// Whether pods that use more disk than they may are evicted.
    pub local_storage_capacity_isolation: bool,
    /// The port of `/healthz` without authentication; 0 means none.
    pub healthz_port: u16,
    pub healthz_bind_address: String,
    pub enable_debugging_handlers: bool,
    pub enable_system_log_query: bool,
    pub runtime_request_timeout: String,
    pub file_check_frequency: String,
    pub http_check_frequency: String,
    #[serde(rename = "staticPodURL")]
    pub static_pod_url: String,
    #[serde(rename = "staticPodURLHeader")]
    pub static_pod_url_header: BTreeMap<String, Vec<String>>,
    /// Instead of the node's own.
    pub pod_logs_dir: PathBuf,
    pub container_log_max_workers: usize,
    /// 0 for as many as are asked for.
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    pub registry_burst: i32,
    /// 0 for as many as there are.
    #[serde(rename = "eventRecordQPS")]
    pub event_record_qps: i32,
    pub event_burst: i32,
    pub feature_gates: BTreeMap<String, bool>,
    /// Everything else the file says, shown again by `/configz`.
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CrashLoopBackOff {
    pub max_container_restart_period: String,
}

impl Default for CrashLoopBackOff {
    fn default() -> CrashLoopBackOff {
        CrashLoopBackOff {
            max_container_restart_period: "5m0s".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemorySwap {
    pub swap_behavior: String,
}

/// How much containers may swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapBehavior {
    NoSwap,
    /// Burstable pods, in proportion to the memory they ask for.
    LimitedSwap,
}

/// How long pods of a priority, up to the next one named, get when the machine goes down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ShutdownGracePeriod {
    pub priority: i32,
    pub shutdown_grace_period_seconds: i64,
}

impl Default for Configuration {
    /// Upstream's, but for the disk (a fixed amount must stay free, not a share of a large disk) and
    /// for what a machine that is not the kubelet's alone cannot give: swap switched off, a port of
    /// its own for `/healthz`. Nothing is throttled unless asked.
    fn default() -> Configuration {
        let map = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        Configuration {
            container_runtime_endpoint: String::new(),
            cgroup_driver: "cgroupfs".to_owned(),
            max_pods: 110,
            pod_pids_limit: -1,
            allowed_unsafe_sysctls: Vec::new(),
            system_reserved: BTreeMap::new(),
            kube_reserved: BTreeMap::new(),
            eviction_hard: map(&[
                ("memory.available", "100Mi"),
                ("nodefs.available", "1Gi"),
                ("nodefs.inodesFree", "5%"),
                ("imagefs.available", "1Gi"),
                ("imagefs.inodesFree", "5%"),
            ]),
            eviction_soft: BTreeMap::new(),
            eviction_soft_grace_period: BTreeMap::new(),
            eviction_max_pod_grace_period: 0,
            eviction_minimum_reclaim: BTreeMap::new(),
            merge_default_eviction_settings: false,
            eviction_pressure_transition_period: "5m0s".to_owned(),
            container_log_max_size: "10Mi".to_owned(),
            container_log_max_files: 5,
            container_log_monitor_interval: "10s".to_owned(),
            crash_loop_back_off: CrashLoopBackOff::default(),
            serialize_image_pulls: false,
            max_parallel_image_pulls: None,
            image_pull_credentials_verification_policy: "NeverVerifyPreloadedImages".to_owned(),
            preloaded_images_verification_allowlist: Vec::new(),
            image_credential_provider_config: PathBuf::new(),
            image_credential_provider_bin_dir: PathBuf::new(),
            image_maximum_gc_age: "0s".to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            node_status_max_images: 50,
            node_status_update_frequency: "10s".to_owned(),
            node_status_report_frequency: "5m0s".to_owned(),
            pods_per_core: 0,
            seccomp_default: false,
            enable_system_log_handler: true,
            image_gc_high_threshold_percent: 85,
            image_gc_low_threshold_percent: 80,
            image_minimum_gc_age: "2m0s".to_owned(),
            node_lease_duration_seconds: 40,
            static_pod_path: PathBuf::new(),
            shutdown_grace_period: "0s".to_owned(),
            shutdown_grace_period_critical_pods: "0s".to_owned(),
            shutdown_grace_period_by_pod_priority: Vec::new(),
            register_with_taints: Vec::new(),
            register_node: true,
            provider_id: String::new(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: "100ms".to_owned(),
            reserved_system_cpus: String::new(),
            enforce_node_allocatable: vec!["pods".to_owned()],
            fail_swap_on: None,
            memory_swap: MemorySwap::default(),
            local_storage_capacity_isolation: true,
            healthz_port: 0,
            healthz_bind_address: "127.0.0.1".to_owned(),
            enable_debugging_handlers: true,
            enable_system_log_query: false,
            runtime_request_timeout: "2m0s".to_owned(),
            file_check_frequency: "20s".to_owned(),
            http_check_frequency: "20s".to_owned(),
            static_pod_url: String::new(),
            static_pod_url_header: BTreeMap::new(),
            pod_logs_dir: PathBuf::new(),
            container_log_max_workers: 1,
            registry_pull_qps: 0,
            registry_burst: 10,
            event_record_qps: 0,
            event_burst: 100,
            feature_gates: BTreeMap::new(),
            other: BTreeMap::new(),
        }
    }
}

impl Configuration {
    /// Reads `file` and then the `*.conf` files of `drop_ins` and of its directories, in order of
    /// their names. What is not there is not read.
    pub fn read(file: &Path, drop_ins: &Path) -> Result<Configuration, Error> {
        let mut merged = serde_json::Value::Object(serde_json::Map::new());
        let base = std::iter::once((file.to_path_buf(), false));
        let later = merge::drop_ins(drop_ins)?
            .into_iter()
            .map(|path| (path, true));
        for (path, is_drop_in) in base.chain(later) {
            let bytes = match std::fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(Error::File { path, source }),
            };
            let fields = parse(&bytes, is_drop_in).map_err(|source| Error::Content {
                path: path.clone(),
                source,
            })?;
            for field in fields.keys().filter(|field| !fields::is_known(field)) {
                tracing::warn!(file = %path.display(), field, "unknown field in KubeletConfiguration");
            }
            merge::patch(&mut merged, serde_json::Value::Object(fields));
        }
        Configuration::from_fields(merged).map_err(|source| Error::Content {
            path: file.to_path_buf(),
            source,
        })
    }

    fn from_fields(mut fields: serde_json::Value) -> Result<Configuration, ContentError> {
        if let Some(fields) = fields.as_object_mut() {
            // Unset is null in files that programs write.
            fields.retain(|name, value| {
                !value.is_null() && name.as_str() != "apiVersion" && name.as_str() != "kind"
            });
        }
        let mut configuration: Configuration = serde_json::from_value(fields)?;
        if configuration.merge_default_eviction_settings {
            for (signal, value) in Configuration::default().eviction_hard {
                configuration.eviction_hard.entry(signal).or_insert(value);
            }
        }
        if configuration.node_lease_duration_seconds == 0 {
            configuration.node_lease_duration_seconds =
                Configuration::default().node_lease_duration_seconds;
        }
        configuration.check()?;
        configuration.reserve_cpus()?;
        Ok(configuration)
    }

    /// The fields that are set and ask for something that this kubelet does not do.
    pub fn unsupported(&self) -> Vec<String> {
        fields::unsupported(self)
    }

    /// CPUs reserved by number count as the machine's, and nothing else does.
    fn reserve_cpus(&mut self) -> Result<(), ContentError> {
        if self.reserved_system_cpus.is_empty() {
            return Ok(());
        }
        let count = checks::cpu_list(&self.reserved_system_cpus)?.len();
        self.kube_reserved.remove("cpu");
        self.system_reserved
            .insert("cpu".to_owned(), count.to_string());
        Ok(())
    }

    /// The socket of another runtime, where one is named.
    pub fn runtime_socket(&self) -> Option<PathBuf> {
        let endpoint = &self.container_runtime_endpoint;
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        (!path.is_empty()).then(|| PathBuf::from(path))
    }

    /// `None` when logs are not rotated.
    pub fn log_max_size(&self) -> Option<u64> {
        let quantity = api::quantity::Quantity::parse(&self.container_log_max_size).ok()?;
        u64::try_from(quantity.value()).ok()
    }

    pub fn transition_period(&self) -> Duration {
        set_or(&self.eviction_pressure_transition_period, 300)
    }

    pub fn image_minimum_age(&self) -> Duration {
        set_or(&self.image_minimum_gc_age, 120)
    }

    /// How long the runtime has to answer.
    pub fn runtime_request_timeout(&self) -> Duration {
        set_or(&self.runtime_request_timeout, 120)
    }

    /// How often manifests are looked at without a notice of change.
    pub fn file_check_frequency(&self) -> Duration {
        set_or(&self.file_check_frequency, 20)
    }

    pub fn http_check_frequency(&self) -> Duration {
        set_or(&self.http_check_frequency, 20)
    }

    pub fn swap_behavior(&self) -> SwapBehavior {
        match self.memory_swap.swap_behavior.as_str() {
            "LimitedSwap" => SwapBehavior::LimitedSwap,
            _ => SwapBehavior::NoSwap,
        }
    }

    /// How CPU limits are enforced: the period in microseconds, `None` if they are not.
    pub fn cpu_quota_period(&self) -> Option<i64> {
        let period = duration(&self.cpu_cfs_quota_period)?;
        self.cpu_cfs_quota.then_some(period.as_micros() as i64)
    }

    /// Whether all pods together are kept within what the machine leaves them.
    pub fn enforces_allocatable(&self) -> bool {
        let mut enforced = self.enforce_node_allocatable.iter();
        enforced.any(|what| what == "pods")
    }

    pub fn image_maximum_age(&self) -> Option<Duration> {
        duration(&self.image_maximum_gc_age).filter(|age| !age.is_zero())
    }

    /// The longest pause between restarts of a container, in microseconds.
    pub fn longest_restart_pause(&self) -> i64 {
        let longest = duration(&self.crash_loop_back_off.max_container_restart_period);
        longest.unwrap_or(Duration::from_secs(300)).as_micros() as i64
    }

    pub fn log_monitor_interval(&self) -> Duration {
        let interval = duration(&self.container_log_monitor_interval).unwrap_or_default();
        interval.max(Duration::from_secs(3))
    }

    pub fn status_update_frequency(&self) -> Duration {
        set_or(&self.node_status_update_frequency, 10).max(Duration::from_secs(1))
    }

    pub fn status_report_frequency(&self) -> Duration {
        set_or(&self.node_status_report_frequency, 300)
    }

    /// How much of a resource is kept for the machine, in thousandths.
    pub fn reserved_milli(&self, resource: &str) -> i64 {
        [&self.system_reserved, &self.kube_reserved]
            .into_iter()
            .filter_map(|reserved| reserved.get(resource))
            .filter_map(|amount| api::quantity::Quantity::parse(amount).ok())
            .map(api::quantity::Quantity::milli)
            .sum()
    }
}

/// Zero is unset, as upstream has it.
fn set_or(text: &str, seconds: u64) -> Duration {
    duration(text)
        .filter(|duration| !duration.is_zero())
        .unwrap_or(Duration::from_secs(seconds))
}

/// `named`: it must say what it is.
fn parse(
    bytes: &[u8],
    named: bool,
) -> Result<serde_json::Map<String, serde_json::Value>, ContentError> {
    let mut fields = serde_json::Map::new();
    for document in api::document::yaml::parse_documents(bytes)? {
        match serde_json::from_slice(&document.to_json())? {
            serde_json::Value::Object(found) => {
                let said = |key: &str| found.get(key).and_then(|text| text.as_str());
                if said("kind").is_some_and(|kind| kind != KIND)
                    || said("apiVersion").is_some_and(|version| version != API_VERSION)
                {
                    return Err(ContentError::OtherKind);
                }
                if named && (said("kind").is_none() || said("apiVersion").is_none()) {
                    return Err(ContentError::NoKind);
                }
                fields.extend(found);
            }
            serde_json::Value::Null if named => return Err(ContentError::NoKind),
            serde_json::Value::Null => {}
            _ => return Err(ContentError::NotAMapping),
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

    #[test]
    fn later_files_win_key_by_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("kubelet.yaml");
        let drop_ins = directory.path().join("kubelet.d");
        std::fs::create_dir(&drop_ins).expect("made");
        std::fs::write(
            &file,
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 20\npodPidsLimit: 100\nfailSwapOn: false\n",
        )
        .expect("written");
        std::fs::write(
            drop_ins.join("10.conf"),
            format!("{HEAD}maxPods: 30\nimageGCHighThresholdPercent: 90\n"),
        )
        .expect("written");
        let read = Configuration::read(&file, &drop_ins).expect("a configuration");
        assert_eq!((read.max_pods, read.pod_pids_limit), (30, 100));
        assert_eq!(read.image_gc_high_threshold_percent, 90);
        assert_eq!(read.fail_swap_on, Some(false));
        assert_eq!(read.eviction_hard["memory.available"], "100Mi");
        let absent = Configuration::read(&directory.path().join("none"), &drop_ins.join("none"));
        assert_eq!(absent.expect("defaults"), Configuration::default());
    }

    #[test]
    fn a_wrong_file_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("kubelet.yaml");
        for text in [
            "kind: Pod\n",
            "maxPods: many\n",
            "containerLogMaxFiles: 1\n",
            "imageMinimumGCAge: soon\n",
            "crashLoopBackOff: {maxContainerRestartPeriod: 10m}\n",
            "maxParallelImagePulls: 0\n",
            "serializeImagePulls: true\nmaxParallelImagePulls: 3\n",
            "imagePullCredentialsVerificationPolicy: Sometimes\n",
            "preloadedImagesVerificationAllowlist: [a/b]\n",
            "imageCredentialProviderConfig: /etc/providers.yaml\n",
            "imageCredentialProviderConfig: a\nimageCredentialProviderBinDir: b\n",
            "- a\n",
            "evictionHard: {memory.free: 1Gi}\n",
            "evictionSoft: {memory.available: 1Gi}\n",
            "imageGCHighThresholdPercent: 101\n",
            "imageGCLowThresholdPercent: -1\n",
            "imageMaximumGCAge: 1m\n",
            "nodeLeaseDurationSeconds: -1\n",
            "maxPods: -1\n",
            "podsPerCore: -1\n",
            "healthzPort: 70000\n",
            "cpuCFSQuotaPeriod: 10ms\n",
            "featureGates: {CustomCPUCFSQuotaPeriod: true}\ncpuCFSQuotaPeriod: 2s\n",
            "memorySwap: {swapBehavior: UnlimitedSwap}\n",
            "enforceNodeAllocatable: [none, pods]\n",
            "enforceNodeAllocatable: [everything]\n",
            "enforceNodeAllocatable: [system-reserved]\n",
            "reservedSystemCPUs: 3-1\n",
            "reservedSystemCPUs: '0'\nkubeReservedCgroup: /kube\n",
            "podLogsDir: logs\n",
            "containerLogMaxWorkers: 0\n",
            "containerLogMaxSize: much\n",
            "eventRecordQPS: -1\n",
            "registryPullQPS: -1\n",
            "runOnce: true\n",
            "enableSystemLogQuery: true\nenableSystemLogHandler: false\n",
        ] {
            std::fs::write(&file, text).expect("written");
            assert!(
                Configuration::read(&file, directory.path()).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_drop_in_patches_what_is_inside() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("kubelet.yaml");
        let drop_ins = directory.path().join("kubelet.d");
        std::fs::create_dir_all(drop_ins.join("20-more")).expect("made");
        let write = |path: &Path, text: &str| std::fs::write(path, text).expect("written");
        write(
            &file,
            "evictionHard: {memory.available: 1Gi, nodefs.available: 5%}\nsystemReserved: {cpu: 100m, memory: 1Gi}\nmaxPods: 20\n",
        );
        write(
            &drop_ins.join("10.conf"),
            &format!(
                "{HEAD}evictionHard: {{nodefs.available: 6%}}\nsystemReserved: {{cpu: 200m}}\n"
            ),
        );
        write(
            &drop_ins.join("20-more/1.conf"),
            &format!("{HEAD}systemReserved: {{memory: null}}\nmaxPods: null\n"),
        );
        write(&drop_ins.join("30.yaml"), "not: [read");
        let read = || Configuration::read(&file, &drop_ins);
        let found = read().expect("a configuration");
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(
            found.eviction_hard,
            map(&[("memory.available", "1Gi"), ("nodefs.available", "6%")])
        );
        assert_eq!(found.system_reserved, map(&[("cpu", "200m")]));
        assert_eq!(found.max_pods, 110, "taken back");
        write(&drop_ins.join("40.conf"), "maxPods: 3\n");
        let error = read().expect_err("it does not say what it is");
        let error = environment::chain(&error).to_string();
        assert!(error.ends_with("40.conf: no apiVersion/kind"), "{error}");
    }

    #[test]
    fn reserved_cpus_and_switched_off_logs_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("kubelet.yaml");
        std::fs::write(
            &file,
            "reservedSystemCPUs: 0-1,3\nkubeReserved: {cpu: 500m, memory: 1Gi}\ncontainerLogMaxSize: '-1'\ncpuCFSQuota: false\nmemorySwap: {swapBehavior: LimitedSwap}\nimageMinimumGCAge: 0s\n",
        )
        .expect("written");
        let read = Configuration::read(&file, directory.path()).expect("a configuration");
        assert_eq!(read.reserved_milli("cpu"), 3000);
        assert_eq!(read.reserved_milli("memory"), 1000 << 30);
        assert_eq!(read.log_max_size(), None);
        assert_eq!(read.cpu_quota_period(), None);
        assert_eq!(read.swap_behavior(), SwapBehavior::LimitedSwap);
        assert_eq!(read.image_minimum_age(), Duration::from_secs(120));
        assert_eq!(Configuration::default().cpu_quota_period(), Some(100_000));
    }

    #[test]
    fn defaults_of_eviction_may_be_merged() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("kubelet.yaml");
        let text = "evictionHard: {memory.available: 1Gi}\ncrashLoopBackOff: {maxContainerRestartPeriod: 2s}\n";
        std::fs::write(&file, text).expect("written");
        let read = || Configuration::read(&file, directory.path()).expect("a configuration");
        assert_eq!(read().eviction_hard.len(), 1);
        assert_eq!(read().longest_restart_pause(), 2_000_000);
        std::fs::write(&file, format!("{text}mergeDefaultEvictionSettings: true\n"))
            .expect("written");
        assert_eq!(read().eviction_hard["memory.available"], "1Gi");
        assert_eq!(read().eviction_hard["nodefs.inodesFree"], "5%");
    }
}
