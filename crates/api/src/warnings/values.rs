//! Words about values that pods and volumes have alike.

use super::deprecated_label;
use crate::document::Value;
use crate::field::Path;
use crate::metadata::names;
use crate::quantity::Quantity;
use crate::resources::quantity;

/// A term of a node selector, of pods and of volumes.
pub(super) fn selector_term(
    term: &Value,
    check_values: bool,
    path: &Path,
    warnings: &mut Vec<String>,
) {
    for (index, expression) in term.list_at(&["matchExpressions"]).iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        let key = expression.str_at(&["key"]);
        if let Some(word) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {word}", at.child("key")));
        }
        if !check_values {
            continue;
        }
        for (index, value) in expression.list_at(&["values"]).iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            for problem in names::label_value(value) {
                let at = at.child("values").index(index);
                warnings.push(format!("{at}: {value} is invalid, {problem}"));
            }
        }
    }
}

/// Bytes are whole.
pub(super) fn fraction(amount: Option<&Value>, path: &Path) -> Option<String> {
    let amount: Quantity = amount.and_then(quantity)?;
    (amount.milli() % 1000 != 0).then(|| {
        format!("{path}: fractional byte value \"{amount}\" is invalid, must be an integer")
    })
}
