//! The order of groups and versions that clients see: numbers that upstream chose.

/// Group, version, priority of the group, priority of the version within it.
const BUILT_IN: &[(&str, &str, i64, i64)] = &[
    ("", "v1", 18000, 1),
    ("admissionregistration.k8s.io", "v1", 16700, 15),
    ("admissionregistration.k8s.io", "v1alpha1", 16700, 9),
    ("admissionregistration.k8s.io", "v1beta1", 16700, 12),
    ("apiextensions.k8s.io", "v1", 16700, 15),
    ("apps", "v1", 17800, 15),
    ("authentication.k8s.io", "v1", 17700, 15),
    ("authentication.k8s.io", "v1alpha1", 17700, 1),
    ("authentication.k8s.io", "v1beta1", 17700, 9),
    ("authorization.k8s.io", "v1", 17600, 15),
    ("autoscaling", "v1", 17500, 15),
    ("autoscaling", "v2", 17500, 30),
    ("batch", "v1", 17400, 15),
    ("batch", "v1beta1", 17400, 9),
    ("certificates.k8s.io", "v1", 17300, 15),
    ("certificates.k8s.io", "v1alpha1", 17300, 1),
    ("certificates.k8s.io", "v1beta1", 17300, 9),
    ("coordination.k8s.io", "v1", 16500, 15),
    ("coordination.k8s.io", "v1alpha2", 16500, 12),
    ("coordination.k8s.io", "v1beta1", 16500, 13),
    ("discovery.k8s.io", "v1", 16200, 15),
    ("discovery.k8s.io", "v1beta1", 16200, 12),
    ("events.k8s.io", "v1", 17750, 15),
    ("events.k8s.io", "v1beta1", 17750, 5),
    ("flowcontrol.apiserver.k8s.io", "v1", 16100, 21),
    ("flowcontrol.apiserver.k8s.io", "v1beta3", 16100, 18),
    ("internal.apiserver.k8s.io", "v1alpha1", 16000, 9),
    ("networking.k8s.io", "v1", 17200, 15),
    ("networking.k8s.io", "v1beta1", 17200, 9),
    ("node.k8s.io", "v1", 16300, 15),
    ("policy", "v1", 17100, 15),
    ("rbac.authorization.k8s.io", "v1", 17000, 15),
    ("resource.k8s.io", "v1", 16200, 21),
    ("resource.k8s.io", "v1alpha3", 16200, 1),
    ("resource.k8s.io", "v1beta1", 16200, 9),
    ("resource.k8s.io", "v1beta2", 16200, 15),
    ("scheduling.k8s.io", "v1", 16600, 15),
    ("scheduling.k8s.io", "v1alpha2", 16600, 2),
    ("storage.k8s.io", "v1", 16800, 15),
    ("storage.k8s.io", "v1alpha1", 16800, 1),
    ("storage.k8s.io", "v1beta1", 16800, 9),
    ("storagemigration.k8s.io", "v1beta1", 15800, 9),
];

/// The aggregation's own group is listed before all others, and has no APIService.
const OWN: (&str, i64) = ("apiregistration.k8s.io", 20001);
/// Groups of custom resources come after all built-in ones, their versions in the order of names.
pub(super) const CUSTOM: (i64, i64) = (1000, 100);
/// As the metrics server registers itself.
pub(super) const METRICS: (i64, i64) = (100, 100);

/// The priorities of a built-in group version.
pub(super) fn of_built_in(group: &str, version: &str) -> Option<(i64, i64)> {
    let found = BUILT_IN
        .iter()
        .find(|(known, of, _, _)| (*known, *of) == (group, version));
    found.map(|(_, _, group, version)| (*group, *version))
}

/// The priorities of a group version that this server serves itself.
pub(super) fn of_local(group: &str, version: &str) -> (i64, i64) {
    match group {
        group if group == OWN.0 => (OWN.1, 0),
        crate::usage::GROUP => METRICS,
        _ => of_built_in(group, version).unwrap_or(CUSTOM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_group_version_has_a_priority() {
        for resource in api::catalogue::built_in().resources() {
            let (group, version) = (&*resource.group, &*resource.version);
            let known = of_built_in(group, version).is_some();
            assert!(known || group == OWN.0, "{group}/{version}");
        }
        assert_eq!(of_local("example.com", "v1"), CUSTOM);
    }
}
