//! PersistentVolumeClaims in a quota: their number and storage, in all and by storage class.

use super::number;
use crate::document::Value;
use crate::quantity::Quantity;
use crate::resources::{Amounts, quantity};

const BY_CLASS: &str = ".storageclass.storage.k8s.io/";
const NAMES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];

pub(super) fn counts(name: &str) -> bool {
    name == "count/persistentvolumeclaims"
        || NAMES.contains(&name)
        || NAMES
            .iter()
            .any(|own| name.ends_with(&format!("{BY_CLASS}{own}")))
}

pub(super) fn usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::from([
        ("count/persistentvolumeclaims".to_string(), number(1)),
        ("persistentvolumeclaims".to_string(), number(1)),
    ]);
    let class = class(claim);
    let mut put = |name: &str, amount: Quantity| {
        usage.insert(name.to_string(), amount);
        if !class.is_empty() {
            usage.insert(format!("{class}{BY_CLASS}{name}"), amount);
        }
    };
    put("persistentvolumeclaims", number(1));
    let at = |path: &[&str]| claim.at(path).and_then(quantity);
    if let Some(asked) = at(&["spec", "resources", "requests", "storage"]) {
        let allocated = at(&["status", "allocatedResources", "storage"]);
        let amount = allocated.map_or(asked, |allocated| allocated.max(asked));
        let whole = Quantity::from_units(amount.value(), amount.format());
        put("requests.storage", whole);
    }
    usage
}

/// The storage class, by its field or the older annotation.
pub fn class(claim: &Value) -> &str {
    match claim.str_at(&[
        "metadata",
        "annotations",
        "volume.beta.kubernetes.io/storage-class",
    ]) {
        "" => claim.str_at(&["spec", "storageClassName"]),
        class => class,
    }
}
