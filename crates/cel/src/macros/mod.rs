//! Calls that the parser replaces by other expressions, as cel-go's macros do.

mod optional;
mod standard;
mod two_variables;

use crate::ast::{Expr, Id, Name};
use crate::builder::{Builder, Expander};

/// Which macros there are besides the standard ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Macros {
    /// `optMap`, `optFlatMap`.
    pub optional: bool,
    /// `all`, `exists`, `transformList` and others with an index or key and a value.
    pub two_variables: bool,
    /// `sortBy`.
    pub sort_by: bool,
    /// `cel.bind`.
    pub bind: bool,
}

/// A mistake in the arguments of a macro.
struct Misuse {
    at: Id,
    message: String,
}

impl Misuse {
    fn new(at: Id, message: impl Into<String>) -> Misuse {
        let message = message.into();
        Misuse { at, message }
    }
}

type Expansion = Result<Id, Misuse>;

/// The old name of the accumulator is refused as a variable too.
const OLD_ACCUMULATOR: &str = "__result__";

/// What a call becomes if it is that of a macro.
pub fn expand(
    macros: Macros,
    builder: &mut Builder,
    call: Id,
    function: &str,
    target: Option<Id>,
    arguments: &[Id],
) -> Option<Id> {
    let mut expander = Expander::new(builder, call);
    let expander = &mut expander;
    let expansion = match (target, arguments) {
        (None, [argument]) if function == "has" => standard::has(expander, *argument),
        (None, _) => return None,
        (Some(target), [variable, body]) => match function {
            "all" => standard::all(expander, target, *variable, *body),
            "exists" => standard::exists(expander, target, *variable, *body),
            // `existsOne` is a macro with two variables only.
            "exists_one" => standard::exists_one(expander, target, *variable, *body),
            "map" => standard::map(expander, target, *variable, None, *body),
            "filter" => standard::filter(expander, target, *variable, *body),
            "optMap" if macros.optional => optional::map(expander, target, *variable, *body),
            "optFlatMap" if macros.optional => {
                optional::flat_map(expander, target, *variable, *body)
            }
            "sortBy" if macros.sort_by => standard::sort_by(expander, target, *variable, *body),
            _ => return None,
        },
        (Some(target), [first, second, third]) => match function {
            "map" => standard::map(expander, target, *first, Some(*second), *third),
            "bind" if macros.bind && is_namespace(expander, target, "cel") => {
                standard::bind(expander, *first, *second, *third)
            }
            _ if macros.two_variables => {
                two_variables::expand(expander, function, target, arguments)?
            }
            _ => return None,
        },
        (Some(target), [_, _, _, _]) if macros.two_variables => {
            two_variables::expand(expander, function, target, arguments)?
        }
        _ => return None,
    };
    match expansion {
        Ok(id) => {
            builder.release(call);
            Some(id)
        }
        Err(misuse) => {
            let offset = builder.offset(misuse.at);
            builder.release(call);
            Some(builder.error(offset, misuse.message))
        }
    }
}

fn is_namespace(expander: &Expander<'_>, target: Id, namespace: &str) -> bool {
    matches!(expander.builder.expr(target), Expr::Ident(name) if &**name == namespace)
}

/// The name of a variable that a macro declares.
fn variable(expander: &Expander<'_>, argument: Id, message: &str) -> Result<Name, Misuse> {
    match expander.builder.expr(argument) {
        Expr::Ident(name) => Ok(name.clone()),
        _ => Err(Misuse::new(argument, message)),
    }
}

fn check_not_accumulator(name: &Name, argument: Id) -> Result<(), Misuse> {
    if **name == **crate::names::ACCUMULATOR || &**name == OLD_ACCUMULATOR {
        let message = "iteration variable overwrites accumulator variable";
        return Err(Misuse::new(argument, message));
    }
    Ok(())
}
