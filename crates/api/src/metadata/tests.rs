//! Tests of the metadata rules.

use super::*;
use crate::document;

fn texts(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(FieldError::to_string).collect()
}

#[test]
fn name_formats() {
    let check = |rule: NameRule, name: &str, prefix: bool, wrong: usize| {
        let found = rule.check(name, prefix);
        assert_eq!(found.len(), wrong, "{rule:?} {name}: {found:?}");
    };
    check(NameRule::DnsSubdomain, "a.b-c", false, 0);
    check(NameRule::DnsSubdomain, "A", false, 1);
    check(NameRule::DnsSubdomain, "a-", false, 1);
    check(NameRule::DnsSubdomain, "a-", true, 0);
    check(NameRule::DnsSubdomain, "a..b", false, 1);
    check(NameRule::DnsSubdomain, &"a".repeat(253), false, 0);
    check(NameRule::DnsSubdomain, &"a".repeat(254), false, 1);
    check(NameRule::DnsLabel, "1a", false, 0);
    check(NameRule::DnsLabel, &"a".repeat(64), false, 1);
    check(NameRule::Dns1035Label, "1a", false, 1);
    check(NameRule::Dns1035Label, "a1", false, 0);
    check(NameRule::PathSegment, "system:node", false, 0);
    check(NameRule::PathSegment, "a/b%", false, 2);
    check(NameRule::PathSegment, "..", false, 1);
    assert_eq!(
        NameRule::DnsLabel.check("a.b", false),
        ["must not contain dots"]
    );
}

#[test]
fn label_keys_and_values() {
    let check = |key: &str, wrong: usize| {
        let found = names::qualified_name(key);
        assert_eq!(found.len(), wrong, "{key}: {found:?}");
    };
    check("app", 0);
    check("example.com/App_1.x", 0);
    check("/app", 1);
    check("Example.com/app", 1);
    check("a/b/c", 1);
    check("", 2);
    check(&"a".repeat(64), 1);
    assert!(names::label_value("").is_empty());
    assert_eq!(names::label_value("a b").len(), 1);
    assert_eq!(names::label_value(&"a".repeat(64)).len(), 1);
}

#[test]
fn a_bad_name_is_answered_as_upstream_does() {
    let object = document!({"metadata": {"name": "Web_1", "namespace": "default"}});
    assert_eq!(
        texts(validate(&object, Rules::new(true, NameRule::DnsSubdomain))),
        [
            r#"metadata.name: Invalid value: "Web_1": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#
        ]
    );
}

#[test]
fn metadata_of_new_objects() {
    let check = |metadata: Value, namespaced: bool, expected: &[&str]| {
        let object = document!({"metadata": metadata});
        let found = texts(validate(
            &object,
            Rules::new(namespaced, NameRule::DnsSubdomain),
        ));
        assert_eq!(found, expected, "{object}");
    };
    check(document!({"name": "a", "namespace": "b"}), true, &[]);
    check(
        document!({}),
        true,
        &[
            "metadata.name: Required value: name or generateName is required",
            "metadata.namespace: Required value",
        ],
    );
    check(
        document!({"name": "a", "namespace": "b"}),
        false,
        &["metadata.namespace: Forbidden: not allowed on this type"],
    );
    check(
        document!({"name": "a", "annotations": {"big": "x".repeat(256 * 1024)}}),
        false,
        &["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
    check(
        document!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}),
        false,
        &[
            r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#,
        ],
    );
    check(
        document!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod"}]}),
        false,
        &[
            r#"metadata.ownerReferences.name: Invalid value: "": must not be empty"#,
            r#"metadata.ownerReferences.uid: Invalid value: "": must not be empty"#,
        ],
    );
    let owner = |name: &str| {
        document!({
            "apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true,
        })
    };
    let object =
        document!({"metadata": {"name": "a", "ownerReferences": [owner("x"), owner("y")]}});
    let found = texts(validate(&object, Rules::new(false, NameRule::DnsSubdomain)));
    assert!(
        found[0].ends_with("Found \"true\" in references for Pod/x and Pod/y"),
        "{found:?}"
    );
}

#[test]
fn what_an_update_may_not_change() {
    let old = document!({"metadata": {
        "name": "a", "namespace": "b", "uid": "u", "creationTimestamp": "t", "generation": 3,
    }});
    let mut new = document!({"metadata": {
        "name": "a", "namespace": "b", "creationTimestamp": "other", "generation": 9,
        "resourceVersion": "1",
    }});
    carry_over(&mut new, &old);
    assert_eq!(new.str_at(&["metadata", "uid"]), "u");
    assert_eq!(new.str_at(&["metadata", "creationTimestamp"]), "t");
    assert_eq!(new.i64_at(&["metadata", "generation"]), Some(3));
    assert_eq!(validate_update(&new, &old), []);

    new.set(&["metadata", "uid"], "v");
    new.remove(&["metadata", "resourceVersion"]);
    assert_eq!(
        texts(validate_update(&new, &old)),
        [
            r#"metadata.resourceVersion: Invalid value: "": must be specified for an update"#,
            r#"metadata.uid: Invalid value: "v": field is immutable"#,
        ]
    );
}

#[test]
fn no_new_finalizers_once_deleted() {
    let old = document!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"]}});
    let new = document!({"metadata": {
        "deletionTimestamp": "t", "finalizers": ["a/b", "c/d"], "resourceVersion": "1",
    }});
    assert_eq!(
        texts(validate_update(&new, &old)),
        [
            r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"c/d"}"#
        ]
    );
}
