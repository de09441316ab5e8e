//! The order of merged lists: what the patch orders, and what only the server has, kept apart and
//! then woven together by the server's order.

use crate::document::Value;
use crate::patch::Error;

/// What tells two elements apart: the value of the merge key, or the scalar itself.
pub fn identity<'a>(item: &'a Value, merge_key: &str) -> Option<&'a Value> {
    match merge_key {
        "" => Some(item),
        key => item.get(key),
    }
}

pub fn position(list: &[Value], item: &Value, merge_key: &str) -> Option<usize> {
    let wanted = identity(item, merge_key)?;
    list.iter()
        .position(|one| identity(one, merge_key) == Some(wanted))
}

pub fn has_keys(list: &[Value], merge_key: &str) -> Result<(), Error> {
    for item in list {
        if identity(item, merge_key).is_none() {
            return Err(no_merge_key(item, merge_key));
        }
    }
    Ok(())
}

pub fn no_merge_key(item: &Value, merge_key: &str) -> Error {
    Error::NoMergeKey {
        map: super::in_go(item),
        key: merge_key.to_string(),
    }
}

/// Splits `merged` by whether an element stands in `by`.
pub fn partition(
    merged: Vec<Value>,
    by: &[Value],
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    has_keys(&merged, merge_key)?;
    Ok(merged
        .into_iter()
        .partition(|item| position(by, item, merge_key).is_some()))
}

/// Sorts by the positions in `order`; elements to be deleted go last.
pub fn sort_by(list: Vec<Value>, order: &[Value], merge_key: &str) -> Result<Vec<Value>, Error> {
    if !merge_key.is_empty() {
        has_keys(&list, merge_key)?;
        has_keys(order, merge_key)?;
    }
    let deleted = |item: &Value| item.str_at(&["$patch"]) == "delete";
    let (deletions, mut kept): (Vec<Value>, Vec<Value>) =
        list.into_iter().partition(|item| deleted(item));
    kept.sort_by_key(|item| position(order, item, merge_key).unwrap_or(usize::MAX));
    kept.extend(deletions);
    Ok(kept)
}

/// Weaves the elements of the patch and those only the server has into one list.
pub fn weave(
    patch_items: Vec<Value>,
    server_only: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    merge_key: &str,
) -> Result<Vec<Value>, Error> {
    let patch_items = sort_by(patch_items, patch_order, merge_key)?;
    let server_only = sort_by(server_only, server_order, merge_key)?;
    let mut woven = Vec::with_capacity(patch_items.len() + server_only.len());
    let mut server = server_only.into_iter().peekable();
    for item in patch_items {
        let place = position(server_order, &item, merge_key);
        while let (Some(place), Some(next)) = (place, server.peek()) {
            match position(server_order, next, merge_key) {
                Some(before) if before < place => woven.extend(server.next()),
                _ => break,
            }
        }
        woven.push(item);
    }
    woven.extend(server);
    Ok(woven)
}
