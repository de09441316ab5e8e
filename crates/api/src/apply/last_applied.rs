//! The annotation of client-side apply. `kubectl apply --server-side` takes over from it without
//! conflicts and keeps it up to date, so that one can go back.

use super::Kind;
use super::compare::compare;
use super::conflict::Conflict;
use super::element::html_escaped;
use super::remove::all_fields;
use super::validate;
use crate::document::Value;
use crate::metadata::ANNOTATIONS_LIMIT;

/// Whoever uses another name opts out of both.
pub(super) const MANAGER: &str = "kubectl";
const ANNOTATION: [&str; 3] = [
    "metadata",
    "annotations",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// The conflicts that are left when fields which client-side apply set, and which still have that
/// value, are given up without asking.
pub(super) fn left(kind: &Kind<'_>, live: &Value, conflicts: Vec<Conflict>) -> Vec<Conflict> {
    let Some(last) = parse(kind, live) else {
        return conflicts;
    };
    let Some(found) = compare(kind.place, Some(&last), Some(live)) else {
        return conflicts;
    };
    let own = all_fields(kind.place, &last)
        .difference(&found.modified)
        .difference(&found.added)
        .difference(&found.removed);
    let foreign = |conflict: &Conflict| !own.contains(&conflict.path);
    conflicts.into_iter().filter(foreign).collect()
}

fn parse(kind: &Kind<'_>, live: &Value) -> Option<Value> {
    let last = Value::from_json(live.str_at(&ANNOTATION).as_bytes()).ok()?;
    let fits = last.str_at(&["apiVersion"]) == kind.api_version
        && validate::problems(kind.place, &last).is_none();
    fits.then_some(last)
}

/// Writes the configuration into the annotation where there is one.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if object.str_at(&ANNOTATION).is_empty() {
        return;
    }
    let mut applied = applied.clone();
    applied.remove(&ANNOTATION);
    let text = format!("{}\n", html_escaped(&applied.to_string()));
    object.set(&ANNOTATION, text);
    let size: usize = object
        .fields_at(&ANNOTATION[..2])
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > ANNOTATIONS_LIMIT {
        object.remove(&ANNOTATION);
    }
}
