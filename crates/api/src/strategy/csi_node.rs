//! CSINodes.

use std::collections::BTreeMap;

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::repeats::Seen;
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::driver_name;

const LONGEST_NODE_ID: usize = 256;

pub struct CsiNode;

impl Strategy for CsiNode {
    fn namespaced(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec").child("drivers");
        let drivers = object.list_at(&["spec", "drivers"]);
        let mut errors = Vec::new();
        let mut seen = Seen::new();
        for (index, one) in drivers.iter().enumerate() {
            let at = path.index(index);
            driver(one, &at, &mut errors);
            let name = one.str_at(&["name"]);
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(&at.child("name"), name));
            }
            topology_keys(one, &at, &mut errors);
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        let path = Path::new("spec").child("drivers");
        let fixed = |driver: &Value| {
            let mut driver = driver.clone();
            driver.remove(&["allocatable"]);
            driver
        };
        let mut by_name: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for new in new.list_at(&["spec", "drivers"]) {
            let same = by_name.entry(new.str_at(&["name"])).or_default();
            same.push(new);
        }
        for old in old.list_at(&["spec", "drivers"]) {
            let same = by_name.remove(old.str_at(&["name"]));
            for new in same.into_iter().flatten() {
                if fixed(new) != fixed(old) {
                    let error = FieldError::invalid(&path, Value::Null, "field is immutable");
                    errors.push(error.showing(&shown(new)));
                }
            }
        }
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::WHOLE
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            (object.list_at(&["spec", "drivers"]).len() as i64).into(),
            object_age(object, now).into(),
        ]
    }
}

/// A driver in the format of Go's internal type, without its mutable fields.
fn shown(driver: &Value) -> [(&'static str, Value); 4] {
    [
        ("Name", driver.str_at(&["name"]).into()),
        ("NodeID", driver.str_at(&["nodeID"]).into()),
        (
            "TopologyKeys",
            driver.get("topologyKeys").cloned().unwrap_or_default(),
        ),
        ("Allocatable", Value::Null),
    ]
}

fn driver(driver: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let name = driver.str_at(&["name"]);
    errors.extend(driver_name(name, &path.child("name")));
    let id = driver.str_at(&["nodeID"]);
    let at = path.child("nodeID");
    if id.is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    if id.len() > LONGEST_NODE_ID {
        let detail = format!("must be {LONGEST_NODE_ID} characters or less");
        errors.push(FieldError::invalid(&at, id, detail));
    }
    let count = driver.i64_at(&["allocatable", "count"]);
    if let Some(count) = count.filter(|count| *count < 0) {
        let at = path.child("allocatable").child("count");
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&at, count, detail));
    }
}

fn topology_keys(driver: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let keys = driver.list_at(&["topologyKeys"]);
    let mut seen = Seen::new();
    for key in keys {
        let text = key.as_str().unwrap_or_default();
        if text.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        if !seen.insert(text) {
            errors.push(FieldError::duplicate(path, text));
        }
        errors.extend(all_invalid(path, text, names::qualified_name(text)));
    }
}
