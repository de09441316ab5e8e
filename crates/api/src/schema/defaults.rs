//! The values that Go's types and declarations give to fields that are not set.
//!
//! Defaults that depend on other fields are the strategies'.

use super::empty::is_collection;
use super::table::{Definition, Field, JSON_SCHEMA, Type, table};
use crate::document::Value;
use crate::resource::Resource;

/// Applies the declared defaults of a built-in kind, such as `protocol: TCP` of a port. Those of a
/// custom kind are its strategy's.
pub fn defaults(resource: &Resource, object: &mut Value) {
    if let Some(definition) = table().definition(resource.definition.name()) {
        apply_declared_defaults(definition, object);
    }
}

/// The same for any definition, e.g. of a pod template.
pub fn apply_declared_defaults(definition: &Definition, object: &mut Value) {
    let Value::Object(fields) = object else {
        return;
    };
    for property in &definition.properties {
        let field = table().field(property);
        match fields.get_mut(field.name) {
            Some(value) => below(&field.kind, value, apply_declared_defaults),
            None => {
                if let Some(value) = declared_default(field) {
                    fields.insert(field.name, value);
                }
            }
        }
    }
}

/// Writes what Go's encoder would have written: fields that are always there get their zero value,
/// zero values of fields that are left out when empty disappear. Lists, maps and times that are
/// always there are `null` when they are not set.
pub fn normalise(definition: &Definition, object: &mut Value) {
    let Value::Object(fields) = object else {
        return;
    };
    fields.retain(|name, value| {
        let Some(field) = definition.field(name) else {
            return true;
        };
        // That a list or a map was sent empty matters until the object is settled.
        let disappears = field.omits_zero() && !field.pointer && !is_collection(field);
        !(value.is_null() || disappears && is_zero(&field.kind, value))
    });
    for property in &definition.properties {
        let field = table().field(property);
        match fields.get_mut(field.name) {
            Some(value) => below(&field.kind, value, normalise),
            None => {
                if let Some(mut value) = always_there(field) {
                    below(&field.kind, &mut value, normalise);
                    fields.insert(field.name, value);
                }
            }
        }
    }
}

/// Calls `change` on every object of a declared type directly in `value`.
fn below(kind: &Type, value: &mut Value, change: fn(&Definition, &mut Value)) {
    match (kind, value) {
        (Type::Object(index), value) => change(table().at(*index), value),
        (Type::List { item, .. }, Value::Array(values)) if item.holds_objects() => {
            for value in values {
                below(item, value, change);
            }
        }
        (Type::Map(item), Value::Object(fields)) if item.holds_objects() => {
            for (_, value) in fields.iter_mut() {
                below(item, value, change);
            }
        }
        (Type::SchemaOrArray, Value::Array(values)) => {
            for value in values {
                below(kind, value, change);
            }
        }
        (
            Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings,
            value @ Value::Object(_),
        ) => {
            if let Some(definition) = table().definition(JSON_SCHEMA) {
                change(definition, value);
            }
        }
        _ => {}
    }
}

/// The zero of a field without a pointer cannot be told from absence: such a default says nothing.
fn declared_default(field: &Field) -> Option<Value> {
    if field.default.is_empty() {
        return None;
    }
    let value = Value::from_json(field.default.as_bytes()).ok()?;
    (field.pointer || !is_zero(&field.kind, &value)).then_some(value)
}

fn is_zero(kind: &Type, value: &Value) -> bool {
    match (kind, value) {
        // Values with a form of their own are structs in Go, never left out for being empty.
        (Type::IntOrString | Type::Quantity | Type::Raw | Type::Json | Type::Any, _) => false,
        (_, Value::Null) => true,
        (_, Value::Bool(flag)) => !flag,
        (_, Value::Integer(number)) => *number == 0,
        (_, Value::Float(number)) => *number == 0.0,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Array(items)) => items.is_empty(),
        (Type::Map(_), Value::Object(fields)) => fields.is_empty(),
        (_, Value::Object(_)) => false,
    }
}

/// What a field shows when it is not set.
fn always_there(field: &Field) -> Option<Value> {
    if field.omit_zero || field.inline {
        return None;
    }
    if field.pointer {
        return (!field.omit_empty).then_some(Value::Null);
    }
    match field.kind {
        Type::Object(_) => Some(Value::object()),
        Type::Quantity => Some("0".into()),
        // Structures to Go, which are never empty.
        Type::Time | Type::MicroTime | Type::Raw => Some(Value::Null),
        Type::IntOrString => Some(0.into()),
        Type::Duration => Some("0s".into()),
        _ if field.omit_empty => None,
        Type::List { .. } | Type::Map(_) => Some(Value::Null),
        // Every object's own apiVersion and kind are set by whoever knows them.
        Type::String => Some("".into()),
        Type::Bool => Some(false.into()),
        Type::Int32 | Type::Int64 | Type::Float => Some(0.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::schema::forget_empty;

    #[test]
    fn declared_defaults_are_applied_where_the_field_is_missing() {
        let pods = catalogue::built_in().find("", "v1", "pods").unwrap();
        let mut pod = crate::document!({"spec": {"containers": [
            {"ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
             "livenessProbe": {"grpc": {"port": 1}}},
        ]}});
        defaults(pods, &mut pod);
        assert_eq!(
            pod,
            crate::document!({"spec": {"containers": [
                {"ports": [{"containerPort": 80, "protocol": "TCP"},
                           {"containerPort": 53, "protocol": "UDP"}],
                 "livenessProbe": {"grpc": {"port": 1, "service": ""}}},
            ]}})
        );
    }

    #[test]
    fn empty_lists_that_are_always_there_are_stored_as_null() {
        let roles = catalogue::built_in()
            .find("rbac.authorization.k8s.io", "v1", "roles")
            .unwrap();
        let mut role = crate::document!({"metadata": {"name": "r"}, "rules": []});
        forget_empty(roles, &mut role);
        assert_eq!(role.get("rules"), Some(&Value::Null));
        let mut role = crate::document!({"rules": [{"verbs": ["get"], "resources": []}]});
        forget_empty(roles, &mut role);
        assert_eq!(role, crate::document!({"rules": [{"verbs": ["get"]}]}));
    }

    #[test]
    fn zero_values_appear_and_disappear_as_in_go() {
        let definition = table().definition("io.k8s.api.core.v1.Pod").unwrap();
        let mut pod = crate::document!({
            "metadata": {"name": "a", "labels": {}, "generation": 0},
            "spec": {"hostNetwork": false, "terminationGracePeriodSeconds": 0, "volumes": [],
                "containers": [{"image": "i", "env": [
                    {"name": "x", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                ]}]},
        });
        normalise(definition, &mut pod);
        assert_eq!(
            pod,
            crate::document!({
                "metadata": {"name": "a", "labels": {}},
                "spec": {"terminationGracePeriodSeconds": 0, "volumes": [],
                    "containers": [{"name": "", "image": "i", "resources": {}, "env": [
                        {"name": "x", "valueFrom": {"resourceFieldRef":
                            {"resource": "limits.cpu", "divisor": "0"}}},
                    ]}]},
                "status": {},
            })
        );
    }
}
