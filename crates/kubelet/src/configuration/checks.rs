//! Refuses invalid configurations, in upstream's wording. Pure.

use std::{collections::BTreeSet, time::Duration};

use environment::go_duration::parse_unsigned as duration;

use super::{CgroupDriver, Configuration, eviction_thresholds};

/// A field with an invalid value, in upstream's wording.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidField(String);

impl Configuration {
    pub(super) fn check(&self) -> Result<(), InvalidField> {
        self.check_fields().map_err(InvalidField)
    }

    fn check_fields(&self) -> Result<(), String> {
        if self.container_log_max_files < 2 {
            return Err("containerLogMaxFiles must be greater than 1".to_owned());
        }
        if api::quantity::Quantity::parse(&self.container_log_max_size).is_err() {
            return Err(format!(
                "containerLogMaxSize {:?} is not a quantity",
                self.container_log_max_size
            ));
        }
        self.check_numbers()?;
        self.check_resources()?;
        eviction_thresholds::parse(self)
            .map_err(|message| format!("invalid configuration: {message}"))?;
        if self.image_gc_low_threshold_percent >= self.image_gc_high_threshold_percent {
            return Err(
                "imageGCLowThresholdPercent must be less than imageGCHighThresholdPercent"
                    .to_owned(),
            );
        }
        if CgroupDriver::named(&self.cgroup_driver).is_none() {
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
            &self.runtime_request_timeout,
            &self.file_check_frequency,
            &self.http_check_frequency,
            &self.cpu_cfs_quota_period,
        ] {
            duration(text).ok_or_else(|| format!("{text:?} is not a duration"))?;
        }
        let (least, most) = (
            duration(&self.image_minimum_gc_age).unwrap_or_default(),
            duration(&self.image_maximum_gc_age).unwrap_or_default(),
        );
        if !most.is_zero() && most <= least {
            return Err(format!(
                "invalid configuration: imageMaximumGCAge {} must be greater than imageMinimumGCAge {}",
                self.image_maximum_gc_age, self.image_minimum_gc_age
            ));
        }
        self.check_shutdown()
    }

    fn check_numbers(&self) -> Result<(), String> {
        for (name, percent) in [
            (
                "imageGCHighThresholdPercent (--image-gc-high-threshold)",
                self.image_gc_high_threshold_percent,
            ),
            (
                "imageGCLowThresholdPercent (--image-gc-low-threshold)",
                self.image_gc_low_threshold_percent,
            ),
        ] {
            if !(0..=100).contains(&percent) {
                return Err(format!(
                    "invalid configuration: {name} {percent} must be between 0 and 100, inclusive"
                ));
            }
        }
        for (name, number) in [
            ("maxPods (--max-pods)", self.max_pods),
            ("podsPerCore (--pods-per-core)", self.pods_per_core),
            ("eventRecordQPS (--event-qps)", self.event_record_qps.into()),
            ("eventBurst (--event-burst)", self.event_burst.into()),
            (
                "registryPullQPS (--registry-qps)",
                self.registry_pull_qps.into(),
            ),
            (
                "registryBurst (--registry-burst)",
                self.registry_burst.into(),
            ),
        ] {
            if number < 0 {
                return Err(format!(
                    "invalid configuration: {name} {number} must not be a negative number"
                ));
            }
        }
        if self.node_lease_duration_seconds <= 0 {
            return Err(
                "invalid configuration: nodeLeaseDurationSeconds must be greater than 0".to_owned(),
            );
        }
        if self.node_status_max_images < -1 {
            return Err(format!(
                "invalid configuration: nodeStatusMaxImages (--node-status-max-images) {} must be -1 or greater",
                self.node_status_max_images
            ));
        }
        if self.container_log_max_workers < 1 {
            return Err(
                "invalid configuration: containerLogMaxWorkers must be greater than or equal to 1"
                    .to_owned(),
            );
        }
        if self.enable_system_log_query && !self.enable_system_log_handler {
            return Err(
                "invalid configuration: enableSystemLogHandler is required for enableSystemLogQuery"
                    .to_owned(),
            );
        }
        if self.other.get("runOnce") == Some(&serde_json::Value::Bool(true)) {
            return Err("invalid configuration: runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set".to_owned());
        }
        Ok(())
    }

    fn check_resources(&self) -> Result<(), String> {
        let period = duration(&self.cpu_cfs_quota_period).unwrap_or_default();
        let text = &self.cpu_cfs_quota_period;
        let may_be_set = self.feature_gates.get("CustomCPUCFSQuotaPeriod") == Some(&true);
        if !may_be_set && period != Duration::from_millis(100) {
            return Err(format!(
                "invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {text} requires feature gate CustomCPUCFSQuotaPeriod"
            ));
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&period) {
            return Err(format!(
                "invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {text} must be between 1ms and 1sec, inclusive"
            ));
        }
        let swap = self.memory_swap.swap_behavior.as_str();
        if !["", "NoSwap", "LimitedSwap"].contains(&swap) {
            return Err(format!(
                "invalid configuration: memorySwap.swapBehavior {swap:?} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\""
            ));
        }
        let has_text = |name: &str| {
            let text = self.other.get(name).and_then(|value| value.as_str());
            text.is_some_and(|text| !text.is_empty())
        };
        for what in &self.enforce_node_allocatable {
            let cgroup = match what.as_str() {
                "pods" => None,
                "none" if self.enforce_node_allocatable.len() > 1 => {
                    return Err("invalid configuration: enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional enforcements when \"none\" is specified".to_owned());
                }
                "none" => None,
                "system-reserved" | "system-reserved-compressible" => Some("systemReservedCgroup"),
                "kube-reserved" | "kube-reserved-compressible" => Some("kubeReservedCgroup"),
                _ => {
                    return Err(format!(
                        "invalid configuration: option {what:?} specified for enforceNodeAllocatable (--enforce-node-allocatable). Valid options are \"pods\", \"system-reserved\", \"system-reserved-compressible\", \"kube-reserved\", \"kube-reserved-compressible\" or \"none\""
                    ));
                }
            };
            if let Some(cgroup) = cgroup.filter(|cgroup| !has_text(cgroup)) {
                return Err(format!(
                    "invalid configuration: {cgroup} must be specified when {what:?} included in enforceNodeAllocatable (--enforce-node-allocatable)"
                ));
            }
        }
        if !self.reserved_system_cpus.is_empty() {
            if has_text("systemReservedCgroup") || has_text("kubeReservedCgroup") {
                return Err("invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)".to_owned());
            }
            cpu_list(&self.reserved_system_cpus).map_err(|error| error.0)?;
        }
        let logs = &self.pod_logs_dir;
        if !logs.as_os_str().is_empty() && !logs.is_absolute() {
            return Err(format!(
                "invalid configuration: pod logs path {:?} must be absolute path",
                logs.display().to_string()
            ));
        }
        Ok(())
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
}

/// `0-1,4` as numbers.
pub fn cpu_list(text: &str) -> Result<BTreeSet<usize>, InvalidField> {
    let wrong = || {
        InvalidField(format!(
            "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) {text}"
        ))
    };
    let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
    let mut all = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        // The kernel knows no more.
        if first > last || last > 8192 {
            return Err(wrong());
        }
        all.extend(first..=last);
    }
    Ok(all)
}
