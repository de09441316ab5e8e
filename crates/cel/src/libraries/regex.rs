//! Kubernetes' library for regular expressions: `find` and `findAll`.

use crate::function::{EvalError, Overload};
use crate::libraries::declare::{list, member, message};
use crate::patterns;
use crate::types::Type;
use crate::value::{Text, Value};

pub fn overloads() -> Vec<Overload> {
    let strings = || list(Type::String);
    vec![
        member(
            "find",
            "string_find_string",
            [Type::String, Type::String],
            Type::String,
        )
        .calls(find),
        member(
            "findAll",
            "string_find_all_string",
            [Type::String, Type::String],
            strings(),
        )
        .calls(find_all),
        member(
            "findAll",
            "string_find_all_string_int",
            [Type::String, Type::String, Type::Int],
            strings(),
        )
        .calls(find_all),
    ]
}

fn find<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text), Value::String(pattern)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let pattern = patterns::compile(pattern).map_err(illegal)?;
    let found = pattern.find(text).map(|found| found.range());
    Ok(part(text, found.unwrap_or(0..0)))
}

fn find_all<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text), Value::String(pattern), rest @ ..] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let limit = match rest {
        [] => usize::MAX,
        // A negative limit is none.
        [Value::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let pattern = patterns::compile(pattern).map_err(illegal)?;
    let found = pattern.find_iter(text).take(limit);
    Ok(Value::list(
        found.map(|found| part(text, found.range())).collect(),
    ))
}

fn illegal(error: EvalError) -> EvalError {
    message(format!("Illegal regex: {error}"))
}

/// A part of a text, borrowed where the text is.
fn part<'a>(text: &Text<'a>, range: std::ops::Range<usize>) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::from(&text[range]),
        Text::Owned(text) => Value::from(text[range].to_owned()),
    }
}
