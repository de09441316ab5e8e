//! PriorityLevelConfigurations.

use super::{CATCH_ALL, EXEMPT, conditions};
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::resource::{MetadataChecks, Strategy};

pub struct PriorityLevelConfiguration;

const DEFAULT_SHARES: i64 = 30;
/// Names and defaults of the numbers of a queue.
const QUEUING: [(&str, i64); 3] = [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)];
const MOST_QUEUES: i64 = 10_000_000;
/// Bits of a flow's hash that dealing a hand of queues may use.
const MOST_ENTROPY: i64 = 60;
/// Belongs to a version that is gone; what it said is a field now.
const PRESERVE_ZERO: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

impl Strategy for PriorityLevelConfiguration {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        let set = |object: &mut Value, path: &[&str], value: i64| {
            if !object.has(path) {
                object.set(path, value);
            }
        };
        for (kind, shares) in [("exempt", 0), ("limited", DEFAULT_SHARES)] {
            if object.has(&["spec", kind]) {
                set(object, &["spec", kind, "nominalConcurrencyShares"], shares);
                set(object, &["spec", kind, "lendablePercent"], 0);
            }
        }
        let queuing = ["spec", "limited", "limitResponse", "queuing"];
        if object.has(&queuing)
            && let Some(queuing) = object.at_mut(&queuing)
        {
            for (name, number) in QUEUING {
                if queuing.i64_at(&[name]).unwrap_or(0) == 0 {
                    queuing.set(&[name], number);
                }
            }
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let name = object.str_at(&["metadata", "name"]);
        let mut errors = Vec::new();
        if object.has(&["metadata", "annotations", PRESERVE_ZERO]) {
            let at = Path::new("metadata").child("annotations");
            let detail = format!("annotation '{PRESERVE_ZERO}' is forbidden");
            errors.push(FieldError::forbidden(&at, detail));
        }
        let path = Path::new("spec");
        let empty = Value::object();
        let spec = object.get("spec").unwrap_or(&empty);
        validate_spec(name, spec, &path, &mut errors);
        if let Some(detail) = differs_from_fixed(name, spec) {
            errors.push(FieldError::invalid(&path, spec.clone(), detail));
        }
        errors.extend(conditions(object));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        _old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "" => self.validate_content(new),
            _ => conditions(new),
        }
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        match subresource {
            "" => MetadataChecks::WHOLE,
            _ => MetadataChecks::NONE,
        }
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let limited = object.at(&["spec", "limited"]);
        let number = |path: &[&str]| -> Value {
            match limited.and_then(|limited| limited.i64_at(path)) {
                Some(number) => number.into(),
                None => "<none>".into(),
            }
        };
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["spec", "type"]).into(),
            number(&["nominalConcurrencyShares"]),
            number(&["limitResponse", "queuing", "queues"]),
            number(&["limitResponse", "queuing", "handSize"]),
            number(&["limitResponse", "queuing", "queueLengthLimit"]),
            object_age(object, now).into(),
        ]
    }
}

fn validate_spec(name: &str, spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let kind = spec.str_at(&["type"]);
    let at = path.child("type");
    if (name == EXEMPT) != (kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(FieldError::invalid(&at, kind, detail));
    }
    let (exempt, limited) = (path.child("exempt"), path.child("limited"));
    let given = |name: &str| spec.get(name).filter(|value| !value.is_null());
    match kind {
        "Exempt" => {
            if given("limited").is_some() {
                let detail = "must be nil if the type is not Limited";
                errors.push(FieldError::forbidden(&limited, detail));
            }
            if let Some(level) = given("exempt") {
                not_negative(
                    level,
                    "nominalConcurrencyShares",
                    "must be a non-negative integer",
                    &exempt,
                    errors,
                );
                percent(level, &exempt, errors);
            }
        }
        "Limited" => {
            if given("exempt").is_some() {
                let detail = "must be nil if the type is Limited";
                errors.push(FieldError::forbidden(&exempt, detail));
            }
            match given("limited") {
                Some(level) => validate_limited(level, &limited, errors),
                None => {
                    let detail = "must not be empty when type is Limited";
                    errors.push(FieldError::required(&limited, detail));
                }
            }
        }
        "" => errors.push(FieldError::required(&at, "")),
        _ => errors.push(FieldError::not_supported(&at, kind, &["Exempt", "Limited"])),
    }
}

fn validate_limited(level: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    not_negative(
        level,
        "nominalConcurrencyShares",
        "must be a non-negative integer",
        path,
        errors,
    );
    let at = path.child("limitResponse");
    let queuing = level.at(&["limitResponse", "queuing"]);
    let queuing = queuing.filter(|value| !value.is_null());
    match (level.str_at(&["limitResponse", "type"]), queuing) {
        ("Reject", Some(_)) => {
            let detail = "must be nil if limited.limitResponse.type is not Limited";
            errors.push(FieldError::forbidden(&at.child("queuing"), detail));
        }
        ("Reject", None) => {}
        ("Queue", None) => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(FieldError::required(&at.child("queuing"), detail));
        }
        ("Queue", Some(queuing)) => validate_queuing(queuing, &at.child("queuing"), errors),
        ("", _) => errors.push(FieldError::required(&at.child("type"), "")),
        (other, _) => {
            let supported = ["Queue", "Reject"];
            let at = at.child("type");
            errors.push(FieldError::not_supported(&at, other, &supported));
        }
    }
    percent(level, path, errors);
    not_negative(
        level,
        "borrowingLimitPercent",
        "if specified, must be a non-negative integer",
        path,
        errors,
    );
}

fn validate_queuing(queuing: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let number = |name: &str| queuing.i64_at(&[name]).unwrap_or(0);
    let (length, queues, hand) = (
        number("queueLengthLimit"),
        number("queues"),
        number("handSize"),
    );
    let mut wrong = |name: &str, value: i64, detail: &str| {
        errors.push(FieldError::invalid(&path.child(name), value, detail));
    };
    if length <= 0 {
        wrong("queueLengthLimit", length, "must be positive");
    }
    if queues <= 0 {
        wrong("queues", queues, "must be positive");
    } else if queues > MOST_QUEUES {
        let detail = format!("must not be greater than {MOST_QUEUES}");
        wrong("queues", queues, &detail);
    }
    if hand <= 0 {
        wrong("handSize", hand, "must be positive");
    } else if hand > queues {
        let detail = format!("should not be greater than queues ({queues})");
        wrong("handSize", hand, &detail);
    } else if ((queues as f64).log2() * hand as f64).ceil() as i64 > MOST_ENTROPY {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MOST_ENTROPY}"
        );
        wrong("handSize", hand, &detail);
    }
}

fn not_negative(
    level: &Value,
    name: &str,
    detail: &str,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    if let Some(number) = level.i64_at(&[name]).filter(|number| *number < 0) {
        errors.push(FieldError::invalid(&path.child(name), number, detail));
    }
}

fn percent(level: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let number = level.i64_at(&["lendablePercent"]);
    if let Some(number) = number.filter(|number| !(0..=100).contains(number)) {
        let at = path.child("lendablePercent");
        let detail = "must be between 0 and 100, inclusive";
        errors.push(FieldError::invalid(&at, number, detail));
    }
}

/// What is wrong with the spec of a level that has to be as it is.
fn differs_from_fixed(name: &str, spec: &Value) -> Option<String> {
    match name {
        EXEMPT => {
            let mut rest = spec.clone();
            rest.remove(&["exempt"]);
            (rest != crate::document!({"type": "Exempt"})).then(|| {
                format!(
                    "spec of '{name}' except the 'spec.exempt' field must equal the fixed value"
                )
            })
        }
        CATCH_ALL => {
            let fixed = crate::document!({
                "limited": {
                    "lendablePercent": 0,
                    "limitResponse": {"type": "Reject"},
                    "nominalConcurrencyShares": 5,
                },
                "type": "Limited",
            });
            (*spec != fixed).then(|| format!("spec of '{name}' must equal the fixed value"))
        }
        _ => None,
    }
}
