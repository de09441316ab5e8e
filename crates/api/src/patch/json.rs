//! RFC 6902 JSON patch.

use crate::document::{MAX_DEPTH, TooDeep, Value};
use crate::status::{Reason, Status};

/// As upstream: more would let one request burn a CPU.
const MOST_OPERATIONS: usize = 10_000;
/// As upstream: the bytes of JSON that all `copy` operations of a patch may add. Copies of copies
/// would double the document with every operation.
const MOST_COPIED: usize = 3 << 20;
/// The items and fields that all operations of a patch may move to make or fill room. Upstream has
/// no such limit; ten thousand insertions at the front of the largest list would take a minute.
const MOST_MOVED: usize = 50_000_000;

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
    let mut patching = Patching {
        document: object.clone(),
        copied: 0,
        moved: 0,
    };
    for operation in operations {
        if operation.as_object().is_none() {
            return Err(Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                json_type(operation)
            )));
        }
        patching.apply(operation)?;
    }
    Ok(patching.document)
}

/// Why a patch is not applied.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    /// An operation does not fit the document, or too much is copied; upstream does not say which.
    Unprocessable,
    TooDeep,
    TooMuchMoved,
}

use Refused::Unprocessable;

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        match refused {
            Refused::Unprocessable => Status::new(
                Reason::Invalid,
                "the server rejected our request due to an error in our request",
            ),
            Refused::TooDeep => TooDeep.into(),
            Refused::TooMuchMoved => Status::new(
                Reason::RequestEntityTooLarge,
                format!(
                    "Request entity too large: The allowed maximum of list items and fields that a JSON patch moves is {MOST_MOVED}"
                ),
            ),
        }
    }
}

/// A document that is being patched, and what that has cost so far.
struct Patching {
    document: Value,
    /// The bytes of JSON that `copy` has added.
    copied: usize,
    /// How many items and fields changed their place, or were looked at, for others to be added
    /// or removed.
    moved: usize,
}

impl Patching {
    fn apply(&mut self, operation: &Value) -> Result<(), Refused> {
        let path = pointer(operation, "path")?;
        let value = || operation.get("value").ok_or(Unprocessable);
        match operation.str_at(&["op"]) {
            "add" => self.add_fresh(&path, value()?),
            "remove" => self.remove(&path).map(drop),
            "replace" => {
                // Upstream's library also replaces what an object does not have.
                let parent = path.split_last().map(|(_, parents)| parents);
                let in_object = parent
                    .and_then(|parents| find_mut(&mut self.document, parents))
                    .is_some_and(|parent| parent.as_object().is_some());
                if in_object {
                    return self.add_fresh(&path, value()?);
                }
                check_depth(&path, value()?)?;
                let target = find_mut(&mut self.document, &path).ok_or(Unprocessable)?;
                *target = value()?.clone();
                Ok(())
            }
            "move" => {
                let from = pointer(operation, "from")?;
                if path.len() > from.len() && path.starts_with(&from) {
                    return Err(Unprocessable);
                }
                let moved = self.remove(&from)?;
                if path.len() > from.len() {
                    check_depth(&path, &moved)?;
                    self.charge(nodes(&moved))?;
                }
                self.add(&path, moved)
            }
            "copy" => {
                let from = pointer(operation, "from")?;
                let found = find_mut(&mut self.document, &from).ok_or(Unprocessable)?;
                self.copied += json_length(found);
                if self.copied > MOST_COPIED {
                    return Err(Unprocessable);
                }
                check_depth(&path, found)?;
                let copied = found.clone();
                self.add(&path, copied)
            }
            "test" => {
                let found = find_mut(&mut self.document, &path);
                let equal = match (found, operation.get("value")) {
                    (None, None | Some(Value::Null)) => true,
                    (None, Some(_)) => false,
                    (Some(found), expected) => *found == *expected.unwrap_or(&Value::Null),
                };
                equal.then_some(()).ok_or(Unprocessable)
            }
            _ => Err(Unprocessable),
        }
    }

    /// Adds a value of the patch.
    fn add_fresh(&mut self, path: &[String], value: &Value) -> Result<(), Refused> {
        check_depth(path, value)?;
        self.add(path, value.clone())
    }

    fn add(&mut self, path: &[String], value: Value) -> Result<(), Refused> {
        let Some((last, parents)) = path.split_last() else {
            self.document = value;
            return Ok(());
        };
        let moved = match find_mut(&mut self.document, parents).ok_or(Unprocessable)? {
            Value::Object(object) => {
                let moved = object.after(last);
                match object.insert(last.as_str(), value) {
                    Some(_) => 0,
                    None => moved,
                }
            }
            Value::Array(items) => {
                // One past the end is a place to add, also counted from the end.
                let at = match last.as_str() {
                    "-" => items.len(),
                    token => index(token, items.len() + 1).ok_or(Unprocessable)?,
                };
                items.insert(at, value);
                items.len() - at
            }
            _ => return Err(Unprocessable),
        };
        self.charge(moved)
    }

    fn remove(&mut self, path: &[String]) -> Result<Value, Refused> {
        let (last, parents) = path.split_last().ok_or(Unprocessable)?;
        let (removed, moved) = match find_mut(&mut self.document, parents).ok_or(Unprocessable)? {
            Value::Object(object) => {
                let moved = object.after(last);
                (object.remove(last).ok_or(Unprocessable)?, moved)
            }
            Value::Array(items) => {
                let at = index(last, items.len()).ok_or(Unprocessable)?;
                let moved = items.len() - at;
                (items.remove(at), moved)
            }
            _ => return Err(Unprocessable),
        };
        self.charge(moved)?;
        Ok(removed)
    }

    fn charge(&mut self, moved: usize) -> Result<(), Refused> {
        self.moved += moved;
        match self.moved > MOST_MOVED {
            true => Err(Refused::TooMuchMoved),
            false => Ok(()),
        }
    }
}

/// Whether a value may stand at `path`.
fn check_depth(path: &[String], value: &Value) -> Result<(), Refused> {
    match MAX_DEPTH.checked_sub(path.len()) {
        Some(levels) if !value.is_deeper_than(levels) => Ok(()),
        _ => Err(Refused::TooDeep),
    }
}

fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nodes).sum::<usize>(),
        Value::Object(fields) => 1 + fields.iter().map(|(_, value)| nodes(value)).sum::<usize>(),
        _ => 1,
    }
}

/// How long a value is as JSON.
fn json_length(value: &Value) -> usize {
    struct Length(usize);
    impl std::io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    match serde_json::to_writer(&mut length, value) {
        Ok(()) => length.0,
        Err(_) => usize::MAX,
    }
}

/// The tokens of a JSON pointer, unescaped.
fn pointer(operation: &Value, name: &str) -> Result<Vec<String>, Refused> {
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

    /// Copies that double a list with every operation.
    fn doubling(operations: usize) -> Value {
        let copy = document!({"op": "copy", "from": "/a", "path": "/a/-"});
        Value::Array(vec![copy; operations])
    }

    #[test]
    fn copies_may_add_three_mebibytes_in_all() {
        let object = document!({"a": ["0123456789"]});
        assert!(json_patch(&object, &doubling(15)).is_ok());
        for operations in [20, 60, 10_000] {
            let status = json_patch(&object, &doubling(operations)).unwrap_err();
            assert_eq!((status.code(), status.reason), (422, Reason::Invalid));
            let message = "the server rejected our request due to an error in our request";
            assert_eq!(status.message, message);
        }
        // Many small ones add up as well.
        let long = document!({"a": "x".repeat(1_000), "b": []});
        let copy = document!({"op": "copy", "from": "/a", "path": "/b/-"});
        let copies = |count: usize| Value::Array(vec![copy.clone(); count]);
        assert!(json_patch(&long, &copies(3_000)).is_ok());
        assert!(json_patch(&long, &copies(3_200)).is_err());
    }

    #[test]
    fn patches_cannot_nest_beyond_the_limit() {
        let mut deep = Value::from(1);
        for _ in 0..MAX_DEPTH - 2 {
            deep = Value::Array(vec![deep]);
        }
        let object = document!({"a": deep.clone(), "b": {"c": {}}});
        let refused = |operations: Vec<Value>| {
            let status = json_patch(&object, &Value::Array(operations)).unwrap_err();
            assert_eq!(status.code(), 400);
            assert_eq!(
                status.message,
                "the object is nested too deeply: exceeded max depth of 100"
            );
        };
        refused(vec![
            document!({"op": "add", "path": "/b/c/d", "value": deep.clone()}),
        ]);
        refused(vec![
            document!({"op": "replace", "path": "/b/c/d", "value": deep.clone()}),
        ]);
        refused(vec![
            document!({"op": "copy", "from": "/a", "path": "/b/c/d"}),
        ]);
        refused(vec![
            document!({"op": "move", "from": "/a", "path": "/b/c/d"}),
        ]);
        // Each operation nests what the last one made.
        let again = document!({"op": "copy", "from": "/b", "path": "/b/c"});
        refused(vec![again; 200]);
        let fits = document!([{"op": "move", "from": "/a", "path": "/b/c"}]);
        let patched = json_patch(&object, &fits).unwrap();
        assert_eq!(patched.check_depth(), Ok(()));
    }

    #[test]
    fn moving_the_items_of_long_lists_is_bounded() {
        let object = document!({"a": vec![0; 100_000]});
        let shift = document!({"op": "add", "path": "/a/0", "value": 1});
        let shifts = |count: usize| Value::Array(vec![shift.clone(); count]);
        assert!(json_patch(&object, &shifts(100)).is_ok());
        let status = json_patch(&object, &shifts(10_000)).unwrap_err();
        assert_eq!(status.reason, Reason::RequestEntityTooLarge);
    }

    #[test]
    fn more_than_ten_thousand_operations_are_refused() {
        let test = document!({"op": "test", "path": "", "value": {}});
        let tests = |count: usize| Value::Array(vec![test.clone(); count]);
        assert!(json_patch(&document!({}), &tests(10_000)).is_ok());
        let status = json_patch(&document!({}), &tests(10_001)).unwrap_err();
        assert_eq!(status.code(), 413);
        assert_eq!(
            status.message,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
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
