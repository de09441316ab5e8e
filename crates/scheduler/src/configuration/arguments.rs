//! The arguments of the plugins that have some: their types, defaults and checks.

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::field_error::{duplicate, forbidden, invalid, not_supported, required};

/// Declares arguments that may say their own version and kind.
macro_rules! arguments {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $kind:ty = $default:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name {
            api_version: Option<String>,
            kind: Option<String>,
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { api_version: None, kind: None, $($field: $default,)* }
            }
        }

        impl $name {
            /// The arguments in the file, or the defaults. They have been checked before.
            pub fn of(arguments: Option<&Value>) -> $name {
                let read = arguments.and_then(|given| serde_json::from_value(given.clone()).ok());
                read.unwrap_or_default()
            }
        }
    };
}

arguments!(FitArguments {
    ignored_resources: Vec<String> = Vec::new(),
    ignored_resource_groups: Vec<String> = Vec::new(),
    scoring_strategy: Option<ScoringStrategy> = Some(ScoringStrategy::default()),
});

arguments!(BalancedAllocationArguments {
    resources: Vec<ResourceSpec> = cpu_and_memory(),
});

arguments!(InterPodAffinityArguments {
    hard_pod_affinity_weight: i32 = 1,
    ignore_preferred_terms_of_existing_pods: bool = false,
});

arguments!(SpreadArguments {
    default_constraints: Vec<TopologySpreadConstraint> = Vec::new(),
    defaulting_type: String = "System".to_owned(),
});

arguments!(NodeAffinityArguments {
    added_affinity: Option<NodeAffinity> = None,
});

arguments!(PreemptionArguments {
    min_candidate_nodes_percentage: i32 = 10,
    min_candidate_nodes_absolute: i32 = 100,
});

arguments!(VolumeBindingArguments {
    bind_timeout_seconds: i64 = 600,
    shape: Option<Vec<ShapePoint>> = None,
});

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScoringStrategy {
    #[serde(rename = "type")]
    pub kind: String,
    pub resources: Vec<ResourceSpec>,
    pub requested_to_capacity_ratio: Option<Ratio>,
}

impl Default for ScoringStrategy {
    fn default() -> ScoringStrategy {
        ScoringStrategy {
            kind: LEAST.to_owned(),
            resources: cpu_and_memory(),
            requested_to_capacity_ratio: None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Ratio {
    pub shape: Vec<ShapePoint>,
}

/// So many points of ten at so much of a hundred in use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ShapePoint {
    pub utilization: i32,
    pub score: i32,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ResourceSpec {
    pub name: String,
    pub weight: i64,
}

impl Default for ResourceSpec {
    fn default() -> ResourceSpec {
        ResourceSpec {
            name: String::new(),
            weight: 1,
        }
    }
}

pub const LEAST: &str = "LeastAllocated";
pub const MOST: &str = "MostAllocated";
pub const RATIO: &str = "RequestedToCapacityRatio";
/// The highest score of a point.
const HIGHEST: i32 = 10;

fn cpu_and_memory() -> Vec<ResourceSpec> {
    let spec = |name: &str| ResourceSpec {
        name: name.to_owned(),
        weight: 1,
    };
    vec![spec("cpu"), spec("memory")]
}

/// Why the arguments of a plugin cannot be read, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentsError {
    #[error(
        "args for plugin {plugin} were not of type {plugin}Args.kubescheduler.config.k8s.io, got {kind}.kubescheduler.config.k8s.io"
    )]
    Kind { plugin: String, kind: String },
    #[error("decoding args for plugin {plugin}")]
    Decode {
        plugin: String,
        #[source]
        source: serde_json::Error,
    },
}

/// The fields of a plugin's arguments that are not known. Plugins that are not ours read their
/// arguments themselves.
pub(super) fn unknown_fields(plugin: &str, given: &Value) -> Result<Vec<String>, ArgumentsError> {
    if given.is_null() {
        return Ok(Vec::new());
    }
    match plugin {
        "NodeResourcesFit" => unknown::<FitArguments>(plugin, given),
        "NodeResourcesBalancedAllocation" => unknown::<BalancedAllocationArguments>(plugin, given),
        "InterPodAffinity" => unknown::<InterPodAffinityArguments>(plugin, given),
        "PodTopologySpread" => unknown::<SpreadArguments>(plugin, given),
        "NodeAffinity" => unknown::<NodeAffinityArguments>(plugin, given),
        "DefaultPreemption" => unknown::<PreemptionArguments>(plugin, given),
        "VolumeBinding" => unknown::<VolumeBindingArguments>(plugin, given),
        _ => Ok(Vec::new()),
    }
}

fn unknown<T: DeserializeOwned + Serialize>(
    plugin: &str,
    given: &Value,
) -> Result<Vec<String>, ArgumentsError> {
    let plugin = plugin.to_owned();
    let expected = format!("{plugin}Args");
    if let Some(kind) = given["kind"].as_str().filter(|kind| *kind != expected) {
        let kind = kind.to_owned();
        return Err(ArgumentsError::Kind { plugin, kind });
    }
    let read: T = serde_json::from_value(given.clone())
        .map_err(|source| ArgumentsError::Decode { plugin, source })?;
    Ok(super::unknown_fields::of(given, &read))
}

/// Checks the arguments of one plugin.
pub(super) fn check(plugin: &str, given: &Value, path: &str, errors: &mut Vec<String>) {
    let given = Some(given);
    match plugin {
        "NodeResourcesFit" => check_fit(&FitArguments::of(given), path, errors),
        "NodeResourcesBalancedAllocation" => {
            check_balance(&BalancedAllocationArguments::of(given), path, errors);
        }
        "InterPodAffinity" => {
            let weight = InterPodAffinityArguments::of(given).hard_pod_affinity_weight;
            if !(0..=100).contains(&weight) {
                let path = format!("{path}.hardPodAffinityWeight");
                errors.push(invalid(&path, weight, "not in valid range [0, 100]"));
            }
        }
        "PodTopologySpread" => check_spread(&SpreadArguments::of(given), path, errors),
        "DefaultPreemption" => check_preemption(&PreemptionArguments::of(given), path, errors),
        "VolumeBinding" => {
            let given = VolumeBindingArguments::of(given);
            if given.bind_timeout_seconds < 0 {
                let path = format!("{path}.bindTimeoutSeconds");
                let detail = "invalid BindTimeoutSeconds, should not be a negative value";
                errors.push(invalid(&path, given.bind_timeout_seconds, detail));
            }
            if given.shape.is_some() {
                let detail = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
                errors.push(invalid(&format!("{path}.shape"), "[]", detail));
            }
        }
        _ => {}
    }
}

fn check_fit(given: &FitArguments, path: &str, errors: &mut Vec<String>) {
    for (index, group) in given.ignored_resource_groups.iter().enumerate() {
        if group.contains('/') {
            let path = format!("{path}.ignoredResourceGroups[{index}]");
            let detail = "resource group name can't contain '/'";
            errors.push(invalid(&path, format!("\"{group}\""), detail));
        }
    }
    let path = format!("{path}.scoringStrategy");
    let Some(strategy) = &given.scoring_strategy else {
        errors.push(required(&path, "ScoringStrategy field is required"));
        return;
    };
    if ![LEAST, MOST, RATIO].contains(&strategy.kind.as_str()) {
        let path = format!("{path}.type");
        errors.push(not_supported(&path, &strategy.kind, &[LEAST, MOST, RATIO]));
    }
    for (index, resource) in strategy.resources.iter().enumerate() {
        if resource.weight <= 0 || resource.weight > 100 {
            let path = format!("{path}.resources[{index}].weight");
            let name = &resource.name;
            let detail = format!("resource weight of {name} not in valid range (0, 100]");
            errors.push(invalid(&path, resource.weight, &detail));
        }
    }
    let path = format!("{path}.requestedToCapacityRatio");
    match (
        &strategy.requested_to_capacity_ratio,
        strategy.kind == RATIO,
    ) {
        (None, true) => {
            let detail = "must be specified when type is RequestedToCapacityRatio";
            errors.push(required(&path, detail));
        }
        (Some(ratio), true) => check_shape(&ratio.shape, &format!("{path}.shape"), errors),
        (Some(_), false) => {
            let detail = "must be nil when type is not RequestedToCapacityRatio";
            errors.push(forbidden(&path, detail));
        }
        (None, false) => {}
    }
}

fn check_shape(shape: &[ShapePoint], path: &str, errors: &mut Vec<String>) {
    if shape.is_empty() {
        errors.push(required(path, "at least one point must be specified"));
    }
    let mut pairs = shape.windows(2).enumerate();
    if let Some((index, _)) = pairs.find(|(_, pair)| pair[0].utilization >= pair[1].utilization) {
        let path = format!("{path}[{}].utilization", index + 1);
        let detail = "values must be sorted in increasing order";
        errors.push(invalid(&path, shape[index + 1].utilization, detail));
    }
    for (index, point) in shape.iter().enumerate() {
        if !(0..=100).contains(&point.utilization) {
            let path = format!("{path}[{index}].utilization");
            errors.push(invalid(
                &path,
                point.utilization,
                "not in valid range [0, 100]",
            ));
        }
        if !(0..=HIGHEST).contains(&point.score) {
            let path = format!("{path}[{index}].score");
            errors.push(invalid(&path, point.score, "not in valid range [0, 10]"));
        }
    }
}

fn check_balance(given: &BalancedAllocationArguments, path: &str, errors: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    for (index, resource) in given.resources.iter().enumerate() {
        let path = format!("{path}.resources[{index}]");
        if !seen.insert(&resource.name) {
            errors.push(duplicate(&format!("{path}.name"), &resource.name));
        }
        if resource.weight != 1 {
            let path = format!("{path}.weight");
            errors.push(invalid(&path, resource.weight, "must be 1"));
        }
    }
}

fn check_spread(given: &SpreadArguments, path: &str, errors: &mut Vec<String>) {
    let kind = given.defaulting_type.as_str();
    let place = format!("{path}.defaultingType");
    if !["System", "List"].contains(&kind) {
        errors.push(not_supported(&place, kind, &["System", "List"]));
    } else if kind == "System" && !given.default_constraints.is_empty() {
        let detail = "when .defaultConstraints are not empty";
        errors.push(invalid(&place, format!("\"{kind}\""), detail));
    }
    let path = format!("{path}.defaultConstraints");
    for (index, constraint) in given.default_constraints.iter().enumerate() {
        let place = format!("{path}[{index}]");
        if constraint.max_skew <= 0 {
            let place = format!("{place}.maxSkew");
            let detail = "not in valid range (0, inf)";
            errors.push(invalid(&place, constraint.max_skew, detail));
        }
        if constraint.topology_key.is_empty() {
            let place = format!("{place}.topologyKey");
            errors.push(required(&place, "can not be empty"));
        }
        let place_of_action = format!("{place}.whenUnsatisfiable");
        match constraint.when_unsatisfiable.as_str() {
            "" => errors.push(required(&place_of_action, "can not be empty")),
            "DoNotSchedule" | "ScheduleAnyway" => {}
            other => {
                let supported = ["DoNotSchedule", "ScheduleAnyway"];
                errors.push(not_supported(&place_of_action, other, &supported));
            }
        }
        if constraint.label_selector.is_some() {
            let detail = "constraint must not define a selector, as they deduced for each pod";
            errors.push(forbidden(&format!("{place}.labelSelector"), detail));
        }
        let same = |other: &TopologySpreadConstraint| {
            other.topology_key == constraint.topology_key
                && other.when_unsatisfiable == constraint.when_unsatisfiable
        };
        if given.default_constraints[..index].iter().any(same) {
            let (key, action) = (&constraint.topology_key, &constraint.when_unsatisfiable);
            errors.push(duplicate(&place, &format!("{{{key}, {action}}}")));
        }
    }
}

fn check_preemption(given: &PreemptionArguments, path: &str, errors: &mut Vec<String>) {
    let share = given.min_candidate_nodes_percentage;
    let least = given.min_candidate_nodes_absolute;
    let share_path = format!("{path}.minCandidateNodesPercentage");
    let least_path = format!("{path}.minCandidateNodesAbsolute");
    if !(0..=100).contains(&share) {
        errors.push(invalid(&share_path, share, "not in valid range [0, 100]"));
    }
    if least < 0 {
        errors.push(invalid(&least_path, least, "not in valid range [0, inf)"));
    }
    if share == 0 && least == 0 {
        let detail = "cannot be zero at the same time as minCandidateNodesAbsolute";
        errors.push(invalid(&share_path, share, detail));
        let detail = "cannot be zero at the same time as minCandidateNodesPercentage";
        errors.push(invalid(&least_path, least, detail));
    }
}
