//! OpenAPI v2 in the protobuf form of the gnostic project, which older kubectl asks for. Only the
//! parts that our own document has.

use crate::document::Value;

/// Encodes a whole v2 document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut message = Message::default();
    message.text(1, document.get("swagger"));
    if let Some(info) = document.get("info") {
        message.nested(2, |message| {
            message.text(1, info.get("title"));
            message.text(2, info.get("version"));
        });
    }
    message.nested(8, |paths| {
        named(paths, 2, document.get("paths"), path_item);
    });
    message.nested(9, |definitions| {
        named(definitions, 1, document.get("definitions"), schema);
    });
    for requirement in items(document.get("security")) {
        message.nested(12, |message| {
            named(message, 1, Some(requirement), |message, scopes| {
                message.texts(1, Some(scopes));
            });
        });
    }
    message.nested(13, |definitions| {
        named(
            definitions,
            1,
            document.get("securityDefinitions"),
            |message, value| {
                message.nested(2, |key| {
                    key.text(1, value.get("type"));
                    key.text(2, value.get("name"));
                    key.text(3, value.get("in"));
                    key.text(4, value.get("description"));
                });
            },
        );
    });
    message.bytes
}

/// Encodes paths and definitions alone. Appended to a whole document they become a part of it:
/// readers join the parts of a message that comes several times.
pub(super) fn encode_piece(paths: &Value, definitions: &Value) -> Vec<u8> {
    let mut message = Message::default();
    message.nested(8, |message| named(message, 2, Some(paths), path_item));
    message.nested(9, |message| named(message, 1, Some(definitions), schema));
    message.bytes
}

fn path_item(message: &mut Message, item: &Value) {
    for (number, method) in [
        (2, "get"),
        (3, "put"),
        (4, "post"),
        (5, "delete"),
        (6, "options"),
        (7, "head"),
        (8, "patch"),
    ] {
        if let Some(value) = item.get(method) {
            message.nested(number, |message| operation(message, value));
        }
    }
    for value in items(item.get("parameters")) {
        message.nested(9, |message| parameter(message, value));
    }
}

fn operation(message: &mut Message, operation: &Value) {
    message.texts(1, operation.get("tags"));
    message.text(3, operation.get("description"));
    message.text(5, operation.get("operationId"));
    message.texts(6, operation.get("produces"));
    message.texts(7, operation.get("consumes"));
    for value in items(operation.get("parameters")) {
        message.nested(8, |message| parameter(message, value));
    }
    message.nested(9, |responses| {
        named(
            responses,
            1,
            operation.get("responses"),
            |message, value| {
                message.nested(1, |response| {
                    response.text(1, value.get("description"));
                    if let Some(value) = value.get("schema") {
                        response.nested(2, |item| item.nested(1, |message| schema(message, value)));
                    }
                });
            },
        );
    });
    message.texts(10, operation.get("schemes"));
    extensions(message, 13, operation);
}

/// Wrapped three times: an item is a parameter or a reference, a parameter is a body or not, and
/// each place has a message of its own.
fn parameter(message: &mut Message, value: &Value) {
    message.nested(1, |message| match value.str_at(&["in"]) {
        "body" => message.nested(1, |body| {
            body.text(2, value.get("name"));
            body.text(3, value.get("in"));
            body.flag(4, value.get("required"));
            if let Some(value) = value.get("schema") {
                body.nested(5, |message| schema(message, value));
            }
        }),
        place => message.nested(2, |message| {
            let (place, name, kind, unique) = match place {
                "path" => (4, 4, 5, 19),
                _ => (3, 4, 6, 20),
            };
            message.nested(place, |parameter| {
                parameter.flag(1, value.get("required"));
                parameter.text(2, value.get("in"));
                parameter.text(name, value.get("name"));
                parameter.text(kind, value.get("type"));
                parameter.flag(unique, value.get("uniqueItems"));
            });
        }),
    });
}

fn schema(message: &mut Message, value: &Value) {
    message.text(1, value.get("$ref"));
    message.text(2, value.get("format"));
    message.text(3, value.get("title"));
    message.text(4, value.get("description"));
    if let Some(value) = value.get("default") {
        message.nested(5, |message| any(message, value));
    }
    message.double(6, value.get("multipleOf"));
    message.double(7, value.get("maximum"));
    message.flag(8, value.get("exclusiveMaximum"));
    message.double(9, value.get("minimum"));
    message.flag(10, value.get("exclusiveMinimum"));
    message.integer(11, value.get("maxLength"));
    message.integer(12, value.get("minLength"));
    message.text(13, value.get("pattern"));
    message.integer(14, value.get("maxItems"));
    message.integer(15, value.get("minItems"));
    message.flag(16, value.get("uniqueItems"));
    message.integer(17, value.get("maxProperties"));
    message.integer(18, value.get("minProperties"));
    message.texts(19, value.get("required"));
    for value in items(value.get("enum")) {
        message.nested(20, |message| any(message, value));
    }
    if let Some(value) = value.get("additionalProperties") {
        message.nested(21, |item| match value {
            Value::Bool(_) => item.flag(2, Some(value)),
            _ => item.nested(1, |message| schema(message, value)),
        });
    }
    if value.get("type").is_some() {
        message.nested(22, |item| item.text(1, value.get("type")));
    }
    if let Some(value) = value.get("items") {
        message.nested(23, |item| item.nested(1, |message| schema(message, value)));
    }
    if value.get("properties").is_some() {
        message.nested(25, |properties| {
            named(properties, 1, value.get("properties"), schema)
        });
    }
    extensions(message, 31, value);
}

/// A value of any type, as YAML, of which JSON is a part.
fn any(message: &mut Message, value: &Value) {
    match value {
        Value::String(text) if is_plain(text) => message.bytes(2, format!("{text}\n").as_bytes()),
        other => message.bytes(2, format!("{other}\n").as_bytes()),
    }
}

/// Whether YAML reads the text as itself without quotes, for certain.
fn is_plain(text: &str) -> bool {
    let letters =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/' | b'.');
    let is_word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | "null"
    );
    text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.bytes().all(letters)
        && !is_word
}

/// The `x-` keys with their values.
fn extensions(message: &mut Message, number: u32, value: &Value) {
    let Some(object) = value.as_object() else {
        return;
    };
    for (name, value) in object.iter().filter(|(name, _)| name.starts_with("x-")) {
        message.nested(number, |named| {
            named.bytes(1, name.as_bytes());
            named.nested(2, |message| any(message, value));
        });
    }
}

/// An object as repeated pairs of name (1) and value (2).
fn named(
    message: &mut Message,
    number: u32,
    object: Option<&Value>,
    write: impl Fn(&mut Message, &Value),
) {
    let Some(Value::Object(object)) = object else {
        return;
    };
    for (name, value) in object.iter() {
        message.nested(number, |pair| {
            pair.bytes(1, name.as_bytes());
            pair.nested(2, |message| write(message, value));
        });
    }
}

fn items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A protobuf message being written.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn text(&mut self, number: u32, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u32, list: Option<&Value>) {
        for value in items(list) {
            self.text(number, Some(value));
        }
    }

    fn flag(&mut self, number: u32, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.varint(u64::from(number) << 3);
            self.varint(1);
        }
    }

    fn integer(&mut self, number: u32, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_i64) {
            self.varint(u64::from(number) << 3);
            self.varint(value as u64);
        }
    }

    fn double(&mut self, number: u32, value: Option<&Value>) {
        let value = match value {
            Some(Value::Integer(value)) => *value as f64,
            Some(Value::Float(value)) => *value,
            _ => return,
        };
        self.varint(u64::from(number) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn nested(&mut self, number: u32, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(number, &inner.bytes);
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.varint(u64::from(number) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}
