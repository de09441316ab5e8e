//! YAML in and out, as kubectl reads and prints it.
//!
//! Reading follows what kubectl's library does with scalars: YAML 1.1 words for booleans (`yes`,
//! `on`), leading zeros for octal numbers (`0644`), dates as text.

mod emit;
mod resolve;

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle};

use crate::document::{MAX_DEPTH, Object, TooDeep, Value};
use crate::repeats::repeats;

pub use emit::to_yaml;

/// What anchors and aliases may add to a stream, by [`Size::weight`]: this much, and a few times the
/// stream itself. Otherwise some lines of text could be made to fill the memory.
const ALIASED: usize = 1 << 18;
const ALIASED_PER_BYTE: usize = 8;

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
        let deep = documents.iter().any(|one| one.check_depth().is_err());
        return match deep {
            true => Err(Error::Syntax {
                line: 1,
                problem: TooDeep.to_string(),
            }),
            false => Ok(documents),
        };
    }
    Ok(read(text)?.documents)
}

fn read(text: &str) -> Result<Reader, Error> {
    let mut reader = Reader {
        left_for_aliases: ALIASED + ALIASED_PER_BYTE * text.len(),
        ..Reader::default()
    };
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
    // An outer map ends after the maps within it.
    reader.repeated.sort_by_key(|repeated| repeated.line);
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
    anchors: BTreeMap<usize, Anchored>,
    /// How much more anchors and aliases may add.
    left_for_aliases: usize,
    /// Where we are.
    line: usize,
    repeated: Vec<Repeated>,
}

/// What an alias stands for.
struct Anchored {
    value: Value,
    size: Size,
}

/// How large a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// How many lists and maps stand within each other.
    depth: usize,
    /// About how long it would be as text.
    weight: usize,
}

/// A collection that has begun.
enum Open {
    List { items: Vec<Value>, anchor: usize },
    Map(Map),
}

#[derive(Default)]
struct Map {
    /// In the order of the text.
    fields: Vec<(String, Value)>,
    /// The line of each field.
    lines: Vec<usize>,
    /// What `<<` brought in, the most important first; own fields win.
    merged: Vec<(String, Value)>,
    key: Option<Key>,
    anchor: usize,
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
                let is_key = self.awaits_key();
                let plain = style == ScalarStyle::Plain;
                if is_key && plain && text == "<<" {
                    self.set_key(Key::Merge);
                    return Ok(());
                }
                let value =
                    resolve::scalar(&text, plain, tag).map_err(|error| error.to_string())?;
                self.put(value, anchor)?;
            }
            Event::SequenceStart(_, anchor, _) => {
                let items = Vec::new();
                self.begin(Open::List { items, anchor })?;
            }
            Event::MappingStart(_, anchor, _) => self.begin(Open::Map(Map {
                anchor,
                ..Map::default()
            }))?,
            Event::SequenceEnd | Event::MappingEnd => {
                let (value, anchor) = match self.open.pop() {
                    Some(Open::List { items, anchor }) => (Value::Array(items), anchor),
                    Some(Open::Map(map)) => {
                        let room = MOST_REPEATED - self.repeated.len();
                        self.repeated.extend(map.repeated().into_iter().take(room));
                        let anchor = map.anchor;
                        (Value::Object(map.finish()), anchor)
                    }
                    None => return Ok(()),
                };
                self.put(value, anchor)?;
            }
            Event::Alias(anchor) => {
                let anchored = self.anchors.get(&anchor);
                let anchored = anchored.ok_or("unknown anchor referenced")?;
                let size = anchored.size;
                if self.open.len() + size.depth > MAX_DEPTH {
                    return Err(TooDeep.to_string());
                }
                self.left_for_aliases = within(self.left_for_aliases, size)?;
                let value = anchored.value.clone();
                self.put(value, 0)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the next value is the key of a map.
    fn awaits_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Map(Map { key: None, .. })))
    }

    fn begin(&mut self, open: Open) -> Result<(), String> {
        if self.awaits_key() {
            return Err("invalid map key: must be a scalar".to_string());
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(TooDeep.to_string());
        }
        self.open.push(open);
        Ok(())
    }

    fn set_key(&mut self, next: Key) {
        if let Some(Open::Map(map)) = self.open.last_mut() {
            map.key = Some(next);
        }
    }

    /// Puts a finished value where it belongs: a document, an item, a key or a field.
    fn put(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        if anchor != 0 {
            let size = Size::of(&value);
            self.left_for_aliases = within(self.left_for_aliases, size)?;
            let value = value.clone();
            self.anchors.insert(anchor, Anchored { value, size });
        }
        match self.open.last_mut() {
            None if value.is_null() => {}
            None => self.documents.push(value),
            Some(Open::List { items, .. }) => items.push(value),
            Some(Open::Map(map)) => match map.key.take() {
                None => {
                    map.lines.push(self.line);
                    map.key = Some(Key::Name(key_text(value)?));
                }
                Some(Key::Merge) => map.merge(value)?,
                Some(Key::Name(name)) => map.fields.push((name, value)),
            },
        }
        Ok(())
    }
}

impl Map {
    /// Takes in what a `<<` names.
    fn merge(&mut self, value: Value) -> Result<(), String> {
        let wrong = || "map merge requires map or sequence of maps as the value".to_string();
        let maps = match value {
            Value::Array(items) => items,
            map => vec![map],
        };
        for map in maps {
            let Value::Object(fields) = map else {
                return Err(wrong());
            };
            self.merged.extend(fields);
        }
        Ok(())
    }

    /// The keys that were given again, with their lines.
    fn repeated(&self) -> Vec<Repeated> {
        let names: Vec<&str> = self.fields.iter().map(|(name, _)| name.as_str()).collect();
        let again = repeats(&names);
        again
            .into_iter()
            .map(|index| Repeated {
                line: self.lines[index],
                key: names[index].to_string(),
            })
            .collect()
    }

    fn finish(self) -> Object {
        // Of a repeated name the last one counts: own fields come last, and of several maps to
        // merge the first one that has the key wins.
        let mut fields = self.merged;
        fields.reverse();
        fields.extend(self.fields);
        Object::from_fields(fields)
    }
}

impl Size {
    fn of(value: &Value) -> Size {
        // Also nothing takes some room.
        const LEAST: usize = 4;
        let mut size = Size {
            depth: 0,
            weight: LEAST,
        };
        let mut add = |inner: Size, name: &str| {
            size.depth = size.depth.max(inner.depth);
            size.weight += inner.weight + name.len();
        };
        match value {
            Value::Array(items) => items.iter().for_each(|item| add(Size::of(item), "")),
            Value::Object(fields) => fields
                .iter()
                .for_each(|(name, value)| add(Size::of(value), name)),
            Value::String(text) => {
                size.weight += text.len();
                return size;
            }
            _ => return size,
        }
        size.depth += 1;
        size
    }
}

/// What is left when something of this size has been added.
fn within(left: usize, size: Size) -> Result<usize, String> {
    let left = left.checked_sub(size.weight);
    left.ok_or_else(|| "document contains excessive aliasing".to_string())
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
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_string();
        for level in 1..10 {
            let last = level - 1;
            let list = vec![format!("*a{last}"); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{list}]\n"));
        }
        let error = parse_documents(bomb.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("excessive aliasing"), "{error}");
    }

    /// Fifty anchors, each of which nests what the one before stands for.
    fn nested_anchors(levels: usize) -> String {
        let mut text = format!("a0: &a0 {}\n", "[".repeat(levels) + &"]".repeat(levels));
        for anchor in 1..50 {
            let before = anchor - 1;
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            text.push_str(&format!("a{anchor}: &a{anchor} {open}*a{before}{close}\n"));
        }
        text
    }

    #[test]
    fn nesting_is_bounded_also_through_aliases() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for (text, fits) in [
            (nested(MAX_DEPTH), true),
            (nested(MAX_DEPTH + 1), false),
            // Not JSON.
            (format!("a: {}", nested(MAX_DEPTH - 1)), true),
            (format!("a: {}", nested(MAX_DEPTH)), false),
            (format!("a: &a {}\nb: [*a]", nested(MAX_DEPTH - 2)), true),
            (format!("a: &a {}\nb: [*a]", nested(MAX_DEPTH - 1)), false),
            (nested_anchors(1), true),
            (nested_anchors(199), false),
            (nested_anchors(90), false),
        ] {
            match parse_documents(text.as_bytes()) {
                Ok(documents) => {
                    assert!(fits, "{text}");
                    assert!(documents.iter().all(|one| one.check_depth().is_ok()));
                }
                Err(error) => {
                    assert!(!fits, "{text}: {error}");
                    let error = error.to_string();
                    assert!(error.ends_with("exceeded max depth of 100"), "{error}");
                }
            }
        }
    }

    #[test]
    fn aliases_cannot_multiply_the_size_of_a_stream() {
        let refused = |text: String| {
            let error = parse_documents(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("excessive aliasing"), "{error}");
        };
        // One long text a thousand times.
        let long = "x".repeat(100_000);
        refused(format!(
            "a: &a {long}\nb: [{}]",
            vec!["*a"; 1_000].join(",")
        ));
        // Anchors around anchors, each of which keeps all that is within it.
        let open: String = (0..90).map(|anchor| format!("&a{anchor} [")).collect();
        refused(format!("{open}{long}{}", "]".repeat(90)));
        // Honest use stays far below.
        let labels = "a: &labels {app: web, tier: front}\n";
        let uses: String = (0..500).map(|one| format!("b{one}: *labels\n")).collect();
        assert!(parse_documents(format!("{labels}{uses}").as_bytes()).is_ok());
    }

    #[test]
    fn repeated_keys_are_reported_in_the_order_of_their_lines() {
        let text = "b: 1\na:\n  q: 1\n  p: 2\n  q: 3\nb: 2\nc: 1\nb: 3\n";
        let (documents, repeated) = parse_with_repeated(text.as_bytes()).unwrap();
        assert_eq!(
            documents,
            [document!({"a": {"p": 2, "q": 3}, "b": 3, "c": 1})]
        );
        let told: Vec<String> = repeated.iter().map(Repeated::to_string).collect();
        assert_eq!(
            told,
            [
                "line 5: key \"q\" already set in map",
                "line 6: key \"b\" already set in map",
                "line 8: key \"b\" already set in map",
            ]
        );
    }

    #[test]
    fn maps_with_many_keys_cost_n_log_n() {
        crate::steps::assert_n_log_n(|keys| {
            let lines = (0..keys).rev().map(|key| format!("k{key:07}: 1\n"));
            let text: String = lines.collect();
            crate::steps::of(|| drop(parse_with_repeated(text.as_bytes()).unwrap()))
        });
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
