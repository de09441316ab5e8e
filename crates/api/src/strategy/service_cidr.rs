//! ServiceCIDRs.

use crate::addresses;
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::resource::{Strategy, generic};

pub struct ServiceCidr;

impl Strategy for ServiceCidr {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_status(&self) -> bool {
        true
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        if subresource == "status" {
            generic::keep_metadata(new, old);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        ranges(object)
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            return Vec::new();
        }
        let path = Path::new("spec").child("cidrs");
        let at = ["spec", "cidrs"];
        let (new_list, old_list) = (new.list_at(&at), old.list_at(&at));
        let mut errors = Vec::new();
        let changed = |index: usize| {
            let value = new_list.get(index).cloned().unwrap_or_default();
            FieldError::invalid(&path.index(index), value, "field is immutable")
        };
        if new_list.len() == old_list.len() {
            for index in 0..old_list.len() {
                if new_list[index] != old_list[index] {
                    errors.push(changed(index));
                }
            }
        } else if old_list.len() == 1 && new_list.len() == 2 {
            // One family may be joined by the other.
            if new_list[0] != old_list[0] {
                errors.push(changed(0));
            }
            errors.extend(ranges(new));
        } else {
            let value = new.at(&at).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(&path, value, "field is immutable"));
        }
        errors
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let list = object.list_at(&["spec", "cidrs"]).iter();
        let texts: Vec<&str> = list.filter_map(Value::as_str).collect();
        vec![
            object.str_at(&["metadata", "name"]).into(),
            texts.join(",").into(),
            object_age(object, now).into(),
        ]
    }
}

fn ranges(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec").child("cidrs");
    let list = object.list_at(&["spec", "cidrs"]);
    if list.is_empty() {
        return vec![FieldError::required(&path, "at least one CIDR required")];
    }
    if list.len() > 2 {
        let mut value = Value::object();
        value.set(&["CIDRs"], list.to_vec());
        let detail = "may only hold up to 2 values";
        return vec![FieldError::invalid(&path, value, detail)];
    }
    let mut errors = Vec::new();
    let mut families = Vec::new();
    for (index, range) in list.iter().enumerate() {
        let text = range.as_str().unwrap_or_default();
        errors.extend(addresses::range(text, &path.index(index)));
        families.extend(addresses::parse_range(text).map(|range| range.address.is_ipv4()));
    }
    if let [first, second] = families.as_slice()
        && first == second
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(FieldError::invalid(&path, list.to_vec(), detail));
    }
    errors
}
