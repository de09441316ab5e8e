//! Path elements in their written form: `f:name` a field, `k:{"name":"a"}` the list item with these
//! keys, `v:"a"` the item of a set, `i:0` the item at an index. The written form is canonical, so two
//! elements are the same exactly when their texts are.

use crate::document::{Object, Value};
use crate::field::quote;

/// What cannot be read as an element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a path element")]
pub struct Error(String);

pub fn field(name: &str) -> String {
    format!("f:{name}")
}

/// The item that has these keys.
pub fn keyed(keys: Object) -> String {
    format!("k:{}", written(&Value::Object(keys)))
}

/// The item of a set.
pub fn value(value: &Value) -> String {
    format!("v:{}", written(value))
}

/// The name of a field, if that is what the element is.
pub fn field_name(element: &str) -> Option<&str> {
    element.strip_prefix("f:")
}

/// Brings an element that others wrote into our form; `None` for a kind that is not known.
pub fn canonical(text: String) -> Result<Option<String>, Error> {
    let Some((kind, rest)) = text
        .split_at_checked(2)
        .filter(|(kind, _)| kind.ends_with(':'))
    else {
        return Err(Error(text));
    };
    match kind {
        "f:" => Ok(Some(text)),
        "i:" if rest.parse::<i64>().is_ok() => Ok(Some(text)),
        "v:" | "k:" => {
            let Ok(value) = Value::from_json(rest.as_bytes()) else {
                return Err(Error(text));
            };
            if kind == "k:" && value.as_object().is_none() {
                return Err(Error(text));
            }
            let wanted = written(&value);
            match wanted == rest {
                true => Ok(Some(text)),
                false => Ok(Some(format!("{kind}{wanted}"))),
            }
        }
        "i:" => Err(Error(text)),
        _ => Ok(None),
    }
}

/// A path as people read it: `.spec.containers[name="a"].image`.
pub fn display<S: AsRef<str>>(path: &[S]) -> String {
    path.iter()
        .map(|step| display_step(step.as_ref()))
        .collect()
}

fn display_step(element: &str) -> String {
    let (kind, rest) = element.split_at_checked(2).unwrap_or((element, ""));
    let json = || Value::from_json(rest.as_bytes()).unwrap_or_default();
    match kind {
        "f:" => format!(".{rest}"),
        "v:" => format!("[={}]", readable(&json())),
        "k:" => {
            let json = json();
            let keys: Vec<String> = json
                .fields_at(&[])
                .map(|(name, value)| format!("{name}={}", readable(value)))
                .collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[{rest}]"),
    }
}

fn readable(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Null => "null".to_string(),
        other => other.to_string(),
    }
}

/// JSON as upstream writes it inside an element: whole numbers without a fraction, and the
/// characters that HTML cares about escaped.
fn written(value: &Value) -> String {
    let text = whole(value.clone()).to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    html_escaped(&text)
}

/// Go's JSON encoder escapes these inside strings, and they occur nowhere else.
pub(super) fn html_escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", character as u32));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

fn whole(value: Value) -> Value {
    match value {
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Value::Integer(number as i64)
        }
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (name, whole(value)))
                .collect(),
        ),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn elements_are_written_and_shown() {
        let keys = document!({"protocol": "TCP", "containerPort": 80.0});
        let Value::Object(keys) = keys else {
            unreachable!("an object")
        };
        let port = keyed(keys);
        assert_eq!(port, r#"k:{"containerPort":80,"protocol":"TCP"}"#);
        let path = [field("ports"), port, value(&"a\"<".into()), "i:3".into()];
        assert_eq!(path[2], "v:\"a\\\"\\u003c\"");
        assert_eq!(
            display(&path),
            ".ports[containerPort=80,protocol=\"TCP\"][=\"a\\\"<\"][3]"
        );
    }

    #[test]
    fn what_is_no_element_is_refused() {
        for text in ["", "f", "name", "k:3", "k:{", "i:x"] {
            assert!(canonical(text.to_string()).is_err(), "{text}");
        }
        assert_eq!(canonical("q:x".to_string()), Ok(None));
    }
}
