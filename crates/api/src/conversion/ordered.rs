//! JSON with fields in the order of Go's types, for what upstream puts into annotations as text.

use crate::document::Value;

/// One order that all the types written here agree with.
const ORDER: [&str; 36] = [
    "type",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "target",
    "kind",
    "name",
    "apiVersion",
    "metricName",
    "metricSelector",
    "targetAverageUtilization",
    "currentAverageUtilization",
    "targetValue",
    "currentValue",
    "targetAverageValue",
    "currentAverageValue",
    "container",
    "selector",
    "averageValue",
    "matchLabels",
    "matchExpressions",
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Tolerance",
    "Type",
    "Value",
    "PeriodSeconds",
];

/// The text of a value.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&str, &Value)> = fields.iter().collect();
            let place = |name: &str| ORDER.iter().position(|known| *known == name);
            fields.sort_by_key(|(name, _)| place(name).unwrap_or(ORDER.len()));
            out.push('{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name).to_string());
                out.push(':');
                match name {
                    // A map, whose keys are in the order of the alphabet.
                    "matchLabels" => out.push_str(&value.to_string()),
                    _ => write(value, out),
                }
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}
