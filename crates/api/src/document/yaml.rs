//! YAML in and out, as kubectl reads and prints it.
//!
//! Reading follows what kubectl's library does with scalars: YAML 1.1 words for booleans (`yes`,
//! `on`), leading zeros for octal numbers (`0644`), dates as text.

mod emit;
mod resolve;

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle};

use crate::document::{Object, Value};

pub use emit::to_yaml;

/// Deeper nesting is refused: no object needs it, and every walk over a document recurses.
const DEEPEST: usize = 200;
/// The most values that aliases may multiply a stream into.
const MOST_ALIASED: usize = 1_000_000;

/// More repeated keys than this are not told.
const MOST_REPEATED: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("error converting YAML to JSON: yaml: line {line}: {problem}")]
    Syntax { line: usize, problem: String },
    #[error("error converting YAML to JSON: yaml: invalid UTF-8")]
    NotText,
}

/// A key that a map has twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    pub line: usize,
    pub key: String,
}

impl std::fmt::Display for Repeated {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "line {}: key {:?} already set in map",
            self.line, self.key
        )
    }
}

/// As [`parse_documents`], also telling which keys were given twice. The last one counts.
pub fn parse_with_repeated(bytes: &[u8]) -> Result<(Vec<Value>, Vec<Repeated>), Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match read(text) {
        Ok(reader) => Ok((reader.documents, reader.repeated)),
        // It may still be JSON.
        Err(_) => Ok((parse_documents(bytes)?, Vec::new())),
    }
}

/// Reads all documents of a YAML or JSON stream; empty ones are left out.
pub fn parse_documents(bytes: &[u8]) -> Result<Vec<Value>, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // JSON may contain what YAML does not allow, such as tabs.
    if text.trim_start().starts_with(['{', '['])
        && let Ok(documents) = serde_json::Deserializer::from_str(text)
            .into_iter::<Value>()
            .collect::<Result<Vec<Value>, _>>()
    {
        return Ok(documents);
    }
    Ok(read(text)?.documents)
}

fn read(text: &str) -> Result<Reader, Error> {
    let mut reader = Reader::default();
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| Error::Syntax {
            line: error.marker().line(),
            problem: in_common_words(error.info(), text),
        })?;
        reader.line = span.start.line();
        reader.take(event).map_err(|problem| Error::Syntax {
            line: span.start.line(),
            problem,
        })?;
    }
    Ok(reader)
}

/// The commonest mistakes in the words of the parser that other servers use.
fn in_common_words(problem: String, text: &str) -> String {
    let closing = match problem.as_str() {
        "unclosed bracket '['" => ']',
        "unclosed bracket '{'" => '}',
        _ => return problem,
    };
    match text.trim_end().ends_with(['[', '{', ',', ':']) {
        true => "did not find expected node content".to_string(),
        false => format!("did not find expected ',' or '{closing}'"),
    }
}

/// Builds values out of parser events.
#[derive(Default)]
struct Reader {
    documents: Vec<Value>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Value>,
    aliased: usize,
    /// Where we are.
    line: usize,
    repeated: Vec<Repeated>,
}

/// A collection that has begun.
enum Open {
    List {
        items: Vec<Value>,
        anchor: usize,
    },
    Map {
        fields: Object,
        /// What `<<` brought in; own fields win.
        merged: Object,
        key: Option<Key>,
        anchor: usize,
    },
}

/// The key of the field whose value comes next.
enum Key {
    Name(String),
    /// A plain `<<`.
    Merge,
}

impl Reader {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::DocumentEnd => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref().map(|tag| tag.core_suffix().unwrap_or("str"));
                let is_key = matches!(self.open.last(), Some(Open::Map { key: None, .. }));
                let plain = style == ScalarStyle::Plain;
                if is_key && plain && text == "<<" {
                    self.set_key(Key::Merge);
                    return Ok(());
                }
                let value = resolve::scalar(&text, plain, tag)?;
                self.put(value, anchor)?;
            }
            Event::SequenceStart(_, anchor, _) => {
                let items = Vec::new();
                self.begin(Open::List { items, anchor })?;
            }
            Event::MappingStart(_, anchor, _) => self.begin(Open::Map {
                fields: Object::default(),
                merged: Object::default(),
                key: None,
                anchor,
            })?,
            Event::SequenceEnd | Event::MappingEnd => {
                let (value, anchor) = match self.open.pop() {
                    Some(Open::List { items, anchor }) => (Value::Array(items), anchor),
                    Some(Open::Map {
                        fields,
                        mut merged,
                        anchor,
                        ..
                    }) => {
                        if merged.is_empty() {
                            merged = fields;
                        } else {
                            for (name, value) in fields {
                                merged.insert(name, value);
                            }
                        }
                        (Value::Object(merged), anchor)
                    }
                    None => return Ok(()),
                };
                self.put(value, anchor)?;
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned();
                let value = value.ok_or("unknown anchor referenced")?;
                self.aliased += count(&value);
                if self.aliased > MOST_ALIASED {
                    return Err("document contains excessive aliasing".to_string());
                }
                self.put(value, 0)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, open: Open) -> Result<(), String> {
        if matches!(self.open.last(), Some(Open::Map { key: None, .. })) {
            return Err("invalid map key: must be a scalar".to_string());
        }
        if self.open.len() >= DEEPEST {
            return Err(format!("exceeded max depth of {DEEPEST}"));
        }
        self.open.push(open);
        Ok(())
    }

    fn set_key(&mut self, next: Key) {
        if let Some(Open::Map { key, .. }) = self.open.last_mut() {
            *key = Some(next);
        }
    }

    /// Puts a finished value where it belongs: a document, an item, a key or a field.
    fn put(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None if value.is_null() => {}
            None => self.documents.push(value),
            Some(Open::List { items, .. }) => items.push(value),
            Some(Open::Map {
                fields,
                merged,
                key,
                ..
            }) => match key.take() {
                None => {
                    let name = key_text(value)?;
                    if fields.contains(&name) && self.repeated.len() < MOST_REPEATED {
                        self.repeated.push(Repeated {
                            line: self.line,
                            key: name.clone(),
                        });
                    }
                    *key = Some(Key::Name(name));
                }
                Some(Key::Merge) => merge(merged, value)?,
                Some(Key::Name(name)) => drop(fields.insert(name, value)),
            },
        }
        Ok(())
    }
}

/// JSON has only text for keys.
fn key_text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => Ok(value.to_string()),
        Value::Null => Ok("null".to_string()),
        Value::Array(_) | Value::Object(_) => Err("invalid map key: must be a scalar".to_string()),
    }
}

fn merge(merged: &mut Object, value: Value) -> Result<(), String> {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                // Of several maps to merge the first one that has the key wins.
                if !merged.contains(&name) {
                    merged.insert(name, value);
                }
            }
            Ok(())
        }
        Value::Array(items) => items.into_iter().try_for_each(|item| match item {
            Value::Object(_) => merge(merged, item),
            _ => Err("map merge requires map or sequence of maps as the value".to_string()),
        }),
        _ => Err("map merge requires map or sequence of maps as the value".to_string()),
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.iter().map(|(_, value)| count(value)).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    fn one(text: &str) -> Value {
        let mut documents =
            parse_documents(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(documents.len(), 1, "{text}");
        documents.remove(0)
    }

    #[test]
    fn documents_of_a_stream() {
        let text = "---\n# nothing\n---\na: 1\n---\n\n---\nb:\n- c\n...\n";
        let documents = parse_documents(text.as_bytes()).unwrap();
        assert_eq!(documents, [document!({"a": 1}), document!({"b": ["c"]})]);
        assert_eq!(parse_documents(b"").unwrap(), []);
        let json = parse_documents(b"{\"a\":\t1}\n{\"b\": 2}").unwrap();
        assert_eq!(json, [document!({"a": 1}), document!({"b": 2})]);
    }

    #[test]
    fn scalars() {
        let check = |text: &str, expected: Value| {
            assert_eq!(
                one(&format!("v: {text}")).get("v"),
                Some(&expected),
                "{text}"
            );
        };
        check("yes", Value::Bool(true));
        check("On", Value::Bool(true));
        check("n", Value::Bool(false));
        check("off", Value::Bool(false));
        check("True", Value::Bool(true));
        check("\"yes\"", "yes".into());
        check("~", Value::Null);
        check("", Value::Null);
        check("null", Value::Null);
        check("0644", 420.into());
        check("0o644", 420.into());
        check("0x1F", 31.into());
        check("0b101", 5.into());
        check("-12", (-12).into());
        check("1_000", 1000.into());
        check("08", 8.into());
        check("1.5", 1.5.into());
        check("1e3", 1000.into());
        check(".5", 0.5.into());
        check("1.2.3", "1.2.3".into());
        check("500m", "500m".into());
        check("12:30", "12:30".into());
        check("2020-01-01", "2020-01-01".into());
        check("!!str 12", "12".into());
        check("|\n  a\n  b\n", "a\nb\n".into());
        check(">-\n  a\n  b\n", "a b".into());
    }

    #[test]
    fn anchors_and_merges() {
        let text = "base: &b {x: 1, z: 2}\nmade:\n  <<: *b\n  z: 3\non: 1\n";
        assert_eq!(
            one(text),
            document!({"base": {"x": 1, "z": 2}, "made": {"x": 1, "z": 3}, "true": 1})
        );
    }

    #[test]
    fn bad_input() {
        let check = |text: &str, line: usize| match parse_documents(text.as_bytes()) {
            Err(Error::Syntax { line: found, .. }) => assert_eq!(found, line, "{text}"),
            other => panic!("{text}: {other:?}"),
        };
        check("a: b: c", 1);
        check("a:\n\t- b", 2);
        check("a: 1\nb: [1, 2\nc: 3\n", 3);
        check("a: *unknown", 1);
        check("a: .inf", 1);
        assert_eq!(parse_documents(b"\xff"), Err(Error::NotText));
        let deep = "[".repeat(1000);
        assert!(parse_documents(format!("a: {deep}").as_bytes()).is_err());
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_string();
        for level in 1..10 {
            let last = level - 1;
            let list = vec![format!("*a{last}"); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{list}]\n"));
        }
        let error = parse_documents(bomb.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("excessive aliasing"), "{error}");
    }

    #[test]
    fn what_is_printed_reads_back() {
        let object = document!({
            "b": [{"x": 1, "y": ["a", []]}, {}, "yes", "1", "", " a", "a: b", "#", "- a", "a\nb\n", "é\t"],
            "a": {"1": null, "t": true, "f": 1.5, "n": -3, "text": "line one\n\n  line two"},
        });
        assert_eq!(one(&to_yaml(&object)), object);
    }
}
