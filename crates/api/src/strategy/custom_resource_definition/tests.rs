//! Definitions that are accepted and refused.

use super::*;
use crate::document;

const STRATEGY: CustomResourceDefinition = CustomResourceDefinition { expressions: None };

fn definition() -> Value {
    document!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"color": {"type": "string"}}},
                }},
            }}],
        },
    })
}

fn prepared(mut definition: Value) -> Value {
    STRATEGY.default(&mut definition);
    STRATEGY.prepare_create(&mut definition);
    definition
}

fn texts(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn check(change: impl FnOnce(&mut Value), expected: &[&str]) {
    let mut object = definition();
    change(&mut object);
    assert_eq!(texts(STRATEGY.validate_create(&prepared(object))), expected);
}

fn schema_of(object: &mut Value, index: usize) -> &mut Value {
    let version = &mut object.list_at_mut(&["spec", "versions"])[index];
    version
        .at_mut(&["schema", "openAPIV3Schema"])
        .expect("a schema")
}

#[test]
fn what_is_left_out_is_filled_in() {
    let object = prepared(definition());
    assert_eq!(object.str_at(&["spec", "names", "singular"]), "widget");
    assert_eq!(object.str_at(&["spec", "names", "listKind"]), "WidgetList");
    assert_eq!(object.str_at(&["spec", "conversion", "strategy"]), "None");
    assert_eq!(
        object.at(&["status", "storedVersions"]),
        Some(&document!(["v1"]))
    );
    assert_eq!(object.i64_at(&["metadata", "generation"]), Some(1));
    assert_eq!(STRATEGY.validate_create(&object), []);
}

#[test]
fn names_and_scope_are_checked() {
    check(
        |object| object.set(&["metadata", "name"], "x.example.com"),
        &[
            "metadata.name: Invalid value: \"x.example.com\": must be spec.names.plural+\".\"+spec.group",
        ],
    );
    check(
        |object| object.set(&["spec", "scope"], "Everywhere"),
        &[
            "spec.scope: Unsupported value: \"Everywhere\": supported values: \"Cluster\", \"Namespaced\"",
        ],
    );
    check(
        |object| object.set(&["spec", "names", "listKind"], "Widget"),
        &["spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same"],
    );
    check(
        |object| {
            object.set(&["spec", "group"], "widgets.k8s.io");
            object.set(&["metadata", "name"], "widgets.widgets.k8s.io");
        },
        &[
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must \
             have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        ],
    );
}

#[test]
fn the_first_version_is_named_twice_and_generated_names_are_refused() {
    const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
                         start with an alphabetic character, and end with an alphanumeric character \
                         (e.g. 'my-name',  or 'abc-123', regex used for validation is \
                         '[a-z]([-a-z0-9]*[a-z0-9])?')";
    check(
        |object| object.list_at_mut(&["spec", "versions"])[0].set(&["name"], "V1"),
        &[
            &format!("spec.versions[0].name: Invalid value: \"V1\": {LABEL}"),
            &format!("spec.version: Invalid value: \"V1\": {LABEL}"),
        ],
    );
    check(
        |object| object.set(&["metadata", "generateName"], "widgets-"),
        &[
            "metadata.generateName: Invalid value: \"widgets-\": must be spec.names.plural+\".\"+spec.group",
        ],
    );
}

#[test]
fn schemas_that_all_versions_share_are_named_validation() {
    let spoil = |object: &mut Value, index: usize| {
        let path = ["properties", "spec", "properties", "color", "type"];
        schema_of(object, index).set(&path, "colour");
    };
    let second = |object: &mut Value| {
        let mut version = object.list_at(&["spec", "versions"])[0].clone();
        version.set(&["name"], "v2");
        version.set(&["storage"], false);
        let mut versions = object.list_at(&["spec", "versions"]).to_vec();
        versions.push(version);
        object.set(&["spec", "versions"], versions);
    };
    let supported = "Unsupported value: \"colour\": supported values: \"array\", \"boolean\", \
                     \"integer\", \"number\", \"object\", \"string\"";
    let below = "openAPIV3Schema.properties[spec].properties[color].type";
    check(
        |object| spoil(object, 0),
        &[&format!("spec.validation.{below}: {supported}")],
    );
    check(
        |object| {
            second(object);
            spoil(object, 1);
        },
        &[&format!("spec.versions[1].schema.{below}: {supported}")],
    );
}

#[test]
fn schema_rules_have_upstreams_words() {
    let at = "spec.validation.openAPIV3Schema";
    check(
        |object| schema_of(object, 0).set(&["nullable"], true),
        &[&format!(
            "{at}.nullable: Forbidden: nullable cannot be true at the root"
        )],
    );
    let list = document!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object",
            "properties": {"name": {"type": "string"}}}});
    check(
        |object| schema_of(object, 0).set(&["properties", "list"], list),
        &[&format!(
            "{at}.properties[list].items.properties[name].default: Required value: this property is \
             in x-kubernetes-list-map-keys, so it must have a default or be a required property"
        )],
    );
    let color = document!({"type": "string", "default": 1});
    check(
        |object| schema_of(object, 0).set(&["properties", "color"], color),
        &[&format!(
            "{at}.properties[color].default: Invalid value: \"integer\":  in body must be of type \
             string: \"integer\""
        )],
    );
    let rules = document!([{"rule": " ", "reason": "Bad", "fieldPath": ".nothing"}]);
    check(
        |object| {
            let path = ["properties", "spec", "x-kubernetes-validations"];
            schema_of(object, 0).set(&path, rules);
        },
        &[
            &format!(
                "{at}.properties[spec].x-kubernetes-validations[0].rule: Required value: rule is not \
                 specified"
            ),
            &format!(
                "{at}.properties[spec].x-kubernetes-validations[0].reason: Unsupported value: \
                 \"Bad\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \
                 \"FieldValueInvalid\", \"FieldValueRequired\""
            ),
            &format!(
                "{at}.properties[spec].x-kubernetes-validations[0].fieldPath: Invalid value: \
                 \".nothing\": must be a valid path"
            ),
        ],
    );
}

#[test]
fn established_kinds_keep_their_names_and_stored_versions_stay() {
    let old = {
        let mut old = prepared(definition());
        let established = document!([{"type": "Established", "status": "True"}]);
        old.set(&["status", "conditions"], established);
        old
    };
    let mut new = old.clone();
    new.set(&["spec", "scope"], "Cluster");
    new.set(&["spec", "names", "kind"], "Gadget");
    assert_eq!(
        texts(STRATEGY.validate_update_content(&new, &old, "")),
        [
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "spec.names.kind: Invalid value: \"Gadget\": field is immutable",
        ]
    );
    let mut new = old.clone();
    new.list_at_mut(&["spec", "versions"])[0].set(&["name"], "v2");
    STRATEGY.prepare_update(&mut new, &old, "");
    assert_eq!(
        new.at(&["status", "storedVersions"]),
        Some(&document!(["v1", "v2"]))
    );
    assert_eq!(new.i64_at(&["metadata", "generation"]), Some(2));
    assert_eq!(
        texts(STRATEGY.validate_update_content(&new, &old, "")),
        [
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was \
             previously a storage version, and must remain in spec.versions until a storage \
             migration ensures no data remains persisted in v1 and removes v1 from \
             status.storedVersions"
        ]
    );
}

#[test]
fn an_update_is_not_held_to_what_was_wrong_before() {
    let spoil = |object: &mut Value| {
        let list = document!({"type": "array", "x-kubernetes-list-type": "set", "items": {
            "type": "object", "properties": {"a": {"type": "string"}}}});
        schema_of(object, 0).set(&["properties", "list"], list);
    };
    let (mut old, mut new) = (prepared(definition()), prepared(definition()));
    spoil(&mut new);
    assert_eq!(STRATEGY.validate_update_content(&new, &old, "").len(), 1);
    spoil(&mut old);
    assert_eq!(STRATEGY.validate_update_content(&new, &old, ""), []);
}

#[test]
fn formats_that_mean_nothing_are_warned_of_once() {
    let mut object = definition();
    let color = ["properties", "spec", "properties", "color", "format"];
    schema_of(&mut object, 0).set(&color, "colour");
    assert_eq!(
        STRATEGY.warnings(&object, None, ""),
        ["unrecognized format \"colour\""]
    );
    assert!(STRATEGY.warnings(&object, Some(&object), "").is_empty());
}

#[test]
fn selectable_fields_are_few_and_scalar() {
    let at = "spec.selectableFields[0].jsonPath: Invalid value";
    let with = |path: &str| {
        let mut object = definition();
        let fields = document!([{"jsonPath": path}]);
        object.list_at_mut(&["spec", "versions"])[0].set(&["selectableFields"], fields);
        texts(STRATEGY.validate_create(&prepared(object)))
    };
    assert!(with(".spec.color").is_empty());
    assert_eq!(
        with(".spec.nothing"),
        [format!(
            "{at}: \".spec.nothing\": is an invalid path: does not refer to a valid field"
        )]
    );
    assert_eq!(
        with(".spec"),
        [format!(
            "{at}: \".spec\": must point to a field of type string, boolean or integer. Enum string \
         fields and strings with formats are allowed."
        )]
    );
}

#[test]
fn a_warning_of_odd_bytes_is_shown_as_json() {
    check(
        |object| {
            let version = &mut object.list_at_mut(&["spec", "versions"])[0];
            version.set(&["deprecated"], true);
            version.set(&["deprecationWarning"], "a\u{1}<b");
        },
        &[
            "spec.versions[0].deprecationWarning: Invalid value: \"a\\u0001\\u003cb\": must only \
             contain printable UTF-8 characters; non-printable character found at index 1",
        ],
    );
}

#[test]
fn an_empty_list_of_versions_is_shown_as_such() {
    let resource = crate::catalogue::built_in()
        .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        .expect("served")
        .clone();
    let mut object = prepared(definition());
    object.set(&["spec", "versions"], Vec::<Value>::new());
    let empties = crate::schema::forget_empty(&resource, &mut object);
    let errors = empties.shown_in(STRATEGY.validate_create(&object));
    let shown = "spec.versions: Invalid value: []: must have exactly one version marked as storage \
                 version";
    assert!(
        texts(errors.clone()).contains(&shown.to_string()),
        "{errors:?}"
    );
}

#[test]
fn a_default_is_judged_by_a_type_that_there_is_not() {
    check(
        |object| {
            let schema = schema_of(object, 0);
            schema.set(
                &["properties", "spec"],
                crate::document!({"type": "object", "properties": {
                "a": {"type": "other", "default": "x"}}}),
            );
        },
        &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].default: Invalid value: \
             \"string\":  in body must be of type other: \"string\"",
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].type: Unsupported value: \
             \"other\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \
             \"string\"",
        ],
    );
}
