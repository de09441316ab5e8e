//! LimitRanges.

use crate::document::{Object, Value};
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::quantity::Quantity;
use crate::repeats::Seen;
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::canonical_quantities;
use crate::strategy::checks::quantity;
use crate::strategy::resource_names;

const LISTS: [&str; 5] = [
    "max",
    "min",
    "default",
    "defaultRequest",
    "maxLimitRequestRatio",
];
/// Above this Go compares whole units instead of thousandths.
const MOST_MILLI: i64 = i64::MAX / 1000;

pub struct LimitRange;

impl Strategy for LimitRange {
    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        for limit in object.list_at_mut(&["spec", "limits"]) {
            for list in LISTS {
                canonical_quantities(limit, &[list]);
            }
            if limit.str_at(&["type"]) == "Container" {
                // Each takes what it lacks from the next.
                fill(limit, "default", "max");
                fill(limit, "defaultRequest", "default");
                fill(limit, "defaultRequest", "min");
            }
        }
    }

    /// One without a name is called by its number.
    fn prepare_create_content(&self, object: &mut Value) {
        if object.str_at(&["metadata", "name"]).is_empty() {
            let uid = object.str_at(&["metadata", "uid"]).to_string();
            object.set(&["metadata", "name"], uid);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let path = Path::new("spec").child("limits");
        let limits = object.list_at(&["spec", "limits"]);
        let mut seen = Seen::new();
        for (index, limit) in limits.iter().enumerate() {
            let at = path.index(index);
            let kind = limit.str_at(&["type"]);
            errors.extend(kind_errors(kind, &at.child("type")));
            if !seen.insert(kind) {
                errors.push(FieldError::duplicate(&at.child("type"), kind));
            }
            one(limit, kind, &at, &mut errors);
        }
        errors
    }

    /// Upstream checks a new state as if it were a new object.
    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::WHOLE
    }
}

fn fill(limit: &mut Value, target: &str, source: &str) {
    let given = match limit.remove(&[target]) {
        Some(Value::Object(fields)) => fields,
        _ => Object::default(),
    };
    // Given values win. Of a repeated name the last value counts.
    let at = [source];
    let filled = limit.fields_at(&at);
    let filled = filled.map(|(name, value)| (name.to_string(), value.clone()));
    let made: Object = filled.chain(given).collect();
    if !made.is_empty() {
        limit.set(&[target], made);
    }
}

fn kind_errors(kind: &str, path: &Path) -> Vec<FieldError> {
    let wrong = names::qualified_name(kind);
    if !wrong.is_empty() {
        return all_invalid(path, kind, wrong);
    }
    let standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
    match kind.contains('/') || standard {
        true => Vec::new(),
        false => vec![FieldError::invalid(
            path,
            kind,
            "must be a standard limit type or fully qualified",
        )],
    }
}

fn one(limit: &Value, kind: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let named = |list: &str, errors: &mut Vec<FieldError>| {
        for (name, _) in limit.fields_at(&[list]) {
            let at = path.child(list).key(name);
            errors.extend(resource_names::in_limit_range(kind, name, &at));
        }
    };
    named("max", errors);
    named("min", errors);
    for list in ["default", "defaultRequest"] {
        if kind != "Pod" {
            named(list, errors);
        } else if limit.fields_at(&[list]).count() > 0 {
            let detail = "may not be specified when `type` is 'Pod'";
            errors.push(FieldError::forbidden(&path.child(list), detail));
        }
    }
    if kind == "PersistentVolumeClaim"
        && !limit.has(&["min", "storage"])
        && !limit.has(&["max", "storage"])
    {
        let detail =
            "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(&path.child("limits"), detail));
    }
    named("maxLimitRequestRatio", errors);
    let mut keys: Vec<&str> = Vec::new();
    for list in LISTS {
        if kind == "Pod" && list.starts_with("default") {
            continue;
        }
        keys.extend(limit.fields_at(&[list]).map(|(name, _)| name));
    }
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        amounts(limit, kind, key, path, errors);
    }
}

fn amounts(limit: &Value, kind: &str, key: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let amount = |list: &str| -> Option<Quantity> {
        let skipped = kind == "Pod" && list.starts_with("default");
        let value = limit.at(&[list, key]).filter(|_| !skipped)?;
        Some(quantity(Some(value)))
    };
    let (min, max) = (amount("min"), amount("max"));
    let (default, request) = (amount("default"), amount("defaultRequest"));
    let ratio = amount("maxLimitRequestRatio");
    let mut wrong = |list: &str, shown: Quantity, detail: String| {
        let at = path.child(list).key(key);
        errors.push(FieldError::invalid(&at, shown.to_string(), detail));
    };
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        wrong(
            "min",
            min,
            format!("min value {min} is greater than max value {max}"),
        );
    }
    if let (Some(request), Some(min)) = (request, min)
        && min > request
    {
        let detail = format!("min value {min} is greater than default request value {request}");
        wrong("defaultRequest", request, detail);
    }
    if let (Some(request), Some(max)) = (request, max)
        && request > max
    {
        let detail = format!("default request value {request} is greater than max value {max}");
        wrong("defaultRequest", request, detail);
    }
    if let (Some(request), Some(default)) = (request, default)
        && request > default
    {
        let detail = format!(
            "default request value {request} is greater than default limit value {default}"
        );
        wrong("defaultRequest", request, detail);
    }
    if let (Some(default), Some(min)) = (default, min)
        && min > default
    {
        let detail = format!("min value {min} is greater than default value {default}");
        wrong("default", min, detail);
    }
    if let (Some(default), Some(max)) = (default, max)
        && default > max
    {
        let detail = format!("default value {default} is greater than max value {max}");
        wrong("default", max, detail);
    }
    if let Some(ratio) = ratio {
        if ratio < Quantity::from_milli(1000) {
            let detail = format!("ratio {ratio} is less than 1");
            wrong("maxLimitRequestRatio", ratio, detail);
        }
        if let (Some(min), Some(max)) = (min, max) {
            let small = [ratio, min, max]
                .iter()
                .all(|quantity| quantity.value() < MOST_MILLI);
            let (asked, most) = match small {
                true => (
                    ratio.milli() as f64 / 1000.0,
                    max.milli() as f64 / min.milli() as f64,
                ),
                false => (
                    ratio.value() as f64,
                    max.value() as f64 / min.value() as f64,
                ),
            };
            if asked > most {
                let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
                wrong("maxLimitRequestRatio", ratio, detail);
            }
        }
    }
    if let (Some(default), Some(request)) = (default, request)
        && !resource_names::may_be_overcommitted(key)
        && default != request
    {
        let detail = format!(
            "default value {default} must equal to defaultRequest value {request} in {key}"
        );
        wrong("defaultRequest", request, detail);
    }
}
