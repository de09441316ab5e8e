//! RFC 6902 JSON patch.

use crate::document::Value;
use crate::status::{Reason, Status};

/// As upstream: more would let one request burn a CPU.
const MOST_OPERATIONS: usize = 10_000;

/// Applies a JSON patch, all of it or nothing.
pub fn json_patch(object: &Value, patch: &Value) -> Result<Value, Status> {
    let Value::Array(operations) = patch else {
        return Err(Status::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            json_type(patch)
        )));
    };
    if operations.len() > MOST_OPERATIONS {
        return Err(Status::new(
            Reason::RequestEntityTooLarge,
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let mut patched = object.clone();
    for operation in operations {
        if operation.as_object().is_none() {
            return Err(Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                json_type(operation)
            )));
        }
        apply(&mut patched, operation).map_err(|Unprocessable| {
            Status::new(
                Reason::Invalid,
                "the server rejected our request due to an error in our request",
            )
        })?;
    }
    Ok(patched)
}

/// An operation that does not fit the document; upstream does not say which.
#[derive(Debug)]
struct Unprocessable;

fn apply(document: &mut Value, operation: &Value) -> Result<(), Unprocessable> {
    let path = pointer(operation, "path")?;
    let value = || operation.get("value").cloned().ok_or(Unprocessable);
    match operation.str_at(&["op"]) {
        "add" => add(document, &path, value()?),
        "remove" => remove(document, &path).map(drop),
        "replace" => {
            // Upstream's library also replaces what an object does not have.
            let parent = path.split_last().map(|(_, parents)| parents);
            let in_object = parent
                .and_then(|parents| find_mut(document, parents))
                .is_some_and(|parent| parent.as_object().is_some());
            if in_object {
                return add(document, &path, value()?);
            }
            let target = find_mut(document, &path).ok_or(Unprocessable)?;
            *target = value()?;
            Ok(())
        }
        "move" => {
            let from = pointer(operation, "from")?;
            if path.len() > from.len() && path.starts_with(&from) {
                return Err(Unprocessable);
            }
            let moved = remove(document, &from)?;
            add(document, &path, moved)
        }
        "copy" => {
            let from = pointer(operation, "from")?;
            let copied = find_mut(document, &from).ok_or(Unprocessable)?.clone();
            add(document, &path, copied)
        }
        "test" => {
            let expected = operation.get("value").cloned().unwrap_or_default();
            let found = find_mut(document, &path);
            let equal = match (found, &expected) {
                (None, Value::Null) => true,
                (None, _) => false,
                (Some(found), expected) => found == expected,
            };
            equal.then_some(()).ok_or(Unprocessable)
        }
        _ => Err(Unprocessable),
    }
}

/// The tokens of a JSON pointer, unescaped.
fn pointer(operation: &Value, name: &str) -> Result<Vec<String>, Unprocessable> {
    let text = operation.get(name).and_then(Value::as_str);
    match text.ok_or(Unprocessable)? {
        "" => Ok(Vec::new()),
        text => {
            // What stands before the first slash should be nothing; upstream's library does not look.
            let (_, rest) = text.split_once('/').ok_or(Unprocessable)?;
            let unescape = |token: &str| token.replace("~1", "/").replace("~0", "~");
            Ok(rest.split('/').map(unescape).collect())
        }
    }
}

fn find_mut<'a>(document: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(document, |value, token| match value {
        Value::Object(object) => object.get_mut(token),
        Value::Array(items) => {
            let index = index(token, items.len())?;
            items.get_mut(index)
        }
        _ => None,
    })
}

fn add(document: &mut Value, path: &[String], value: Value) -> Result<(), Unprocessable> {
    let Some((last, parents)) = path.split_last() else {
        *document = value;
        return Ok(());
    };
    match find_mut(document, parents).ok_or(Unprocessable)? {
        Value::Object(object) => drop(object.insert(last.as_str(), value)),
        Value::Array(items) => {
            // One past the end is a place to add, also counted from the end.
            let at = match last.as_str() {
                "-" => items.len(),
                token => index(token, items.len() + 1).ok_or(Unprocessable)?,
            };
            items.insert(at, value);
        }
        _ => return Err(Unprocessable),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &[String]) -> Result<Value, Unprocessable> {
    let (last, parents) = path.split_last().ok_or(Unprocessable)?;
    match find_mut(document, parents).ok_or(Unprocessable)? {
        Value::Object(object) => object.remove(last).ok_or(Unprocessable),
        Value::Array(items) => {
            let at = index(last, items.len()).ok_or(Unprocessable)?;
            Ok(items.remove(at))
        }
        _ => Err(Unprocessable),
    }
}

/// An index below `length`; negative ones count from the end.
fn index(token: &str, length: usize) -> Option<usize> {
    if token.len() > 1 && token.starts_with('0') {
        return None;
    }
    let number: i64 = token.parse().ok()?;
    let number = match number {
        0.. => usize::try_from(number).ok()?,
        _ => length.checked_sub(usize::try_from(-number).ok()?)?,
    };
    (number < length).then_some(number)
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Integer(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    fn check(object: Value, patch: Value, expected: Value) {
        assert_eq!(
            json_patch(&object, &patch).as_ref(),
            Ok(&expected),
            "{patch}"
        );
    }

    #[test]
    fn operations() {
        check(
            document!({"a": {"b": 1}}),
            document!([{"op": "add", "path": "/a/c", "value": 2}]),
            document!({"a": {"b": 1, "c": 2}}),
        );
        check(
            document!({"a": [1, 3]}),
            document!([
                {"op": "add", "path": "/a/1", "value": 2},
                {"op": "add", "path": "/a/-", "value": 4},
            ]),
            document!({"a": [1, 2, 3, 4]}),
        );
        check(
            document!({"a/b": {"c~d": 1}}),
            document!([{"op": "replace", "path": "/a~1b/c~0d", "value": null}]),
            document!({"a/b": {"c~d": null}}),
        );
        check(
            document!({"a": [1, 2, 3]}),
            document!([{"op": "remove", "path": "/a/0"}, {"op": "remove", "path": "/a/-1"}]),
            document!({"a": [2]}),
        );
        check(
            document!({"a": {"x": 1}, "b": {}}),
            document!([
                {"op": "test", "path": "/a/x", "value": 1},
                {"op": "copy", "from": "/a/x", "path": "/b/y"},
                {"op": "move", "from": "/a", "path": "/c"},
            ]),
            document!({"b": {"y": 1}, "c": {"x": 1}}),
        );
        check(
            document!({"a": 1}),
            document!([{"op": "replace", "path": "", "value": {"b": 2}}]),
            document!({"b": 2}),
        );
    }

    #[test]
    fn failures_change_nothing() {
        let object = document!({"a": [1], "b": {}});
        for operation in [
            document!({"op": "remove", "path": "/missing"}),
            document!({"op": "add", "path": "/x/y", "value": 1}),
            document!({"op": "add", "path": "/a/5", "value": 1}),
            document!({"op": "add", "path": "/a/01", "value": 1}),
            document!({"op": "add", "path": "no-slash", "value": 1}),
            document!({"op": "test", "path": "/a/0", "value": 2}),
            document!({"op": "move", "from": "/b", "path": "/b/c"}),
            document!({"op": "jump", "path": "/a"}),
            document!({"path": "/a"}),
        ] {
            let patch = Value::Array(vec![operation]);
            let status = json_patch(&object, &patch).unwrap_err();
            assert_eq!(status.code(), 422, "{patch}");
        }
        let status = json_patch(&object, &document!({"op": "add"})).unwrap_err();
        assert_eq!(status.code(), 400);
        assert_eq!(
            status.message,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        );
    }
}
