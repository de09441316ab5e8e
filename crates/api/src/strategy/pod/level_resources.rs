//! Pod-level resources: defaults and validation.

use std::collections::BTreeMap;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::quantity::Quantity;
use crate::strategy::pod::resources::{amounts, overcommit_allowed, parsed, pod_resource_name};

type Amounts = BTreeMap<String, Quantity>;

/// Fills in what follows from the containers and from the other of requests and limits.
pub fn default(spec: &mut Value) {
    let count = |spec: &Value, list: &str| spec.fields_at(&["resources", list]).count();
    if count(spec, "limits") + count(spec, "requests") == 0 {
        return;
    }
    for (name, amount) in aggregate(spec, "limits") {
        if name.starts_with("hugepages-") && !spec.has(&["resources", "requests", &name]) {
            set_absent(spec, "limits", &name, amount.to_string().into());
        }
    }
    if count(spec, "limits") == 0 {
        return;
    }
    for (name, amount) in aggregate(spec, "requests") {
        if supported(&name) && overcommit_allowed(&name) {
            set_absent(spec, "requests", &name, amount.to_string().into());
        }
    }
    let limits = spec.fields_at(&["resources", "limits"]);
    let limits: Vec<(String, Value)> = limits
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect();
    for (name, value) in limits {
        if supported(&name) {
            set_absent(spec, "requests", &name, value);
        }
    }
}

/// Checks `resources` of a Pod.
pub fn validate(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(resources) = spec.get("resources").filter(|value| !value.is_null()) else {
        return;
    };
    let path = path.child("resources");
    if spec.str_at(&["os", "name"]) == "windows" {
        let detail = "may not be set for a windows pod";
        errors.push(FieldError::forbidden(&path, detail));
        return;
    }
    if resources.has(&["claims"]) {
        let detail = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(&path.child("claims"), detail));
    }
    errors.extend(amounts(resources, pod_resource_name, &path));
    let own = |list: &str, name: &str| resources.at(&[list, name]).and_then(parsed);
    for list in ["requests", "limits"] {
        for (name, total) in aggregate(spec, list) {
            if list == "limits" && !name.starts_with("hugepages-") {
                continue;
            }
            if let Some(own) = own(list, &name).filter(|own| total > *own) {
                let at = path.child(list).key(&name);
                let detail = format!(
                    "must be greater than or equal to aggregate container {list} of {total}"
                );
                errors.push(FieldError::invalid(&at, own.to_string(), detail));
            }
        }
    }
    for (index, container) in spec.list_at(&["containers"]).iter().enumerate() {
        for (name, limit) in container.fields_at(&["resources", "limits"]) {
            let (Some(limit), Some(own)) = (parsed(limit), own("limits", name)) else {
                continue;
            };
            if limit > own {
                let at = path
                    .child("containers")
                    .index(index)
                    .key(name)
                    .child("limits");
                let detail = format!("must be less than or equal to pod limits of {own}");
                errors.push(FieldError::invalid(&at, limit.to_string(), detail));
            }
        }
    }
}

fn supported(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn set_absent(spec: &mut Value, list: &str, name: &str, value: Value) {
    let at = ["resources", list, name];
    if !spec.has(&at) {
        spec.set(&at, value);
    }
}

/// The sum over the containers: the larger one of the concurrent containers, and of the largest init
/// container with the sidecars that are started before it.
fn aggregate(spec: &Value, list: &str) -> Amounts {
    let of = |container: &Value| -> Amounts {
        container
            .fields_at(&["resources", list])
            .filter_map(|(name, value)| Some((name.to_string(), parsed(value)?)))
            .collect()
    };
    let add = |sum: &mut Amounts, more: &Amounts| {
        for (name, amount) in more {
            let sum = sum.entry(name.clone());
            sum.and_modify(|sum| *sum = *sum + *amount)
                .or_insert(*amount);
        }
    };
    let raise = |most: &mut Amounts, other: &Amounts| {
        for (name, amount) in other {
            let most = most.entry(name.clone()).or_insert(*amount);
            if *amount > *most {
                *most = *amount;
            }
        }
    };
    let (mut together, mut before, mut sidecars) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in spec.list_at(&["containers"]) {
        add(&mut together, &of(container));
    }
    for container in spec.list_at(&["initContainers"]) {
        let mut needed = of(container);
        if container.str_at(&["restartPolicy"]) == "Always" {
            add(&mut together, &needed);
            add(&mut sidecars, &needed);
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut before, &needed);
    }
    raise(&mut together, &before);
    together
}
