//! Tests across kinds, and of kinds with few rules.

use super::*;
use crate::catalogue;
use crate::document;
use crate::document::Value;
use crate::field::FieldError;
use crate::table::{self, IncludeObject};

mod api_service;
mod costs;
mod devices;
mod networking;
mod storage;

fn strategy(group: &str, kind: &str) -> &'static dyn Strategy {
    let resource = catalogue::built_in().find_kind(group, "v1", kind);
    resource
        .unwrap_or_else(|| panic!("{kind} is served"))
        .strategy()
}

fn texts(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(FieldError::to_string).collect()
}

/// A new object after defaulting and preparation, and its validation errors without those of its
/// metadata.
fn made(group: &str, kind: &str, mut object: Value) -> (Value, Vec<String>) {
    let strategy = strategy(group, kind);
    strategy.default(&mut object);
    strategy.prepare_create(&mut object);
    let errors = texts(strategy.validate_content(&object));
    (object, errors)
}

#[test]
fn every_table_row_has_a_cell_for_every_column() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut wrong = Vec::new();
    let shown = catalogue::built_in().resources();
    for resource in shown.filter(|resource| resource.has_verb("get")) {
        let strategy = resource.strategy();
        let mut object = document!({"metadata": {"name": "x"}});
        strategy.default(&mut object);
        let cells = strategy.cells(&object, now).len();
        // Upstream fills a cell with the age here, but defines no column for it.
        let extra = usize::from(resource.kind == "IPAddress");
        let same_scope = strategy.namespaced() == resource.namespaced;
        if cells != resource.columns.len() + extra || !same_scope {
            wrong.push(&resource.kind);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn deployment() -> Value {
    document!({"spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        },
    }})
}

#[test]
fn invalid_deployments_are_rejected() {
    let (object, errors) = made("apps", "Deployment", deployment());
    assert!(errors.is_empty(), "{errors:?}");
    let spec = object.get("spec").unwrap();
    assert_eq!(spec.i64_at(&["replicas"]), Some(1));
    assert_eq!(
        spec.get("strategy"),
        Some(&document!({
            "type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        }))
    );
    assert_eq!(spec.i64_at(&["revisionHistoryLimit"]), Some(10));
    assert_eq!(spec.i64_at(&["progressDeadlineSeconds"]), Some(600));
    assert_eq!(
        spec.str_at(&["template", "spec", "restartPolicy"]),
        "Always"
    );
    assert_eq!(object.i64_at(&["metadata", "generation"]), Some(1));

    let check = |path: &[&str], value: Value, expected: &[&str]| {
        let mut object = deployment();
        object.set(path, value);
        let (_, errors) = made("apps", "Deployment", object);
        assert_eq!(errors, expected);
    };
    check(
        &["spec", "template", "metadata", "labels", "app"],
        "db".into(),
        &[
            r#"spec.template.metadata.labels: Invalid value: {"app":"db"}: `selector` does not match template `labels`"#,
        ],
    );
    check(
        &["spec", "selector"],
        document!({}),
        &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
    );
    check(
        &["spec", "replicas"],
        (-1).into(),
        &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
    );
    check(
        &["spec", "template", "spec", "restartPolicy"],
        "Never".into(),
        &[
            r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#,
        ],
    );
    check(
        &["spec", "strategy"],
        document!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
        &[
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ],
    );
    check(
        &["spec", "strategy"],
        document!({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}),
        &[
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ],
    );
}

#[test]
fn selectors_are_immutable() {
    for kind in ["Deployment", "ReplicaSet"] {
        let (old, _) = made("apps", kind, deployment());
        let mut new = old.clone();
        for path in [
            ["spec", "selector", "matchLabels", "app"].as_slice(),
            &["spec", "template", "metadata", "labels", "app"],
        ] {
            new.set(path, "db");
        }
        let errors = texts(strategy("apps", kind).validate_update_content(&new, &old, ""));
        assert_eq!(
            errors,
            [r#"spec.selector: Invalid value: {"matchLabels":{"app":"db"}}: field is immutable"#]
        );
    }
}

#[test]
fn the_generation_increases_only_with_changes_of_the_desired_state() {
    let deployments = strategy("apps", "Deployment");
    let (old, _) = made("apps", "Deployment", deployment());
    let after = |change: Value, subresource: &str| {
        let mut new = crate::patch::merge_patch(&old, &change);
        deployments.prepare_update(&mut new, &old, subresource);
        new.i64_at(&["metadata", "generation"]).unwrap()
    };
    assert_eq!(after(document!({}), ""), 1);
    assert_eq!(after(document!({"spec": {"replicas": 3}}), ""), 2);
    assert_eq!(
        after(document!({"metadata": {"labels": {"a": "b"}}}), ""),
        1
    );
    assert_eq!(
        after(document!({"metadata": {"annotations": {"a": "b"}}}), ""),
        2
    );
    assert_eq!(after(document!({"status": {"replicas": 3}}), ""), 1);
    assert_eq!(after(document!({"spec": {"replicas": 3}}), "status"), 1);
}

#[test]
fn namespaces_are_defaulted_and_validated() {
    let object = document!({"metadata": {"name": "team"}});
    let (object, errors) = made("", "Namespace", object);
    assert!(errors.is_empty());
    assert_eq!(
        object,
        document!({
            "metadata": {"name": "team", "labels": {"kubernetes.io/metadata.name": "team"}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        })
    );
    let mut new = object.clone();
    new.set(&["spec", "finalizers"], document!([]));
    strategy("", "Namespace").prepare_update(&mut new, &object, "");
    assert_eq!(new.list_at(&["spec", "finalizers"]).len(), 1);
    new.set(&["spec", "finalizers"], document!([]));
    strategy("", "Namespace").prepare_update(&mut new, &object, "finalize");
    assert_eq!(new.list_at(&["spec", "finalizers"]).len(), 0);
}

#[test]
fn invalid_roles_and_bindings_are_rejected() {
    let group = "rbac.authorization.k8s.io";
    let (_, errors) = made(
        group,
        "Role",
        document!({"rules": [{"nonResourceURLs": ["/x"]}]}),
    );
    assert_eq!(
        errors,
        [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            r#"rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
        ]
    );
    let binding = document!({
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}],
    });
    let (old, errors) = made(group, "ClusterRoleBinding", binding);
    assert_eq!(
        errors,
        [
            r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#,
            "subjects[1].namespace: Required value",
        ]
    );
    assert_eq!(old.str_at(&["roleRef", "apiGroup"]), group);
    let mut new = old.clone();
    new.set(&["roleRef", "name"], "other");
    let errors = texts(strategy(group, "RoleBinding").validate_update_content(&new, &old, ""));
    assert!(errors[0].ends_with(": cannot change roleRef"), "{errors:?}");
}

#[test]
fn kinds_have_upstreams_selectable_fields() {
    let names = |group: &str, kind: &str| -> Vec<&str> {
        let fields = strategy(group, kind).selectable_fields(&Value::object());
        fields.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(
        names("", "ConfigMap"),
        ["metadata.name", "metadata.namespace"]
    );
    assert_eq!(names("", "Node"), ["metadata.name", "spec.unschedulable"]);
    assert!(names("", "Pod").contains(&"spec.nodeName"));
    assert!(names("", "Event").contains(&"involvedObject.uid"));
    assert!(names("", "Secret").contains(&"type"));
}

#[test]
fn tables_have_upstreams_columns_and_cells() {
    let resource = catalogue::built_in().find("", "v1", "configmaps").unwrap();
    let now = "2026-01-01T00:05:30Z".parse().unwrap();
    let item = document!({
        "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "data": {"a": "1", "b": "2"},
    });
    let metadata = document!({"resourceVersion": "7"});
    let made = table::render(
        resource,
        &[item],
        &metadata,
        IncludeObject::Metadata,
        true,
        now,
    );
    assert_eq!(made.str_at(&["kind"]), "Table");
    assert_eq!(made.str_at(&["metadata", "resourceVersion"]), "7");
    let names: Vec<&str> = made
        .list_at(&["columnDefinitions"])
        .iter()
        .map(|column| column.str_at(&["name"]))
        .collect();
    assert_eq!(names, ["Name", "Data", "Age"]);
    let row = &made.list_at(&["rows"])[0];
    assert_eq!(row.get("cells"), Some(&document!(["c", 2, "5m30s"])));
    assert_eq!(row.str_at(&["object", "kind"]), "PartialObjectMetadata");
}
