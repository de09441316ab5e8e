//! Checks the counters that devices of a ResourceSlice share and consume.

use super::label;
use crate::document::Value;
use crate::field::{FieldError, Path};

const MOST_COUNTERS: usize = 32;

/// Checks a set of counters and its name.
pub fn validate(set: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let text = set.str_at(&[name]);
    match text {
        "" => errors.push(FieldError::required(&path.child(name), "")),
        _ => errors.extend(label(text, &path.child(name))),
    }
    let at = path.child("counters");
    let count = set.fields_at(&["counters"]).count();
    match count {
        0 => errors.push(FieldError::required(&at, "")),
        _ if count > MOST_COUNTERS => {
            errors.push(FieldError::too_many(&at, count, MOST_COUNTERS));
        }
        _ => {
            for (name, _) in set.fields_at(&["counters"]) {
                errors.extend(label(name, &at));
            }
        }
    }
}
