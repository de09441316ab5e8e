//! What kubectl looks for in the documents.

use super::*;
use crate::catalogue::built_in;

fn documents() -> &'static Documents {
    static DOCUMENTS: OnceLock<Documents> = OnceLock::new();
    DOCUMENTS.get_or_init(Documents::default)
}

fn kinds() -> Kinds<'static> {
    Kinds {
        snapshot: built_in(),
        declarations: &(),
    }
}

fn parsed(document: &Document) -> Value {
    Value::from_json(&document.body).unwrap()
}

#[test]
fn the_index_leads_to_every_group_version() {
    let index = parsed(&documents().v3_index(kinds()));
    let paths = index.get("paths").unwrap().as_object().unwrap();
    for (path, entry) in paths.iter() {
        let document = &documents().v3(kinds(), path).unwrap();
        assert_eq!(
            entry.str_at(&["serverRelativeURL"]),
            format!("/openapi/v3/{path}?hash={}", document.etag)
        );
    }
    assert!(paths.contains("api/v1") && paths.contains("apis/apps/v1"));
}

#[test]
fn patch_supports_field_validation() {
    let document = parsed(&documents().v3(kinds(), "apis/apps/v1").unwrap());
    let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
    let patch = document.at(&["paths", path, "patch"]).unwrap();
    assert_eq!(
        patch.str_at(&["x-kubernetes-group-version-kind", "kind"]),
        "Deployment"
    );
    assert_eq!(
        patch.str_at(&["operationId"]),
        "patchAppsV1NamespacedDeployment"
    );
    let names: Vec<&str> = patch
        .get("parameters")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| parameter.str_at(&["name"]))
        .collect();
    assert_eq!(
        names,
        ["dryRun", "fieldManager", "fieldValidation", "force"]
    );
}

#[test]
fn schemas_say_how_lists_merge() {
    let document = parsed(&documents().v3(kinds(), "apis/apps/v1").unwrap());
    let schemas = document.at(&["components", "schemas"]).unwrap();
    let containers = schemas
        .at(&["io.k8s.api.core.v1.PodSpec", "properties", "containers"])
        .unwrap();
    let mut containers = containers.clone();
    containers.remove(&["description"]);
    assert_eq!(
        &containers,
        &crate::document!({
            "type": "array",
            "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}], "default": {}},
            "x-kubernetes-list-map-keys": ["name"],
            "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "name",
            "x-kubernetes-patch-strategy": "merge",
        })
    );
    let deployment = schemas.get("io.k8s.api.apps.v1.Deployment").unwrap();
    assert_eq!(
        deployment.get("x-kubernetes-group-version-kind").unwrap(),
        &crate::document!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
    );
}

#[test]
fn every_reference_is_defined() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object.iter() {
                    match value {
                        Value::String(text) if name == "$ref" => found.push(text.clone()),
                        _ => references(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let made = documents();
    let index = parsed(&made.v3_index(kinds()));
    let paths = index.get("paths").unwrap().as_object().unwrap().iter();
    let documents = paths.map(|(path, _)| parsed(&made.v3(kinds(), path).unwrap()));
    let mut all: Vec<Value> = documents.collect();
    all.push(parsed(&made.v2_json(kinds())));
    for document in all {
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let path: Vec<&str> = reference.trim_start_matches("#/").split('/').collect();
            assert!(document.at(&path).is_some(), "{reference}");
        }
    }
}

#[test]
fn the_protobuf_form_begins_with_the_version() {
    let protobuf = documents().v2_protobuf(kinds());
    assert!(protobuf.body.starts_with(b"\x0a\x032.0"));
    assert_ne!(protobuf.etag, documents().v2_json(kinds()).etag);
}

#[test]
fn kubectl_explain_finds_words_for_built_in_kinds() {
    let document = parsed(&documents().v3(kinds(), "api/v1").unwrap());
    let schemas = document.at(&["components", "schemas"]).unwrap();
    let property = |kind: &str, field: &str| {
        let name = format!("io.k8s.api.core.v1.{kind}");
        schemas.at(&[&name, "properties", field]).unwrap().clone()
    };
    let spec = property("Pod", "spec");
    assert!(spec.str_at(&["description"]).contains("desired behavior"));
    // A reference with a default is wrapped already, one without gets wrapped.
    assert_eq!(spec.list_at(&["allOf"]).len(), 1);
    assert_eq!(spec.get("default"), Some(&Value::object()));
    let affinity = property("PodSpec", "affinity");
    assert_eq!(affinity.list_at(&["allOf"]).len(), 1);
    assert!(affinity.get("$ref").is_none());
    let containers = property("PodSpec", "containers");
    assert!(!containers.str_at(&["description"]).is_empty());
    let image = property("Container", "image");
    assert!(
        image
            .str_at(&["description"])
            .starts_with("Container image name.")
    );

    let v2 = parsed(&documents().v2_json(kinds()));
    let name = [
        "definitions",
        "io.k8s.api.core.v1.PodSpec",
        "properties",
        "affinity",
    ];
    let affinity = v2.at(&name).unwrap();
    assert!(
        !affinity.str_at(&["$ref"]).is_empty() && !affinity.str_at(&["description"]).is_empty()
    );
}

#[test]
fn the_openapi_index_is_answered_without_making_documents() {
    let documents = Documents::default();
    documents.v3_index(kinds());
    assert_eq!(locked(&documents.kept).len(), 0);
    let before = documents.v3(kinds(), "apis/apps/v1").unwrap();
    assert_eq!(locked(&documents.kept).len(), 1);
    assert_eq!(
        documents.v3(kinds(), "apis/apps/v1").unwrap().body,
        before.body
    );
}

#[test]
fn every_definition_of_the_built_in_kinds_is_known_by_its_name() {
    let document = parsed(&documents().v2_json(kinds()));
    let mut names = 0;
    for (name, definition) in document.fields_at(&["definitions"]) {
        let known = built_in_definition(name);
        let known = known.unwrap_or_else(|| panic!("{name} is taken for another server's"));
        assert_eq!(
            known.get("properties").is_some(),
            definition.get("properties").is_some()
        );
        names += 1;
    }
    assert!(names > 500, "{names}");
    assert_eq!(built_in_definition("io.example.Other"), None);
}
