//! Rules, and which hooks a request concerns.

use super::rule::{Attributes, Operation, Rule};
use super::*;

fn rule(document: api::Value) -> Rule {
    Rule::of_document(&document)
}

const POD: Attributes<'static> = Attributes {
    operation: Operation::Create,
    group: "",
    version: "v1",
    plural: "pods",
    subresource: "",
    namespace: "shop",
};

#[test]
fn a_rule_without_a_subresource_is_about_the_object_only() {
    let of = |resource: &str| {
        rule(api::document!({
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["*"],
            "resources": [resource],
        }))
    };
    let status = Attributes {
        subresource: "status",
        ..POD
    };
    for (resource, whole, below) in [
        ("pods", true, false),
        ("pods/status", false, true),
        ("pods/*", true, true),
        ("*", true, false),
        ("*/*", true, true),
        ("*/status", false, true),
        ("services", false, false),
    ] {
        assert_eq!(of(resource).matches(&POD), whole, "{resource}");
        assert_eq!(of(resource).matches(&status), below, "{resource}");
    }
}

#[test]
fn a_namespace_is_of_the_cluster_and_not_in_itself() {
    let of = |scope: &str| {
        rule(api::document!({
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
            "scope": scope,
        }))
    };
    let namespace = Attributes {
        plural: "namespaces",
        ..POD
    };
    let node = Attributes {
        plural: "nodes",
        namespace: "",
        ..POD
    };
    for (scope, expected) in [
        ("*", [true, true, true]),
        ("Namespaced", [true, false, false]),
        ("Cluster", [false, true, true]),
    ] {
        let rule = of(scope);
        let found = [POD, namespace, node].map(|attributes| rule.matches(&attributes));
        assert_eq!(found, expected, "{scope}");
    }
}

#[test]
fn operations_groups_and_versions_must_all_match() {
    let of = |operation: &str, group: &str, version: &str| {
        rule(api::document!({
            "operations": [operation], "apiGroups": [group], "apiVersions": [version],
            "resources": ["pods"],
        }))
    };
    assert!(of("CREATE", "", "v1").matches(&POD));
    assert!(!of("UPDATE", "", "v1").matches(&POD));
    assert!(!of("CREATE", "apps", "v1").matches(&POD));
    assert!(!of("CREATE", "", "v2").matches(&POD));
    assert!(of("CREATE", "", "v2").may_match_equivalent(&POD));
    assert!(!of("DELETE", "", "v2").may_match_equivalent(&POD));
}

#[test]
fn a_request_sees_only_the_hooks_that_may_concern_it() {
    let client = crate::webhook_client::WebhookClient::new(Arc::new(Nowhere));
    let hook = |name: &str, resource: &str| {
        api::document!({
            "name": name, "clientConfig": {"service": {"name": "a", "namespace": "b"}},
            "rules": [{
                "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
                "resources": [resource],
            }],
        })
    };
    let mut configuration = api::document!({"metadata": {"name": "c"}});
    let hooks = vec![
        hook("of-pods", "pods"),
        hook("of-all", "*/*"),
        hook("of-scales", "deployments/scale"),
    ];
    configuration.set(&["webhooks"], hooks);
    let mut compiled = Compiled {
        hooks: Hook::all_of(&configuration, &client),
        ..Compiled::default()
    };
    compiled.index();
    assert_eq!(compiled.concerning("pods"), [0, 1]);
    assert_eq!(compiled.concerning("deployments"), [1, 2]);
    assert_eq!(compiled.concerning("secrets"), [1]);
    // Hooks of one server share the way to it.
    let [first, second] = [0, 1].map(|at| compiled.hook(at).channel.clone().unwrap());
    assert!(Arc::ptr_eq(&first, &second));
}

struct Nowhere;

impl crate::webhook_client::ResolveServices for Nowhere {
    fn resolve(
        &self,
        _: &str,
        name: &str,
        _: u16,
    ) -> Result<crate::webhook_client::Place, crate::webhook_client::ResolveError> {
        Err(crate::webhook_client::ResolveError::NotFound(
            name.to_string(),
        ))
    }
}
