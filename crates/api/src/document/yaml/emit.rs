//! Printing YAML the way kubectl prints it: block style, sorted keys, lists not indented below
//! their key, quotes only where a text would be read as something else.

use crate::document::Value;
use crate::document::yaml::resolve;

/// Writes a document.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(object) if !object.is_empty() => block(value, 0, &mut text),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut text),
        _ => {
            scalar(value, 0, &mut text);
            text.push('\n');
        }
    }
    text
}

/// Writes the lines of a collection that has something in it, each indented by `indent`.
fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(object) => {
            for (name, value) in object.iter() {
                spaces(indent, text);
                field(name, value, indent, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                spaces(indent, text);
                element(item, indent, text);
            }
        }
        _ => {}
    }
}

/// Writes `name: value`; the indentation is already there.
fn field(name: &str, value: &Value, indent: usize, text: &mut String) {
    quoted(name, indent, true, text);
    text.push(':');
    match value {
        Value::Object(object) if !object.is_empty() => {
            text.push('\n');
            block(value, indent + 2, text);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            block(value, indent, text);
        }
        _ => {
            text.push(' ');
            scalar(value, indent + 2, text);
            text.push('\n');
        }
    }
}

/// Writes `- item`; the first line of a collection shares the line of its dash.
fn element(item: &Value, indent: usize, text: &mut String) {
    text.push_str("- ");
    match item {
        Value::Object(object) if !object.is_empty() => {
            for (index, (name, value)) in object.iter().enumerate() {
                if index > 0 {
                    spaces(indent + 2, text);
                }
                field(name, value, indent + 2, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    spaces(indent + 2, text);
                }
                element(item, indent + 2, text);
            }
        }
        _ => {
            scalar(item, indent + 2, text);
            text.push('\n');
        }
    }
}

fn scalar(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::String(content) => quoted(content, indent, false, text),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
        other => text.push_str(&other.to_string()),
    }
}

fn quoted(content: &str, indent: usize, key: bool, text: &mut String) {
    let printable = content
        .chars()
        .all(|character| character == '\n' || !character.is_control());
    if content.contains('\n') && printable && !key && literal_allowed(content) {
        literal(content, indent, text);
    } else if !printable
        || content.contains('\n')
        || !resolve::is_text(content)
        || is_base_60(content)
    {
        double_quoted(content, text);
    } else if plain_allowed(content) {
        text.push_str(content);
    } else {
        text.push('\'');
        text.push_str(&content.replace('\'', "''"));
        text.push('\'');
    }
}

/// Whether a text that is no number or word can stand without quotes.
fn plain_allowed(content: &str) -> bool {
    if content.starts_with("---") || content.starts_with("...") {
        return false;
    }
    if content.starts_with(' ') || content.ends_with(' ') {
        return false;
    }
    let mut characters = content.chars().peekable();
    let Some(first) = characters.next() else {
        return false;
    };
    let next_is_space = |next: Option<&char>| next.is_none_or(|next| *next == ' ');
    match first {
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
        | '@' | '`' => return false,
        '-' | '?' | ':' if next_is_space(characters.peek()) => return false,
        _ => {}
    }
    let mut previous = first;
    while let Some(character) = characters.next() {
        match character {
            ':' if next_is_space(characters.peek()) => return false,
            '#' if previous == ' ' => return false,
            _ => {}
        }
        previous = character;
    }
    content != "<<"
}

/// A block keeps every character except blanks before a line break and at the very start.
fn literal_allowed(content: &str) -> bool {
    !content.starts_with([' ', '\n'])
        && !content.contains(" \n")
        && !content.ends_with(' ')
        && !content.chars().all(|character| character == '\n')
}

fn literal(content: &str, indent: usize, text: &mut String) {
    let body = content.strip_suffix('\n');
    text.push_str(match body {
        None => "|-",
        Some(body) if body.ends_with('\n') => "|+",
        Some(_) => "|",
    });
    let body = body.unwrap_or(content);
    for line in body.split('\n') {
        text.push('\n');
        if !line.is_empty() {
            // At the root of a document a block still needs an indentation.
            spaces(indent.max(2), text);
            text.push_str(line);
        }
    }
}

fn double_quoted(content: &str, text: &mut String) {
    text.push('"');
    for character in content.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\r' => text.push_str("\\r"),
            control if control.is_control() => {
                text.push_str(&format!("\\x{:02X}", control as u32));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}

/// `12:30:45` is a number in YAML 1.1, so others would read it as one.
fn is_base_60(content: &str) -> bool {
    let unsigned = content.strip_prefix(['-', '+']).unwrap_or(content);
    let numeric = |part: &str| {
        let digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'_');
        !part.is_empty() && part.bytes().all(digit)
    };
    unsigned.starts_with(|character: char| character.is_ascii_digit())
        && unsigned.contains(':')
        && unsigned.split(':').all(numeric)
}

fn spaces(count: usize, text: &mut String) {
    text.extend(std::iter::repeat_n(' ', count));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn reads_as_kubectl_prints_it() {
        let object = document!({
            "metadata": {
                "name": "web", "labels": {}, "annotations": {"a": "true", "b": "1.5"},
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "containers": [
                    {
                        "name": "c", "args": ["-v", "a b", "--x=y", "- z", "*"],
                        "ports": [{"containerPort": 80}],
                    },
                    {"name": "d", "command": []},
                ],
                "script": "set -e\necho hi\n",
                "time": "12:30:45",
                "empty": "",
                "colon": "a: b",
            },
        });
        let expected = "\
metadata:
  annotations:
    a: \"true\"
    b: \"1.5\"
  creationTimestamp: \"2026-01-01T00:00:00Z\"
  labels: {}
  name: web
spec:
  colon: 'a: b'
  containers:
  - args:
    - -v
    - a b
    - --x=y
    - '- z'
    - '*'
    name: c
    ports:
    - containerPort: 80
  - command: []
    name: d
  empty: \"\"
  script: |
    set -e
    echo hi
  time: \"12:30:45\"
";
        assert_eq!(to_yaml(&object), expected);
        assert_eq!(to_yaml(&document!([])), "[]\n");
        assert_eq!(to_yaml(&document!([["a"], ["b"]])), "- - a\n- - b\n");
    }
}
