//! KubeSchedulerConfiguration v1: what the file says, checked and worded as upstream does. What is
//! not said has upstream's defaults. Extenders are not spoken to and therefore refused.

mod arguments;
mod field_error;
mod unknown_fields;

use std::{collections::BTreeMap, path::Path, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::SCHEDULER_NAME;
use field_error::{duplicate, invalid, required};

pub use arguments::{
    BalancedAllocationArguments, FitArguments, InterPodAffinityArguments, MOST,
    NodeAffinityArguments, PreemptionArguments, RATIO, Ratio, ResourceSpec, ScoringStrategy,
    ShapePoint, SpreadArguments, VolumeBindingArguments,
};

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{0}")]
    Content(String),
    #[error("{place}")]
    Arguments {
        place: String,
        #[source]
        source: arguments::ArgumentsError,
    },
    /// As upstream's validation words it.
    #[error("{}", one_or_list(.0))]
    Invalid(Vec<String>),
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct File {
    api_version: String,
    kind: String,
    parallelism: Option<i32>,
    leader_election: Value,
    client_connection: Value,
    enable_profiling: Option<bool>,
    enable_contention_profiling: Option<bool>,
    percentage_of_nodes_to_score: Option<i32>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    profiles: Vec<Profile>,
    extenders: Vec<Value>,
    delay_cache_until_active: bool,
}

/// One way of scheduling, for the pods that name it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Profile {
    pub scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i32>,
    pub plugins: Plugins,
    pub plugin_config: Vec<PluginConfig>,
}

/// The plugins that are enabled and disabled at each extension point.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Plugins {
    pub pre_enqueue: PluginSet,
    pub queue_sort: PluginSet,
    pub pre_filter: PluginSet,
    pub filter: PluginSet,
    pub post_filter: PluginSet,
    pub pre_score: PluginSet,
    pub score: PluginSet,
    pub reserve: PluginSet,
    pub permit: PluginSet,
    pub pre_bind: PluginSet,
    pub bind: PluginSet,
    pub post_bind: PluginSet,
    pub multi_point: PluginSet,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct PluginSet {
    pub enabled: Vec<PluginName>,
    /// `*` means all.
    pub disabled: Vec<PluginName>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct PluginName {
    pub name: String,
    pub weight: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct PluginConfig {
    pub name: String,
    pub args: Value,
}

/// A configuration that has been checked.
#[derive(Clone, Debug)]
pub struct Configuration {
    pub first_backoff: Duration,
    pub longest_backoff: Duration,
    /// At least one, with different names.
    pub profiles: Vec<Profile>,
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            first_backoff: Duration::from_secs(1),
            longest_backoff: Duration::from_secs(10),
            profiles: vec![Profile::default()],
        }
    }
}

impl Profile {
    pub fn name(&self) -> &str {
        self.scheduler_name.as_deref().unwrap_or(SCHEDULER_NAME)
    }

    /// The arguments of the plugin in the file.
    pub fn arguments(&self, plugin: &str) -> Option<&Value> {
        let mut given = self.plugin_config.iter();
        let given = given.find(|given| given.name == plugin)?;
        Some(&given.args).filter(|args| !args.is_null())
    }
}

impl Plugins {
    /// The sets that are about one extension point, with its name.
    fn points(&self) -> [(&'static str, &PluginSet); 12] {
        [
            ("preEnqueue", &self.pre_enqueue),
            ("queueSort", &self.queue_sort),
            ("preFilter", &self.pre_filter),
            ("filter", &self.filter),
            ("postFilter", &self.post_filter),
            ("preScore", &self.pre_score),
            ("score", &self.score),
            ("reserve", &self.reserve),
            ("permit", &self.permit),
            ("preBind", &self.pre_bind),
            ("bind", &self.bind),
            ("postBind", &self.post_bind),
        ]
    }
}

impl Configuration {
    /// Reads a file; none if it is not there.
    pub fn read(path: &Path) -> Result<Option<Configuration>, Error> {
        match std::fs::read(path) {
            Ok(bytes) => Configuration::parse(&bytes).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::File {
                path: path.to_path_buf(),
                source,
            }),
        }
    }

    pub fn parse(bytes: &[u8]) -> Result<Configuration, Error> {
        let content = |error: &dyn std::fmt::Display| Error::Content(error.to_string());
        let documents =
            api::document::yaml::parse_documents(bytes).map_err(|error| content(&error))?;
        let [document] = documents.as_slice() else {
            return Err(Error::Content("one document is expected".to_owned()));
        };
        let value: Value =
            serde_json::from_slice(&document.to_json()).map_err(|error| content(&error))?;
        let file: File = serde_json::from_value(value.clone()).map_err(|error| content(&error))?;
        if (file.api_version.as_str(), file.kind.as_str()) != (API_VERSION, KIND) {
            return Err(Error::Content(format!(
                "no kind \"{}\" is registered for version \"{}\"",
                file.kind, file.api_version
            )));
        }
        let mut unknown = unknown_fields::of(&value, &file);
        for (index, profile) in file.profiles.iter().enumerate() {
            for (position, given) in profile.plugin_config.iter().enumerate() {
                let place = format!("decoding .profiles[{index}].pluginConfig[{position}]");
                let found = arguments::unknown_fields(&given.name, &given.args);
                let found = found.map_err(|source| Error::Arguments {
                    place: place.clone(),
                    source,
                })?;
                unknown.extend(found.into_iter().map(|field| {
                    format!("{place}: strict decoding error: decoding args for plugin {}: strict decoding error: {field}", given.name)
                }));
            }
        }
        if !unknown.is_empty() {
            let all = unknown.join(", ");
            return Err(Error::Content(format!("strict decoding error: {all}")));
        }
        file.checked()
    }
}

impl File {
    fn checked(self) -> Result<Configuration, Error> {
        let mut errors = Vec::new();
        if let Some(parallelism) = self.parallelism.filter(|parallelism| *parallelism <= 0) {
            let detail = "should be an integer value greater than zero";
            errors.push(invalid("parallelism", parallelism, detail));
        }
        let profiles = match self.profiles.is_empty() {
            true => vec![Profile::default()],
            false => self.profiles,
        };
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for (index, profile) in profiles.iter().enumerate() {
            let path = format!("profiles[{index}]");
            profile.check(&path, &mut errors);
            if profile.name().is_empty() {
                errors.push(required(&format!("{path}.schedulerName"), ""));
            }
            if let Some(other) = names.insert(profile.name().to_owned(), index) {
                let other = format!("profiles[{other}].schedulerName");
                errors.push(duplicate(&format!("{path}.schedulerName"), &other));
            }
            let sort = &profile.plugins.queue_sort;
            if sort.enabled.len() > 1 && index == 0 {
                let detail = "only one queue sort plugin can be enabled";
                let path = format!("{path}.plugins.queueSort.Enabled");
                errors.push(invalid(&path, sort.enabled.len(), detail));
            }
            if *sort != profiles[0].plugins.queue_sort {
                let path = format!("{path}.plugins.queueSort");
                let value = serde_json::to_string(sort).unwrap_or_default();
                errors.push(invalid(&path, value, "must be the same for all profiles"));
            }
        }
        check_percentage(
            "percentageOfNodesToScore",
            self.percentage_of_nodes_to_score,
            &mut errors,
        );
        let first = self.pod_initial_backoff_seconds.unwrap_or(1);
        let longest = self.pod_max_backoff_seconds.unwrap_or(10);
        if first <= 0 {
            let path = "podInitialBackoffSeconds";
            errors.push(invalid(path, first, "must be greater than 0"));
        }
        if longest < first {
            let detail = "must be greater than or equal to PodInitialBackoffSeconds";
            errors.push(invalid("podMaxBackoffSeconds", longest, detail));
        }
        if !self.extenders.is_empty() {
            errors.push("extenders: Forbidden: are not supported by this scheduler".to_owned());
        }
        match errors.is_empty() {
            true => Ok(Configuration {
                first_backoff: Duration::from_secs(first.unsigned_abs()),
                longest_backoff: Duration::from_secs(longest.unsigned_abs()),
                profiles,
            }),
            false => Err(Error::Invalid(errors)),
        }
    }
}

/// Plugins that versions before this one had.
const REMOVED: [&str; 4] = [
    "AzureDiskLimits",
    "CinderLimits",
    "EBSLimits",
    "GCEPDLimits",
];

impl Profile {
    fn check(&self, path: &str, errors: &mut Vec<String>) {
        let share = format!("{path}.percentageOfNodesToScore");
        check_percentage(&share, self.percentage_of_nodes_to_score, errors);
        let removed = format!(
            "was invalid in version \"{API_VERSION}\" (KubeSchedulerConfiguration is version \"{API_VERSION}\")"
        );
        for (point, set) in self.plugins.points() {
            for (index, plugin) in set.enabled.iter().enumerate() {
                if REMOVED.contains(&plugin.name.as_str()) {
                    let path = format!("{path}.plugins.{point}.enabled[{index}]");
                    errors.push(invalid(&path, quoted(&plugin.name), &removed));
                }
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        for (index, given) in self.plugin_config.iter().enumerate() {
            let path = format!("{path}.pluginConfig[{index}]");
            if !seen.insert(&given.name) {
                errors.push(duplicate(&path, &given.name));
            }
            if REMOVED.contains(&given.name.as_str()) {
                errors.push(invalid(&path, quoted(&given.name), &removed));
            } else {
                arguments::check(&given.name, &given.args, &format!("{path}.args"), errors);
            }
        }
    }
}

fn check_percentage(path: &str, share: Option<i32>, errors: &mut Vec<String>) {
    if let Some(share) = share.filter(|share| !(0..=100).contains(share)) {
        errors.push(invalid(path, share, "not in valid range [0-100]"));
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn one_or_list(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests;
