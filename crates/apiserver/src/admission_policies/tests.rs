//! Tests of what is kept of policies and found for a request.

use super::*;

fn policy(name: &str, resources: &[&str]) -> Arc<Policy<()>> {
    let resources = Value::Array(resources.iter().map(|one| (*one).into()).collect());
    let mut rule = api::document!({
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
    });
    rule.set(&["resources"], resources);
    let mut policy = api::document!({
        "metadata": {"name": name, "uid": name, "generation": 1},
        "spec": {"matchConstraints": {}},
    });
    let rules = Value::Array(vec![rule]);
    policy.set(&["spec", "matchConstraints", "resourceRules"], rules);
    Arc::new(Policy::of_document(&policy, |_| ()))
}

fn compiled(policies: Vec<Arc<Policy<()>>>, bindings: &[(&str, &str)]) -> Compiled<()> {
    let kept = policies
        .into_iter()
        .map(|policy| (Arc::from(policy.name.as_str()), (1, policy)));
    let bindings = bindings.iter().map(|(name, policy)| {
        let binding = api::document!({
            "metadata": {"name": *name}, "spec": {"policyName": *policy},
        });
        (
            Arc::from(*name),
            (1, Arc::new(Binding::of_document(&binding))),
        )
    });
    let mut compiled = Compiled {
        policies: kept.collect(),
        bindings: bindings.collect(),
        ..Compiled::default()
    };
    compiled.bind();
    compiled.index();
    compiled
}

fn concerning(compiled: &Compiled<()>, plural: &str) -> Vec<String> {
    let positions = compiled.concerning(plural).iter();
    positions
        .map(|position| compiled.bound(*position).policy.name.clone())
        .collect()
}

#[test]
fn only_policies_that_name_a_resource_or_all_are_looked_at() {
    let policies = vec![
        policy("of-maps", &["configmaps"]),
        policy("of-all", &["*"]),
        policy("of-pods", &["pods", "pods/exec"]),
        policy("unbound", &["pods"]),
    ];
    let bindings = [
        ("c", "of-maps"),
        ("b", "of-all"),
        ("a", "of-pods"),
        ("a2", "of-pods"),
        ("d", "gone"),
    ];
    let compiled = compiled(policies, &bindings);
    assert_eq!(concerning(&compiled, "pods"), ["of-all", "of-pods"]);
    assert_eq!(concerning(&compiled, "configmaps"), ["of-all", "of-maps"]);
    assert_eq!(concerning(&compiled, "nodes"), ["of-all"]);
    let of_pods = compiled.bound(compiled.concerning("pods")[1]);
    let names: Vec<&str> = of_pods
        .bindings
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["a", "a2"]);
}

#[test]
fn a_policy_is_the_same_until_what_it_says_changes() {
    let known = policy("p", &["pods"]);
    let mut document = api::document!({"metadata": {"uid": "p", "generation": 1}});
    assert!(known.is_same(&document));
    document.set(&["metadata", "generation"], 2);
    assert!(!known.is_same(&document));
    let other = api::document!({"metadata": {"uid": "q", "generation": 1}});
    assert!(!known.is_same(&other));
}
