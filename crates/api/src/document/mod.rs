//! The one document type: a JSON-like tree with sorted object keys.
//!
//! Everything that reads or changes a Kubernetes object in the API server goes through this small
//! interface, so that its inside can become flatter and faster without touching its users.
//! It is for objects in passing: caches hold bytes.

mod depth;
mod object;
pub mod yaml;

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

pub use depth::{MAX_DEPTH, TooDeep};
pub use object::Object;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    String(String),
    Array(Vec<Value>),
    Object(Object),
}

impl Value {
    /// Reads JSON. Of a repeated key the last one counts. Nesting beyond 127 levels is refused by
    /// the parser: enough for every stored object (see [`MAX_DEPTH`]) and what answers and events
    /// put around it.
    pub fn from_json(bytes: &[u8]) -> Result<Value, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Canonical JSON: sorted keys, no white space.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a document always serialises")
    }

    pub fn object() -> Value {
        Value::Object(Object::default())
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            Value::Float(number) if number.fract() == 0.0 => Some(*number as i64),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&Vec<Value>> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The field `name` of an object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.as_object_mut()?.get_mut(name)
    }

    /// Follows field names down, e.g. `["metadata", "name"]`.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, name| value.get(name))
    }

    pub fn at_mut(&mut self, path: &[&str]) -> Option<&mut Value> {
        path.iter()
            .try_fold(self, |value, name| value.get_mut(name))
    }

    /// The string at `path`, or "" where there is none.
    pub fn str_at(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// The number at `path`.
    pub fn i64_at(&self, path: &[&str]) -> Option<i64> {
        self.at(path).and_then(Value::as_i64)
    }

    /// The boolean at `path`, false where there is none.
    pub fn bool_at(&self, path: &[&str]) -> bool {
        self.at(path).and_then(Value::as_bool).unwrap_or_default()
    }

    /// The items of the list at `path`, none where there is no list.
    pub fn list_at(&self, path: &[&str]) -> &[Value] {
        self.at(path)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub fn list_at_mut(&mut self, path: &[&str]) -> &mut [Value] {
        self.at_mut(path)
            .and_then(Value::as_array_mut)
            .map_or(&mut [], Vec::as_mut_slice)
    }

    /// The fields of the object at `path`, none where there is no object.
    pub fn fields_at(&self, path: &[&str]) -> impl Iterator<Item = (&str, &Value)> {
        let object = self.at(path).and_then(Value::as_object);
        object.into_iter().flat_map(|object| object.iter())
    }

    /// Whether there is something other than null at `path`.
    pub fn has(&self, path: &[&str]) -> bool {
        self.at(path).is_some_and(|value| !value.is_null())
    }

    /// Sets the field at `path` unless something other than null or "" is there.
    pub fn set_default(&mut self, path: &[&str], value: impl Into<Value>) {
        if self.at(path).is_none_or(Value::is_blank) {
            self.set(path, value);
        }
    }

    /// As [`Value::set_default`], of a field behind a pointer: the empty string is a value too.
    pub fn set_missing(&mut self, path: &[&str], value: impl Into<Value>) {
        if self.at(path).is_none_or(Value::is_null) {
            self.set(path, value);
        }
    }

    /// Null or the empty string: what Go calls unset.
    fn is_blank(&self) -> bool {
        match self {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            _ => false,
        }
    }

    /// Sets the field at `path`, making objects on the way; what is not an object there is
    /// replaced.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        let mut target = self;
        for name in path {
            if !matches!(target, Value::Object(_)) {
                *target = Value::object();
            }
            let Value::Object(object) = target else {
                unreachable!("made an object above")
            };
            target = object.entry(name);
        }
        *target = value.into();
    }

    /// Removes and returns the field at `path`.
    pub fn remove(&mut self, path: &[&str]) -> Option<Value> {
        let (last, parents) = path.split_last()?;
        self.at_mut(parents)?.as_object_mut()?.remove(last)
    }
}

macro_rules! value_from {
    ($($source:ty => |$name:ident| $made:expr;)*) => {
        $(impl From<$source> for Value {
            fn from($name: $source) -> Value {
                $made
            }
        })*
    };
}

value_from! {
    bool => |flag| Value::Bool(flag);
    i64 => |number| Value::Integer(number);
    i32 => |number| Value::Integer(number.into());
    u32 => |number| Value::Integer(number.into());
    f64 => |number| Value::Float(number);
    &str => |text| Value::String(text.to_string());
    String => |text| Value::String(text);
    Vec<Value> => |items| Value::Array(items);
    Object => |object| Value::Object(object);
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.to_json()))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(flag) => serializer.serialize_bool(*flag),
            Value::Integer(number) => serializer.serialize_i64(*number),
            // Go writes whole numbers without a fraction, below 1e21 without an exponent.
            Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e21 => {
                serializer.serialize_i128(*number as i128)
            }
            Value::Float(number) => serializer.serialize_f64(*number),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => serializer.collect_seq(items),
            Value::Object(object) => serializer.collect_map(object.iter()),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::Float(number as f64), Value::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Float(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_string()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = access.next_entry::<String, Value>()? {
            fields.push(field);
        }
        Ok(Value::Object(Object::from_fields(fields)))
    }
}

/// Writes a [`Value`] in JSON's own notation: `document!({"a": [1, true, null], "b": expression})`.
#[macro_export]
macro_rules! document {
    ($($json:tt)+) => {
        $crate::document::from_serde(serde_json::json!($($json)+))
    };
}

/// Used by [`document!`]; object literals in code are small.
pub fn from_serde(value: serde_json::Value) -> Value {
    serde_json::from_value(value).expect("a JSON value is a document")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_the_last_of_a_repeated_key_counts() {
        let value = Value::from_json(br#"{"b":1,"a":{"y":[1,2.5,"x"],"x":null},"b":2}"#).unwrap();
        assert_eq!(
            String::from_utf8(value.to_json()).unwrap(),
            r#"{"a":{"x":null,"y":[1,2.5,"x"]},"b":2}"#
        );
    }

    #[test]
    fn paths_make_what_is_missing() {
        let mut value = Value::Null;
        value.set(&["metadata", "name"], "web");
        assert_eq!(value.str_at(&["metadata", "name"]), "web");
        assert_eq!(value.remove(&["metadata", "name"]), Some("web".into()));
        assert_eq!(value.at(&["metadata", "name"]), None);
    }

    #[test]
    fn whole_numbers_are_written_without_a_fraction() {
        for (number, written) in [
            (1.0, "1"),
            (-3.0, "-3"),
            (1.5, "1.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
        ] {
            assert_eq!(Value::Float(number).to_string(), written);
        }
    }
}
