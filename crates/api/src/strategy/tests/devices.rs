//! Device classes, claims and slices, and runtime classes.

use super::{made, strategy, texts};
use crate::document;
use crate::document::Value;

const GROUP: &str = "resource.k8s.io";

fn check(kind: &str, object: Value, expected: &[&str]) {
    let (_, errors) = made(GROUP, kind, object.clone());
    assert_eq!(errors, expected, "{object}");
}

#[test]
fn invalid_resource_claims_are_rejected() {
    let (claim, errors) = made(
        GROUP,
        "ResourceClaim",
        document!({"spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu"}},
        ]}}}),
    );
    assert!(errors.is_empty(), "{errors:?}");
    let request = &claim.list_at(&["spec", "devices", "requests"])[0];
    assert_eq!(request.i64_at(&["exactly", "count"]), Some(1));
    check(
        "ResourceClaim",
        document!({"spec": {"devices": {
            "requests": [
                {"name": "a", "exactly": {"deviceClassName": "", "selectors": [{}]}},
                {"name": "b"},
            ],
            "constraints": [{"requests": ["c"], "matchAttribute": "model"}],
        }}}),
        &[
            "spec.devices.requests[0].exactly.deviceClassName: Required value",
            "spec.devices.requests[0].exactly.selectors[0].cel: Required value",
            "spec.devices.requests[1]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            r#"spec.devices.constraints[0].requests[0]: Invalid value: "c": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#,
            r#"spec.devices.constraints[0].matchAttribute: Invalid value: "model": a fully qualified name must be a domain and a name separated by a slash"#,
        ],
    );
}

#[test]
fn invalid_resource_claim_statuses_are_rejected() {
    let claims = strategy(GROUP, "ResourceClaim");
    let (old, _) = made(
        GROUP,
        "ResourceClaim",
        document!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu"}},
        ]}}}),
    );
    let mut new = old.clone();
    new.set(
        &["status"],
        document!({
            "allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "x"},
            ]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        }),
    );
    assert!(
        claims
            .validate_update_content(&new, &old, "status")
            .is_empty()
    );
    let mut report = new.clone();
    report.set(
        &["status", "devices"],
        document!([{"driver": "d.example.com", "pool": "p", "device": "other"}]),
    );
    let errors = texts(claims.validate_update_content(&report, &new, "status"));
    assert_eq!(
        errors,
        [
            r#"status.devices[0]: Invalid value: "d.example.com/p/other": must be an allocated device in the claim"#
        ]
    );
    // A device that is given back takes its report with it.
    let mut released = new.clone();
    released.remove(&["status", "allocation"]);
    released.set(
        &["status", "devices"],
        document!([{"driver": "d.example.com", "pool": "p", "device": "x"}]),
    );
    claims.prepare_update(&mut released, &new, "status");
    assert_eq!(released.at(&["status", "devices"]), None);
}

#[test]
fn invalid_resource_slices_are_rejected() {
    check(
        "ResourceSlice",
        document!({"spec": {"driver": "d.example.com", "pool": {"name": "p", "resourceSliceCount": 0}}}),
        &[
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ],
    );
    check(
        "ResourceSlice",
        document!({"spec": {
            "driver": "d.example.com", "allNodes": true, "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [{"name": "x", "attributes": {"v": {"version": "1.2"}, "none": {}}}],
        }}),
        &[
            r#"spec.devices[0].attributes[none]: Invalid value: "": exactly one value must be specified"#,
            r#"spec.devices[0].attributes[v].version: Invalid value: "1.2": must be a string compatible with semver.org spec 2.0.0"#,
        ],
    );
}

#[test]
fn invalid_runtime_classes_are_rejected() {
    let (_, errors) = made(
        "node.k8s.io",
        "RuntimeClass",
        document!({"handler": "", "scheduling": {"tolerations": [
            {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Exists"},
        ]}}),
    );
    assert_eq!(
        errors,
        [
            "handler: Required value",
            r#"scheduling.tolerations[1]: Duplicate value: {"Key":"a","Operator":"Exists","Value":"","Effect":"","TolerationSeconds":null}"#,
        ]
    );
}

/// The error of a class with one selector.
fn selector_errors(expression: &str) -> Vec<String> {
    let class = document!({"spec": {"selectors": [{"cel": {"expression": expression}}]}});
    made(GROUP, "DeviceClass", class).1
}

#[test]
fn device_selectors_are_compiled() {
    for good in [
        r#"device.driver == "gpu.example.com""#,
        r#"device.attributes["gpu.example.com"].model in ["(", ")"] && !(1 > 2)"#,
        // An attribute of unknown type, which may be a bool.
        r#"device.attributes["gpu.example.com"].isGood"#,
        r#"device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("1Gi"))"#,
        r#"cel.bind(dra, device.attributes["a.io"], dra.one && dra.other)"#,
        "device.allowMultipleAllocations",
    ] {
        assert_eq!(selector_errors(good), [""; 0], "{good}");
    }
    let place = "spec.selectors[0].cel.expression";
    assert_eq!(
        selector_errors("device.driver"),
        [format!(
            "{place}: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not string"
        )]
    );
    let undefined = selector_errors("device.noSuchField == true");
    assert_eq!(undefined.len(), 1, "{undefined:?}");
    let begin = format!(
        "{place}: Invalid value: \"device.noSuchField == true\": compilation failed: ERROR: <input>:1:7: undefined field 'noSuchField'"
    );
    assert!(undefined[0].starts_with(&begin), "{undefined:?}");
    let syntax = selector_errors("(device.driver");
    assert!(
        syntax[0].contains("compilation failed: ERROR: <input>:1:15: Syntax error"),
        "{syntax:?}"
    );
    let empty = selector_errors("");
    assert!(empty[0].contains("compilation failed: ERROR"), "{empty:?}");
}

#[test]
fn device_selectors_are_bounded_in_length_and_cost() {
    let place = "spec.selectors[0].cel.expression";
    let long = format!("device.driver == \"{}\"", "x".repeat(10 * 1024));
    assert_eq!(
        selector_errors(&long),
        [format!(
            "{place}: Too long: may not be more than 10240 bytes"
        )]
    );
    let nested = "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, \
        device.attributes.all(d, device.attributes.all(e, a == b && c == d && d == e)))))";
    assert_eq!(
        selector_errors(nested),
        [format!(
            "{place}: Forbidden: too complex, exceeds cost limit"
        )]
    );
}

#[test]
fn selectors_of_requests_are_compiled_where_they_are() {
    check(
        "ResourceClaim",
        document!({"spec": {"devices": {"requests": [{"name": "a", "firstAvailable": [{
            "name": "b", "deviceClassName": "gpu",
            "selectors": [{"cel": {"expression": "1"}}],
        }]}]}}}),
        &[
            r#"spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int"#,
        ],
    );
    let template = document!({"spec": {"spec": {"devices": {"requests": [{"name": "a", "exactly": {
        "deviceClassName": "gpu", "selectors": [{"cel": {"expression": "1"}}],
    }}]}}}});
    check(
        "ResourceClaimTemplate",
        template,
        &[
            r#"spec.spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int"#,
        ],
    );
}
