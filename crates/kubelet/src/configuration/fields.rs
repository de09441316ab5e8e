//! The names of all fields of KubeletConfiguration v1beta1 and of those we add, to distinguish a field that
//! is not ours from a mistake, and what those that are not ours may say because we do so anyway.

use serde_json::Value;

use super::{Configuration, SwapBehavior};

/// In alphabetical order.
const FIELDS: [&str; 129] = [
    "address",
    "allowedUnsafeSysctls",
    "apiVersion",
    "authentication",
    "authorization",
    "cgroupDriver",
    "cgroupRoot",
    "cgroupsPerQOS",
    "clusterDNS",
    "clusterDomain",
    "configMapAndSecretChangeDetectionStrategy",
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "containerRuntimeEndpoint",
    "contentType",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "crashLoopBackOff",
    "enableContentionProfiling",
    "enableControllerAttachDetach",
    "enableDebugFlagsHandler",
    "enableDebuggingHandlers",
    "enableProfilingHandler",
    "enableServer",
    "enableSystemLogHandler",
    "enableSystemLogQuery",
    "enforceNodeAllocatable",
    "eventBurst",
    "eventRecordQPS",
    "evictionHard",
    "evictionMaxPodGracePeriod",
    "evictionMinimumReclaim",
    "evictionPressureTransitionPeriod",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "failCgroupV1",
    "failSwapOn",
    "featureGates",
    "fileCheckFrequency",
    "hairpinMode",
    "healthzBindAddress",
    "healthzPort",
    "httpCheckFrequency",
    "imageCredentialProviderBinDir",
    "imageCredentialProviderConfig",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "imagePullCredentialsVerificationPolicy",
    "imageServiceEndpoint",
    "iptablesDropBit",
    "iptablesMasqueradeBit",
    "kernelMemcgNotification",
    "kind",
    "kubeAPIBurst",
    "kubeAPIQPS",
    "kubeReserved",
    "kubeReservedCgroup",
    "kubeletCgroups",
    "localStorageCapacityIsolation",
    "logging",
    "makeIPTablesUtilChains",
    "maxOpenFiles",
    "maxParallelImagePulls",
    "maxPods",
    "memoryManagerPolicy",
    "memoryReservationPolicy",
    "memorySwap",
    "memoryThrottlingFactor",
    "mergeDefaultEvictionSettings",
    "nodeLeaseDurationSeconds",
    "nodeStatusMaxImages",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
    "oomScoreAdj",
    "podCIDR",
    "podLogsDir",
    "podPidsLimit",
    "podsPerCore",
    "port",
    "preloadedImagesVerificationAllowlist",
    "protectKernelDefaults",
    "providerID",
    "qosReserved",
    "readOnlyPort",
    "registerNode",
    "registerWithTaints",
    "registryBurst",
    "registryPullQPS",
    "reservedMemory",
    "reservedSystemCPUs",
    "resolvConf",
    "rotateCertificates",
    "runOnce",
    "runtimeRequestTimeout",
    "seccompDefault",
    "serializeImagePulls",
    "serverTLSBootstrap",
    "showHiddenMetricsForVersion",
    "shutdownGracePeriod",
    "shutdownGracePeriodByPodPriority",
    "shutdownGracePeriodCriticalPods",
    "singleProcessOOMKill",
    "staticPodPath",
    "staticPodURL",
    "staticPodURLHeader",
    "streamingConnectionIdleTimeout",
    "syncFrequency",
    "systemCgroups",
    "systemReserved",
    "systemReservedCgroup",
    "tlsCertFile",
    "tlsCipherSuites",
    "tlsCurvePreferences",
    "tlsMinVersion",
    "tlsPrivateKeyFile",
    "topologyManagerPolicy",
    "topologyManagerPolicyOptions",
    "topologyManagerScope",
    "tracing",
    "userNamespaces",
    "volumePluginDir",
    "volumeStatsAggPeriod",
];

/// Fields that upstream lets one choose, with the value that this kubelet always has: setting a field to
/// that value needs no warning. As JSON, in alphabetical order.
const FIXED: [(&str, &str); 36] = [
    ("address", r#""0.0.0.0""#),
    ("cgroupsPerQOS", "true"),
    ("configMapAndSecretChangeDetectionStrategy", r#""Watch""#),
    ("contentType", r#""application/vnd.kubernetes.protobuf""#),
    ("cpuManagerPolicy", r#""none""#),
    ("cpuManagerReconcilePeriod", r#""10s""#),
    ("enableContentionProfiling", "false"),
    ("enableControllerAttachDetach", "true"),
    ("enableDebugFlagsHandler", "false"),
    ("enableProfilingHandler", "false"),
    ("enableServer", "true"),
    ("failCgroupV1", "false"),
    ("hairpinMode", r#""hairpin-veth""#),
    ("iptablesDropBit", "15"),
    ("iptablesMasqueradeBit", "14"),
    ("kernelMemcgNotification", "false"),
    ("kubeAPIBurst", "100"),
    ("kubeAPIQPS", "50"),
    ("makeIPTablesUtilChains", "true"),
    ("maxOpenFiles", "1000000"),
    ("memoryManagerPolicy", r#""None""#),
    ("memoryReservationPolicy", r#""None""#),
    ("memoryThrottlingFactor", "0.9"),
    ("oomScoreAdj", "-999"),
    ("protectKernelDefaults", "false"),
    ("readOnlyPort", "0"),
    ("rotateCertificates", "false"),
    ("runOnce", "false"),
    ("serverTLSBootstrap", "false"),
    ("singleProcessOOMKill", "false"),
    ("streamingConnectionIdleTimeout", r#""4h0m0s""#),
    ("syncFrequency", r#""1m0s""#),
    ("tlsMinVersion", r#""VersionTLS12""#),
    ("topologyManagerPolicy", r#""none""#),
    ("topologyManagerScope", r#""container""#),
    ("volumeStatsAggPeriod", r#""1m0s""#),
];

/// The fields that are set and ask for something that this kubelet does not do.
pub fn unsupported(configuration: &Configuration) -> Vec<String> {
    let mut found: Vec<String> = configuration
        .other
        .iter()
        .filter(|(name, value)| is_known(name) && !is_unset(value) && !is_fixed(name, value))
        .map(|(name, _)| name.clone())
        .collect();
    let gates = configuration.feature_gates.keys();
    // The one gate whose feature is here and off by default.
    let gates = gates.filter(|gate| *gate != "CustomCPUCFSQuotaPeriod");
    found.extend(gates.map(|gate| format!("featureGates.{gate}")));
    let enforced = configuration.enforce_node_allocatable.iter();
    let enforced = enforced.filter(|what| !["pods", "none"].contains(&what.as_str()));
    found.extend(enforced.map(|what| format!("enforceNodeAllocatable.{what}")));
    if configuration.swap_behavior() == SwapBehavior::LimitedSwap {
        found.push("memorySwap.swapBehavior".to_owned());
    }
    if configuration.container_log_max_workers > 1 {
        found.push("containerLogMaxWorkers".to_owned());
    }
    found
}

/// Upstream takes these for unset and fills in its default.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s" || text == "0",
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.values().all(is_unset),
    }
}

fn is_fixed(name: &str, value: &Value) -> bool {
    FIXED.iter().any(|(field, text)| {
        *field == name && serde_json::from_str::<Value>(text).is_ok_and(|fixed| fixed == *value)
    })
}

pub fn is_known(field: &str) -> bool {
    FIELDS.binary_search(&field).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_in_order_and_ours_are_among_them() {
        assert!(FIELDS.is_sorted());
        let ours = serde_json::to_value(crate::Configuration::default()).expect("fields");
        for field in ours.as_object().expect("an object").keys() {
            assert!(is_known(field), "{field}");
        }
        assert!(!is_known("maxpods"));
    }

    #[test]
    fn what_is_not_obeyed_is_named() {
        let read = |text: &str| -> Configuration { serde_json::from_str(text).expect("fields") };
        let found = read(
            r#"{"port": 10250, "cpuManagerPolicy": "static", "topologyManagerPolicy": "none",
                "syncFrequency": "0s", "tlsCipherSuites": [], "readOnlyPort": 0, "maxPods": 7,
                "authentication": {"anonymous": {"enabled": true}}, "mistake": 1,
                "logging": {"flushFrequency": 0, "options": {}}, "enforceNodeAllocatable":
                ["pods", "kube-reserved"], "featureGates": {"A": true, "CustomCPUCFSQuotaPeriod": true}}"#,
        );
        assert_eq!(
            unsupported(&found),
            [
                "authentication",
                "cpuManagerPolicy",
                "port",
                "featureGates.A",
                "enforceNodeAllocatable.kube-reserved"
            ]
        );
        assert!(unsupported(&Configuration::default()).is_empty());
        let swaps = read(r#"{"memorySwap": {"swapBehavior": "LimitedSwap"}}"#);
        assert_eq!(unsupported(&swaps), ["memorySwap.swapBehavior"]);
    }

    #[test]
    fn fixed_fields_are_known_fields_without_a_setting() {
        let ours = serde_json::to_value(Configuration::default()).expect("fields");
        for (name, text) in FIXED {
            assert!(is_known(name) && ours.get(name).is_none(), "{name}");
            assert!(serde_json::from_str::<Value>(text).is_ok(), "{text}");
        }
    }
}
