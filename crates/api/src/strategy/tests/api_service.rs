//! APIServices.

use super::super::api_service::ApiService;
use super::texts;
use crate::document;
use crate::document::Value;
use crate::resource::Strategy;

/// A new APIService after defaulting and preparation, and what is wrong with it.
fn made(name: &str, spec: Value) -> (Value, Vec<String>) {
    let mut object = document!({"metadata": {"name": name}, "spec": spec});
    ApiService.default(&mut object);
    ApiService.prepare_create(&mut object);
    ApiService.stamp(&mut object, None, "", "2026-01-01T00:00:00Z");
    let errors = texts(ApiService.validate_create(&object));
    (object, errors)
}

#[test]
fn what_the_server_serves_itself_is_available_at_once() {
    let spec = document!({
        "group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15,
    });
    let (object, errors) = made("v1.apps", spec);
    assert!(errors.is_empty(), "{errors:?}");
    let expected = document!([{
        "type": "Available", "status": "True", "reason": "Local",
        "message": "Local APIServices are always available",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    assert_eq!(object.at(&["status", "conditions"]), Some(&expected));
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = ApiService.cells(&object, now);
    assert_eq!(&cells[1..3], ["Local".into(), "True".into()]);
}

#[test]
fn a_service_has_a_default_port_and_an_unknown_state() {
    let spec = document!({
        "group": "wardle.example.com", "version": "v1alpha1",
        "groupPriorityMinimum": 2000, "versionPriority": 200,
        "service": {"namespace": "wardle", "name": "api"}, "caBundle": "YQ==",
    });
    let (object, errors) = made("v1alpha1.wardle.example.com", spec);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(object.i64_at(&["spec", "service", "port"]), Some(443));
    assert_eq!(object.get("status"), Some(&Value::object()));
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = ApiService.cells(&object, now);
    assert_eq!(&cells[1..3], ["wardle/api".into(), "Unknown".into()]);
    let mut failing = object.clone();
    let condition = document!([
        {"type": "Available", "status": "False", "reason": "MissingEndpoints"},
    ]);
    failing.set(&["status", "conditions"], condition);
    let cells = ApiService.cells(&failing, now);
    assert_eq!(cells[2], "False (MissingEndpoints)".into());
}

#[test]
fn invalid_api_services_are_rejected() {
    let check = |name: &str, spec: Value, expected: &[&str]| {
        let (_, errors) = made(name, spec.clone());
        assert_eq!(errors, expected, "{spec}");
    };
    check(
        "v1.b",
        document!({"group": "a", "version": "v1", "groupPriorityMinimum": 20001,
            "versionPriority": 1001, "caBundle": "YWI=", "insecureSkipTLSVerify": true}),
        &[
            r#"metadata.name: Invalid value: "v1.b": must be `spec.version+"."+spec.group`: "v1.a""#,
            "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
            "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
            r#"spec.caBundle: Invalid value: "2 bytes": local APIServices may not have a caBundle"#,
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
        ],
    );
    check(
        "v2.",
        document!({"version": "v2", "groupPriorityMinimum": 1, "versionPriority": 1,
            "caBundle": "YQ==", "insecureSkipTLSVerify": true, "service": {"port": 70000}}),
        &[
            "spec.group: Required value: only v1 may have an empty group and it better be legacy kube",
            "spec.service.namespace: Required value",
            "spec.service.name: Required value",
            "spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
            "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
        ],
    );
}

#[test]
fn a_status_write_changes_the_status_alone_and_is_checked() {
    let spec = document!({"group": "a", "version": "v1", "groupPriorityMinimum": 1,
        "versionPriority": 1});
    let (old, _) = made("v1.a", spec);
    let mut new = old.clone();
    new.set(&["spec", "versionPriority"], 9);
    new.set(&["metadata", "labels", "x"], "y");
    new.set(
        &["status", "conditions"],
        document!([{"type": "Available", "status": "Maybe"}]),
    );
    ApiService.prepare_update(&mut new, &old, "status");
    assert_eq!(new.at(&["spec"]), old.at(&["spec"]));
    assert_eq!(new.at(&["metadata", "labels"]), None);
    assert_eq!(
        texts(ApiService.validate_update_content(&new, &old, "status")),
        [
            r#"status.conditions[0].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown""#
        ]
    );
}
