//! Match conditions of webhooks and policies.

use super::expressions::{Checker, Expression, Role};
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};

const MOST: usize = 64;

/// What is known about the conditions of one webhook or policy.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Whether there is a `params`.
    pub has_params: bool,
    /// The conditions that were stored before, of all webhooks of the configuration.
    pub stored: &'a [&'a Value],
}

pub fn validate(conditions: &[Value], known: Known<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    if conditions.len() > MOST {
        errors.push(FieldError::too_many(path, conditions.len(), MOST));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = path.index(index);
        one(condition, known, &at, errors);
        let name = condition.str_at(&["name"]);
        match seen.contains(&name) {
            true => errors.push(FieldError::duplicate(&at.child("name"), name)),
            false if name.is_empty() => {}
            false => seen.push(name),
        }
    }
}

fn one(condition: &Value, known: Known<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let (name, at) = (condition.str_at(&["name"]), path.child("expression"));
    match condition.str_at(&["expression"]).trim() {
        "" => errors.push(FieldError::required(&at, "")),
        text => {
            let mut stored = known.stored.iter();
            let expression = Expression {
                text,
                role: Role::MatchCondition,
                is_stored: stored.any(|old| old.str_at(&["expression"]) == text),
            };
            let checker = Checker::without_variables(known.has_params);
            errors.extend(checker.check(&expression, &at));
        }
    }
    let at = path.child("name");
    match name {
        "" => errors.push(FieldError::required(&at, "")),
        name => errors.extend(all_invalid(&at, name, names::qualified_name(name))),
    }
}
