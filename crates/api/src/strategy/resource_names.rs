//! The names under which resources are counted: in quotas and limit ranges.

use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};

/// Checks a name in a quota.
pub fn in_quota(name: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = any(name, path);
    if !name.contains('/') && !is_quota_name(name) {
        let detail = "must be a standard resource for quota";
        errors.push(FieldError::invalid(path, name, detail));
    }
    errors
}

/// Checks a name in a limit range; Pods and containers have fewer resources than the rest.
pub fn in_limit_range(kind: &str, name: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = any(name, path);
    if !matches!(kind, "Pod" | "Container") {
        return errors;
    }
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage");
    if !name.contains('/') {
        if !known && !name.starts_with("hugepages-") {
            let detail = "must be a standard resource for containers";
            errors.push(FieldError::invalid(path, name, detail));
        }
    } else if !is_native(name) && !is_extended(name) {
        let detail = "doesn't follow extended resource name standard";
        errors.push(FieldError::invalid(path, name, detail));
    }
    errors
}

/// Whether the name is a resource of quotas.
pub fn is_quota_name(name: &str) -> bool {
    is_huge_pages(name)
        || matches!(
            name,
            "cpu"
                | "memory"
                | "ephemeral-storage"
                | "requests.cpu"
                | "requests.memory"
                | "requests.storage"
                | "requests.ephemeral-storage"
                | "limits.cpu"
                | "limits.memory"
                | "limits.ephemeral-storage"
        )
        || is_counted(name)
}

/// Names of objects that are counted.
pub fn is_counted(name: &str) -> bool {
    matches!(
        name,
        "pods"
            | "resourcequotas"
            | "services"
            | "replicationcontrollers"
            | "secrets"
            | "configmaps"
            | "persistentvolumeclaims"
            | "services.nodeports"
            | "services.loadbalancers"
    )
}

/// Whether amounts of it are whole numbers.
pub fn is_whole(name: &str) -> bool {
    is_counted(name) || is_extended(name)
}

/// Without a domain, or with one of Kubernetes' own.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the name is an extended resource.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether more of it may be promised than there is.
pub fn may_be_overcommitted(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

fn any(name: &str, path: &Path) -> Vec<FieldError> {
    let wrong = names::qualified_name(name);
    if !wrong.is_empty() {
        return all_invalid(path, name, wrong);
    }
    let standard = is_quota_name(name) || name == "storage";
    if !name.contains('/') && !standard {
        let detail = "must be a standard resource type or fully qualified";
        return vec![FieldError::invalid(path, name, detail)];
    }
    Vec::new()
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}
