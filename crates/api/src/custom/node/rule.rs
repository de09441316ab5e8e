//! The rules of a node (`x-kubernetes-validations`): what is declared, and what a compiler of the
//! expression language makes of it. Whoever knows the language implements [`Expressions`].

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::Node;
use crate::document::Value;
use crate::field::{FieldError, Path};

/// The cost that one evaluation may have.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// One rule as it was declared. Texts are "" where nothing was said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    pub rule: Box<str>,
    pub message: Box<str>,
    pub message_expression: Box<str>,
    pub reason: Box<str>,
    pub field_path: Box<str>,
    pub optional_old_self: Option<bool>,
}

/// The rules of one node, and what became of them when they were first needed.
pub struct Rules {
    declared: Box<[Rule]>,
    /// A node can be the root of one kind and a part of another.
    as_root: OnceLock<Arc<Compilation>>,
    as_part: OnceLock<Arc<Compilation>>,
}

/// What compiling the rules of one node gave: one entry for each rule, or why none could be.
#[derive(Clone, Default)]
pub struct Compilation {
    pub rules: Vec<CompiledRule>,
    /// Set when not even the types could be made.
    pub failure: Option<String>,
}

/// One rule after compilation.
#[derive(Clone, Default)]
pub struct CompiledRule {
    /// Absent for a blank rule and for one with an error.
    pub program: Option<Arc<dyn Program>>,
    /// e.g. `compilation failed: ERROR: …`.
    pub error: Option<String>,
    pub uses_old_self: bool,
    /// The estimated cost of one evaluation.
    pub max_cost: u64,
    pub message: Option<Arc<dyn Program>>,
    pub message_error: Option<String>,
    pub message_max_cost: u64,
}

/// Compiles rules. Evaluation is the compiled program's.
pub trait Expressions: Send + Sync {
    /// Compiles the rules of `node`, one result for each in their order. At the root of a resource
    /// `apiVersion`, `kind` and the names in `metadata` are declared too. `is_stored` tells which
    /// expressions were accepted before: they may use what new ones may not yet.
    fn compile(
        &self,
        node: &Arc<Node>,
        is_root: bool,
        is_stored: &dyn Fn(&str) -> bool,
    ) -> Compilation;
}

/// A compiled rule or message.
pub trait Program: Send + Sync {
    /// Runs it with [`PER_CALL_LIMIT`].
    fn run(&self, scope: &Scope<'_>) -> Run;
}

/// What an expression sees.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub node: &'a Arc<Node>,
    pub is_root: bool,
    pub value: &'a Value,
    pub old: OldSelf<'a>,
}

/// The variable `oldSelf`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OldSelf<'a> {
    Undefined,
    Value(&'a Value),
    /// Of a rule with `optionalOldSelf`.
    Optional(Option<&'a Value>),
}

/// How an evaluation ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What it cost, unless that is unknown.
    pub cost: Option<u64>,
    pub result: Result<Outcome, String>,
}

/// The value of an expression, as far as rules care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Bool(bool),
    Text(String),
    Other,
}

impl Rules {
    pub fn new(declared: Vec<Rule>) -> Rules {
        Rules {
            declared: declared.into(),
            as_root: OnceLock::new(),
            as_part: OnceLock::new(),
        }
    }

    pub fn declared(&self) -> &[Rule] {
        &self.declared
    }

    /// The compiled rules; they were accepted once, so that every expression counts as stored.
    pub fn compiled(
        &self,
        node: &Arc<Node>,
        is_root: bool,
        expressions: &dyn Expressions,
    ) -> Arc<Compilation> {
        let place = match is_root {
            true => &self.as_root,
            false => &self.as_part,
        };
        place
            .get_or_init(|| Arc::new(expressions.compile(node, is_root, &|_| true)))
            .clone()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.declared.fmt(formatter)
    }
}

impl Rule {
    /// Reads one entry of `x-kubernetes-validations`.
    pub fn of(document: &Value) -> Rule {
        let text = |name: &str| document.str_at(&[name]).into();
        Rule {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: document.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    /// How the rule is called in errors about itself.
    pub(in crate::custom) fn called(&self) -> &str {
        match self.message.is_empty() {
            true => self.rule.trim(),
            false => self.message.trim(),
        }
    }

    pub(in crate::custom) fn message_or_default(&self) -> String {
        match self.message.is_empty() {
            true => format!("failed rule: {}", self.called()),
            false => self.called().to_string(),
        }
    }

    /// The error of an object that breaks this rule.
    pub(in crate::custom) fn broken(
        &self,
        path: &Path,
        node: &Node,
        value: &Value,
        detail: String,
    ) -> FieldError {
        let omit = matches!(node.kind().name(), "object" | "array");
        match &*self.reason {
            "FieldValueForbidden" => FieldError::forbidden(path, detail),
            "FieldValueRequired" => FieldError::required(path, detail),
            "FieldValueDuplicate" if omit => FieldError::duplicate_omitted(path),
            "FieldValueDuplicate" => FieldError::duplicate(path, value.clone()),
            _ if omit => FieldError::invalid_omitted(path, detail),
            _ => FieldError::invalid(path, value.clone(), detail),
        }
    }
}
