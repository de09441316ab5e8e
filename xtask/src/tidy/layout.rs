//! One layout of modules: a module with children is `name/mod.rs`, never `name.rs` next to `name/`.

use std::path::Path;

use anyhow::Result;

use crate::repository;

pub fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    for (from, to) in moves(&repository::files(root, "*.rs")?) {
        problems.push(format!("{from} has children: it belongs to {to}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_with_children_belong_into_their_folder() {
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
}
