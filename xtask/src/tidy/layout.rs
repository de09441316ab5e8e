//! One layout of modules: a module with children is `name/mod.rs`, never `name.rs` beside `name/`.
//! `cargo xtask layout` moves the files that are not there yet.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repository;

pub fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    for (from, to) in moves(&repository::files(root, "*.rs")?) {
        problems.push(format!("{from} has children: it belongs to {to}"));
    }
    Ok(())
}

/// Moves every module with children to `name/mod.rs`, and corrects paths of included files and
/// paths in documents.
pub fn apply(root: &Path) -> Result<()> {
    let moves = moves(&repository::files(root, "*.rs")?);
    for (from, to) in &moves {
        let status = Command::new("git")
            .args(["mv", from, to])
            .current_dir(root)
            .status()?;
        if !status.success() {
            bail!("git mv {from} {to}: {status}");
        }
        let file = root.join(to);
        let text = std::fs::read_to_string(&file)?;
        let name = Path::new(from).file_stem().context("a name")?;
        let changed = relative_to_folder(&text, &name.to_string_lossy());
        if changed != text {
            std::fs::write(&file, changed)?;
        }
        println!("{from} -> {to}");
    }
    let mut documents = repository::files(root, "*.md")?;
    documents.extend(repository::files(root, "xtask/*.txt")?);
    for document in documents {
        let text = std::fs::read_to_string(root.join(&document))?;
        let mut changed = text.clone();
        for (from, to) in &moves {
            changed = changed.replace(from.as_str(), to);
        }
        if changed != text {
            std::fs::write(root.join(&document), changed)?;
            println!("{document}: paths");
        }
    }
    Ok(())
}

/// Each `name.rs` that has a folder `name` with Rust files, and where it belongs.
fn moves(files: &[String]) -> Vec<(String, String)> {
    files
        .iter()
        .filter_map(|file| {
            let module = file.strip_suffix(".rs")?;
            let below = format!("{module}/");
            // Programs of one file beside a folder of the same name are not modules.
            let in_sources = module.contains("/src/") || module.contains("/tests/");
            let has_children = files.iter().any(|other| other.starts_with(&below));
            // The root of an integration test is a program, which cargo finds as `main.rs`.
            let is_root = module.rsplit('/').nth(1) == Some("tests") && !module.contains("/src/");
            let name = if is_root { "main" } else { "mod" };
            (in_sources && has_children).then(|| (file.clone(), format!("{module}/{name}.rs")))
        })
        .collect()
}

/// Paths of `include_str!` and its like are relative to the file, which moves one folder down.
fn relative_to_folder(text: &str, name: &str) -> String {
    let mut changed = text.to_string();
    for including in [
        "include_str!(\"",
        "include_bytes!(\"",
        "include!(\"",
        "#[path = \"",
    ] {
        let mut result = String::new();
        let mut rest = changed.as_str();
        while let Some(at) = rest.find(including) {
            let (before, after) = rest.split_at(at + including.len());
            result.push_str(before);
            let inside = after.strip_prefix(&format!("{name}/"));
            let absolute = after.starts_with('/');
            rest = match inside {
                Some(inside) => inside,
                None if absolute => after,
                None => {
                    result.push_str("../");
                    after
                }
            };
        }
        result.push_str(rest);
        changed = result;
    }
    without_needless_paths(&changed)
}

/// Leaves out `#[path = "name.rs"]` in front of `mod name;`.
fn without_needless_paths(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut kept = String::new();
    for (index, line) in lines.iter().enumerate() {
        let named = line
            .strip_prefix("#[path = \"")
            .and_then(|rest| rest.strip_suffix(".rs\"]"));
        let next = lines.get(index + 1).copied().unwrap_or_default();
        if named.is_some_and(|name| next == format!("mod {name};")) {
            continue;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_with_children_are_moved_and_others_stay() {
        let files = [
            "crates/api/src/apply.rs",
            "crates/api/src/apply/merge.rs",
            "crates/api/src/field.rs",
            "crates/api/src/pod/mod.rs",
            "crates/api/src/pod/qos.rs",
            "crates/testkit/tests/costs.rs",
            "crates/testkit/tests/costs/meter.rs",
        ]
        .map(str::to_string);
        let expected = [
            ("crates/api/src/apply.rs", "crates/api/src/apply/mod.rs"),
            (
                "crates/testkit/tests/costs.rs",
                "crates/testkit/tests/costs/main.rs",
            ),
        ];
        let expected = expected.map(|(from, to)| (from.to_string(), to.to_string()));
        assert_eq!(moves(&files), expected);
    }

    #[test]
    fn included_files_are_found_from_the_new_place() {
        // Spelt apart so that moving this file does not change it.
        let text = [
            "#[path = \"schema/x.rs\"]\nmod x;\nlet a = include_",
            "str!(\"schema/a.tbl\"); include_",
            "bytes!(\"b.bin\");",
        ]
        .concat();
        let moved = relative_to_folder(&text, "schema");
        assert!(moved.contains("(\"a.tbl\")"), "{moved}");
        assert!(moved.contains("(\"../b.bin\")"), "{moved}");
        assert!(moved.starts_with("mod x;\n"), "{moved}");
    }
}
