//! What the tables of sandboxes and containers share: a lock per object, ids that may be shortened,
//! label selectors, and records that cannot be written because the disk is full.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
};

/// Serialises the calls that change one sandbox or one container.
pub type ObjectLock = Arc<tokio::sync::Mutex<()>>;

/// The full id for an id or a unique beginning of one.
pub fn full_id<T>(known: &BTreeMap<String, T>, id: &str) -> Option<String> {
    if known.contains_key(id) {
        return Some(id.to_owned());
    }
    if id.is_empty() {
        return None;
    }
    let mut found = known
        .range(id.to_owned()..)
        .take_while(|(known, _)| known.starts_with(id));
    match (found.next(), found.next()) {
        (Some((known, _)), None) => Some(known.clone()),
        _ => None,
    }
}

/// Whether every label of the selector is on the object.
pub fn selects(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(name, value)| labels.get(name) == Some(value))
}

/// Whether a record could not be written for want of space. The change of something that exists must
/// not fail for that, since its end is what frees space: memory has the change, and after a restart
/// the shim (or its absence) shows it again.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_may_be_shortened_while_it_is_unique() {
        let known: BTreeMap<String, ()> = ["abc", "abd", "b"].map(|id| (id.to_owned(), ())).into();
        assert_eq!(full_id(&known, "abc").as_deref(), Some("abc"));
        assert_eq!(full_id(&known, "abd").as_deref(), Some("abd"));
        assert_eq!(full_id(&known, "b").as_deref(), Some("b"));
        assert_eq!(full_id(&known, "ab"), None);
        assert_eq!(full_id(&known, ""), None);
        assert_eq!(full_id(&known, "c"), None);
    }
}
