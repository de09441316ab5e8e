//! Whether types agree, and what the unknown ones among them have to be.

use std::sync::Arc;

use crate::types::Type;

/// How many steps one expression may take. Types can grow exponentially with the text of an
/// expression; cel-go then runs out of memory.
const MAX_STEPS: u32 = 2_000_000;
/// How deep types may be, far more than the nesting of a text. It bounds the recursion here and
/// wherever types are walked, because types stop growing when the steps are exhausted.
const MAX_DEPTH: u32 = 500;

/// What is known of the types that the checker has yet to find.
#[derive(Default)]
pub struct Unifier {
    bound: Vec<Option<Type>>,
    /// What the variables were before, to undo an attempt.
    trail: Vec<(u32, Option<Type>)>,
    steps: u32,
    depth: u32,
}

impl Unifier {
    pub fn variable(&mut self) -> Type {
        Type::Variable(self.variables(1))
    }

    /// Makes some variables and answers with the number of the first.
    pub fn variables(&mut self, count: usize) -> u32 {
        let first = self.bound.len() as u32;
        self.bound.resize(self.bound.len() + count, None);
        first
    }

    /// Whether the expression is too complex; then the answers are arbitrary.
    pub fn is_exhausted(&self) -> bool {
        self.steps >= MAX_STEPS
    }

    /// Whether one type can be where the other is wanted. If so, unknown types are bound by it.
    pub fn is_assignable(&mut self, first: &Type, second: &Type) -> bool {
        self.attempt(|unifier| unifier.assignable(first, second))
    }

    /// The same for the types of arguments.
    pub fn are_assignable(&mut self, first: &[Type], second: &[Type]) -> bool {
        first.len() == second.len()
            && self.attempt(|unifier| {
                first
                    .iter()
                    .zip(second)
                    .all(|(first, second)| unifier.assignable(first, second))
            })
    }

    fn attempt(&mut self, agree: impl FnOnce(&mut Self) -> bool) -> bool {
        self.trail.clear();
        if agree(self) {
            return true;
        }
        while let Some((variable, before)) = self.trail.pop() {
            self.bound[variable as usize] = before;
        }
        false
    }

    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        self.is_exhausted()
    }

    /// Goes one level down in a type.
    fn within<T>(&mut self, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.steps = MAX_STEPS;
        }
        let found = walk(self);
        self.depth -= 1;
        found
    }

    fn assignable(&mut self, first: &Type, second: &Type) -> bool {
        if self.step() {
            return true;
        }
        self.within(|unifier| unifier.assignable_within(first, second))
    }

    fn assignable_within(&mut self, first: &Type, second: &Type) -> bool {
        if let Type::Variable(variable) = *second {
            match self.substitutable(first, variable) {
                Substitution::Valid => return true,
                Substitution::Refused => return false,
                Substitution::Circular => {}
            }
        }
        if let Type::Variable(variable) = *first {
            return matches!(self.substitutable(second, variable), Substitution::Valid);
        }
        match (first, second) {
            (Type::Dyn | Type::Error | Type::Param(_), _)
            | (_, Type::Dyn | Type::Error | Type::Param(_)) => true,
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (first, second) => self.all_parameters(first, second, Self::assignable),
        }
    }

    /// Whether a variable can be a type.
    fn substitutable(&mut self, of: &Type, variable: u32) -> Substitution {
        if *of == Type::Variable(variable) {
            return Substitution::Valid;
        }
        let Some(bound) = self.bound_to(variable).cloned() else {
            if !self.occurs(variable, of) {
                self.bind(variable, of.clone());
                return Substitution::Valid;
            }
            return Substitution::Circular;
        };
        if self.is_same(of, &bound) {
            return Substitution::Valid;
        }
        if !self.assignable(of, &bound) {
            return Substitution::Refused;
        }
        let general = self.most_general(of, &bound);
        if !self.occurs(variable, &general) {
            self.bind(variable, general);
        }
        Substitution::Valid
    }

    fn bound_to(&self, variable: u32) -> Option<&Type> {
        self.bound.get(variable as usize)?.as_ref()
    }

    fn bind(&mut self, variable: u32, to: Type) {
        if let Some(bound) = self.bound.get_mut(variable as usize) {
            let before = bound.replace(to);
            self.trail.push((variable, before));
        }
    }

    fn occurs(&mut self, variable: u32, within: &Type) -> bool {
        if self.step() {
            return true;
        }
        self.within(|unifier| unifier.occurs_within(variable, within))
    }

    fn occurs_within(&mut self, variable: u32, within: &Type) -> bool {
        match within {
            Type::Variable(other) => {
                *other == variable
                    || match self.bound_to(*other).cloned() {
                        Some(bound) => self.occurs(variable, &bound),
                        None => false,
                    }
            }
            Type::List(item) => self.occurs(variable, item),
            Type::Map(entry) => self.occurs(variable, &entry.0) || self.occurs(variable, &entry.1),
            Type::Opaque(_, parameters) => parameters
                .iter()
                .any(|parameter| self.occurs(variable, parameter)),
            Type::Type(of) => self.occurs(variable, of),
            _ => false,
        }
    }

    /// A type with what is known put in. At the end, what is still unknown can be anything.
    pub fn substitute(&mut self, of: &Type, is_final: bool) -> Type {
        self.changed(of, is_final).unwrap_or_else(|| of.clone())
    }

    /// The same, or nothing where it changes nothing, so that types stay shared.
    fn changed(&mut self, of: &Type, is_final: bool) -> Option<Type> {
        if self.step() {
            return Some(Type::Dyn);
        }
        self.within(|unifier| unifier.changed_within(of, is_final))
    }

    fn changed_within(&mut self, of: &Type, is_final: bool) -> Option<Type> {
        match of {
            Type::Variable(variable) => match self.bound_to(*variable).cloned() {
                Some(bound) => Some(self.substitute(&bound, is_final)),
                None if is_final => Some(Type::Dyn),
                None => None,
            },
            Type::Param(_) if is_final => Some(Type::Dyn),
            Type::List(item) => self.changed(item, is_final).map(Type::list),
            Type::Map(entry) => {
                let key = self.changed(&entry.0, is_final);
                let value = self.changed(&entry.1, is_final);
                if key.is_none() && value.is_none() {
                    return None;
                }
                Some(Type::map(
                    key.unwrap_or_else(|| entry.0.clone()),
                    value.unwrap_or_else(|| entry.1.clone()),
                ))
            }
            Type::Opaque(name, parameters) => {
                let mut new = Vec::new();
                for (index, parameter) in parameters.iter().enumerate() {
                    if let Some(changed) = self.changed(parameter, is_final) {
                        if new.is_empty() {
                            new = parameters.to_vec();
                        }
                        new[index] = changed;
                    }
                }
                (!new.is_empty()).then(|| Type::Opaque(name.clone(), new.into()))
            }
            _ if of.is_of_types() => None,
            Type::Type(inner) => {
                let new = self.changed(inner, is_final)?;
                Some(Type::Type(Arc::new(new)))
            }
            _ => None,
        }
    }

    /// The more general of two types that agree.
    pub fn most_general(&mut self, first: &Type, second: &Type) -> Type {
        if self.is_equal_or_more_general(first, second) {
            first.clone()
        } else {
            second.clone()
        }
    }

    fn is_equal_or_more_general(&mut self, first: &Type, second: &Type) -> bool {
        if self.step() {
            return true;
        }
        match (first, second) {
            (Type::Dyn | Type::Variable(_) | Type::Param(_), _) => true,
            (_, Type::Dyn | Type::Variable(_) | Type::Param(_)) => false,
            (Type::Type(_), Type::Type(_)) => true,
            (first, second) => self.within(|unifier| {
                unifier.all_parameters(first, second, Self::is_equal_or_more_general)
            }),
        }
    }

    fn is_same(&mut self, first: &Type, second: &Type) -> bool {
        self.step() || self.within(|unifier| unifier.all_parameters(first, second, Self::is_same))
    }

    /// Whether two types are of the same kind and name, and what is in them fulfils a condition.
    fn all_parameters(
        &mut self,
        first: &Type,
        second: &Type,
        condition: fn(&mut Self, &Type, &Type) -> bool,
    ) -> bool {
        match (first, second) {
            (Type::List(first), Type::List(second)) | (Type::Type(first), Type::Type(second)) => {
                condition(self, first, second)
            }
            (Type::Map(first), Type::Map(second)) => {
                condition(self, &first.0, &second.0) && condition(self, &first.1, &second.1)
            }
            (Type::Opaque(first_name, first), Type::Opaque(second_name, second)) => {
                first_name == second_name
                    && first.len() == second.len()
                    && first
                        .iter()
                        .zip(second.iter())
                        .all(|(first, second)| condition(self, first, second))
            }
            (first, second) => first == second,
        }
    }
}

enum Substitution {
    Valid,
    /// The variable is known to be another type.
    Refused,
    /// The variable is part of the type.
    Circular,
}

fn is_nullable(of: &Type) -> bool {
    matches!(
        of,
        Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Duration | Type::Timestamp
    )
}
