//! `--runtime-config`: which of the built-in group versions and resources are served.

use std::collections::BTreeMap;
use std::fmt;

use crate::features::go_bool;
use crate::resource::{Resource, api_version, split_api_version};
use crate::schema;

const ALL: &str = "api/all";
/// The keys for all versions of a stage, in the order in which they are applied.
const STAGES: [&str; 4] = [ALL, "api/ga", "api/beta", "api/alpha"];

/// The group versions of v1.36 that are off by default. None of them is generally available. Those
/// that can be switched on here have kinds in the table of kinds.
const OFF_BY_DEFAULT: [&str; 20] = [
    "admissionregistration.k8s.io/v1alpha1",
    "admissionregistration.k8s.io/v1beta1",
    "authentication.k8s.io/v1alpha1",
    "authentication.k8s.io/v1beta1",
    "certificates.k8s.io/v1alpha1",
    "certificates.k8s.io/v1beta1",
    "coordination.k8s.io/v1alpha2",
    "coordination.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
    "internal.apiserver.k8s.io/v1alpha1",
    "networking.k8s.io/v1beta1",
    "resource.k8s.io/v1alpha3",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1beta2",
    "scheduling.k8s.io/v1alpha2",
    "storage.k8s.io/v1alpha1",
    "storage.k8s.io/v1beta1",
    "storagemigration.k8s.io/v1beta1",
];

/// What is switched on or off. The default serves everything that is generally available.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// By the keys of [`STAGES`].
    stages: BTreeMap<String, bool>,
    /// By `group/version`.
    versions: BTreeMap<String, bool>,
    /// By `group/version/resource`.
    resources: BTreeMap<String, bool>,
}

/// Why a text is no such configuration. The words are upstream's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    #[error("invalid runtime-config with only {ALL}=false")]
    Nothing,
    #[error("invalid value {0}={1}")]
    Stage(String, String),
    #[error("invalid value of {0}: {1}, err: strconv.ParseBool: parsing {1:?}: invalid syntax")]
    NoBool(String, String),
    #[error("unknown api groups {0}")]
    UnknownGroup(String),
    #[error("group version {0} that has not been registered")]
    UnknownVersion(String),
    #[error(
        "invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}"
    )]
    Resource { key: String, resource: String },
}

impl RuntimeConfig {
    /// Reads `apps/v1=true,batch/v1/cronjobs=false,api/beta=false`. A key alone means `true`.
    pub fn parse(text: &str) -> Result<RuntimeConfig, RuntimeConfigError> {
        let mut config = RuntimeConfig::default();
        let pairs = text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty());
        for pair in pairs {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            config.set(key.trim(), value.trim())?;
        }
        let is_all = config.versions.is_empty() && config.resources.is_empty();
        if is_all && config.stages.len() == 1 && config.stages.get(ALL) == Some(&false) {
            return Err(RuntimeConfigError::Nothing);
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), RuntimeConfigError> {
        if STAGES.contains(&key) {
            let on = match value {
                "true" => true,
                "false" => false,
                _ => return Err(RuntimeConfigError::Stage(key.into(), value.into())),
            };
            self.stages.insert(key.to_string(), on);
            return Ok(());
        }
        let on = match value {
            "" => true,
            _ => go_bool(value)
                .ok_or_else(|| RuntimeConfigError::NoBool(key.into(), value.into()))?,
        };
        // The core group has the empty name: `/v1` and `v1` are the same.
        let key = key.strip_prefix('/').unwrap_or(key);
        let (group_version, resource) = match key.split('/').collect::<Vec<_>>()[..] {
            [version] => (version.to_string(), None),
            [first, second] if is_version(first) && !is_version(second) => {
                (first.to_string(), Some(second))
            }
            [group, version] => (format!("{group}/{version}"), None),
            [group, version, resource] => (format!("{group}/{version}"), Some(resource)),
            _ => return Err(RuntimeConfigError::UnknownGroup(key.to_string())),
        };
        check_registered(&group_version)?;
        match resource {
            None => self.versions.insert(group_version, on),
            Some(resource) if resource.to_lowercase() != resource => {
                return Err(RuntimeConfigError::Resource {
                    key: key.to_string(),
                    resource: resource.to_string(),
                });
            }
            Some(resource) => self
                .resources
                .insert(format!("{group_version}/{resource}"), on),
        };
        Ok(())
    }

    /// Whether a built-in kind is switched on.
    pub(super) fn serves(&self, resource: &Resource) -> bool {
        let version = resource.api_version();
        let own = self
            .resources
            .get(&format!("{version}/{}", resource.plural));
        let of_stage = || {
            let stages = STAGES.iter().rev();
            let mut named = stages
                .filter(|stage| matches!(**stage, ALL) || **stage == stage_of(&resource.version));
            named.find_map(|stage| self.stages.get(*stage))
        };
        let asked = own
            .or_else(|| self.versions.get(&version))
            .or_else(of_stage);
        asked
            .copied()
            .unwrap_or(!OFF_BY_DEFAULT.contains(&&*version))
    }

    /// What is asked for and not there: versions and resources that are not generally available and
    /// cannot be switched on.
    pub fn not_available(&self) -> impl Iterator<Item = &str> {
        let asked = self.versions.iter().chain(&self.resources);
        let asked = asked.filter(|(_, on)| **on).map(|(key, _)| key.as_str());
        asked.filter(|key| {
            let mut kinds = super::built_in().resources();
            !kinds.any(|resource| {
                let version = resource.api_version();
                *key == version
                    || key.strip_prefix(&*version) == Some(&format!("/{}", resource.plural))
            })
        })
    }
}

impl fmt::Display for RuntimeConfig {
    /// As [`RuntimeConfig::parse`] reads it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self
            .stages
            .iter()
            .chain(&self.versions)
            .chain(&self.resources);
        let pairs = all.map(|(key, on)| format!("{key}={on}"));
        formatter.write_str(&pairs.collect::<Vec<_>>().join(","))
    }
}

/// Whether a text has the form of a version, such as `v1` or `v1beta2`.
fn is_version(text: &str) -> bool {
    let number = text.strip_prefix('v');
    number.is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit()))
}

/// The key for all versions of the stage that a version is in.
fn stage_of(version: &str) -> &'static str {
    match version {
        version if version.contains("alpha") => "api/alpha",
        version if version.contains("beta") => "api/beta",
        _ => "api/ga",
    }
}

/// Refuses groups and versions that Kubernetes does not have.
fn check_registered(group_version: &str) -> Result<(), RuntimeConfigError> {
    let (group, _) = split_api_version(group_version);
    let of_kinds = schema::table().definitions().iter();
    let of_kinds = of_kinds.flat_map(|definition| &definition.kinds);
    let of_kinds = of_kinds.map(|kind| (kind.group, kind.version));
    let others = OFF_BY_DEFAULT
        .iter()
        .map(|version| split_api_version(version));
    let mut known_group = false;
    for (known, version) in of_kinds.chain(others) {
        known_group |= known == group;
        if api_version(known, version) == group_version {
            return Ok(());
        }
    }
    Err(match known_group {
        true => RuntimeConfigError::UnknownVersion(group_version.to_string()),
        false => RuntimeConfigError::UnknownGroup(group_version.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::built_in_with;
    use crate::features::FeatureGates;

    fn served(text: &str) -> impl Fn(&str, &str, &str) -> bool {
        let gates = FeatureGates::parse("StorageVersionMigrator=true").unwrap();
        let kinds = built_in_with(&RuntimeConfig::parse(text).unwrap(), &gates);
        move |group, version, plural| kinds.find(group, version, plural).is_some()
    }

    #[test]
    fn versions_and_resources_are_switched_off() {
        let is_served =
            served("batch/v1=false,batch/v1/jobs=true,autoscaling/v1=false,v1/events=false");
        assert!(!is_served("batch", "v1", "cronjobs"));
        assert!(is_served("batch", "v1", "jobs"));
        assert!(!is_served("autoscaling", "v1", "horizontalpodautoscalers"));
        assert!(is_served("autoscaling", "v2", "horizontalpodautoscalers"));
        assert!(!is_served("", "v1", "events"));
        assert!(is_served("", "v1", "pods"));
        let only = served("api/all=false,v1=true");
        assert!(only("", "v1", "pods"));
        assert!(!only("apps", "v1", "deployments"));
    }

    #[test]
    fn a_version_that_is_off_by_default_is_switched_on_by_name_or_by_stage() {
        let check = |text: &str, expected: bool| {
            let is_served = served(text);
            let group = "storagemigration.k8s.io";
            assert_eq!(
                is_served(group, "v1beta1", "storageversionmigrations"),
                expected,
                "{text}"
            );
        };
        check("", false);
        check("api/ga=true", false);
        check("storagemigration.k8s.io/v1beta1=true", true);
        check(
            "storagemigration.k8s.io/v1beta1/storageversionmigrations",
            true,
        );
        check("api/beta=true", true);
        check("api/all=true", true);
        check("api/all=true,api/beta=false", false);
        check("api/beta=true,storagemigration.k8s.io/v1beta1=false", false);
    }

    #[test]
    fn what_is_not_generally_available_is_known_and_not_there() {
        let config =
            RuntimeConfig::parse("resource.k8s.io/v1beta1=true,apps/v1,api/beta=true").unwrap();
        assert_eq!(
            RuntimeConfig::parse(&config.to_string()).as_ref(),
            Ok(&config)
        );
        let missing: Vec<&str> = config.not_available().collect();
        assert_eq!(missing, ["resource.k8s.io/v1beta1"]);
    }

    #[test]
    fn mistakes_are_worded_as_upstream_words_them() {
        let error = |text| RuntimeConfig::parse(text).unwrap_err().to_string();
        assert_eq!(
            error("api/all=false"),
            "invalid runtime-config with only api/all=false"
        );
        assert_eq!(error("api/ga=maybe"), "invalid value api/ga=maybe");
        assert_eq!(
            error("nonsense.io/v1=true"),
            "unknown api groups nonsense.io/v1"
        );
        assert_eq!(
            error("apps/v7=true"),
            "group version apps/v7 that has not been registered"
        );
        assert_eq!(
            error("apps/v1/Deployments=true"),
            "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \"Deployments\""
        );
        assert_eq!(
            error("apps/v1=perhaps"),
            "invalid value of apps/v1: perhaps, err: strconv.ParseBool: parsing \"perhaps\": invalid syntax"
        );
    }
}
