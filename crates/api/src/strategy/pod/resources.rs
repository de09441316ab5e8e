//! Validation of requests and limits.

use std::collections::BTreeMap;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::quantity::Quantity;
use crate::repeats::Seen;

/// When the claims of a Pod are listed in more errors than this, the list is left out: it may be
/// long.
const MOST_LISTED: usize = 100;

/// The names in a Pod's `resourceClaims`.
pub struct PodClaims<'a> {
    names: Seen<&'a str>,
    /// The detail of the error for a name that is not among them.
    listed: String,
}

impl<'a> PodClaims<'a> {
    pub fn of(names: impl Iterator<Item = &'a str>) -> PodClaims<'a> {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.dedup();
        let listed = match names.is_empty() {
            true => {
                "must be one of the names in pod.spec.resourceClaims which is empty".to_string()
            }
            false => format!(
                "must be one of the names in pod.spec.resourceClaims: {}",
                names.join(", ")
            ),
        };
        PodClaims {
            names: names.into_iter().collect(),
            listed,
        }
    }

    pub fn none() -> PodClaims<'a> {
        PodClaims::of(std::iter::empty())
    }
}

/// Checks `{requests, limits, claims}` of a container in a Pod with these claims.
pub fn validate(resources: &Value, pod_claims: &PodClaims<'_>, path: &Path) -> Vec<FieldError> {
    let mut errors = amounts(resources, container_resource_name, path);
    claims(resources, pod_claims, &path.child("claims"), &mut errors);
    errors
}

/// Checks `{requests, limits}`; `check_name` validates the names of resources.
pub fn amounts(
    resources: &Value,
    check_name: fn(&str, &Path) -> Vec<FieldError>,
    path: &Path,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["limits", "requests"] {
        let list_path = path.child(list);
        for (name, value) in resources.fields_at(&[list]) {
            let at = list_path.key(name);
            errors.extend(check_name(name, &at));
            errors.extend(quantity_value(name, value, &at));
            if list == "requests" {
                errors.extend(against_limit(resources, name, value, path));
            }
            if let (Some(size), Some(amount)) = (page_size(name), parsed(value))
                && !is_multiple(amount, size)
            {
                let text = amount.to_string();
                let detail = format!("{text} is not positive integer multiple of {name}");
                errors.push(FieldError::invalid(&at, text, detail));
            }
        }
    }
    let any = |wanted: fn(&str) -> bool| {
        ["limits", "requests"]
            .iter()
            .any(|list| resources.fields_at(&[list]).any(|(name, _)| wanted(name)))
    };
    if any(|name| name.starts_with("hugepages-")) && !any(|name| matches!(name, "cpu" | "memory")) {
        errors.push(FieldError::forbidden(
            path,
            "HugePages require cpu or memory",
        ));
    }
    errors
}

fn against_limit(resources: &Value, name: &str, value: &Value, path: &Path) -> Option<FieldError> {
    let limit = resources
        .at(&["limits", name])
        .filter(|limit| !limit.is_null());
    let Some(limit) = limit else {
        let detail = "Limit must be set for non overcommitable resources";
        let at = path.child("limits");
        return (!overcommit_allowed(name)).then(|| FieldError::required(&at, detail));
    };
    let (request, limit) = (parsed(value)?, parsed(limit)?);
    let detail = if request != limit && !overcommit_allowed(name) {
        format!("must be equal to {name} limit of {limit}")
    } else if request > limit {
        format!("must be less than or equal to {name} limit of {limit}")
    } else {
        return None;
    };
    let at = path.child("requests");
    Some(FieldError::invalid(&at, request.to_string(), detail))
}

fn page_size(name: &str) -> Option<Quantity> {
    Quantity::parse(name.strip_prefix("hugepages-")?).ok()
}

fn is_multiple(amount: Quantity, size: Quantity) -> bool {
    match (amount.whole(), size.whole()) {
        (Some(amount), Some(size)) if size > 0 => amount >= 0 && amount % size == 0,
        _ => false,
    }
}

fn claims(
    resources: &Value,
    pod_claims: &PodClaims<'_>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let mut seen: Seen<String> = Seen::new();
    // The number of requests of each claim that were named.
    let mut requested: BTreeMap<&str, usize> = BTreeMap::new();
    let mut missing = 0;
    for (index, claim) in resources.list_at(&["claims"]).iter().enumerate() {
        let at = path.index(index);
        let (name, request) = (claim.str_at(&["name"]), claim.str_at(&["request"]));
        if name.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        if seen.contains(name) {
            errors.push(FieldError::duplicate(&at, name));
        } else {
            let mut key = name.to_string();
            if !request.is_empty() {
                let wrong = names::dns_label(request);
                errors.extend(all_invalid(&at.child("request"), request, wrong));
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                errors.push(FieldError::duplicate(&at, key.as_str()));
            } else if request.is_empty() {
                let parts = requested.get(name).copied().unwrap_or_default();
                errors.extend((0..parts).map(|_| FieldError::duplicate(&at, name)));
            }
            if seen.insert(key) && !request.is_empty() {
                *requested.entry(name).or_default() += 1;
            }
        }
        if !pod_claims.names.contains(name) {
            let mut error = FieldError::not_found(&at, name);
            missing += 1;
            if missing <= MOST_LISTED {
                error.detail.clone_from(&pod_claims.listed);
            }
            errors.push(error);
        }
    }
}

/// Checks one amount: a quantity, not negative, whole where fractions make no sense.
pub fn quantity_value(name: &str, value: &Value, path: &Path) -> Vec<FieldError> {
    let Some(quantity) = parsed(value) else {
        let detail = match value.as_str().map(Quantity::parse) {
            Some(Err(error)) => error.to_string(),
            _ => "must be a valid resource quantity".to_string(),
        };
        return vec![FieldError::invalid(path, value.clone(), detail)];
    };
    let mut errors = Vec::new();
    if quantity.is_negative() {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path, quantity.to_string(), detail));
    }
    let counted = name == "pods" || name.contains('/') && !native(name);
    if counted && !quantity.is_integer() {
        let detail = "must be an integer";
        errors.push(FieldError::invalid(path, quantity.to_string(), detail));
    }
    errors
}

pub fn parsed(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Integer(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// Checks the name of something a container can ask for.
pub fn container_resource_name(name: &str, path: &Path) -> Vec<FieldError> {
    let wrong = names::qualified_name(name);
    if !wrong.is_empty() {
        let mut errors = all_invalid(path, name, wrong);
        let detail = match name.contains('/') {
            false => "must be a standard resource for containers",
            true if native(name) => return errors,
            true => "doesn't follow extended resource name standard",
        };
        errors.push(FieldError::invalid(path, name, detail));
        return errors;
    }
    if name.contains('/') {
        if !native(name) && name.starts_with("requests.") {
            let detail = "doesn't follow extended resource name standard";
            return vec![FieldError::invalid(path, name, detail)];
        }
        return Vec::new();
    }
    let mut errors = Vec::new();
    if matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
        return errors;
    }
    if !standard(name) {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, name, detail));
    }
    let detail = "must be a standard resource for containers";
    errors.push(FieldError::invalid(path, name, detail));
    errors
}

/// Checks the name of something a whole Pod can ask for.
pub fn pod_resource_name(name: &str, path: &Path) -> Vec<FieldError> {
    let wrong = names::qualified_name(name);
    if !wrong.is_empty() {
        return all_invalid(path, name, wrong);
    }
    if !name.contains('/') && !standard(name) {
        let detail = "must be a standard resource type or fully qualified";
        return vec![FieldError::invalid(path, name, detail)];
    }
    if matches!(name, "cpu" | "memory") || name.starts_with("hugepages-") {
        return Vec::new();
    }
    let supported = ["cpu", "hugepages-", "memory"];
    vec![FieldError::not_supported(path, name, &supported)]
}

/// Names without a domain that are resources of some kind of object.
fn standard(name: &str) -> bool {
    matches!(
        name.strip_prefix("requests.")
            .or(name.strip_prefix("limits."))
            .unwrap_or(name),
        "cpu"
            | "memory"
            | "ephemeral-storage"
            | "storage"
            | "pods"
            | "services"
            | "secrets"
            | "configmaps"
            | "resourcequotas"
            | "replicationcontrollers"
            | "persistentvolumeclaims"
            | "services.nodeports"
            | "services.loadbalancers"
    ) || name.contains("hugepages-")
}

fn native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether more of it may be promised than there is.
pub fn overcommit_allowed(name: &str) -> bool {
    native(name) && !name.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn invalid_requests_and_limits_are_rejected() {
        let check = |resources: Value, expected: &[&str]| {
            let errors = validate(&resources, &PodClaims::none(), &Path::new("r"));
            let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
            assert_eq!(texts, expected, "{resources}");
        };
        check(
            document!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}),
            &[],
        );
        check(
            document!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            &[r#"r.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#],
        );
        check(
            document!({"limits": {"cpu": "-1"}}),
            &[r#"r.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#],
        );
        check(
            document!({"requests": {"gpu": "1"}}),
            &[
                r#"r.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified"#,
                r#"r.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers"#,
            ],
        );
        check(
            document!({"requests": {"example.com/gpu": "1"}}),
            &["r.limits: Required value: Limit must be set for non overcommitable resources"],
        );
        check(
            document!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}),
            &[r#"r.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2"#],
        );
        check(
            document!({"limits": {"example.com/gpu": "1500m"}}),
            &[r#"r.limits[example.com/gpu]: Invalid value: "1500m": must be an integer"#],
        );
        check(
            document!({"limits": {"cpu": "much"}}),
            &[
                r#"r.limits[cpu]: Invalid value: "much": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"#,
            ],
        );
    }
}
