//! JSON as it was written: keys in order and repeated, numbers as text. Bodies are read into this
//! first, so that errors come in the order and in the words of Go's decoder.

use std::borrow::Cow;

use crate::document::{MAX_DEPTH, Value};

/// A parsed JSON value.
#[derive(Debug)]
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    Number(Cow<'a, str>),
    String(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

/// A text that is not JSON, in the words of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SyntaxError(String);

/// Parses a whole text.
pub(super) fn parse(bytes: &[u8]) -> Result<Node<'_>, SyntaxError> {
    let mut parser = Parser {
        bytes,
        position: 0,
        depth: 0,
    };
    parser.white_space();
    let node = parser.value().map_err(SyntaxError)?;
    parser.white_space();
    match parser.peek() {
        None => Ok(node),
        Some(_) => Err(SyntaxError(parser.unexpected("after top-level value"))),
    }
}

impl<'a> Node<'a> {
    /// What Go calls this kind of value.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Bool(_) => "bool",
            Node::Number(_) => "number",
            Node::String(_) => "string",
            Node::Array(_) => "array",
            Node::Object(_) => "object",
        }
    }

    /// The value as it is, without a schema; of a repeated key the last one counts.
    pub(super) fn into_value(self) -> Value {
        match self {
            Node::Null => Value::Null,
            Node::Bool(flag) => Value::Bool(flag),
            Node::Number(text) => number(&text),
            Node::String(text) => Value::String(text.into_owned()),
            Node::Array(items) => Value::Array(items.into_iter().map(Node::into_value).collect()),
            Node::Object(fields) => Value::Object(
                fields
                    .into_iter()
                    .map(|(name, node)| (name.into_owned(), node.into_value()))
                    .collect(),
            ),
        }
    }

    pub(super) fn from_value(value: Value) -> Node<'static> {
        match value {
            Value::Null => Node::Null,
            Value::Bool(flag) => Node::Bool(flag),
            Value::Integer(number) => Node::Number(number.to_string().into()),
            // Whole numbers have no fraction in Go's JSON.
            Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e21 => {
                Node::Number(format!("{number:.0}").into())
            }
            Value::Float(number) => Node::Number(Value::Float(number).to_string().into()),
            Value::String(text) => Node::String(text.into()),
            Value::Array(items) => Node::Array(items.into_iter().map(Node::from_value).collect()),
            Value::Object(fields) => Node::Object(
                fields
                    .into_iter()
                    .map(|(name, value)| (name.into(), Node::from_value(value)))
                    .collect(),
            ),
        }
    }

    /// The last field of that name, as Go would keep it.
    pub(super) fn last(&self, name: &str) -> Option<&Node<'a>> {
        match self {
            Node::Object(fields) => fields
                .iter()
                .rev()
                .find_map(|(field, node)| (field == name).then_some(node)),
            _ => None,
        }
    }
}

/// Whole numbers stay whole where they fit.
fn number(text: &str) -> Value {
    match text.parse::<i64>() {
        Ok(whole) => Value::Integer(whole),
        Err(_) => Value::Float(text.parse().unwrap_or_default()),
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    position: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.position += 1;
        }
    }

    /// What Go says of the byte at hand, or of the end.
    fn unexpected(&self, place: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".to_string(),
            Some(byte) => format!("invalid character {} {place}", quoted(byte)),
        }
    }

    fn value(&mut self) -> Result<Node<'a>, String> {
        match self.peek() {
            Some(b'{') => self.nested(Parser::object),
            Some(b'[') => self.nested(Parser::array),
            Some(b'"') => Ok(Node::String(self.string()?)),
            Some(b't') => self.literal("true", Node::Bool(true)),
            Some(b'f') => self.literal("false", Node::Bool(false)),
            Some(b'n') => self.literal("null", Node::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(
        &mut self,
        parse: fn(&mut Parser<'a>) -> Result<Node<'a>, String>,
    ) -> Result<Node<'a>, String> {
        if self.depth == MAX_DEPTH {
            return Err(self.unexpected("exceeded max depth"));
        }
        self.depth += 1;
        self.position += 1;
        let node = parse(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn object(&mut self) -> Result<Node<'a>, String> {
        let mut fields = Vec::new();
        self.white_space();
        if self.peek() == Some(b'}') {
            self.position += 1;
            return Ok(Node::Object(fields));
        }
        loop {
            self.white_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let name = self.string()?;
            self.white_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.position += 1;
            self.white_space();
            fields.push((name, self.value()?));
            self.white_space();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b'}') => {
                    self.position += 1;
                    return Ok(Node::Object(fields));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Result<Node<'a>, String> {
        let mut items = Vec::new();
        self.white_space();
        if self.peek() == Some(b']') {
            self.position += 1;
            return Ok(Node::Array(items));
        }
        loop {
            self.white_space();
            items.push(self.value()?);
            self.white_space();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b']') => {
                    self.position += 1;
                    return Ok(Node::Array(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn literal(&mut self, word: &str, node: Node<'a>) -> Result<Node<'a>, String> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let expected = expected as char;
                return Err(self.unexpected(&format!("in literal {word} (expecting '{expected}')")));
            }
            self.position += 1;
        }
        Ok(node)
    }

    fn number(&mut self) -> Result<Node<'a>, String> {
        let start = self.position;
        if self.peek() == Some(b'-') {
            self.position += 1;
        }
        match self.peek() {
            Some(b'0') => self.position += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        let text = &self.bytes[start..self.position];
        Ok(Node::Number(String::from_utf8_lossy(text)))
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.position += 1;
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, String> {
        self.position += 1;
        let mut start = self.position;
        let mut text: Cow<'a, str> = Cow::Borrowed("");
        loop {
            match self.peek() {
                Some(b'"') => {
                    append(&mut text, &self.bytes[start..self.position]);
                    self.position += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    append(&mut text, &self.bytes[start..self.position]);
                    self.position += 1;
                    let character = self.escape()?;
                    text.to_mut().push(character);
                    start = self.position;
                }
                Some(byte) if byte >= 0x20 => self.position += 1,
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let character = match self.peek() {
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(byte @ (b'\\' | b'/' | b'"')) => byte as char,
            Some(b'u') => {
                self.position += 1;
                return self.unicode();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.position += 1;
        Ok(character)
    }

    /// After `\u`. Half a surrogate pair becomes the replacement character, as in Go.
    fn unicode(&mut self) -> Result<char, String> {
        let first = self.hexadecimal()?;
        if let Some(character) = char::from_u32(first) {
            return Ok(character);
        }
        if first < 0xdc00 && self.bytes[self.position..].starts_with(b"\\u") {
            let before = self.position;
            self.position += 2;
            let second = self.hexadecimal()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.position = before;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hexadecimal(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| (byte as char).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.position += 1;
        }
        Ok(code)
    }
}

/// Bytes that are not UTF-8 become the replacement character, as in Go.
fn append<'a>(text: &mut Cow<'a, str>, bytes: &'a [u8]) {
    let more = String::from_utf8_lossy(bytes);
    if text.is_empty() {
        *text = more;
    } else if !more.is_empty() {
        text.to_mut().push_str(&more);
    }
}

/// A byte as Go's errors show it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_string(),
        b'"' => "'\"'".to_string(),
        b'\\' => r"'\\'".to_string(),
        b'\n' => r"'\n'".to_string(),
        b'\r' => r"'\r'".to_string(),
        b'\t' => r"'\t'".to_string(),
        0x20..=0x7e => format!("'{}'", byte as char),
        // Go takes the byte for a character.
        0xa1..=0xac | 0xae..=0xff => format!("'{}'", char::from(byte)),
        0x80.. => format!("'\\u{byte:04x}'"),
        _ => format!("'\\x{byte:02x}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let text = br#" {"b":[1,-2.5e3,true,null,"x\u00e9\ud83d\ude00\n"],"a":{},"b":7} "#;
        let node = parse(text).unwrap();
        assert_eq!(node.into_value(), crate::document!({"a": {}, "b": 7}));
        let node =
            parse(r#"["xé\ud83d\ude00\n", "\ud800", 12345678901234567890]"#.as_bytes()).unwrap();
        assert_eq!(
            node.into_value(),
            crate::document!(["xé😀\n", "\u{fffd}", 12345678901234567890.0])
        );
    }

    #[test]
    fn errors_are_worded_as_in_go() {
        for (text, error) in [
            ("", "unexpected end of JSON input"),
            (r#"{"a":1"#, "unexpected end of JSON input"),
            (
                r#"{"a":1,}"#,
                "invalid character '}' looking for beginning of object key string",
            ),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (
                r#"{"a":1 "b":2}"#,
                "invalid character '\"' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            ("{} x", "invalid character 'x' after top-level value"),
            (
                "foo: bar",
                "invalid character 'o' in literal false (expecting 'a')",
            ),
            ("\"a\tb\"", "invalid character '\\t' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            ("-x", "invalid character 'x' in numeric literal"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), error);
        }
        for opening in ["[", "{\"a\":"] {
            let nested = |levels: usize| {
                let closing = if opening == "[" { "]" } else { "}" };
                format!("{}1{}", opening.repeat(levels), closing.repeat(levels))
            };
            assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
            let first = &opening[..1];
            assert_eq!(
                parse(nested(MAX_DEPTH + 1).as_bytes())
                    .unwrap_err()
                    .to_string(),
                format!("invalid character '{first}' exceeded max depth")
            );
        }
    }
}
