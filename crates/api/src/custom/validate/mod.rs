//! Judges a value by a schema, with the words, the order and the choice of errors of Kubernetes'
//! validator: among the alternatives of `anyOf` and `oneOf` it reports the errors of the one that
//! matched best, which it finds by counting what held.

mod number;
mod outcome;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write;

use super::correlation::Correlated;
use super::kind::Kind;
use super::node::{Additional, Node};
use super::pattern;
use crate::document::{Object, Value};
use crate::field::{FieldError, Path, in_go_order};
use outcome::{Outcome, Problem, What};

/// How many steps the validation of one object takes at most. A step is a visit of a value, or the
/// comparison with one name or one listed value of the schema. Without a bound a schema and an object
/// of a megabyte each would take hours.
const MOST_STEPS: u64 = 50_000_000;

/// Everything that is wrong with `value`. Paths are below `root`. With `before`, parts that are as
/// they were are not judged.
pub(super) fn validate(
    node: &Node,
    value: &Value,
    before: Option<&Correlated<'_>>,
    root: &Path,
) -> Vec<FieldError> {
    let mut validator = Validator::new(false);
    let mut outcome = Outcome::default();
    match before {
        Some(before) => validator.ratchet(node, value, before, &mut outcome),
        None => validator.visit(node, value, None, &mut outcome),
    }
    validator.finish(outcome, root)
}

/// As [`validate`], of a default in a schema. Upstream's checks of defaults do not know that a number
/// or text must stand where either may.
pub(super) fn validate_default(node: &Node, value: &Value, root: &Path) -> Vec<FieldError> {
    let mut validator = Validator::new(true);
    let mut outcome = Outcome::default();
    validator.visit(node, value, None, &mut outcome);
    validator.finish(outcome, root)
}

/// The name of a value's type and the format that goes with it.
fn described(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Integer(_) => ("integer", "int64"),
        Value::Float(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

struct Validator {
    /// Where we are, as messages write it.
    path: String,
    of_default: bool,
    /// How many steps may still be taken.
    left: u64,
}

impl Validator {
    fn new(of_default: bool) -> Validator {
        Validator {
            path: String::new(),
            of_default,
            left: MOST_STEPS,
        }
    }

    /// Alternatives that do not hold keep their problems to themselves, so that the end of the work
    /// is reported last and for all.
    fn finish(&self, mut outcome: Outcome, root: &Path) -> Vec<FieldError> {
        if self.left == 0 {
            outcome.add(Problem::new("", What::TooMuchWork));
        }
        outcome.into_errors(root)
    }

    /// Whether a value may be judged by a node: takes the steps that this needs, without those of
    /// what is below.
    fn spend(&mut self, node: &Node, value: &Value) -> bool {
        let names = match value {
            Value::Object(fields) => {
                node.required().len() + fields.len().min(node.properties().len())
            }
            _ => 0,
        };
        let steps = 1 + names + node.enumeration().len();
        self.left = self.left.saturating_sub(steps as u64);
        self.left > 0
    }

    /// Judges a value that has a counterpart in the old object: if both are the same, nothing is
    /// wrong with it.
    fn ratchet(
        &mut self,
        node: &Node,
        value: &Value,
        before: &Correlated<'_>,
        outcome: &mut Outcome,
    ) {
        let mut here = Outcome::default();
        self.visit(node, value, Some(before), &mut here);
        if !here.is_valid() && before.is_unchanged() {
            here.forgive();
        }
        outcome.merge(here);
    }

    /// Judges a value. Its fields and items are compared with what they were, what stands in
    /// `allOf` and the like is not.
    fn visit(
        &mut self,
        node: &Node,
        value: &Value,
        before: Option<&Correlated<'_>>,
        outcome: &mut Outcome,
    ) {
        if !self.spend(node, value) {
            return;
        }
        if value.is_null() {
            match self.wrong_type(node, value) {
                None => outcome.count(1),
                Some(problem) => outcome.add(problem),
            }
            outcome.add_all(self.not_listed(node, value));
            return;
        }
        let is_typed = !node.declared_type().is_empty() || self.is_int_or_string(node);
        if is_typed || node.format.is_some() {
            match self.wrong_type(node, value) {
                None => outcome.count(1),
                Some(problem) => outcome.add(problem),
            }
            outcome.count(1);
        }
        self.combinations(node, value, outcome);
        outcome.count(2);
        match value {
            Value::String(text) => {
                outcome.add_all(self.text(node, text));
                outcome.count(1);
                if let Some(format) = node.format.filter(|format| format.is_of_texts()) {
                    if !format.accepts(text) {
                        let what = What::TypeOfText(node.format().to_string(), text.clone());
                        outcome.add(self.problem(what));
                    }
                    outcome.count(1);
                }
            }
            Value::Integer(_) | Value::Float(_) => {
                number::check(node, value, &self.path, outcome);
                outcome.count(2);
            }
            Value::Array(items) => {
                self.items(node, items, before, outcome);
                outcome.count(2);
            }
            _ => {}
        }
        outcome.add_all(self.not_listed(node, value));
        outcome.count(1);
        if let Value::Object(fields) = value {
            self.fields(node, fields, before, outcome);
            outcome.count(1);
        }
        outcome.count(1);
    }

    fn is_int_or_string(&self, node: &Node) -> bool {
        node.is_int_or_string() && !self.of_default
    }

    fn problem(&self, what: What) -> Problem {
        Problem::new(&self.path, what)
    }

    fn wrong_type(&self, node: &Node, value: &Value) -> Option<Problem> {
        let int_or_string = self.is_int_or_string(node);
        let is = |kind: Kind| match int_or_string {
            true => matches!(kind, Kind::Integer | Kind::String),
            false => kind == node.kind && kind != Kind::Any,
        };
        let declared = match int_or_string {
            true => "integer,string",
            false => node.declared_type(),
        };
        let (found, format) = described(value);
        if value.is_null() {
            let allowed = declared.is_empty() || node.is_nullable();
            return (!allowed).then(|| self.problem(What::Type(declared.to_string(), "null")));
        }
        let whole_float =
            matches!(value, Value::Float(number) if number::is_whole(*number)) && is(Kind::Integer);
        let matches = Kind::parse(found).is_some_and(is)
            || whole_float
            || (matches!(value, Value::Integer(_)) && is(Kind::Number));
        let is_list_or_text = matches!(value, Value::String(_) | Value::Array(_));
        if node.format.is_some() {
            let same_format = format == node.format();
            if !is_list_or_text && !matches && !same_format {
                let what = What::Type(node.format().to_string(), format);
                return Some(self.problem(what));
            }
            // A format of texts is checked by itself, regardless of the type.
            if is_list_or_text && !is(Kind::Number) && !is(Kind::Integer) {
                return None;
            }
        }
        (!matches).then(|| self.problem(What::Type(declared.to_string(), found)))
    }

    fn combinations(&mut self, node: &Node, value: &Value, outcome: &mut Outcome) {
        if !node.any_of().is_empty() {
            let mut best: Option<Outcome> = None;
            let mut found = false;
            for alternative in node.any_of() {
                let mut result = Outcome::default();
                self.visit(alternative, value, None, &mut result);
                if result.is_valid() {
                    best = Some(result);
                    found = true;
                    break;
                }
                if best
                    .as_ref()
                    .is_none_or(|best| result.matches > best.matches)
                {
                    best = Some(result);
                }
            }
            if !found {
                outcome.add(self.problem(What::AnyOf));
            }
            if let Some(best) = best {
                outcome.merge(best);
            }
        }
        if !node.one_of().is_empty() {
            let mut best: Option<Outcome> = None;
            let mut valid = 0_usize;
            let mut first = None;
            for alternative in node.one_of() {
                let mut result = Outcome::default();
                self.visit(alternative, value, None, &mut result);
                if result.is_valid() {
                    valid += 1;
                    best = None;
                    first.get_or_insert(result);
                } else if valid == 0
                    && best
                        .as_ref()
                        .is_none_or(|best| result.matches > best.matches)
                {
                    best = Some(result);
                }
            }
            if valid == 1 {
                outcome.merge(first.unwrap_or_default());
            } else {
                outcome.add(self.problem(What::OneOf(valid)));
                outcome.merge(best.unwrap_or_default());
            }
        }
        if !node.all_of().is_empty() {
            let mut valid = 0_usize;
            for part in node.all_of() {
                let mut result = Outcome::default();
                self.visit(part, value, None, &mut result);
                valid += usize::from(result.is_valid());
                outcome.merge(result);
            }
            if valid != node.all_of().len() {
                outcome.add(self.problem(What::AllOf(valid)));
            }
        }
        if let Some(not) = node.not() {
            let mut result = Outcome::default();
            self.visit(not, value, None, &mut result);
            if result.is_valid() {
                outcome.add(self.problem(What::Not));
            }
        }
    }

    /// Of several things that are wrong with a text only the first is reported.
    fn text(&self, node: &Node, text: &str) -> Option<Problem> {
        let length = || text.chars().count() as i64;
        if let Some(most) = node.max_length().filter(|most| length() > *most) {
            return Some(self.problem(What::TooLong(most)));
        }
        if let Some(least) = node.min_length().filter(|least| length() < *least) {
            return Some(self.problem(What::TooShort(least, text.to_string())));
        }
        let wanted = node.pattern();
        if wanted.is_empty() {
            return None;
        }
        let wanted = match pattern::is_match(wanted, text) {
            Ok(true) => return None,
            Ok(false) => wanted.to_string(),
            Err(error) => format!("{wanted}, but pattern is invalid: {error}"),
        };
        Some(self.problem(What::Pattern(wanted, text.to_string())))
    }

    fn not_listed(&self, node: &Node, value: &Value) -> Option<Problem> {
        let allowed = node.enumeration();
        if allowed.is_empty() || allowed.iter().any(|known| is_listed(value, known)) {
            return None;
        }
        let shown = allowed.iter().map(|value| match value {
            Value::String(text) => text.clone(),
            other => in_go_order(other),
        });
        Some(self.problem(What::Enum(value.clone(), shown.collect())))
    }

    fn items(
        &mut self,
        node: &Node,
        items: &[Value],
        before: Option<&Correlated<'_>>,
        outcome: &mut Outcome,
    ) {
        let length = self.path.len();
        if let Some(below) = node.items() {
            for (index, item) in items.iter().enumerate() {
                let _ = write!(self.path, "[{index}]");
                match before.and_then(|before| before.item(index)) {
                    Some(before) => self.ratchet(below, item, &before, outcome),
                    None => self.visit(below, item, None, outcome),
                }
                self.path.truncate(length);
            }
        }
        let size = items.len() as i64;
        if let Some(least) = node.min_items().filter(|least| size < *least) {
            outcome.add(self.problem(What::TooFew(least, size, "items")));
        }
        if let Some(most) = node.max_items().filter(|most| size > *most) {
            outcome.add(self.problem(What::TooMany(most, size, "items")));
        }
        if node.has_unique_items() {
            let mut seen = BTreeSet::new();
            if !items.iter().all(|item| seen.insert(item.to_json())) {
                outcome.add(self.problem(What::Repeated));
            }
        }
    }

    fn fields(
        &mut self,
        node: &Node,
        fields: &Object,
        before: Option<&Correlated<'_>>,
        outcome: &mut Outcome,
    ) {
        let size = fields.len() as i64;
        if let Some(least) = node.min_properties().filter(|least| size < *least) {
            outcome.add(self.problem(What::TooFew(least, size, "properties")));
        }
        if let Some(most) = node.max_properties().filter(|most| size > *most) {
            outcome.add(self.problem(What::TooMany(most, size, "properties")));
        }
        let length = self.path.len();
        match node.additional() {
            Additional::Undeclared | Additional::Allowed(true) => {}
            Additional::Allowed(false) => {
                for (name, _) in fields.iter() {
                    if node.property(name).is_none() {
                        outcome.add(self.problem(What::Forbidden(name.to_string())));
                    }
                }
            }
            Additional::Schema(below) => {
                for (name, value) in fields.iter() {
                    if node.property(name).is_none() {
                        self.path.push('.');
                        self.path.push_str(name);
                        self.field(below, value, name, length == 0, before, outcome);
                        self.path.truncate(length);
                    }
                }
            }
        }
        // Both are sorted by name; the shorter one is walked.
        let declared: &mut dyn Iterator<Item = (&str, &Value, &Node)> =
            match fields.len() < node.properties().len() {
                true => &mut fields.iter().filter_map(|(name, value)| {
                    let below = node.property(name)?;
                    Some((name, value, &**below))
                }),
                false => &mut node.properties().iter().filter_map(|property| {
                    let value = fields.get(&property.name)?;
                    Some((&*property.name, value, &*property.node))
                }),
            };
        for (name, value, below) in declared {
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            self.field(below, value, name, length == 0, before, outcome);
            self.path.truncate(length);
        }
        for name in node.required() {
            if !outcome.is_full() && !fields.contains(name) {
                let path = format!("{}.{name}", self.path);
                outcome.add(Problem::new(&path, What::Required));
            }
        }
    }

    fn field(
        &mut self,
        below: &Node,
        value: &Value,
        name: &str,
        at_root: bool,
        before: Option<&Correlated<'_>>,
        outcome: &mut Outcome,
    ) {
        // The version of an object is not visible in it: both are converted to one.
        let is_type = at_root && matches!(name, "apiVersion" | "kind");
        match before
            .filter(|_| !is_type)
            .and_then(|before| before.field(name))
        {
            Some(before) => self.ratchet(below, value, &before, outcome),
            None => self.visit(below, value, None, outcome),
        }
    }
}

/// Whether a value is one of those allowed. Numbers are converted to the type of what is listed, so
/// that a fraction equals its whole part.
fn is_listed(value: &Value, known: &Value) -> bool {
    match (value, known) {
        (_, Value::Null) => false,
        (Value::Integer(number), Value::Float(known)) => *number as f64 == *known,
        (Value::Float(number), Value::Integer(known)) => *number as i64 == *known,
        _ => value == known,
    }
}
