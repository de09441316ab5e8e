//! The macros that fold over indices or keys together with values.

use super::standard::{
    Fold, accumulator, append, filtered, fold_all, fold_exists, fold_exists_one,
};
use super::{Expansion, Misuse, check_not_accumulator, variable};
use crate::ast::{Id, Name};
use crate::builder::Expander;
use crate::names;

/// What a call becomes, if it is that of such a macro.
pub fn expand(
    expander: &mut Expander<'_>,
    function: &str,
    range: Id,
    arguments: &[Id],
) -> Option<Expansion> {
    let (first, second, filter, body) = match *arguments {
        [first, second, body] => (first, second, None, body),
        [first, second, filter, body] => (first, second, Some(filter), body),
        _ => return None,
    };
    match function {
        "all" | "exists" | "exists_one" | "existsOne" if filter.is_none() => {}
        "transformList" | "transformMap" | "transformMapEntry" => {}
        _ => return None,
    }
    Some(variables(expander, first, second).map(|(first, second)| {
        let fold = match function {
            "all" => fold_all(expander, body),
            "exists" => fold_exists(expander, body),
            "exists_one" | "existsOne" => fold_exists_one(expander, body),
            "transformList" => {
                let step = append(expander, body, filter);
                let initial = expander.list(Vec::new());
                transformation(expander, initial, step)
            }
            _ => {
                let so_far = accumulator(expander);
                let mut inserted = vec![so_far];
                if function == "transformMap" {
                    inserted.push(expander.ident(&first));
                }
                inserted.push(body);
                let step = expander.call(&names::MAP_INSERT, inserted);
                let step = filtered(expander, step, filter);
                let initial = expander.empty_map();
                transformation(expander, initial, step)
            }
        };
        fold.over(expander, range, first, Some(second))
    }))
}

fn transformation(expander: &mut Expander<'_>, initial: Id, step: Id) -> Fold {
    let condition = expander.bool(true);
    let result = accumulator(expander);
    Fold {
        initial,
        condition,
        step,
        result,
    }
}

fn variables(expander: &Expander<'_>, first: Id, second: Id) -> Result<(Name, Name), Misuse> {
    let message = "argument must be a simple name";
    let first_name = variable(expander, first, message)?;
    let second_name = variable(expander, second, message)?;
    if first_name == second_name {
        let message = format!("duplicate variable name: {first_name}");
        return Err(Misuse::new(second, message));
    }
    check_not_accumulator(&first_name, first)?;
    check_not_accumulator(&second_name, second)?;
    Ok((first_name, second_name))
}
