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
