//! What came of judging a value: the problems in their order, each once, and how much held.

use std::collections::HashSet;

use crate::document::Value;
use crate::field::{FieldError, Path};

/// How many bytes the messages of one outcome take at most; what comes later is not reported.
const MOST_BYTES: usize = 1 << 20;

/// One thing that is wrong.
#[derive(Debug)]
pub(super) struct Problem {
    /// e.g. `spec.replicas`, or `.spec` where a field is missing at the root.
    path: String,
    what: What,
    message: String,
}

#[derive(Debug)]
pub(super) enum What {
    /// The expected type, and the one that is there.
    Type(String, &'static str),
    /// The expected format, and the text.
    TypeOfText(String, String),
    Required,
    TooLong(i64),
    TooShort(i64, String),
    Pattern(String, String),
    Enum(Value, Vec<String>),
    /// The factor as it is written, and the value.
    MultipleOf(String, Value),
    FactorNotPositive(Value, String),
    /// `greater than or equal to 1`, and the value.
    Bound(String, Value),
    TooFew(i64, i64, &'static str),
    TooMany(i64, i64, &'static str),
    Repeated,
    Forbidden(String),
    AnyOf,
    /// How many alternatives are valid.
    OneOf(usize),
    AllOf(usize),
    Not,
    /// A number that its type cannot hold.
    Range(String),
    /// Object and schema together need too much work.
    TooMuchWork,
}

impl Problem {
    pub fn new(path: &str, what: What) -> Problem {
        let message = what.message(path);
        Problem {
            path: path.to_string(),
            what,
            message,
        }
    }

    fn into_error(self, root: &Path) -> FieldError {
        let name = self.path.strip_prefix('.').unwrap_or(&self.path);
        let path = match name {
            "" => root.clone(),
            name => root.child(name),
        };
        let message = self.message;
        let count = |number: i64| usize::try_from(number).unwrap_or_default();
        match self.what {
            What::Type(_, found) => FieldError::type_invalid(&path, found, message),
            What::TypeOfText(_, text) => FieldError::type_invalid(&path, text, message),
            What::Required => FieldError::required(&path, ""),
            What::TooLong(most) if most < 0 => FieldError::too_long_at_all(&path),
            What::TooLong(most) => FieldError::too_long(&path, count(most)),
            What::TooShort(_, text) | What::Pattern(_, text) => {
                FieldError::invalid(&path, text, message)
            }
            What::Enum(value, allowed) => {
                let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
                FieldError::not_supported(&path, value, &allowed)
            }
            What::MultipleOf(_, value)
            | What::FactorNotPositive(value, _)
            | What::Bound(_, value) => FieldError::invalid(&path, value, message),
            What::TooFew(_, size, _) => FieldError::invalid(&path, size, message),
            What::TooMany(most, size, _) => FieldError::too_many(&path, count(size), count(most)),
            What::Repeated => FieldError::invalid(&path, "", message),
            What::Forbidden(name) => FieldError::invalid(&path, name, message),
            What::AnyOf
            | What::OneOf(_)
            | What::AllOf(_)
            | What::Not
            | What::Range(_)
            | What::TooMuchWork => FieldError::invalid(root, "", message),
        }
    }
}

impl What {
    /// The text by which problems are distinguished, and which most errors carry.
    fn message(&self, path: &str) -> String {
        let here = format!("{path} in body");
        let quoted = |path: &str| crate::field::quote(path);
        match self {
            What::Type(expected, found) => {
                format!("{here} must be of type {expected}: {}", quoted(found))
            }
            What::TypeOfText(expected, text) => {
                format!("{here} must be of type {expected}: {}", quoted(text))
            }
            What::Required => format!("{here} is required"),
            What::TooLong(most) => format!("{here} should be at most {most} chars long"),
            What::TooShort(least, _) => format!("{here} should be at least {least} chars long"),
            What::Pattern(pattern, _) => format!("{here} should match '{pattern}'"),
            What::Enum(_, allowed) => format!("{here} should be one of [{}]", allowed.join(" ")),
            What::MultipleOf(factor, _) => format!("{here} should be a multiple of {factor}"),
            What::FactorNotPositive(_, factor) => {
                format!("factor MultipleOf declared for {path} must be positive: {factor}")
            }
            What::Bound(bound, _) => format!("{here} should be {bound}"),
            What::TooFew(least, _, of) => format!("{here} should have at least {least} {of}"),
            What::TooMany(most, _, of) => format!("{here} should have at most {most} {of}"),
            What::Repeated => format!("{here} shouldn't contain duplicates"),
            What::Forbidden(name) => format!("{path}.{name} in body is a forbidden property"),
            What::AnyOf => format!("{} must validate at least one schema (anyOf)", quoted(path)),
            What::OneOf(valid) => {
                let found = match valid {
                    0 => "Found none valid".to_string(),
                    valid => format!("Found {valid} valid alternatives"),
                };
                format!(
                    "{} must validate one and only one schema (oneOf). {found}",
                    quoted(path)
                )
            }
            What::AllOf(valid) => {
                let none = if *valid == 0 { ". None validated" } else { "" };
                format!(
                    "{} must validate all the schemas (allOf){none}",
                    quoted(path)
                )
            }
            What::Not => format!("{} must not validate the schema (not)", quoted(path)),
            What::Range(text) => text.clone(),
            What::TooMuchWork => format!(
                "the object was not validated to its end: object and schema together need more \
                 than {} steps",
                super::MOST_STEPS
            ),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Outcome {
    problems: Vec<Problem>,
    messages: HashSet<String>,
    bytes: usize,
    /// How many checks held.
    pub matches: usize,
}

impl Outcome {
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }

    pub fn count(&mut self, held: usize) {
        self.matches += held;
    }

    pub fn add(&mut self, problem: Problem) {
        if self.is_full() {
            return;
        }
        // Most outcomes have one problem or none; two need a set.
        if self.problems.len() == 1 && self.messages.is_empty() {
            self.messages.insert(self.problems[0].message.clone());
        }
        if !self.problems.is_empty() && !self.messages.insert(problem.message.clone()) {
            return;
        }
        self.bytes += problem.message.len() + problem.path.len();
        self.problems.push(problem);
    }

    /// Whether further problems would not be reported.
    pub fn is_full(&self) -> bool {
        self.bytes > MOST_BYTES
    }

    pub fn add_all(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            self.add(problem);
        }
    }

    pub fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        self.add_all(other.problems);
    }

    /// Forgets the problems of what did not change.
    pub fn forgive(&mut self) {
        self.problems.clear();
        self.messages.clear();
        self.bytes = 0;
    }

    pub fn into_errors(self, root: &Path) -> Vec<FieldError> {
        let problems = self.problems.into_iter();
        problems.map(|problem| problem.into_error(root)).collect()
    }
}
