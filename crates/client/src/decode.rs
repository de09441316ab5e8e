//! Decodes objects of lists and watch events.

use std::ops::Range;

use memchr::{memchr2, memmem};

use crate::Object;

/// Decodes an object without its managed fields: no component reads them, they are a large part of
/// an object, and a write without them leaves them unchanged.
pub(crate) fn decode<K: Object>(object: &str) -> Result<K, serde_json::Error> {
    match managed_fields(object) {
        Some(field) => {
            serde_json::from_str(&[&object[..field.start], &object[field.end..]].concat())
        }
        None => serde_json::from_str(object),
    }
}

/// The position of the list `managedFields` in an object's metadata, including one comma.
fn managed_fields(object: &str) -> Option<Range<usize>> {
    const NAME: &[u8] = br#""managedFields":["#;
    let bytes = object.as_bytes();
    // Inside a string the name's quotes would be escaped.
    let mut start = memmem::find(bytes, NAME)?;
    let is_of_metadata = depth_at(bytes, start)? == 2;
    if !is_of_metadata {
        return None;
    }
    let mut end = start + NAME.len();
    end += closing_bracket(&bytes[end..])?;
    if bytes.get(end) == Some(&b',') {
        end += 1;
    } else if bytes[start - 1] == b',' {
        start -= 1;
    }
    Some(start..end)
}

/// The number of objects and lists that contain the position.
fn depth_at(bytes: &[u8], position: usize) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while at < position {
        match bytes[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => at += end_of_string(&bytes[at + 1..])?,
            _ => {}
        }
        at += 1;
    }
    Some(depth)
}

/// The length of a list's content including its closing bracket.
fn closing_bracket(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (1, 0);
    while depth > 0 {
        match bytes.get(at)? {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b'"' => at += end_of_string(&bytes[at + 1..])?,
            _ => {}
        }
        at += 1;
    }
    Some(at)
}

/// The distance from the opening quote of a string to its closing quote.
fn end_of_string(after_quote: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', &after_quote[at..])?;
        if after_quote[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
        if at > after_quote.len() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn check(object: &str, without: &str) {
        let field = managed_fields(object).expect("has managed fields");
        assert_eq!(
            [&object[..field.start], &object[field.end..]].concat(),
            without
        );
        serde_json::from_str::<serde_json::Value>(without).expect("is still JSON");
    }

    #[test]
    fn managed_fields_are_removed_before_decoding() {
        check(
            r#"{"metadata":{"name":"a","managedFields":[{"manager":"x]\"[","f":{"f:a":[1,[2]]}}],"uid":"u"}}"#,
            r#"{"metadata":{"name":"a","uid":"u"}}"#,
        );
        check(
            r#"{"metadata":{"name":"a","managedFields":[]}}"#,
            r#"{"metadata":{"name":"a"}}"#,
        );
        check(
            r#"{"metadata":{"managedFields":["\\"]},"data":{}}"#,
            r#"{"metadata":{},"data":{}}"#,
        );
        for untouched in [
            r#"{"data":{"text":"\"managedFields\":[1]"}}"#,
            r#"{"metadata":{"managedFields":null}}"#,
            r#"{"data":{"spec":{"managedFields":[]}}}"#,
            r#"{"metadata":{"managedFields":["#,
            r#"{"metadata":{"managedFields":["\"#,
        ] {
            assert_eq!(managed_fields(untouched), None, "{untouched}");
        }
    }

    #[test]
    fn the_other_fields_of_an_object_are_kept() {
        let object: ConfigMap = decode(
            r#"{"metadata":{"name":"a","managedFields":[{"manager":"m"}]},"data":{"k":"v"}}"#,
        )
        .expect("decodes");
        assert_eq!(object.metadata.managed_fields, None);
        assert_eq!(object.metadata.name.as_deref(), Some("a"));
        assert_eq!(object.data.expect("data")["k"], "v");
    }
}
