//! The columns of a kind's table, as its definition declares them.

use jiff::Timestamp;

use super::go;
use super::json_path::{JsonPath, Malformed};
use crate::age;
use crate::document::Value;

/// One of `additionalPrinterColumns`. The first column of every table, the name, is not among them.
#[derive(Clone, Debug, PartialEq)]
pub struct PrinterColumn {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    path: JsonPath,
}

impl PrinterColumn {
    /// Reads a declaration.
    pub fn of(document: &Value) -> Result<PrinterColumn, Malformed> {
        let text = |name: &str| document.str_at(&[name]).to_string();
        let path = document.str_at(&["jsonPath"]);
        let description = match text("description") {
            none if none.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            given => given,
        };
        Ok(PrinterColumn {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: document.i64_at(&["priority"]).unwrap_or_default(),
            path: JsonPath::parse(path)?,
        })
    }

    /// The column of a kind that declares none: its age.
    pub fn age() -> PrinterColumn {
        PrinterColumn {
            name: "Age".to_string(),
            kind: "date".to_string(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            path: JsonPath::fields(&["metadata", "creationTimestamp"]),
        }
    }

    /// What the column shows of an object.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Ok(Some(value)) = self.path.first(object) else {
            return Value::Null;
        };
        match (self.kind.as_str(), value) {
            ("string", Value::Null) => "<no value>".into(),
            ("string", Value::Array(_) | Value::Object(_)) => value.to_string().into(),
            ("string", scalar) => go::printed(scalar).into(),
            ("integer", Value::Integer(number)) => (*number).into(),
            ("integer", Value::Float(number)) => (*number as i64).into(),
            ("number", Value::Integer(number)) => (*number as f64).into(),
            ("number", Value::Float(number)) => (*number).into(),
            ("boolean", Value::Bool(flag)) => (*flag).into(),
            ("date", Value::String(text)) => age(text, now).into(),
            _ => Value::Null,
        }
    }
}

/// How long ago a time is, as kubectl prints ages.
fn age(text: &str, now: Timestamp) -> String {
    if matches!(text, "" | "null") {
        return "<unknown>".to_string();
    }
    match text.parse::<Timestamp>() {
        Ok(then) => age::human(now.as_second() - then.as_second()),
        Err(_) => "<invalid>".to_string(),
    }
}
