//! Kubernetes' feature gates: which there are in v1.36, their defaults, and what `--feature-gates`
//! makes of them.
//!
//! `features.tbl` is generated (`cargo xtask tables`). One gate a line, columns separated by tabs:
//! name, stage (`ALPHA`, `BETA`, `GA` or `DEPRECATED`), `on` or `off` with ` locked` where it cannot
//! be changed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Alpha,
    Beta,
    GenerallyAvailable,
    Deprecated,
}

/// A feature gate as v1.36 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    pub stage: Stage,
    pub default: bool,
    pub is_locked: bool,
}

/// The gates that differ from their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

/// Why a text is no list of feature gates. The words are upstream's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGateError {
    #[error("missing bool value for {0}")]
    NoValue(String),
    #[error("invalid value of {0}={1}, err: strconv.ParseBool: parsing {1:?}: invalid syntax")]
    NoBool(String, String),
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    #[error("cannot set feature gate {0} to {1}, feature is locked to {default}", default = !.1)]
    Locked(String, bool),
}

/// Turns all gates of a stage on or off, except those that are set by name.
const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

/// The gates that the server or the controllers look at.
const HONOURED: &[&str] = &[
    "APIResponseCompression",
    "MutatingAdmissionPolicy",
    "StorageVersionHash",
    "StorageVersionMigrator",
    "WatchList",
];

/// All gates by name.
pub fn gates() -> &'static BTreeMap<&'static str, Gate> {
    static GATES: OnceLock<BTreeMap<&'static str, Gate>> = OnceLock::new();
    GATES.get_or_init(|| {
        let lines = include_str!("features.tbl").lines();
        lines.filter_map(read_gate).collect()
    })
}

fn read_gate(line: &'static str) -> Option<(&'static str, Gate)> {
    let mut columns = line.split('\t');
    let (name, stage, state) = (columns.next()?, columns.next()?, columns.next()?);
    let stage = match stage {
        "ALPHA" => Stage::Alpha,
        "BETA" => Stage::Beta,
        "GA" => Stage::GenerallyAvailable,
        _ => Stage::Deprecated,
    };
    let gate = Gate {
        stage,
        default: state.starts_with("on"),
        is_locked: state.ends_with("locked"),
    };
    Some((name, gate))
}

impl FeatureGates {
    /// Reads `Name=true,Other=false`. A name may carry upstream's prefix of a component, `kube:`.
    pub fn parse(text: &str) -> Result<FeatureGates, FeatureGateError> {
        let mut given: BTreeMap<&str, bool> = BTreeMap::new();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| FeatureGateError::NoValue(pair.to_string()))?;
            let name = name.trim();
            let name = name.strip_prefix("kube:").unwrap_or(name);
            let value = value.trim();
            let value = go_bool(value)
                .ok_or_else(|| FeatureGateError::NoBool(name.to_string(), value.to_string()))?;
            given.insert(name, value);
        }
        let mut set = BTreeMap::new();
        for (all, stage) in [(ALL_ALPHA, Stage::Alpha), (ALL_BETA, Stage::Beta)] {
            let Some(value) = given.remove(all) else {
                continue;
            };
            let of_stage = gates()
                .iter()
                .filter(|(_, gate)| gate.stage == stage && !gate.is_locked);
            set.extend(of_stage.map(|(name, _)| (*name, value)));
        }
        for (name, value) in given {
            let (name, gate) = gates()
                .get_key_value(name)
                .ok_or_else(|| FeatureGateError::Unknown(name.to_string()))?;
            if gate.is_locked && gate.default != value {
                return Err(FeatureGateError::Locked(name.to_string(), value));
            }
            set.insert(name, value);
        }
        set.retain(|name, value| gates().get(name).is_some_and(|gate| gate.default != *value));
        Ok(FeatureGates(set))
    }

    /// Whether a gate is on. One that v1.36 does not have is off.
    pub fn is_on(&self, name: &str) -> bool {
        let set = self.0.get(name).copied();
        set.unwrap_or_else(|| gates().get(name).is_some_and(|gate| gate.default))
    }

    /// The changed gates that no part of Coracle looks at: what they switch is either always there or
    /// not there at all.
    pub fn without_effect(&self) -> impl Iterator<Item = &'static str> {
        let changed = self.changed().map(|(name, _)| name);
        changed.filter(|name| !HONOURED.contains(name))
    }

    /// The gates that differ from their defaults, by name.
    pub fn changed(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.0.iter().map(|(name, value)| (*name, *value))
    }
}

impl fmt::Display for FeatureGates {
    /// As [`FeatureGates::parse`] reads it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self
            .changed()
            .map(|(name, value)| format!("{name}={value}"));
        formatter.write_str(&pairs.collect::<Vec<_>>().join(","))
    }
}

/// What Go's `strconv.ParseBool` takes.
pub fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_v1_36() {
        let gates = FeatureGates::default();
        for on in [
            "CRDObservedGenerationTracking",
            "WatchList",
            "ConstrainedImpersonation",
        ] {
            assert!(gates.is_on(on), "{on}");
        }
        for off in [
            "MemoryQoS",
            "CSIVolumeHealth",
            "StorageVersionMigrator",
            "NoSuchGate",
        ] {
            assert!(!gates.is_on(off), "{off}");
        }
    }

    #[test]
    fn gates_are_set_by_name_and_by_stage() {
        let gates = FeatureGates::parse("AllAlpha=true, MemoryQoS=false,kube:WatchList=F").unwrap();
        assert!(gates.is_on("CSIVolumeHealth"));
        assert!(!gates.is_on("MemoryQoS"));
        assert!(!gates.is_on("WatchList"));
        assert!(gates.changed().any(|gate| gate == ("WatchList", false)));
        assert_eq!(FeatureGates::parse("").unwrap(), FeatureGates::default());
        assert_eq!(FeatureGates::parse(&gates.to_string()), Ok(gates));
    }

    #[test]
    fn mistakes_are_worded_as_upstream_words_them() {
        let error = |text| FeatureGates::parse(text).unwrap_err().to_string();
        assert_eq!(
            error("Nonsense=true"),
            "unrecognized feature gate: Nonsense"
        );
        assert_eq!(error("WatchList"), "missing bool value for WatchList");
        assert_eq!(
            error("WatchList=maybe"),
            "invalid value of WatchList=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax"
        );
        assert_eq!(
            error("APIServerTracing=false"),
            "cannot set feature gate APIServerTracing to false, feature is locked to true"
        );
    }
}
