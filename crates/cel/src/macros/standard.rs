//! The macros of the language itself, `cel.bind`, and `sortBy` of the list library.

use super::{Expansion, Misuse, check_not_accumulator, variable};
use crate::ast::{Comprehension, Constant, Expr, Id, Name};
use crate::builder::Expander;
use crate::names;

pub fn has(expander: &mut Expander<'_>, argument: Id) -> Expansion {
    match expander.builder.expr(argument) {
        Expr::Select(select) => {
            let select = select.clone();
            Ok(expander.presence_test(select.operand, select.field))
        }
        _ => Err(Misuse::new(argument, "invalid argument to has() macro")),
    }
}

pub fn all(expander: &mut Expander<'_>, range: Id, argument: Id, body: Id) -> Expansion {
    let variable = quantified(expander, argument)?;
    let fold = fold_all(expander, body);
    Ok(fold.over(expander, range, variable, None))
}

pub fn exists(expander: &mut Expander<'_>, range: Id, argument: Id, body: Id) -> Expansion {
    let variable = quantified(expander, argument)?;
    let fold = fold_exists(expander, body);
    Ok(fold.over(expander, range, variable, None))
}

pub fn exists_one(expander: &mut Expander<'_>, range: Id, argument: Id, body: Id) -> Expansion {
    let variable = quantified(expander, argument)?;
    let fold = fold_exists_one(expander, body);
    Ok(fold.over(expander, range, variable, None))
}

pub fn map(
    expander: &mut Expander<'_>,
    range: Id,
    argument: Id,
    filter: Option<Id>,
    body: Id,
) -> Expansion {
    let variable = iterated(expander, argument)?;
    let initial = expander.list(Vec::new());
    let condition = expander.bool(true);
    let step = append(expander, body, filter);
    let result = accumulator(expander);
    let fold = Fold {
        initial,
        condition,
        step,
        result,
    };
    Ok(fold.over(expander, range, variable, None))
}

pub fn filter(expander: &mut Expander<'_>, range: Id, argument: Id, body: Id) -> Expansion {
    map(expander, range, argument, Some(body), argument)
}

pub fn bind(expander: &mut Expander<'_>, argument: Id, initial: Id, result: Id) -> Expansion {
    let message = "cel.bind() variable names must be simple identifiers";
    let variable = variable(expander, argument, message)?;
    Ok(let_in(expander, variable, |_| initial, |_| result))
}

/// A comprehension over nothing, whose accumulator is a variable in its result. The parts are made
/// in the order in which cel-go numbers them.
pub fn let_in(
    expander: &mut Expander<'_>,
    variable: Name,
    initial: impl FnOnce(&mut Expander<'_>) -> Id,
    result: impl FnOnce(&mut Expander<'_>) -> Id,
) -> Id {
    let range = expander.list(Vec::new());
    let initial = initial(expander);
    let condition = expander.bool(false);
    let step = expander.ident(&variable);
    let result = result(expander);
    expander.comprehension(Comprehension {
        range,
        variable: names::UNUSED.clone(),
        second_variable: None,
        accumulator: variable,
        initial,
        condition,
        step,
        result,
    })
}

pub fn sort_by(expander: &mut Expander<'_>, target: Id, argument: Id, body: Id) -> Expansion {
    let input = expander.ident(&names::SORT_BY_INPUT);
    match expander.builder.expr(target) {
        Expr::List(_)
        | Expr::Select(_)
        | Expr::Ident(_)
        | Expr::Comprehension(_)
        | Expr::Call(_) => {}
        _ => {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or \
                           select expression";
            return Err(Misuse::new(target, message));
        }
    }
    let range = expander.copy(input);
    let keys = map(expander, range, argument, None, body)?;
    let list = expander.copy(input);
    let sorted = expander.member_call("@sortByAssociatedKeys", list, vec![keys]);
    let range = expander.list(Vec::new());
    let condition = expander.bool(false);
    Ok(expander.comprehension(Comprehension {
        range,
        variable: names::UNUSED.clone(),
        second_variable: None,
        accumulator: names::SORT_BY_INPUT.clone(),
        initial: target,
        condition,
        step: input,
        result: sorted,
    }))
}

fn quantified(expander: &Expander<'_>, argument: Id) -> Result<Name, Misuse> {
    let name = variable(expander, argument, "argument must be a simple name")?;
    check_not_accumulator(&name, argument)?;
    Ok(name)
}

fn iterated(expander: &Expander<'_>, argument: Id) -> Result<Name, Misuse> {
    let name = variable(expander, argument, "argument is not an identifier")?;
    check_not_accumulator(&name, argument)?;
    Ok(name)
}

/// The parts of a comprehension that do not depend on what is folded.
pub struct Fold {
    pub initial: Id,
    pub condition: Id,
    pub step: Id,
    pub result: Id,
}

impl Fold {
    pub fn over(
        self,
        expander: &mut Expander<'_>,
        range: Id,
        variable: Name,
        second_variable: Option<Name>,
    ) -> Id {
        expander.comprehension(Comprehension {
            range,
            variable,
            second_variable,
            accumulator: names::ACCUMULATOR.clone(),
            initial: self.initial,
            condition: self.condition,
            step: self.step,
            result: self.result,
        })
    }
}

pub fn accumulator(expander: &mut Expander<'_>) -> Id {
    expander.ident(&names::ACCUMULATOR)
}

/// The step that puts an item at the end of the accumulated list, if the filter lets it.
pub fn append(expander: &mut Expander<'_>, item: Id, filter: Option<Id>) -> Id {
    let list = accumulator(expander);
    let added = expander.list(vec![item]);
    let step = expander.call(&names::ADD, vec![list, added]);
    filtered(expander, step, filter)
}

pub fn filtered(expander: &mut Expander<'_>, step: Id, filter: Option<Id>) -> Id {
    let Some(filter) = filter else { return step };
    let unchanged = accumulator(expander);
    expander.call(&names::CONDITIONAL, vec![filter, step, unchanged])
}

pub fn fold_all(expander: &mut Expander<'_>, body: Id) -> Fold {
    let initial = expander.bool(true);
    let so_far = accumulator(expander);
    let condition = expander.call(&names::NOT_STRICTLY_FALSE, vec![so_far]);
    let so_far = accumulator(expander);
    let step = expander.call(&names::AND, vec![so_far, body]);
    let result = accumulator(expander);
    Fold {
        initial,
        condition,
        step,
        result,
    }
}

pub fn fold_exists(expander: &mut Expander<'_>, body: Id) -> Fold {
    let initial = expander.bool(false);
    let so_far = accumulator(expander);
    let none_yet = expander.call(&names::NOT, vec![so_far]);
    let condition = expander.call(&names::NOT_STRICTLY_FALSE, vec![none_yet]);
    let so_far = accumulator(expander);
    let step = expander.call(&names::OR, vec![so_far, body]);
    let result = accumulator(expander);
    Fold {
        initial,
        condition,
        step,
        result,
    }
}

pub fn fold_exists_one(expander: &mut Expander<'_>, body: Id) -> Fold {
    let initial = expander.constant(Constant::Int(0));
    let condition = expander.bool(true);
    let so_far = accumulator(expander);
    let one = expander.constant(Constant::Int(1));
    let counted = expander.call(&names::ADD, vec![so_far, one]);
    let unchanged = accumulator(expander);
    let step = expander.call(&names::CONDITIONAL, vec![body, counted, unchanged]);
    let count = accumulator(expander);
    let one = expander.constant(Constant::Int(1));
    let result = expander.call(&names::EQUALS, vec![count, one]);
    Fold {
        initial,
        condition,
        step,
        result,
    }
}
