//! What mutating policies make JSON patches with: the type `JSONPatch` and the escaping of keys.

use crate::ast::Name;
use crate::function::{EvalError, Overload};
use crate::libraries::declare::{global, object};
use crate::types::Type;
use crate::value::Value;

/// The name of the type of one operation of a patch.
pub const JSON_PATCH: &str = "JSONPatch";

pub fn json_patch_type() -> Type {
    object(JSON_PATCH)
}

/// The type of a field of `JSONPatch`.
pub fn field(name: &str) -> Option<Type> {
    match name {
        "op" | "from" | "path" => Some(Type::String),
        "value" => Some(Type::Dyn),
        _ => None,
    }
}

pub fn fields() -> Vec<Name> {
    ["op", "from", "path", "value"].map(Name::from).into()
}

pub fn overloads() -> Vec<Overload> {
    vec![
        global(
            "jsonpatch.escapeKey",
            "string_jsonpatch_escapeKey_string",
            [Type::String],
            Type::String,
        )
        .calls(escape_key),
    ]
}

fn escape_key<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(key)] => Ok(key.replace('~', "~0").replace('/', "~1").into()),
        _ => Err(EvalError::NoSuchOverload),
    }
}
