//! Definitions for the tests of custom kinds, and waiting for what becomes of them.

use api::Value;

use crate::harness::Client;

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Widgets of example.com in version v1, with a status, a scale and a few fields.
pub fn widgets() -> Value {
    definition("example.com", "widgets", "Widget")
}

pub fn definition(group: &str, plural: &str, kind: &str) -> Value {
    api::document!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List"),
            },
            "conversion": {"strategy": "None"},
            "versions": [version("v1", true)],
        },
    })
}

pub fn version(name: &str, storage: bool) -> Value {
    api::document!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {
            "type": "object", "description": "A widget.",
            "properties": {
                "spec": {"type": "object", "description": "What is wanted.", "properties": {
                    "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                    "replicas": {"type": "integer", "minimum": 0},
                    "ports": {
                        "type": "array", "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "number": {"type": "integer"},
                        }},
                    },
                }},
                "status": {"type": "object", "properties": {
                    "ready": {"type": "boolean"}, "replicas": {"type": "integer"},
                }},
            },
        }},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            },
        },
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "additionalPrinterColumns": [
            {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        ],
    })
}

pub fn widget(name: &str, spec: Value) -> Value {
    let mut widget = api::document!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
    });
    widget.set(&["spec"], spec);
    widget
}

pub fn condition(definition: &Value, kind: &str) -> (String, String) {
    let conditions = definition.list_at(&["status", "conditions"]).iter();
    let mut found = conditions.filter(|one| one.str_at(&["type"]) == kind);
    let text = |one: &Value, field| one.str_at(&[field]).to_string();
    let found = found.next();
    found.map_or_else(Default::default, |one| {
        (text(one, "status"), text(one, "reason"))
    })
}

/// Creates a definition and waits until its kind is established.
pub async fn establish(admin: &Client, definition: &Value) -> Value {
    let created = admin.post(DEFINITIONS, definition).await.expect(201);
    let name = definition.str_at(&["metadata", "name"]);
    let version = created.str_at(&["metadata", "resourceVersion"]);
    let selected = format!("fieldSelector=metadata.name={name}&resourceVersion={version}");
    let mut events = admin
        .watch(&format!("{DEFINITIONS}?watch=true&{selected}"))
        .await;
    while let Some((_, definition)) = events.next().await {
        if condition(&definition, "Established").0 == "True" {
            return definition;
        }
    }
    panic!("the watch of {name} ended");
}

/// The definition, once it is as wanted.
pub async fn wait_for(admin: &Client, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let path = format!("{DEFINITIONS}?watch=true&fieldSelector=metadata.name={name}");
    let mut events = admin.watch(&path).await;
    while let Some((event, definition)) = events.next().await {
        if event != "DELETED" && is_so(&definition) {
            return definition;
        }
    }
    panic!("the watch of {name} ended");
}

/// Waits until the definition is gone.
pub async fn wait_until_gone(admin: &Client, name: &str) {
    let path = format!("{DEFINITIONS}?watch=true&fieldSelector=metadata.name={name}");
    let mut events = admin.watch(&path).await;
    if admin.get(&format!("{DEFINITIONS}/{name}")).await.code == 404 {
        return;
    }
    while let Some((event, _)) = events.next().await {
        if event == "DELETED" {
            return;
        }
    }
    panic!("the watch of {name} ended");
}
