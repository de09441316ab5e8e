//! Validation of where a Pod may and should go: affinity and topology spread constraints.

use std::collections::BTreeMap;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::repeats::Seen;
use crate::strategy::checks::{label_selector, optional_one_of};
use crate::strategy::node_selector;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const WEIGHTS: &str = "must be in the range 1-100";

/// Checks `affinity`.
pub fn validate(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let path = path.child("affinity");
    if let Some(affinity) = given(spec, &["affinity", "nodeAffinity"]) {
        node_affinity(affinity, &path.child("nodeAffinity"), errors);
    }
    for name in ["podAffinity", "podAntiAffinity"] {
        if let Some(affinity) = given(spec, &["affinity", name]) {
            pod_affinity(affinity, &path.child(name), errors);
        }
    }
}

/// Checks `topologySpreadConstraints`.
pub fn topology_spread(constraints: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    // The last index of each pair: earlier constraints with the same pair are duplicates.
    let last: BTreeMap<(&str, &str), usize> = constraints
        .iter()
        .enumerate()
        .map(|(index, constraint)| {
            let text = |name: &str| constraint.str_at(&[name]);
            ((text("topologyKey"), text("whenUnsatisfiable")), index)
        })
        .collect();
    for (index, constraint) in constraints.iter().enumerate() {
        let at = path.index(index);
        let skew = constraint.i64_at(&["maxSkew"]).unwrap_or(0);
        errors.extend(positive(skew, &at.child("maxSkew")));
        let key = constraint.str_at(&["topologyKey"]);
        if key.is_empty() {
            let at = at.child("topologyKey");
            errors.push(FieldError::required(&at, "can not be empty"));
        }
        let action = constraint.str_at(&["whenUnsatisfiable"]);
        let supported = ["DoNotSchedule", "ScheduleAnyway"];
        if !supported.contains(&action) {
            let at = at.child("whenUnsatisfiable");
            errors.push(FieldError::not_supported(&at, action, &supported));
        }
        if last.get(&(key, action)).is_some_and(|last| index < *last) {
            let at = at.child("{topologyKey, whenUnsatisfiable}");
            errors.push(FieldError::duplicate(&at, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = constraint.i64_at(&["minDomains"]) {
            let at = at.child("minDomains");
            errors.extend(positive(domains, &at));
            if action != "DoNotSchedule" {
                let detail = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                );
                errors.push(FieldError::invalid(&at, domains, detail));
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            optional_one_of(constraint, name, &["Honor", "Ignore"], &at, errors);
        }
        label_keys(constraint, &at, errors);
        if let Some(selector) = given(constraint, &["labelSelector"]) {
            errors.extend(label_selector::validate(
                selector,
                &at.child("labelSelector"),
            ));
        }
    }
}

/// Checks a node selector: `{nodeSelectorTerms}`.
pub fn node_selector(selector: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("nodeSelectorTerms");
    let terms = selector.list_at(&["nodeSelectorTerms"]);
    if terms.is_empty() {
        let detail = "must have at least one node selector term";
        errors.push(FieldError::required(&at, detail));
    }
    for (index, term) in terms.iter().enumerate() {
        node_selector_term(term, true, &at.index(index), errors);
    }
}

/// Adds the requirements of `matchLabelKeys` and `mismatchLabelKeys` to a new Pod's selectors.
pub fn merge_label_keys(pod: &mut Value) {
    let labels = pod.at(&["metadata", "labels"]).cloned().unwrap_or_default();
    for name in ["podAffinity", "podAntiAffinity"] {
        for term in pod.list_at_mut(&["spec", "affinity", name, PREFERRED]) {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                merge_keys(term, &labels);
            }
        }
        for term in pod.list_at_mut(&["spec", "affinity", name, REQUIRED]) {
            merge_keys(term, &labels);
        }
    }
    for constraint in pod.list_at_mut(&["spec", "topologySpreadConstraints"]) {
        merge_keys(constraint, &labels);
    }
}

fn merge_keys(term: &mut Value, labels: &Value) {
    if !term.has(&["labelSelector"]) {
        return;
    }
    let mut added = Vec::new();
    for (name, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.list_at(&[name]).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                let mut expression = crate::document!({"key": key, "operator": operator});
                expression.set(&["values"], vec![value.clone()]);
                added.push(expression);
            }
        }
    }
    if !added.is_empty() {
        let at = ["labelSelector", "matchExpressions"];
        let mut all = term.list_at(&at).to_vec();
        all.extend(added);
        term.set(&at, all);
    }
}

fn given<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    value.at(path).filter(|value| !value.is_null())
}

fn positive(number: i64, path: &Path) -> Option<FieldError> {
    let detail = "must be greater than zero";
    (number <= 0).then(|| FieldError::invalid(path, number, detail))
}

fn node_affinity(affinity: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(selector) = given(affinity, &[REQUIRED]) {
        node_selector(selector, &path.child(REQUIRED), errors);
    }
    for (index, term) in affinity.list_at(&[PREFERRED]).iter().enumerate() {
        let at = path.child(PREFERRED).index(index);
        weight(term, &at, errors);
        if let Some(preference) = term.get("preference") {
            node_selector_term(preference, false, &at.child("preference"), errors);
        }
    }
}

fn weight(term: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let weight = term.i64_at(&["weight"]).unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(&path.child("weight"), weight, WEIGHTS));
    }
}

fn node_selector_term(term: &Value, strict: bool, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, expression) in term.list_at(&["matchExpressions"]).iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        node_selector::on_labels(expression, strict, &at, errors);
    }
    for (index, field) in term.list_at(&["matchFields"]).iter().enumerate() {
        let at = path.child("matchFields").index(index);
        let values = field.list_at(&["values"]);
        match field.str_at(&["operator"]) {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => errors.push(FieldError::required(
                &at.child("values"),
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            )),
            other => errors.push(FieldError::invalid(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = field.str_at(&["key"]);
        if key != "metadata.name" {
            let detail = "not a valid field selector key";
            errors.push(FieldError::invalid(&at.child("key"), key, detail));
            continue;
        }
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            let at = at.child("values").index(index);
            errors.extend(all_invalid(&at, value, names::dns_subdomain(value)));
        }
    }
}

fn pod_affinity(affinity: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, term) in affinity.list_at(&[REQUIRED]).iter().enumerate() {
        pod_term(term, &path.child(REQUIRED).index(index), errors);
    }
    for (index, term) in affinity.list_at(&[PREFERRED]).iter().enumerate() {
        let at = path.child(PREFERRED).index(index);
        weight(term, &at, errors);
        let empty = Value::object();
        let inner = term.get("podAffinityTerm").unwrap_or(&empty);
        pod_term(inner, &at.child("podAffinityTerm"), errors);
    }
}

fn pod_term(term: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["labelSelector", "namespaceSelector"] {
        if let Some(selector) = given(term, &[name]) {
            errors.extend(label_selector::validate(selector, &path.child(name)));
        }
    }
    for namespace in term.list_at(&["namespaces"]) {
        let namespace = namespace.as_str().unwrap_or_default();
        let wrong = names::dns_label(namespace);
        errors.extend(all_invalid(&path.child("namespace"), namespace, wrong));
    }
    label_keys(term, path, errors);
    let key = term.str_at(&["topologyKey"]);
    let at = path.child("topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(&at, "can not be empty"));
    }
    errors.extend(all_invalid(&at, key, names::qualified_name(key)));
}

/// Checks `matchLabelKeys` and `mismatchLabelKeys` together with a selector.
fn label_keys(term: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let selector = given(term, &["labelSelector"]);
    let keys = |name: &str| -> Vec<String> {
        let keys = term.list_at(&[name]).iter().filter_map(Value::as_str);
        keys.map(str::to_string).collect()
    };
    let (matching, mismatching) = (keys("matchLabelKeys"), keys("mismatchLabelKeys"));
    for (name, keys) in [
        ("matchLabelKeys", &matching),
        ("mismatchLabelKeys", &mismatching),
    ] {
        let at = path.child(name);
        if keys.is_empty() {
            continue;
        }
        if selector.is_none() {
            let detail = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(&at, detail));
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            let wrong = names::qualified_name(key);
            errors.extend(all_invalid(&at.index(index), key, wrong));
        }
    }
    if let Some(selector) = selector {
        let labels = selector.fields_at(&["matchLabels"]);
        let mut seen: Seen<&str> = labels.map(|(key, _)| key).collect();
        let places: BTreeMap<&str, usize> = matching
            .iter()
            .enumerate()
            .map(|(index, known)| (known.as_str(), index))
            .collect();
        for expression in selector.list_at(&["matchExpressions"]) {
            let key = expression.str_at(&["key"]);
            let place = places.get(key).copied();
            if let Some(index) = place.filter(|_| seen.contains(&key)) {
                let detail = "exists in both matchLabelKeys and labelSelector";
                errors.push(FieldError::invalid(&path.index(index), key, detail));
            }
            seen.insert(key);
        }
    }
    let mismatching: Seen<&String> = mismatching.iter().collect();
    for (index, key) in matching.iter().enumerate() {
        if mismatching.contains(&key) {
            let at = path.child("matchLabelKeys").index(index);
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.push(FieldError::invalid(&at, key.as_str(), detail));
        }
    }
}
