//! Which fields of a document its type does not know: those that are gone when it is written again.

use serde::Serialize;
use serde_json::Value;

/// One line for each, as upstream's strict decoder says it.
pub(super) fn of(given: &Value, read: &impl Serialize) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Ok(known) = serde_json::to_value(read) {
        compare(given, &known, "", &mut unknown);
    }
    unknown
}

fn compare(given: &Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, value) in given {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                match known.get(name) {
                    Some(known) => compare(value, known, &path, unknown),
                    // What says nothing is not always written again.
                    None if value.is_null() => {}
                    None => unknown.push(format!("unknown field \"{path}\"")),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (index, (given, known)) in given.iter().zip(known).enumerate() {
                compare(given, known, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}
