//! Values in the forms in which Go prints them, where users see them.

use std::fmt::Write;

use crate::document::Value;
pub use crate::field::go_float as float;

/// A value as `%v` prints it: `map[a:1 b:[x y]]`.
pub fn printed(value: &Value) -> String {
    let mut text = String::new();
    print(value, &mut text);
    text
}

fn print(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(flag) => {
            let _ = write!(text, "{flag}");
        }
        Value::Integer(number) => {
            let _ = write!(text, "{number}");
        }
        Value::Float(number) => text.push_str(&float(*number)),
        Value::String(string) => text.push_str(string),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                print(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push_str("map[");
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                text.push_str(name);
                text.push(':');
                print(value, text);
            }
            text.push(']');
        }
    }
}
