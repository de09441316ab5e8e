//! What comprehensions of two variables build maps with.

use std::sync::Arc;

use crate::function::{EvalError, Overload};
use crate::libraries::declare::{global, map, message, parameter};
use crate::value::Map;
use crate::value::Value;

pub fn overloads() -> Vec<Overload> {
    let of = || map(parameter("K"), parameter("V"));
    vec![
        global(
            "cel.@mapInsert",
            "@mapInsert_map_key_value",
            [of(), parameter("K"), parameter("V")],
            of(),
        )
        .calls(insert),
        global("cel.@mapInsert", "@mapInsert_map_map", [of(), of()], of()).calls(insert),
    ]
}

/// Adds an entry or the entries of another map; a key that is there already is an error.
fn insert<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let mut result = match arguments.first() {
        Some(Value::Map(map)) => (**map).clone(),
        Some(value) if value.map_len().is_some() => {
            let mut map = Map::default();
            for (key, value) in value.entries() {
                map.insert(key, value);
            }
            map
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    match arguments {
        [_, key, value] => add(&mut result, key.clone(), value.clone())?,
        [_, other] if other.map_len().is_some() => {
            for (key, value) in other.entries() {
                add(&mut result, key, value)?;
            }
        }
        _ => return Err(EvalError::NoSuchOverload),
    }
    Ok(Value::Map(Arc::new(result)))
}

fn add<'a>(map: &mut Map<'a>, key: Value<'a>, value: Value<'a>) -> Result<(), EvalError> {
    if map.get(&key).is_some() {
        let shown = crate::go_text::of(&key);
        return Err(message(format!(
            "insert failed: key {shown} already exists"
        )));
    }
    map.insert(key, value);
    Ok(())
}
