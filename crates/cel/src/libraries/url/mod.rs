//! Kubernetes' library for URLs.

pub(crate) mod parse;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use self::parse::{Parts, parse_request_uri, parse_url};
use crate::function::{EvalError, Overload};
use crate::libraries::declare::{global, list, map, member, message, object};
use crate::types::Type;
use crate::value::Map;
use crate::value::{Opaque, Value};

pub fn url_type() -> Type {
    object("kubernetes.URL")
}

/// A URL.
#[derive(Clone)]
pub struct Url(Parts);

pub fn overloads() -> Vec<Overload> {
    let query = map(Type::String, list(Type::String));
    vec![
        global("url", "string_to_url", [Type::String], url_type()).calls(url),
        member("getScheme", "url_get_scheme", [url_type()], Type::String)
            .calls(|arguments| part(arguments, |parts| parts.scheme.clone())),
        member("getHost", "url_get_host", [url_type()], Type::String)
            .calls(|arguments| part(arguments, |parts| text(&parts.host))),
        member(
            "getHostname",
            "url_get_hostname",
            [url_type()],
            Type::String,
        )
        .calls(|arguments| part(arguments, |parts| text(parts.host_and_port().0))),
        member("getPort", "url_get_port", [url_type()], Type::String)
            .calls(|arguments| part(arguments, |parts| text(parts.host_and_port().1))),
        member(
            "getEscapedPath",
            "url_get_escaped_path",
            [url_type()],
            Type::String,
        )
        .calls(|arguments| part(arguments, Parts::escaped_path)),
        member("getQuery", "url_get_query", [url_type()], query).calls(get_query),
        global("isURL", "is_url_string", [Type::String], Type::Bool).calls(is_url),
    ]
}

fn url<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let parsed = parse_request_uri(text).and_then(|_| parse_url(text));
    match parsed {
        Ok(parts) => Ok(Value::Opaque(Arc::new(Url(parts)))),
        Err(error) => Err(message(format!(
            "URL parse error during conversion from string: {error}"
        ))),
    }
}

fn is_url<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(parse_request_uri(text).is_ok())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn parts<'v>(arguments: &'v [Value<'_>]) -> Result<&'v Parts, EvalError> {
    let [Value::Opaque(value)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let url = value.as_any().downcast_ref::<Url>();
    url.map(|url| &url.0).ok_or(EvalError::NoSuchOverload)
}

fn part<'a>(
    arguments: &[Value<'a>],
    read: impl Fn(&Parts) -> String,
) -> Result<Value<'a>, EvalError> {
    Ok(read(parts(arguments)?).into())
}

fn get_query<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let mut entries: Vec<(Vec<u8>, Vec<Value<'a>>)> = Vec::new();
    let mut known = HashMap::new();
    for (key, value) in parts(arguments)?.query() {
        let index = *known.entry(key.clone()).or_insert(entries.len());
        if index == entries.len() {
            entries.push((key, Vec::new()));
        }
        entries[index].1.push(text(&value).into());
    }
    let mut map = Map::with_capacity(entries.len());
    for (key, values) in entries {
        map.insert(text(&key).into(), Value::list(values));
    }
    Ok(Value::Map(Arc::new(map)))
}

/// Values are text, so that bytes that are none are replaced.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Opaque for Url {
    fn type_of(&self) -> Type {
        url_type()
    }

    fn equals(&self, other: &Value<'_>) -> Option<bool> {
        let Value::Opaque(other) = other else {
            return None;
        };
        let other = other.as_any().downcast_ref::<Url>()?;
        Some(self.0.to_string() == other.0.to_string())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "url({})", self.0)
    }
}
