//! Kubernetes' library for semantic versions, with the strictness of the Go library that it uses:
//! build metadata takes no part in comparisons.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::function::{EvalError, Overload};
use crate::libraries::declare::{global, member, message, object};
use crate::libraries::quote::quoted;
use crate::types::Type;
use crate::value::{Opaque, Value};

pub fn semver_type() -> Type {
    object("kubernetes.Semver")
}

/// A semantic version.
#[derive(Clone, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    prerelease: Vec<Identifier>,
    build: String,
}

/// Numbers come before texts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

/// Why a text is no semantic version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SemverError {
    #[error("Version string empty")]
    Empty,
    #[error("No Major.Minor.Patch elements found")]
    Elements,
    #[error("Invalid character(s) found in {part} number {}", quoted(text))]
    Characters { part: &'static str, text: String },
    #[error("{part} number must not contain leading zeroes {}", quoted(text))]
    LeadingZeroes { part: &'static str, text: String },
    #[error("strconv.ParseUint: parsing {}: {reason}", quoted(text))]
    Number { text: String, reason: &'static str },
    #[error("Prerelease is empty")]
    EmptyPrerelease,
    #[error(
        "Numeric PreRelease version must not contain leading zeroes {}",
        quoted(.0)
    )]
    PrereleaseZeroes(String),
    #[error("Invalid character(s) found in prerelease {}", quoted(.0))]
    Prerelease(String),
    #[error("Build meta data is empty")]
    EmptyBuild,
    #[error("Invalid character(s) found in build meta data {}", quoted(.0))]
    Build(String),
    #[error("short version cannot contain PreRelease/Build meta data")]
    Short,
}

pub fn overloads() -> Vec<Overload> {
    let two = || [semver_type(), semver_type()];
    vec![
        global("semver", "string_to_semver", [Type::String], semver_type()).calls(semver),
        global(
            "semver",
            "string_bool_to_semver",
            [Type::String, Type::Bool],
            semver_type(),
        )
        .calls(semver),
        global("isSemver", "is_semver_string", [Type::String], Type::Bool).calls(is_semver),
        global(
            "isSemver",
            "is_semver_string_bool",
            [Type::String, Type::Bool],
            Type::Bool,
        )
        .calls(is_semver),
        member("isGreaterThan", "semver_is_greater_than", two(), Type::Bool)
            .calls(|arguments| Ok(compare(arguments)?.is_gt().into())),
        member("isLessThan", "semver_is_less_than", two(), Type::Bool)
            .calls(|arguments| Ok(compare(arguments)?.is_lt().into())),
        member("compareTo", "semver_compare_to", two(), Type::Int)
            .calls(|arguments| Ok(Value::Int(compare(arguments)? as i64))),
        member("major", "semver_major", [semver_type()], Type::Int)
            .calls(|arguments| number(arguments, 0)),
        member("minor", "semver_minor", [semver_type()], Type::Int)
            .calls(|arguments| number(arguments, 1)),
        member("patch", "semver_patch", [semver_type()], Type::Int)
            .calls(|arguments| number(arguments, 2)),
    ]
}

fn semver<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match parsed(arguments)? {
        Ok(version) => Ok(version.into()),
        Err(error) => Err(message(error.to_string())),
    }
}

fn is_semver<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(parsed(arguments)?.is_ok().into())
}

fn parsed(arguments: &[Value<'_>]) -> Result<Result<Semver, SemverError>, EvalError> {
    match arguments {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => {
            Ok(Semver::parse(text))
        }
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_normalized(text)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn version<'v>(value: &'v Value<'_>) -> Result<&'v Semver, EvalError> {
    let Value::Opaque(value) = value else {
        return Err(EvalError::NoSuchOverload);
    };
    let version = value.as_any().downcast_ref::<Semver>();
    version.ok_or(EvalError::NoSuchOverload)
}

fn compare(arguments: &[Value<'_>]) -> Result<Ordering, EvalError> {
    match arguments {
        [left, right] => Ok(version(left)?.compare(version(right)?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Numbers above the largest integer wrap around, as in Go.
fn number<'a>(arguments: &[Value<'a>], index: usize) -> Result<Value<'a>, EvalError> {
    match arguments {
        [value] => Ok(Value::Int(version(value)?.numbers[index] as i64)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

impl Semver {
    pub fn parse(text: &str) -> Result<Semver, SemverError> {
        if text.is_empty() {
            return Err(SemverError::Empty);
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(SemverError::Elements);
        };
        let major = parse_number(["major", "Major"], major)?;
        let minor = parse_number(["minor", "Minor"], minor)?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, prerelease) = match rest.split_once('-') {
            Some((patch, prerelease)) => (patch, Some(prerelease)),
            None => (rest, None),
        };
        let patch = parse_number(["patch", "Patch"], patch)?;
        let identifiers = prerelease.into_iter().flat_map(|text| text.split('.'));
        let prerelease = identifiers
            .map(Identifier::parse)
            .collect::<Result<_, _>>()?;
        for identifier in build.into_iter().flat_map(|text| text.split('.')) {
            if identifier.is_empty() {
                return Err(SemverError::EmptyBuild);
            }
            if !identifier.bytes().all(is_identifier) {
                return Err(SemverError::Build(identifier.to_owned()));
            }
        }
        Ok(Semver {
            numbers: [major, minor, patch],
            prerelease,
            build: build.unwrap_or_default().to_owned(),
        })
    }

    /// Takes a leading `v`, missing numbers and leading zeros as well.
    pub fn parse_normalized(text: &str) -> Result<Semver, SemverError> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_leading_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err(SemverError::Short);
            }
            parts.resize(3, "0".to_owned());
        }
        Semver::parse(&parts.join("."))
    }

    fn compare(&self, other: &Semver) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| match (&self.prerelease[..], &other.prerelease[..]) {
            ([], []) => Ordering::Equal,
            ([], _) => Ordering::Greater,
            (_, []) => Ordering::Less,
            (left, right) => left.cmp(right),
        })
    }
}

fn without_leading_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let stripped = part.trim_start_matches('0');
    match stripped.bytes().next() {
        Some(b'0'..=b'9') => stripped.to_owned(),
        _ => format!("0{stripped}"),
    }
}

fn parse_number([name, title]: [&'static str; 2], text: &str) -> Result<u64, SemverError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SemverError::Characters {
            part: name,
            text: text.to_owned(),
        });
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(SemverError::LeadingZeroes {
            part: title,
            text: text.to_owned(),
        });
    }
    unsigned(text)
}

/// Digits as a number.
fn unsigned(text: &str) -> Result<u64, SemverError> {
    text.parse().map_err(|_| SemverError::Number {
        text: text.to_owned(),
        reason: match text {
            "" => "invalid syntax",
            _ => "value out of range",
        },
    })
}

fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

impl Identifier {
    fn parse(text: &str) -> Result<Identifier, SemverError> {
        if text.is_empty() {
            return Err(SemverError::EmptyPrerelease);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            if text.len() > 1 && text.starts_with('0') {
                return Err(SemverError::PrereleaseZeroes(text.to_owned()));
            }
            return unsigned(text).map(Identifier::Number);
        }
        if !text.bytes().all(is_identifier) {
            return Err(SemverError::Prerelease(text.to_owned()));
        }
        Ok(Identifier::Text(text.to_owned()))
    }
}

impl Opaque for Semver {
    fn type_of(&self) -> Type {
        semver_type()
    }

    fn equals(&self, other: &Value<'_>) -> Option<bool> {
        let other = version(other).ok()?;
        Some(self.compare(other).is_eq())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl From<Semver> for Value<'_> {
    fn from(version: Semver) -> Self {
        Value::Opaque(Arc::new(version))
    }
}

impl fmt::Display for Semver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(formatter, "{major}.{minor}.{patch}")?;
        let mut separator = '-';
        for identifier in &self.prerelease {
            match identifier {
                Identifier::Number(number) => write!(formatter, "{separator}{number}")?,
                Identifier::Text(text) => write!(formatter, "{separator}{text}")?,
            }
            separator = '.';
        }
        if !self.build.is_empty() {
            write!(formatter, "+{}", self.build)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Semver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "semver({self})")
    }
}
