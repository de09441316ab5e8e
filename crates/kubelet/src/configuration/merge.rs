//! Merges a drop-in into the configuration before it: a JSON merge patch (RFC 7386), as upstream.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Error;

/// All `*.conf` files at and below `directory` in lexical order, each directory in its place.
pub fn drop_ins(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    walk(directory, &mut found).map_err(|source| Error::File {
        path: directory.to_path_buf(),
        source,
    })?;
    Ok(found)
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut entries = entries.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // A link to a directory is not walked, so that there is an end.
        if entry.file_type()?.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "conf") {
            found.push(path);
        }
    }
    Ok(())
}

/// Objects are merged key by key, null takes a key away, everything else replaces.
pub fn patch(target: &mut Value, change: Value) {
    let Value::Object(changes) = change else {
        *target = change;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (key, value) in changes {
        if value.is_null() {
            fields.remove(&key);
        } else {
            patch(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_examples_of_the_merge_patch_standard_give_the_expected_results() {
        for (before, change, after) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": ["b"]}),
                json!({"a": ["c"]}),
                json!({"a": ["c"]}),
            ),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [1]}),
                json!({"a": {"b": null}}),
                json!({"a": {}}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut found = before.clone();
            patch(&mut found, change);
            assert_eq!(found, after, "{before}");
        }
    }
}
