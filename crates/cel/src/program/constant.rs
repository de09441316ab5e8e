//! Finds the parts of an expression that are constant, as cel-go's optimizer does: literals, lists and
//! maps of constants, and conversions of constants. They cost nothing when the expression runs.

use std::sync::Arc;

use super::dispatch;
use crate::ast::{Call, Constant, Expr, Id};
use crate::checked::{CheckedAst, Reference};
use crate::error::EvalError;
use crate::patterns;
use crate::types::Type;
use crate::value::Map;
use crate::value::{Shared, Value};

/// The constant value of each node that has one, by the number of the node.
pub struct Constants {
    values: Vec<Option<Value<'static>>>,
}

impl Constants {
    pub fn get(&self, id: Id) -> Option<&Value<'static>> {
        self.values.get(id.0 as usize)?.as_ref()
    }
}

/// The error is that of the first conversion or pattern that fails.
pub fn fold(checked: &CheckedAst) -> Result<Constants, EvalError> {
    let mut constants = Constants {
        values: vec![None; checked.ast.nodes.len()],
    };
    for id in post_order(checked) {
        let value = constant_value(checked, &constants, id)?;
        if let Some(place) = constants.values.get_mut(id.0 as usize) {
            *place = value;
        }
    }
    Ok(constants)
}

fn constant_value(
    checked: &CheckedAst,
    constants: &Constants,
    id: Id,
) -> Result<Option<Value<'static>>, EvalError> {
    match checked.reference(id) {
        Some(Reference::Constant(_, constant)) => return Ok(Some(literal(constant))),
        // A struct literal refers to its type too, and is none.
        Some(Reference::Type(_, of)) if !matches!(checked.ast.expr(id), Expr::Struct(_)) => {
            return Ok(Some(Value::Type(erased(of))));
        }
        _ => {}
    }
    Ok(match checked.ast.expr(id) {
        Expr::Constant(constant) => Some(literal(constant)),
        Expr::List(list) if list.optional.is_empty() => list
            .items
            .iter()
            .map(|item| constants.get(*item).cloned())
            .collect::<Option<Vec<_>>>()
            .map(Value::list),
        Expr::Map(entries) if entries.iter().all(|entry| !entry.is_optional) => {
            let mut map = Map::with_capacity(entries.len());
            for entry in entries {
                let (Some(key), Some(value)) =
                    (constants.get(entry.key), constants.get(entry.value))
                else {
                    return Ok(None);
                };
                map.insert(key.clone(), value.clone());
            }
            Some(Value::Map(Arc::new(map)))
        }
        Expr::Call(call) => return constant_call(checked, constants, id, call),
        _ => None,
    })
}

fn constant_call(
    checked: &CheckedAst,
    constants: &Constants,
    id: Id,
    call: &Call,
) -> Result<Option<Value<'static>>, EvalError> {
    let Some(Reference::Function {
        function,
        overloads,
    }) = checked.reference(id)
    else {
        return Ok(None);
    };
    match (&*call.function, call.arguments.as_slice()) {
        (
            "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp"
            | "type" | "uint",
            [argument],
        ) if call.target.is_none() => {
            let Some(argument) = constants.get(*argument) else {
                return Ok(None);
            };
            let overload = match overloads.as_slice() {
                [overload] => Some(overload),
                _ => None,
            };
            dispatch::call(function, overload, std::slice::from_ref(argument)).map(Some)
        }
        // Nothing is in an empty list, whatever it is.
        ("@in", [_, list]) => Ok(match (overloads.as_slice(), constants.get(*list)) {
            ([overload], Some(Value::List(items)))
                if overload.id == "in_list" && items.is_empty() =>
            {
                Some(Value::Bool(false))
            }
            _ => None,
        }),
        ("matches" | "find" | "findAll", arguments) => {
            let position = if call.target.is_some() { 0 } else { 1 };
            let pattern = arguments
                .get(position)
                .and_then(|pattern| constants.get(*pattern));
            if let Some(Value::String(pattern)) = pattern {
                patterns::compile(pattern)?;
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// A type as a value, which does not tell of the types within.
fn erased(of: &Type) -> Type {
    match of {
        Type::List(_) => Type::list(Type::Dyn),
        Type::Map(_) => Type::map(Type::Dyn, Type::Dyn),
        Type::Opaque(name, _) => Type::Opaque(name.clone(), Arc::from([])),
        other => other.clone(),
    }
}

fn literal(constant: &Constant) -> Value<'static> {
    match constant {
        Constant::Null => Value::Null,
        Constant::Bool(value) => Value::Bool(*value),
        Constant::Int(value) => Value::Int(*value),
        Constant::Uint(value) => Value::Uint(*value),
        Constant::Double(value) => Value::Double(*value),
        Constant::String(text) => Value::String(Shared::Owned(text.clone())),
        Constant::Bytes(octets) => Value::Bytes(Shared::Owned(octets.clone())),
    }
}

/// The nodes in the order in which cel-go plans them, children first.
fn post_order(checked: &CheckedAst) -> Vec<Id> {
    enum Visit {
        Enter(Id),
        Leave(Id),
    }
    let mut order = Vec::with_capacity(checked.ast.nodes.len());
    let mut visits = vec![Visit::Enter(checked.ast.root)];
    let mut children = Vec::new();
    while let Some(visit) = visits.pop() {
        match visit {
            Visit::Leave(id) => order.push(id),
            Visit::Enter(id) => {
                visits.push(Visit::Leave(id));
                children.clear();
                children_of(checked.ast.expr(id), &mut children);
                visits.extend(children.iter().rev().map(|child| Visit::Enter(*child)));
            }
        }
    }
    order
}

fn children_of(expr: &Expr, children: &mut Vec<Id>) {
    match expr {
        Expr::Unspecified | Expr::Constant(_) | Expr::Ident(_) => {}
        Expr::Select(select) => children.push(select.operand),
        Expr::Call(call) => {
            children.extend(call.target);
            children.extend(&call.arguments);
        }
        Expr::List(list) => children.extend(&list.items),
        Expr::Map(entries) => {
            children.extend(entries.iter().flat_map(|entry| [entry.key, entry.value]));
        }
        Expr::Struct(literal) => children.extend(literal.fields.iter().map(|field| field.value)),
        Expr::Comprehension(fold) => children.extend([
            fold.initial,
            fold.range,
            fold.condition,
            fold.step,
            fold.result,
        ]),
    }
}
