//! ServiceAccounts.

use crate::age::object_age;
use crate::document::Value;
use crate::resource::{MetadataChecks, Strategy};

pub struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn returns_deleted(&self) -> bool {
        true
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object_age(object, now).into(),
        ]
    }
}
