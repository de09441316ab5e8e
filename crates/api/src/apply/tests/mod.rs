//! Worked examples, one per rule.

use super::*;
use crate::catalogue;
use crate::document;

mod random;
mod updates;

pub(super) fn resource(plural: &str) -> &'static Resource {
    let group = match plural {
        "deployments" => "apps",
        _ => "",
    };
    catalogue::built_in().find(group, "v1", plural).unwrap()
}

pub(super) fn time(second: u32) -> String {
    format!("2030-01-01T00:00:{second:02}Z")
}

/// Applies as `manager`, conforming the result as the server does.
pub(super) fn applied(
    plural: &str,
    live: Option<&Value>,
    configuration: &Value,
    manager: &str,
    force: bool,
) -> Result<Value, Status> {
    let write = Write::new(resource(plural), "", manager, time(1));
    let object = apply(&write, live, configuration, force)?;
    let definition = schema::table()
        .definition(resource(plural).definition.name())
        .unwrap();
    let mut object = schema::conform(definition, object).unwrap().0;
    schema::forget_empty(resource(plural), &mut object);
    Ok(object)
}

/// The fields of a manager, or null.
pub(super) fn fields_of(object: &Value, manager: &str) -> Value {
    object
        .list_at(&MANAGED_FIELDS)
        .iter()
        .find(|entry| entry.str_at(&["manager"]) == manager)
        .and_then(|entry| entry.get("fieldsV1").cloned())
        .unwrap_or_default()
}

fn map(data: Value) -> Value {
    document!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn web(containers: Value) -> Value {
    document!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}},
    })
}

#[test]
fn an_applier_owns_what_it_applies() {
    let live = applied(
        "configmaps",
        None,
        &map(document!({"a": "1"})),
        "one",
        false,
    )
    .unwrap();
    assert_eq!(
        live.at(&MANAGED_FIELDS),
        Some(&document!([{
            "apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "one", "operation": "Apply",
            "time": time(1), "fieldsV1": {"f:data": {"f:a": {}}},
        }]))
    );
}

#[test]
fn fields_given_up_go_unless_others_own_them() {
    let first = map(document!({"a": "1", "b": "2", "c": "3"}));
    let live = applied("configmaps", None, &first, "one", false).unwrap();
    let live = applied(
        "configmaps",
        Some(&live),
        &map(document!({"b": "2"})),
        "two",
        false,
    )
    .unwrap();
    let live = applied(
        "configmaps",
        Some(&live),
        &map(document!({"c": "3"})),
        "one",
        false,
    )
    .unwrap();
    assert_eq!(live.get("data"), Some(&document!({"b": "2", "c": "3"})));
    assert_eq!(fields_of(&live, "one"), document!({"f:data": {"f:c": {}}}));
    assert_eq!(fields_of(&live, "two"), document!({"f:data": {"f:b": {}}}));
}

#[test]
fn a_conflict_names_owner_and_field() {
    let live = applied(
        "configmaps",
        None,
        &map(document!({"a": "1", "b": "1"})),
        "one",
        false,
    )
    .unwrap();
    let other = map(document!({"a": "2"}));
    let status = applied("configmaps", Some(&live), &other, "two", false).unwrap_err();
    assert_eq!(status.reason, Reason::Conflict);
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"one\": .data.a"
    );
    let causes = status.details.unwrap().causes;
    assert_eq!(causes[0].reason, "FieldManagerConflict");
    assert_eq!(causes[0].message, "conflict with \"one\"");
    assert_eq!(causes[0].field, ".data.a");

    let both = map(document!({"a": "2", "b": "2"}));
    let status = applied("configmaps", Some(&live), &both, "two", false).unwrap_err();
    assert_eq!(
        status.message,
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b"
    );
    // The same value is no conflict: both own it.
    let same = map(document!({"a": "1"}));
    let shared = applied("configmaps", Some(&live), &same, "two", false).unwrap();
    assert_eq!(
        fields_of(&shared, "two"),
        document!({"f:data": {"f:a": {}}})
    );
    assert_eq!(
        fields_of(&shared, "one"),
        document!({"f:data": {"f:a": {}, "f:b": {}}})
    );
}

#[test]
fn force_takes_the_field() {
    let live = applied(
        "configmaps",
        None,
        &map(document!({"a": "1", "b": "1"})),
        "one",
        false,
    )
    .unwrap();
    let other = map(document!({"a": "2"}));
    let live = applied("configmaps", Some(&live), &other, "two", true).unwrap();
    assert_eq!(live.get("data"), Some(&document!({"a": "2", "b": "1"})));
    assert_eq!(fields_of(&live, "one"), document!({"f:data": {"f:b": {}}}));
}

#[test]
fn lists_with_keys_merge_by_item() {
    let one = web(document!([{"name": "a", "image": "x",
        "ports": [{"containerPort": 80}], "args": ["1", "2"]}]));
    let live = applied("deployments", None, &one, "one", false).unwrap();
    let fields = fields_of(&live, "one");
    let containers = ["f:spec", "f:template", "f:spec", "f:containers"];
    assert_eq!(
        fields.at(&containers),
        Some(&document!({"k:{\"name\":\"a\"}": {
            ".": {}, "f:args": {}, "f:image": {}, "f:name": {},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":
                {".": {}, "f:containerPort": {}}},
        }}))
    );
    // An atomic map is one field.
    assert_eq!(fields.at(&["f:spec", "f:selector"]), Some(&document!({})));

    let two = web(document!([{"name": "b", "image": "y"}]));
    let live = applied("deployments", Some(&live), &two, "two", false).unwrap();
    let names = |object: &Value| -> Vec<String> {
        let path = ["spec", "template", "spec", "containers"];
        let containers = object.list_at(&path).iter();
        containers
            .map(|c| c.str_at(&["name"]).to_string())
            .collect()
    };
    assert_eq!(names(&live), ["a", "b"]);
    // The first applier gives up its container; the other one's stays.
    let mut without = one.clone();
    without.remove(&["spec", "template", "spec", "containers"]);
    let live = applied("deployments", Some(&live), &without, "one", false).unwrap();
    assert_eq!(names(&live), ["b"]);
}

#[test]
fn shared_items_come_in_the_order_of_the_configuration() {
    let item = |name: &str| document!({"name": name, "image": "x"});
    let live = web(document!([item("a"), item("b"), item("c")]));
    let configuration = web(document!([item("c"), item("d"), item("a")]));
    let place = Place::Declared(Shape::of(resource("deployments").definition.name()).unwrap());
    let merged = merge::merge(place, Some(&live), Some(&configuration)).unwrap();
    let path = ["spec", "template", "spec", "containers"];
    let names: Vec<&str> = merged
        .list_at(&path)
        .iter()
        .map(|c| c.str_at(&["name"]))
        .collect();
    assert_eq!(names, ["b", "c", "d", "a"]);
}

#[test]
fn schema_errors_have_the_wording_of_upstream() {
    let check = |configuration: Value, expected: &str| {
        let status = applied("deployments", None, &configuration, "one", false).unwrap_err();
        assert_eq!(status.reason, Reason::Unknown);
        let prefix = "failed to create typed patch object (/web; apps/v1, Kind=Deployment): ";
        assert_eq!(status.message, format!("{prefix}{expected}"));
    };
    let mut unknown = web(document!([]));
    unknown.set(&["spec", "replicaz"], 1);
    check(unknown, ".spec.replicaz: field not declared in schema");
    let mut wrong = web(document!([{"name": "a", "image": 8080}]));
    let at = ".spec.template.spec.containers[name=\"a\"].image";
    check(
        wrong.clone(),
        &format!("{at}: expected string, got &value.valueUnstructured{{Value:8080}}"),
    );
    wrong.set(&["spec", "replicas"], "three");
    check(
        wrong,
        &format!(
            "errors:\n  .spec.replicas: expected numeric (int or float), got string\n  {at}: expected string, got &value.valueUnstructured{{Value:8080}}"
        ),
    );
    let twice = web(document!([{"name": "a"}, {"name": "a"}]));
    let list = ".spec.template.spec.containers";
    check(
        twice,
        &format!("{list}: duplicate entries for key [name=\"a\"]"),
    );
    check(
        web(document!({"a": 1})),
        &format!("{list}: expected list, got &{{map[a:1]}}"),
    );
}

#[test]
fn another_kind_is_refused() {
    let write = Write::new(resource("deployments"), "", "one", time(1));
    let status = apply(&write, None, &map(document!({})), false).unwrap_err();
    assert_eq!(status.message, "invalid object type: /v1, Kind=ConfigMap");
    let mut owned = web(document!([]));
    owned.set(&MANAGED_FIELDS, Vec::new());
    let status = apply(&write, None, &owned, false).unwrap_err();
    assert_eq!(status.message, "metadata.managedFields must be nil");
}

#[test]
fn what_changes_nothing_keeps_its_time() {
    let configuration = map(document!({"a": "1"}));
    let live = applied("configmaps", None, &configuration, "one", false).unwrap();
    let write = Write::new(resource("configmaps"), "", "one", time(9));
    let again = apply(&write, Some(&live), &configuration, false).unwrap();
    assert_eq!(again, live);
}

#[test]
fn what_was_there_before_the_first_apply_has_an_owner() {
    let live = map(document!({"a": "1", "b": "1"}));
    let configuration = map(document!({"a": "2"}));
    let status = applied("configmaps", Some(&live), &configuration, "one", false).unwrap_err();
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
    let forced = applied("configmaps", Some(&live), &configuration, "one", true).unwrap();
    assert_eq!(
        fields_of(&forced, "before-first-apply"),
        document!({"f:data": {".": {}, "f:b": {}}})
    );
}

#[test]
fn kubectl_takes_over_from_its_annotation() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut last = map(document!({"a": "1"}));
    let mut live = last.clone();
    let text = format!("{last}\n");
    live.set(&["metadata", "annotations", annotation], text);
    let write = Write::new(
        resource("configmaps"),
        "",
        "kubectl-client-side-apply",
        time(0),
    );
    let owners = update(&write, None, &mut live);
    live.set(&MANAGED_FIELDS, owners.unwrap());

    last.set(&["data", "a"], "2");
    // Only kubectl itself, and only for what the annotation still tells truly.
    applied("configmaps", Some(&live), &last, "other", false).unwrap_err();
    let taken = applied("configmaps", Some(&live), &last, "kubectl", false).unwrap();
    assert_eq!(taken.str_at(&["data", "a"]), "2");
    let refreshed = taken.str_at(&["metadata", "annotations", annotation]);
    assert_eq!(refreshed, format!("{last}\n"));
    live.set(&["data", "a"], "changed");
    applied("configmaps", Some(&live), &last, "kubectl", false).unwrap_err();
}

#[test]
fn what_became_atomic_is_owned_as_a_whole() {
    let fields = document!({"f:spec": {"f:selector": {"f:matchLabels": {"f:app": {}}}}});
    let place = Place::Declared(Shape::of(resource("deployments").definition.name()).unwrap());
    let set = FieldSet::from_fields(fields).unwrap();
    assert_eq!(
        remove::reconcile(place, set).into_fields(),
        document!({"f:spec": {"f:selector": {}}})
    );
}
