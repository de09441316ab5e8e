//! The level and version that a namespace's labels ask for, mode by mode.

use std::fmt;

use api::Value;
use api::field::{FieldError, Path};

const PREFIX: &str = "pod-security.kubernetes.io/";
/// The version whose rules `latest` means.
const LATEST: u32 = 36;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })
    }
}

/// A level as one version of Kubernetes understood it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub level: Level,
    /// `None` is the latest.
    pub version: Option<u32>,
}

impl LevelVersion {
    const NONE: LevelVersion = LevelVersion {
        level: Level::Privileged,
        version: None,
    };

    /// The minor version whose rules count.
    pub fn minor(self) -> u32 {
        self.version.unwrap_or(LATEST).min(LATEST)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            None => write!(formatter, "{}:latest", self.level),
            Some(minor) => write!(formatter, "{}:v1.{minor}", self.level),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub enforce: LevelVersion,
    pub warn: LevelVersion,
}

impl Policy {
    /// The policy of a namespace, and what is wrong with its labels. A wrong `enforce` counts as
    /// `restricted`, a wrong `warn` as none at all.
    pub fn of(namespace: &Value) -> (Policy, Vec<FieldError>) {
        let mut errors = Vec::new();
        let label = |mode: &str| {
            let name = format!("{PREFIX}{mode}");
            let value = namespace.at(&["metadata", "labels", &name]);
            Some((name, value?.as_str().unwrap_or_default().to_string()))
        };
        let mut refuse = |name: &str, value: &str, why: &str| {
            let path = Path::new("metadata").child("labels").key(name);
            errors.push(FieldError::invalid(&path, value, why));
        };
        let mut level = |mode: &str| {
            let (name, value) = label(mode)?;
            let level = match value.as_str() {
                "privileged" => Some(Level::Privileged),
                "baseline" => Some(Level::Baseline),
                "restricted" => Some(Level::Restricted),
                other => {
                    refuse(
                        &name,
                        other,
                        "must be one of privileged, baseline, restricted",
                    );
                    None
                }
            };
            Some(level)
        };
        let enforce_level = level("enforce");
        let audit_level = level("audit");
        let warn_level = level("warn");
        let mut version = |mode: &str| {
            let (name, value) = label(mode)?;
            Some(match parse_version(&value) {
                Some(version) => version,
                None => {
                    refuse(&name, &value, "must be \"latest\" or \"v1.x\"");
                    None
                }
            })
        };
        let enforce_version = version("enforce-version");
        let _ = (audit_level, version("audit-version"));
        let warn_version = version("warn-version");
        let mut policy = Policy {
            enforce: LevelVersion::NONE,
            warn: LevelVersion::NONE,
        };
        policy.enforce.version = enforce_version.unwrap_or_default();
        policy.warn.version = warn_version.unwrap_or_default();
        if let Some(level) = enforce_level {
            policy.enforce.level = level.unwrap_or(Level::Restricted);
        }
        match warn_level {
            Some(level) => policy.warn.level = level.unwrap_or(Level::Privileged),
            // What will be refused is also warned about, in the templates of controllers.
            None if enforce_level.flatten().is_some() => {
                policy.warn.level = policy.enforce.level;
                if warn_version.is_none() {
                    policy.warn.version = policy.enforce.version;
                }
            }
            None => {}
        }
        (policy, errors)
    }
}

/// `latest` is `Some(None)`.
fn parse_version(text: &str) -> Option<Option<u32>> {
    if text == "latest" {
        return Some(None);
    }
    let digits = text.strip_prefix("v1.")?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let padded = digits.len() > 1 && digits.starts_with('0');
    (plain && !padded).then(|| digits.parse().ok().map(Some))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(labels: Value, enforce: &str, warn: &str, wrong: usize) {
        let mut namespace = Value::object();
        for (mode, value) in labels.fields_at(&[]) {
            let name = format!("{PREFIX}{mode}");
            namespace.set(&["metadata", "labels", &name], value.clone());
        }
        let (policy, errors) = Policy::of(&namespace);
        assert_eq!(policy.enforce.to_string(), enforce);
        assert_eq!(policy.warn.to_string(), warn);
        assert_eq!(errors.len(), wrong);
    }

    #[test]
    fn labels_become_a_policy() {
        check(Value::object(), "privileged:latest", "privileged:latest", 0);
        check(
            api::document!({"enforce": "baseline", "enforce-version": "v1.20"}),
            "baseline:v1.20",
            "baseline:v1.20",
            0,
        );
        check(
            api::document!({"enforce": "nonsense", "warn-version": "v1.007"}),
            "restricted:latest",
            "privileged:latest",
            2,
        );
        check(
            api::document!({"enforce": "restricted", "warn": "privileged"}),
            "restricted:latest",
            "privileged:latest",
            0,
        );
    }
}
