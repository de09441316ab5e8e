//! Which overload a call means when its arguments are known, and the call itself.

use std::sync::Arc;

use crate::function::{EvalError, Function, Implementation, Overload};
use crate::types::Type;
use crate::value::Value;

/// Calls a function with values. With an overload the checker has chosen; without one, the first whose
/// types agree with the values is called.
pub fn call<'a>(
    function: &Function,
    overload: Option<&Arc<Overload>>,
    arguments: &[Value<'a>],
) -> Result<Value<'a>, EvalError> {
    let bound = |overload: &Overload| match overload.implementation {
        Implementation::Function(compute) => {
            agrees(overload, arguments).then(|| compute(arguments))
        }
        Implementation::Singleton(compute) => Some(compute(arguments)),
        Implementation::BuiltIn => None,
    };
    let answer = match overload {
        Some(overload) => bound(overload),
        None => function
            .overloads
            .iter()
            .find_map(|overload| bound(overload)),
    };
    answer.unwrap_or_else(|| Err(no_such_overload(function.name, arguments)))
}

pub fn no_such_overload(function: &str, arguments: &[Value<'_>]) -> EvalError {
    let types: Vec<String> = arguments
        .iter()
        .map(|argument| argument.type_of().name().to_owned())
        .collect();
    EvalError::Message(format!(
        "no such overload: {function}({})",
        types.join(", ")
    ))
}

fn agrees(overload: &Overload, arguments: &[Value<'_>]) -> bool {
    overload.arguments.len() == arguments.len()
        && overload
            .arguments
            .iter()
            .zip(arguments)
            .all(|(of, value)| is_of_type(value, of))
}

/// Whether a value may be given where a type is declared. Of lists and maps only the first item is
/// looked at, as in cel-go. The types of declarations are shallow.
fn is_of_type(value: &Value<'_>, declared: &Type) -> bool {
    match declared {
        Type::Dyn | Type::Param(_) => true,
        Type::Null => matches!(value, Value::Null),
        Type::Bool => matches!(value, Value::Bool(_)),
        Type::Int => matches!(value, Value::Int(_)),
        Type::Uint => matches!(value, Value::Uint(_)),
        Type::Double => matches!(value, Value::Double(_)),
        Type::String => matches!(value, Value::String(_)),
        Type::Bytes => matches!(value, Value::Bytes(_)),
        Type::Duration => matches!(value, Value::Duration(_)),
        Type::Timestamp => matches!(value, Value::Timestamp(_)),
        Type::Type(_) => matches!(value, Value::Type(_)),
        Type::List(of) => match value.list_len() {
            Some(0) => true,
            Some(_) => value.item(0).is_some_and(|item| is_of_type(&item, of)),
            None => false,
        },
        Type::Map(of) => match value.map_len() {
            Some(0) => true,
            Some(_) => {
                value.key_at(0).is_some_and(|key| is_of_type(&key, &of.0))
                    && value
                        .value_at(0)
                        .is_some_and(|value| is_of_type(&value, &of.1))
            }
            None => false,
        },
        _ => value.type_of().name() == declared.name(),
    }
}
