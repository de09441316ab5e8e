//! Values as Go prints them into messages.

use crate::duration;
use crate::numbers;
use crate::timestamp::Timestamp;
use crate::value::Value;

/// A value as `%v` prints it. The depth of values is bounded, see [`Value::equals`].
pub fn of(value: &Value<'_>) -> String {
    match value {
        Value::Null => "0".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => numbers::go_double(*value),
        Value::String(text) => text.to_string(),
        Value::Bytes(octets) => {
            let octets: Vec<String> = octets.iter().map(u8::to_string).collect();
            format!("[{}]", octets.join(" "))
        }
        Value::Duration(nanoseconds) => duration::go_text(*nanoseconds),
        Value::Timestamp(at) => moment(*at),
        Value::Type(of) => of.to_string(),
        Value::Optional(None) => "optional.none()".to_owned(),
        Value::Optional(Some(value)) => format!("optional({})", of(value)),
        Value::Object(object) => object.type_name.to_string(),
        Value::Opaque(value) => format!("{value:?}"),
        Value::List(_) | Value::Map(_) | Value::Host(_) => {
            if value.list_len().is_some() {
                let items: Vec<String> = value.items().map(|item| of(&item)).collect();
                format!("[{}]", items.join(", "))
            } else {
                let entries: Vec<String> = value
                    .entries()
                    .map(|(key, value)| format!("{}: {}", of(&key), of(&value)))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
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
