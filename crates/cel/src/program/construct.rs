//! Calls and literals: what takes several values from the stack.

use std::sync::Arc;

use super::machine::Machine;
use super::operation::{Call, CallKind, List, Map, Object};
use super::{cost, dispatch};
use crate::error::EvalError;
use crate::go_text;
use crate::value::{self, Value};
use crate::work;

/// The longest list that additions make, and the number of items that they copy in one evaluation.
/// Adding lists costs one unit however long they are, so that the cost bounds neither.
const LONGEST_LIST: usize = 1 << 20;
const MOST_COPIED: usize = 1 << 21;

impl<'a> Machine<'_, 'a> {
    pub fn call(&mut self, call: &Call) -> Result<(), EvalError> {
        let from = self.scratch.stack.len() - call.arguments as usize;
        if let Some(error) = self.take_error(from) {
            let cost = cost::of_call(call, &self.scratch.stack[from..], None);
            self.scratch.stack.truncate(from);
            self.push_error(error);
            return self.charge(cost);
        }
        let (result, cost) = match call.kind {
            CallKind::Add => {
                let cost = cost::of_call(call, &self.scratch.stack[from..], None);
                (self.add(call, from), cost)
            }
            CallKind::MapInsert => (self.insert(call, from), 1),
            CallKind::Plain | CallKind::Finds | CallKind::Matches(_) => {
                let arguments = &self.scratch.stack[from..];
                let result = match (call.kind, arguments) {
                    (CallKind::Matches(pattern), [Value::String(text), _]) => Ok(Value::Bool(
                        self.code.patterns[pattern as usize].is_match(text),
                    )),
                    (CallKind::Finds, [Value::String(_), ..]) => {
                        dispatch::call(&call.function, call.overload.as_ref(), arguments)
                    }
                    (CallKind::Matches(_) | CallKind::Finds, _) => Err(EvalError::NoSuchOverload),
                    _ => dispatch::call(&call.function, call.overload.as_ref(), arguments),
                };
                let cost = cost::of_call(call, arguments, result.as_ref().ok());
                (result, cost)
            }
        };
        self.scratch.stack.truncate(from);
        self.push_made(result);
        self.charge(cost)?;
        work::check()
    }

    /// Pushes a value that was made, unless it is too deep or too large to be walked.
    fn push_made(&mut self, result: Result<Value<'a>, EvalError>) {
        self.push_result(result.and_then(|value| {
            value.extent().unwrap_or_default().check()?;
            Ok(value)
        }));
    }

    fn add(&mut self, call: &Call, from: usize) -> Result<Value<'a>, EvalError> {
        let [left, right] = &mut self.scratch.stack[from..] else {
            return Err(EvalError::NoSuchOverload);
        };
        let (Some(first), Some(second)) = (left.list_len(), right.list_len()) else {
            let arguments = &self.scratch.stack[from..];
            return dispatch::call(&call.function, call.overload.as_ref(), arguments);
        };
        if first + second > LONGEST_LIST && first > 0 && second > 0 {
            return Err(EvalError::Message(format!(
                "the list would have more than {LONGEST_LIST} items"
            )));
        }
        if let Value::List(items) = left
            && let Some(items) = Arc::get_mut(items)
        {
            items.extend(right.items());
            return Ok(std::mem::take(left));
        }
        if first > 0 && second > 0 {
            self.copied += first + second;
            if self.copied > MOST_COPIED {
                return Err(EvalError::Message(format!(
                    "additions of lists would copy more than {MOST_COPIED} items"
                )));
            }
        }
        let arguments = &self.scratch.stack[from..];
        dispatch::call(&call.function, call.overload.as_ref(), arguments)
    }

    /// Puts a key, or the keys of another map, into a map that a comprehension builds.
    fn insert(&mut self, call: &Call, from: usize) -> Result<Value<'a>, EvalError> {
        match &mut self.scratch.stack[from..] {
            [Value::Map(map), key, value] => {
                let map = Arc::make_mut(map);
                insert_new(map, std::mem::take(key), std::mem::take(value))?;
            }
            [Value::Map(map), other] if other.map_len().is_some() => {
                let map = Arc::make_mut(map);
                for (key, value) in other.entries() {
                    insert_new(map, key, value)?;
                }
            }
            arguments => return dispatch::call(&call.function, call.overload.as_ref(), arguments),
        }
        Ok(std::mem::take(&mut self.scratch.stack[from]))
    }

    pub fn list(&mut self, list: &List) {
        let from = self.scratch.stack.len() - list.count as usize;
        let mut items = Vec::with_capacity(list.count as usize);
        let mut refused = None;
        for (item, is_optional) in self.scratch.stack.drain(from..).zip(&list.optional) {
            match (item, is_optional) {
                (Value::Optional(None), true) => {}
                (Value::Optional(Some(item)), true) => items.push((*item).clone()),
                (item, true) => {
                    refused.get_or_insert_with(|| {
                        format!(
                            "cannot initialize optional list element from non-optional value {}",
                            go_text::of(&item)
                        )
                    });
                }
                (item, false) => items.push(item),
            }
        }
        match refused {
            Some(message) => self.push_error(EvalError::Message(message)),
            None => self.push_made(Ok(Value::list(items))),
        }
    }

    pub fn map(&mut self, map: &Map) {
        let from = self.scratch.stack.len() - 2 * map.optional.len();
        let mut made = value::Map::with_capacity(map.optional.len());
        let mut refused = None;
        let mut parts = self.scratch.stack.drain(from..);
        for is_optional in &map.optional {
            let (Some(key), Some(value)) = (parts.next(), parts.next()) else {
                break;
            };
            match (value, is_optional) {
                (Value::Optional(None), true) => made.remove(&key),
                (Value::Optional(Some(value)), true) => made.insert(key, (*value).clone()),
                (value, true) => {
                    refused.get_or_insert_with(|| not_optional(&go_text::of(&key), &value));
                }
                (value, false) => made.insert(key, value),
            }
        }
        drop(parts);
        match refused {
            Some(error) => self.push_error(error),
            None => self.push_made(Ok(Value::Map(Arc::new(made)))),
        }
    }

    pub fn object(&mut self, object: &Object) {
        let from = self.scratch.stack.len() - object.fields.len();
        let mut fields = Vec::with_capacity(object.fields.len());
        let mut refused = None;
        let values = self.scratch.stack.drain(from..);
        for ((name, is_optional), value) in object.fields.iter().zip(&object.optional).zip(values) {
            match (value, is_optional) {
                (Value::Optional(None), true) => {}
                (Value::Optional(Some(value)), true) => {
                    fields.push((name.clone(), (*value).clone()))
                }
                (value, true) => {
                    refused.get_or_insert_with(|| not_optional(name, &value));
                }
                (value, false) => fields.push((name.clone(), value)),
            }
        }
        match refused {
            Some(error) => self.push_error(error),
            None => {
                let made = value::Object::new(object.type_name.clone(), fields);
                self.push_made(Ok(Value::Object(Arc::new(made))));
            }
        }
    }
}

fn insert_new<'a>(
    map: &mut value::Map<'a>,
    key: Value<'a>,
    value: Value<'a>,
) -> Result<(), EvalError> {
    if map.get(&key).is_some() {
        return Err(EvalError::Message(format!(
            "insert failed: key {} already exists",
            go_text::of(&key)
        )));
    }
    map.insert(key, value);
    Ok(())
}

fn not_optional(entry: &str, value: &Value<'_>) -> EvalError {
    EvalError::Message(format!(
        "cannot initialize optional entry '{entry}' from non-optional value {}",
        go_text::of(value)
    ))
}
