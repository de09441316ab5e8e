//! Lists and maps that were sent empty rather than left out. Go distinguishes the two until the
//! object is stored: in who owns a field, in defaults and in the words of errors.

use std::fmt::Write;

use super::table::{Definition, Field, JSON_SCHEMA, Type, table};
use crate::document::Value;
use crate::field::FieldError;
use crate::resource::Resource;

/// The places of an object where an empty list or map was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Empties(Vec<(String, Value)>);

impl Empties {
    /// The errors, showing what was empty as such; validation only saw that nothing was there.
    pub fn shown_in(&self, mut errors: Vec<FieldError>) -> Vec<FieldError> {
        for error in &mut errors {
            let sent = self.0.iter().find(|(path, _)| {
                // Some errors name what holds the list.
                let rest = path.strip_prefix(error.path.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            });
            if let Some((_, sent)) = sent {
                error.replace_null(sent);
            }
        }
        errors
    }
}

/// Storing forgets that a list or a map was empty, not absent; the answer remembers where.
pub fn forget_empty(resource: &Resource, object: &mut Value) -> Empties {
    let mut walker = Walker::default();
    if let Some(definition) = table().definition(resource.definition.name()) {
        walker.object(definition, object);
    }
    Empties(walker.found)
}

/// Whether the field shows nothing of this value, as Go writes it: empty, where empty is left out.
pub(crate) fn is_left_out(field: &Field, value: &Value) -> bool {
    field.omits_zero() && is_empty_collection(field, value)
}

/// Whether the field holds a list or a map that cannot be distinguished from none once stored.
pub(super) fn is_collection(field: &Field) -> bool {
    matches!(field.kind, Type::List { .. } | Type::Map(_)) && !field.pointer
}

fn is_empty_collection(field: &Field, value: &Value) -> bool {
    let empty = match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    empty && is_collection(field)
}

#[derive(Default)]
struct Walker {
    path: Vec<Step>,
    found: Vec<(String, Value)>,
}

enum Step {
    Field(&'static str),
    Index(usize),
    Key(String),
}

impl Walker {
    fn object(&mut self, definition: &Definition, object: &mut Value) {
        let Value::Object(fields) = object else {
            return;
        };
        fields.retain(|name, value| {
            let Some(field) = definition.field(name) else {
                return true;
            };
            self.path.push(Step::Field(field.name));
            let is_empty = is_empty_collection(field, value);
            match is_empty {
                true => {
                    let empty = std::mem::take(value);
                    self.found.push((self.here(), empty));
                }
                false => self.value(&field.kind, value),
            }
            self.path.pop();
            !(is_empty && field.omits_zero())
        });
    }

    fn value(&mut self, kind: &Type, value: &mut Value) {
        match (kind, value) {
            (Type::Object(index), value) => self.object(table().at(*index), value),
            (Type::List { item, .. }, Value::Array(values)) if item.holds_objects() => {
                for (index, value) in values.iter_mut().enumerate() {
                    self.path.push(Step::Index(index));
                    self.value(item, value);
                    self.path.pop();
                }
            }
            (Type::Map(item), Value::Object(fields)) if item.holds_objects() => {
                for (name, value) in fields.iter_mut() {
                    self.path.push(Step::Key(name.to_string()));
                    self.value(item, value);
                    self.path.pop();
                }
            }
            (Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings, value) => {
                if let Some(definition) = table().definition(JSON_SCHEMA) {
                    self.object(definition, value);
                }
            }
            _ => {}
        }
    }

    fn here(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            let _ = match step {
                Step::Field(name) if path.is_empty() => write!(path, "{name}"),
                Step::Field(name) => write!(path, ".{name}"),
                Step::Index(index) => write!(path, "[{index}]"),
                Step::Key(key) => write!(path, "[{key}]"),
            };
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::document;
    use crate::field::Path;

    #[test]
    fn what_was_empty_is_forgotten_and_shown_in_errors() {
        let roles = catalogue::built_in()
            .find("apps", "v1", "deployments")
            .unwrap();
        let mut object = document!({"metadata": {"labels": {}}, "spec": {"template": {
            "metadata": {"labels": {}},
            "spec": {"containers": []},
        }}});
        let empties = forget_empty(roles, &mut object);
        assert_eq!(
            object,
            document!({"metadata": {}, "spec": {"template": {
                "metadata": {}, "spec": {"containers": null},
            }}})
        );
        let path = Path::new("spec.template.metadata.labels");
        let errors = vec![FieldError::invalid(&path, Value::Null, "no")];
        assert_eq!(
            empties.shown_in(errors)[0].to_string(),
            "spec.template.metadata.labels: Invalid value: {}: no"
        );
    }
}
