//! Values as Go prints them into messages.

use crate::duration;
use crate::numbers;
use crate::timestamp::Timestamp;
use crate::value::Value;

/// Messages do not show more of a value than this.
const MAX_SHOWN: usize = 1 << 20;

/// A value as `%v` prints it, of huge ones the beginning. The depth of values is bounded, see
/// [`crate::extent`].
pub fn of(value: &Value<'_>) -> String {
    let mut text = String::new();
    push(&mut text, value);
    text
}

fn push(text: &mut String, value: &Value<'_>) {
    if text.len() > MAX_SHOWN {
        return;
    }
    match value {
        Value::Null => text.push('0'),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => text.push_str(&value.to_string()),
        Value::Uint(value) => text.push_str(&value.to_string()),
        Value::Double(value) => text.push_str(&numbers::go_double(*value)),
        Value::String(of) => text.push_str(of),
        Value::Bytes(octets) => {
            let octets: Vec<String> = octets.iter().take(MAX_SHOWN).map(u8::to_string).collect();
            text.push_str(&format!("[{}]", octets.join(" ")));
        }
        Value::Duration(nanoseconds) => text.push_str(&duration::go_text(*nanoseconds)),
        Value::Timestamp(at) => text.push_str(&moment(*at)),
        Value::Type(of) => text.push_str(&of.to_string()),
        Value::Optional(None) => text.push_str("optional.none()"),
        Value::Optional(Some(value)) => {
            text.push_str("optional(");
            push(text, value);
            text.push(')');
        }
        Value::Object(object) => text.push_str(&object.type_name),
        Value::Opaque(value) => text.push_str(&format!("{value:?}")),
        Value::List(_) | Value::Map(_) | Value::Host(_) if value.list_len().is_some() => {
            text.push('[');
            for (index, item) in value.items().enumerate() {
                if text.len() > MAX_SHOWN {
                    break;
                }
                text.push_str(if index > 0 { ", " } else { "" });
                push(text, &item);
            }
            text.push(']');
        }
        Value::List(_) | Value::Map(_) | Value::Host(_) => {
            text.push('{');
            for (index, (key, value)) in value.entries().enumerate() {
                if text.len() > MAX_SHOWN {
                    break;
                }
                text.push_str(if index > 0 { ", " } else { "" });
                push(text, &key);
                text.push_str(": ");
                push(text, &value);
            }
            text.push('}');
        }
    }
}

/// The name of cel-go's type of a value, as `%T` prints it.
pub fn type_of(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Type(_) => "*types.Type",
        Value::Optional(_) => "*types.Optional",
        Value::Object(_) => "*mutation.ObjectVal",
        Value::Opaque(_) => "cel.Opaque",
        Value::List(_) => "*types.baseList",
        Value::Map(_) => "*types.baseMap",
        Value::Host(_) if value.list_len().is_some() => "[]interface {}",
        Value::Host(_) => "map[string]interface {}",
    }
}

/// As Go's `time.Time` prints itself.
fn moment(at: Timestamp) -> String {
    let civil = at.civil(i64::from(at.offset));
    let mut fraction = String::new();
    if at.nanoseconds != 0 {
        let digits = format!("{:09}", at.nanoseconds);
        fraction = format!(".{}", digits.trim_end_matches('0'));
    }
    let sign = if at.offset < 0 { '-' } else { '+' };
    let minutes = at.offset.abs() / 60;
    let offset = format!("{sign}{:02}{:02}", minutes / 60, minutes % 60);
    let zone = if at.offset == 0 { "UTC" } else { &offset };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}{fraction} {offset} {zone}",
        civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
    )
}
