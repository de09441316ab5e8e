//! `optMap` and `optFlatMap`: an expression of what an optional holds.

use super::standard::let_in;
use super::{Expansion, variable};
use crate::ast::{Id, Name};
use crate::builder::Expander;
use crate::names;

pub fn map(expander: &mut Expander<'_>, target: Id, argument: Id, body: Id) -> Expansion {
    let message = "optMap() variable name must be a simple identifier";
    let name = variable(expander, argument, message)?;
    let has_value = expander.member_call("hasValue", target, Vec::new());
    let value = with_value(expander, target, name, body);
    let some = expander.call(&names::OPTIONAL_OF, vec![value]);
    Ok(or_none(expander, has_value, some))
}

pub fn flat_map(expander: &mut Expander<'_>, target: Id, argument: Id, body: Id) -> Expansion {
    let message = "optFlatMap() variable name must be a simple identifier";
    let name = variable(expander, argument, message)?;
    let has_value = expander.member_call("hasValue", target, Vec::new());
    let value = with_value(expander, target, name, body);
    Ok(or_none(expander, has_value, value))
}

fn with_value(expander: &mut Expander<'_>, target: Id, name: Name, body: Id) -> Id {
    let value_of = |expander: &mut Expander<'_>| {
        let copy = expander.copy(target);
        expander.member_call("value", copy, Vec::new())
    };
    let_in(expander, name, value_of, |_| body)
}

fn or_none(expander: &mut Expander<'_>, has_value: Id, some: Id) -> Id {
    let none = expander.call(&names::OPTIONAL_NONE, Vec::new());
    expander.call(&names::CONDITIONAL, vec![has_value, some, none])
}
