//! Checks tolerations and the effects of taints.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};

/// Checks tolerations.
pub fn validate(tolerations: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = path.index(index);
        let text = |name: &str| toleration.str_at(&[name]);
        let (key, operator, effect) = (text("key"), text("operator"), text("effect"));
        if !key.is_empty() {
            errors.extend(all_invalid(
                &at.child("key"),
                key,
                names::qualified_name(key),
            ));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(&at.child("operator"), operator, detail));
        }
        if toleration.has(&["tolerationSeconds"]) && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(&at.child("effect"), effect, detail));
        }
        let value = text("value");
        let operator_path = at.child("operator");
        match operator {
            "" | "Equal" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.push(FieldError::invalid(&operator_path, value, wrong.join(";")));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(&operator_path, value, detail));
            }
            other => {
                let supported = ["Equal", "Exists"];
                errors.push(FieldError::not_supported(&operator_path, other, &supported));
            }
        }
        if !effect.is_empty() {
            errors.extend(taint_effect(effect, &at.child("effect")));
        }
    }
}

/// The error for an effect that no taint can have.
pub fn taint_effect(effect: &str, path: &Path) -> Option<FieldError> {
    let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    match effect {
        "" => Some(FieldError::required(path, "")),
        _ if supported.contains(&effect) => None,
        _ => Some(FieldError::not_supported(path, effect, &supported)),
    }
}
