//! Where in an object's canonical JSON the server cuts and splices, found without decoding it.

use std::ops::Range;

/// Byte positions inside one object's canonical JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The `"apiVersion":"…",` member; list items leave it out.
    pub api_version: Range<usize>,
    /// The `"kind":"…",` member; list items leave it out.
    pub kind: Range<usize>,
    /// The value of `metadata`.
    pub metadata: Range<usize>,
    /// Where `"resourceVersion":"…",` goes: before the first metadata member that sorts after it.
    pub slot: usize,
}

impl Layout {
    /// `None` when `bytes` is not an object with `apiVersion`, `kind` and `metadata.uid`.
    pub fn of(bytes: &[u8]) -> Option<Layout> {
        let (mut api_version, mut kind, mut metadata, mut slot) = (None, None, None, None);
        members(bytes, 0, |name, member, value| {
            // A member that is not the last one ends with its comma.
            match name {
                b"apiVersion" => api_version = Some(member),
                b"kind" => kind = Some(member),
                b"metadata" => {
                    let last = bytes[..member.end].iter().rposition(|byte| *byte == b'}')?;
                    metadata = Some(value..last + 1);
                    members(bytes, value, |name, member, _| {
                        if slot.is_none() && name > &b"resourceVersion"[..] {
                            slot = Some(member.start);
                        }
                    })?;
                }
                _ => {}
            }
            Some(())
        })?;
        Some(Layout {
            api_version: api_version?,
            kind: kind?,
            metadata: metadata?,
            slot: slot?,
        })
    }
}

/// What a visitor of members returns: nothing, or `None` to give up.
trait Visited {
    fn ok(self) -> Option<()>;
}

impl Visited for () {
    fn ok(self) -> Option<()> {
        Some(())
    }
}

impl Visited for Option<()> {
    fn ok(self) -> Option<()> {
        self
    }
}

/// Calls `visit(name, member range with its comma, value position)` for each member of the object
/// at `start`, which holds no white space.
fn members<V: Visited>(
    bytes: &[u8],
    start: usize,
    mut visit: impl FnMut(&[u8], Range<usize>, usize) -> V,
) -> Option<()> {
    if *bytes.get(start)? != b'{' {
        return None;
    }
    let mut position = start + 1;
    while *bytes.get(position)? != b'}' {
        let name_end = string_end(bytes, position)?;
        if *bytes.get(name_end)? != b':' {
            return None;
        }
        let value = name_end + 1;
        let mut end = value_end(bytes, value)?;
        if *bytes.get(end)? == b',' {
            end += 1;
        }
        visit(&bytes[position + 1..name_end - 1], position..end, value).ok()?;
        position = end;
    }
    Some(())
}

/// One past the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut position = start + 1;
    loop {
        match *bytes.get(position)? {
            b'"' => return Some(position + 1),
            b'\\' => position += 2,
            _ => position += 1,
        }
    }
}

/// One past the value that begins at `start`.
fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut position = start;
    loop {
        match *bytes.get(position)? {
            b'"' => {
                position = string_end(bytes, position)?;
                if depth == 0 {
                    return Some(position);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return Some(position),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(position + 1);
                }
            }
            b',' if depth == 0 => return Some(position),
            _ => {}
        }
        position += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_members_and_the_slot() {
        let text = br#"{"apiVersion":"v1","data":{"uid":"x\"}"},"kind":"ConfigMap","metadata":{"labels":{"zz":"1"},"name":"a","uid":"u"}}"#;
        let layout = Layout::of(text).unwrap();
        assert_eq!(&text[layout.api_version], br#""apiVersion":"v1","#);
        assert_eq!(&text[layout.kind], br#""kind":"ConfigMap","#);
        assert!(text[layout.metadata.clone()].starts_with(br#"{"labels""#));
        assert!(text[layout.metadata].ends_with(br#""uid":"u"}"#));
        assert!(text[layout.slot..].starts_with(br#""uid":"u""#));
    }

    #[test]
    fn refuses_what_is_not_an_object() {
        for text in ["", "[]", "{", r#"{"kind":"#, r#"{"kind":"A"}"#, r#"{"a\"#] {
            assert_eq!(Layout::of(text.as_bytes()), None, "{text}");
        }
    }
}
