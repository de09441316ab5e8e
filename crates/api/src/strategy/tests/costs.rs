//! The cost of validation: with lists of many thousand items, neither the work nor the number of
//! errors may grow quadratically.

use super::*;
use crate::steps;

fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    Value::Array((0..count).rev().map(item).collect())
}

fn validated(group: &str, kind: &str, object: &Value) -> usize {
    strategy(group, kind).validate_content(object).len()
}

#[test]
fn duplicates_in_long_lists_are_found_in_n_log_n() {
    steps::assert_n_log_n(|count| {
        let name = |item: usize| format!("n{item:06}");
        let volumes = list(
            count,
            |item| document!({"name": name(item), "emptyDir": {}}),
        );
        let mounts = list(
            count,
            |item| document!({"name": name(item), "mountPath": format!("/{}", name(item))}),
        );
        let ports = list(count, |item| {
            let port = 1 + item % 65_000;
            document!({"name": name(item), "containerPort": port, "hostPort": port})
        });
        let pod = document!({"spec": {
            "volumes": volumes,
            "schedulingGates": list(count, |item| document!({"name": name(item)})),
            "containers": [{"name": "a", "image": "i", "volumeMounts": mounts, "ports": ports}],
        }});
        steps::of(|| {
            validated("", "Pod", &pod);
        })
    });
    steps::assert_n_log_n(|count| {
        let service = document!({"spec": {
            "clusterIP": "None",
            "ports": list(count, |item| document!({"name": format!("n{item}"), "port": item})),
        }});
        let node = document!({"spec": {
            "taints": list(count, |item| document!({"key": format!("k{item}"), "effect": "NoExecute"})),
        }});
        steps::of(|| {
            validated("", "Service", &service);
            strategy("", "Node").validate_update_content(&node, &node, "");
        })
    });
}

#[test]
fn duplicate_owner_references_are_removed_in_n_log_n() {
    let owners = |count: usize| {
        document!({"metadata": {"ownerReferences": list(count, |item| {
            document!({"uid": format!("{:06}", item / 2)})
        })}})
    };
    steps::assert_n_log_n(|count| {
        let mut object = owners(count);
        steps::of(|| {
            let words = crate::warnings::without_repeated_owners(&mut object, false);
            assert!(words.is_some());
            let kept = object.list_at(&["metadata", "ownerReferences"]);
            assert_eq!(kept.len(), count / 2);
        })
    });
}

#[test]
fn errors_do_not_multiply_with_the_length_of_lists() {
    // Upstream reports each pair of equal terms.
    let class = document!({
        "provisioner": "a", "allowedTopologies": list(5_000, |_| Value::object()),
    });
    assert!(validated("storage.k8s.io", "StorageClass", &class) < 10_000);
    // Each error shows the whole list.
    let owner =
        document!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "controller": true});
    let owners = list(5_000, |_| owner.clone());
    let map = document!({"metadata": {"name": "a", "namespace": "b", "ownerReferences": owners}});
    let errors = texts(strategy("", "ConfigMap").validate_create(&map));
    let size: usize = errors.iter().map(String::len).sum();
    assert!(
        errors.len() < 100 && size < 10 << 20,
        "{} errors, {size} bytes",
        errors.len()
    );
    // And one warning for each pair of ports.
    let ports = list(2_000, |_| document!({"containerPort": 80}));
    let pod = document!({"spec": {"containers": [{"name": "a", "ports": ports}]}});
    let pods = catalogue::built_in().find("", "v1", "pods").unwrap();
    assert!(crate::warnings::of(pods, &pod, None, "").len() < 5_000);
    // A claim that is not there names all that are.
    let name = |item: usize| format!("claim-{item:05}");
    let claims = list(2_000, |item| document!({"name": name(item)}));
    let missing = list(2_000, |item| document!({"name": format!("no-{item}")}));
    let pod = document!({"spec": {
        "resourceClaims": claims,
        "containers": [{"name": "a", "image": "i", "resources": {"claims": missing}}],
    }});
    let size: usize = texts(strategy("", "Pod").validate_content(&pod))
        .iter()
        .map(String::len)
        .sum();
    assert!(size < 20 << 20, "{size} bytes");
}
