//! Calls: which function a name is, and which of its overloads the arguments allow.

use std::mem;
use std::sync::Arc;

use super::{Checker, shown};
use crate::ast::{Call, Id, Name};
use crate::checked::Reference;
use crate::function::{Function, Overload};
use crate::names;
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn check_call(&mut self, id: Id, call: &mut Call) {
        if Self::is_optional_select(&call.function) {
            return self.check_optional_select(id, &call.arguments);
        }
        for argument in &call.arguments {
            self.check(*argument);
        }
        let Some(target) = call.target else {
            match self.declarations.resolve_function(&call.function) {
                Some(function) => {
                    rename(&mut call.function, function.name);
                    self.resolve_overload(id, &function, None, &call.arguments);
                }
                None => self.undeclared(id, &call.function),
            }
            return;
        };
        // The target may be the namespace of the function.
        if self.qualify(target) {
            let mut full = mem::take(&mut self.qualified);
            full.push('.');
            full.push_str(&call.function);
            let function = self.declarations.resolve_function(&full);
            self.qualified = full;
            if let Some(function) = function {
                rename(&mut call.function, function.name);
                call.target = None;
                self.resolve_overload(id, &function, None, &call.arguments);
                return;
            }
        }
        self.check(target);
        match self.declarations.resolve_function(&call.function) {
            Some(function) => {
                self.resolve_overload(id, &function, Some(target), &call.arguments);
            }
            None => self.undeclared(id, &call.function),
        }
    }

    fn resolve_overload(
        &mut self,
        id: Id,
        function: &Arc<Function>,
        target: Option<Id>,
        arguments: &[Id],
    ) {
        let of = match self.overloads(id, function, target, arguments) {
            Some((overloads, of)) => {
                let function = function.clone();
                self.set_reference(
                    id,
                    Reference::Function {
                        function,
                        overloads,
                    },
                );
                of
            }
            None => Type::Error,
        };
        self.set_type(id, of);
    }

    fn overloads(
        &mut self,
        id: Id,
        function: &Function,
        target: Option<Id>,
        arguments: &[Id],
    ) -> Option<(Vec<Arc<Overload>>, Type)> {
        let mut given = Vec::with_capacity(arguments.len() + 1);
        for argument in target.iter().chain(arguments) {
            given.push(self.type_of(*argument));
        }
        let mut matching: Vec<Arc<Overload>> = Vec::new();
        let mut result: Option<Type> = None;
        for overload in &function.overloads {
            if overload.is_member != target.is_some()
                || !self.mixed_comparisons && is_mixed_comparison(overload)
            {
                continue;
            }
            if *function.name == **names::AND || *function.name == **names::OR {
                return self
                    .are_bools(arguments, &given)
                    .then(|| (vec![overload.clone()], Type::Bool));
            }
            let Some(of) = self.result_of(overload, &given) else {
                continue;
            };
            matching.push(overload.clone());
            result = Some(match result {
                Some(before) if before == Type::Dyn || before == of => before,
                Some(_) => Type::Dyn,
                None => of,
            });
        }
        if result.is_none() {
            self.no_overload(id, function.name, &given, target.is_some());
        }
        Some((matching, result?))
    }

    fn are_bools(&mut self, arguments: &[Id], given: &[Type]) -> bool {
        let mut are_bools = true;
        for (argument, of) in arguments.iter().zip(given) {
            if !self.unifier.is_assignable(of, &Type::Bool) {
                self.mismatch(*argument, &Type::Bool, of);
                are_bools = false;
            }
        }
        are_bools
    }

    /// The type of an overload's result, if the arguments fit.
    fn result_of(&mut self, overload: &Overload, given: &[Type]) -> Option<Type> {
        let is_of_length = overload.arguments.len() == given.len();
        let mut parameters = Parameters::default();
        parameters.collect(&overload.result);
        for argument in &overload.arguments {
            parameters.collect(argument);
        }
        if parameters.names.is_empty() {
            return (is_of_length && self.unifier.are_assignable(given, &overload.arguments))
                .then(|| overload.result.clone());
        }
        // cel-go numbers the variables before it counts the arguments, and messages show the numbers.
        parameters.first = self.unifier.variables(parameters.names.len());
        if !is_of_length {
            return None;
        }
        let wanted: Vec<Type> = overload
            .arguments
            .iter()
            .map(|argument| parameters.instantiate(argument))
            .collect();
        if !self.unifier.are_assignable(given, &wanted) {
            return None;
        }
        let result = parameters.instantiate(&overload.result);
        Some(self.unifier.substitute(&result, false))
    }

    fn no_overload(&mut self, id: Id, function: &str, given: &[Type], is_member: bool) {
        let mut signature = String::new();
        let mut arguments = given;
        if let (true, Some((target, rest))) = (is_member, given.split_first()) {
            let target = self.unifier.substitute(target, true);
            signature = format!("{}.", shown(&target));
            arguments = rest;
        }
        signature.push('(');
        for (index, argument) in arguments.iter().enumerate() {
            if index > 0 {
                signature.push_str(", ");
            }
            let argument = self.unifier.substitute(argument, true);
            signature.push_str(&shown(&argument).to_string());
        }
        signature.push(')');
        let message =
            format!("found no matching overload for '{function}' applied to '{signature}'");
        self.error(id, message);
    }
}

fn rename(name: &mut Name, to: &str) {
    if **name != *to {
        *name = Name::from(to);
    }
}

/// Whether an overload compares numbers of two types.
fn is_mixed_comparison(overload: &Overload) -> bool {
    let is_number = |of: &Type| matches!(of, Type::Int | Type::Uint | Type::Double);
    match (&overload.arguments[..], overload.function) {
        ([first, second], "_<_" | "_<=_" | "_>_" | "_>=_") => {
            first != second && is_number(first) && is_number(second)
        }
        _ => false,
    }
}

/// The type parameters of one overload, which get variables of their own at each call.
#[derive(Default)]
struct Parameters<'a> {
    names: Vec<&'a Name>,
    first: u32,
}

impl<'a> Parameters<'a> {
    fn collect(&mut self, of: &'a Type) {
        if let Type::Param(name) = of
            && !self.names.contains(&name)
        {
            self.names.push(name);
        }
        let mut index = 0;
        while let Some(parameter) = of.parameter(index) {
            self.collect(parameter);
            index += 1;
        }
    }

    fn instantiate(&self, of: &Type) -> Type {
        match of {
            Type::Param(name) => match self.names.iter().position(|known| *known == name) {
                Some(index) => Type::Variable(self.first + index as u32),
                None => Type::Dyn,
            },
            Type::List(item) => Type::list(self.instantiate(item)),
            Type::Map(entry) => Type::map(self.instantiate(&entry.0), self.instantiate(&entry.1)),
            Type::Opaque(name, parameters) if !parameters.is_empty() => Type::Opaque(
                name.clone(),
                parameters
                    .iter()
                    .map(|parameter| self.instantiate(parameter))
                    .collect(),
            ),
            Type::Type(inner) => Type::Type(self.instantiate(inner).into()),
            other => other.clone(),
        }
    }
}
