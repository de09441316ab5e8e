//! KubeletConfiguration v1beta1: the part of it that this kubelet acts on, with upstream's
//! defaults, read from a file and its drop-ins. Later files win, key by key. Fields that are not
//! ours are accepted and left alone, so that a file written for upstream's kubelet can be used;
//! what is no field at all is warned of, as upstream does.

mod fields;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use crate::cgroups::Driver;

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
    #[error("{path}: {message}")]
    Content { path: PathBuf, message: String },
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

/// How long pods of a priority, up to the next one named, get when the machine goes down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ShutdownGracePeriod {
    pub priority: i32,
    pub shutdown_grace_period_seconds: i64,
}

impl Default for Configuration {
    /// Upstream's, but for the disk: a fixed amount must stay free, not a share of a large disk.
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
            other: BTreeMap::new(),
        }
    }
}

impl Configuration {
    /// Reads `file` and then the `*.conf` files of `drop_ins` in order of their names. What is not
    /// there is not read.
    pub fn read(file: &Path, drop_ins: &Path) -> Result<Configuration, Error> {
        let mut merged = serde_json::Map::new();
        let mut files = vec![file.to_path_buf()];
        if let Ok(entries) = std::fs::read_dir(drop_ins) {
            let mut found: Vec<PathBuf> = entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|end| end == "conf"))
                .collect();
            found.sort();
            files.extend(found);
        }
        for path in files {
            let bytes = match std::fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(Error::File { path, source }),
            };
            let fields = parse(&bytes).map_err(|message| Error::Content {
                path: path.clone(),
                message,
            })?;
            for field in fields.keys().filter(|field| !fields::is_known(field)) {
                tracing::warn!(file = %path.display(), field, "unknown field in KubeletConfiguration");
            }
            merged.extend(fields);
        }
        Configuration::from_fields(merged).map_err(|message| Error::Content {
            path: file.to_path_buf(),
            message,
        })
    }

    fn from_fields(
        mut fields: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Configuration, String> {
        fields.remove("apiVersion");
        fields.remove("kind");
        let mut configuration: Configuration =
            serde_json::from_value(serde_json::Value::Object(fields))
                .map_err(|error| error.to_string())?;
        if configuration.merge_default_eviction_settings {
            for (signal, value) in Configuration::default().eviction_hard {
                configuration.eviction_hard.entry(signal).or_insert(value);
            }
        }
        configuration.check()?;
        Ok(configuration)
    }

    fn check(&self) -> Result<(), String> {
        if self.container_log_max_files < 2 {
            return Err("containerLogMaxFiles must be greater than 1".to_owned());
        }
        if self.log_max_size().is_none() {
            return Err(format!(
                "containerLogMaxSize {:?} is not a quantity",
                self.container_log_max_size
            ));
        }
        if self.image_gc_low_threshold_percent >= self.image_gc_high_threshold_percent {
            return Err(
                "imageGCLowThresholdPercent must be less than imageGCHighThresholdPercent"
                    .to_owned(),
            );
        }
        if Driver::named(&self.cgroup_driver).is_none() {
            return Err(format!(
                "cgroupDriver {:?} is neither \"cgroupfs\" nor \"systemd\"",
                self.cgroup_driver
            ));
        }
        if self
            .runtime_socket()
            .is_some_and(|path| !path.is_absolute())
        {
            return Err(format!(
                "containerRuntimeEndpoint {:?} is not the path of a socket",
                self.container_runtime_endpoint
            ));
        }
        self.check_pulls()?;
        let restart = &self.crash_loop_back_off.max_container_restart_period;
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(300));
        if !duration(restart).is_some_and(|period| (least..=most).contains(&period)) {
            return Err(format!(
                "invalid configuration: CrashLoopBackOff.MaxContainerRestartPeriod ({restart}) must be between 1 second and 300 seconds (5m0s)"
            ));
        }
        for text in [
            &self.eviction_pressure_transition_period,
            &self.container_log_monitor_interval,
            &self.image_maximum_gc_age,
            &self.node_status_update_frequency,
            &self.node_status_report_frequency,
            &self.image_minimum_gc_age,
            &self.shutdown_grace_period,
            &self.shutdown_grace_period_critical_pods,
        ]
        .into_iter()
        .chain(self.eviction_soft_grace_period.values())
        {
            duration(text).ok_or_else(|| format!("{text:?} is not a duration"))?;
        }
        self.check_shutdown()
    }

    fn check_pulls(&self) -> Result<(), String> {
        if self.max_parallel_image_pulls == Some(0) {
            return Err(
                "invalid configuration: maxParallelImagePulls 0 must be a positive number"
                    .to_owned(),
            );
        }
        if self.serialize_image_pulls && self.max_parallel_image_pulls.is_some_and(|most| most > 1)
        {
            return Err(
                "invalid configuration: maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false"
                    .to_owned(),
            );
        }
        for (name, path, other) in [
            (
                "imageCredentialProviderConfig",
                &self.image_credential_provider_config,
                &self.image_credential_provider_bin_dir,
            ),
            (
                "imageCredentialProviderBinDir",
                &self.image_credential_provider_bin_dir,
                &self.image_credential_provider_config,
            ),
        ] {
            if !(path.is_absolute() || path.as_os_str().is_empty() && other.as_os_str().is_empty())
            {
                return Err(format!(
                    "invalid configuration: {name} {path:?} must be an absolute path"
                ));
            }
        }
        let policies = [
            "NeverVerify",
            "NeverVerifyPreloadedImages",
            "NeverVerifyAllowlistedImages",
            "AlwaysVerify",
        ];
        let policy = self.image_pull_credentials_verification_policy.as_str();
        if !policies.contains(&policy) {
            return Err(format!(
                "invalid configuration: option {policy:?} specified for imagePullCredentialsVerificationPolicy. Valid options are {policies:?}"
            ));
        }
        if !self.preloaded_images_verification_allowlist.is_empty()
            && policy != "NeverVerifyAllowlistedImages"
        {
            return Err(
                "invalid configuration: can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVerificationPolicy` is not \"NeverVerifyAllowlistedImages\""
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn check_shutdown(&self) -> Result<(), String> {
        let all = duration(&self.shutdown_grace_period).unwrap_or_default();
        let critical = duration(&self.shutdown_grace_period_critical_pods).unwrap_or_default();
        if critical > all {
            return Err(format!(
                "invalid configuration: shutdownGracePeriodCriticalPods {} must be <= shutdownGracePeriod {}",
                self.shutdown_grace_period_critical_pods, self.shutdown_grace_period
            ));
        }
        let second = Duration::from_secs(1);
        for (name, period) in [
            ("shutdownGracePeriod", all),
            ("shutdownGracePeriodCriticalPods", critical),
        ] {
            if !period.is_zero() && period < second {
                return Err(format!(
                    "invalid configuration: {name} must be either zero or otherwise >= 1 sec"
                ));
            }
        }
        let by_priority = &self.shutdown_grace_period_by_pod_priority;
        if !(by_priority.is_empty() || all.is_zero() && critical.is_zero()) {
            return Err(
                "invalid configuration: Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The socket of another runtime, where one is named.
    pub fn runtime_socket(&self) -> Option<PathBuf> {
        let endpoint = &self.container_runtime_endpoint;
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        (!path.is_empty()).then(|| PathBuf::from(path))
    }

    pub fn log_max_size(&self) -> Option<u64> {
        let quantity = api::quantity::Quantity::parse(&self.container_log_max_size).ok()?;
        u64::try_from(quantity.value()).ok()
    }

    pub fn transition_period(&self) -> Duration {
        duration(&self.eviction_pressure_transition_period).unwrap_or(Duration::from_secs(300))
    }

    pub fn image_minimum_age(&self) -> Duration {
        duration(&self.image_minimum_gc_age).unwrap_or(Duration::from_secs(120))
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
        let frequency = duration(&self.node_status_update_frequency).unwrap_or_default();
        frequency.max(Duration::from_secs(1))
    }

    pub fn status_report_frequency(&self) -> Duration {
        duration(&self.node_status_report_frequency).unwrap_or(Duration::from_secs(300))
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

fn parse(bytes: &[u8]) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    let documents =
        api::document::yaml::parse_documents(bytes).map_err(|error| error.to_string())?;
    let mut fields = serde_json::Map::new();
    for document in documents {
        let value: serde_json::Value =
            serde_json::from_slice(&document.to_json()).map_err(|error| error.to_string())?;
        match value {
            serde_json::Value::Object(found) => {
                let said = |key: &str| found.get(key).and_then(|text| text.as_str());
                if said("kind").is_some_and(|kind| kind != KIND)
                    || said("apiVersion").is_some_and(|version| version != API_VERSION)
                {
                    return Err(format!("expected a {KIND} of {API_VERSION}"));
                }
                fields.extend(found);
            }
            serde_json::Value::Null => {}
            _ => return Err("expected a mapping".to_owned()),
        }
    }
    Ok(fields)
}

/// A duration as Go writes it: `1h30m`, `10s`, `500ms`.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let seconds = match &rest[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            "us" | "µs" => 0.000_001,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number * seconds).ok()?;
        rest = &rest[end..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "maxPods: 30\nimageGCHighThresholdPercent: 90\n",
        )
        .expect("written");
        let read = Configuration::read(&file, &drop_ins).expect("a configuration");
        assert_eq!((read.max_pods, read.pod_pids_limit), (30, 100));
        assert_eq!(read.image_gc_high_threshold_percent, 90);
        assert_eq!(read.other["failSwapOn"], serde_json::json!(false));
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
        ] {
            std::fs::write(&file, text).expect("written");
            assert!(
                Configuration::read(&file, directory.path()).is_err(),
                "{text}"
            );
        }
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

    #[test]
    fn durations_are_read_as_in_go() {
        assert_eq!(duration("1h0m30s"), Some(Duration::from_secs(3630)));
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("0s"), Some(Duration::ZERO));
        assert_eq!(duration("5"), None);
        assert_eq!(duration(""), None);
    }
}
