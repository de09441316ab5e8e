//! Dependencies: every one that a package declares occurs in its sources, all versions are in the
//! table of the workspace, every package inherits the workspace's settings, and nothing of that
//! table is unused.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{repository, source};

/// Dependencies whose name occurs only in code that is generated when the crate is built.
const IN_GENERATED_CODE: [(&str, &str); 2] = [("cri", "prost"), ("cri", "tonic-prost")];

pub fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let mut used = BTreeSet::new();
    for package in repository::packages(root)? {
        let name = package["name"].as_str().context("a name")?;
        let manifest = Path::new(package["manifest_path"].as_str().context("a manifest")?);
        let folder = manifest.parent().context("a folder")?;
        let text = std::fs::read_to_string(manifest)?;
        check_manifest(name, &text, problems);
        let sources = Sources::read(folder, &package)?;
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let declared = dependency["name"].as_str().context("a dependency")?;
            used.insert(declared.to_string());
            let called = dependency["rename"].as_str().unwrap_or(declared);
            let is_used = mentions(sources.of(dependency["kind"].as_str()), called);
            if !is_used && !IN_GENERATED_CODE.contains(&(name, declared)) {
                problems.push(format!(
                    "{name} declares {declared}{}, which its sources do not mention",
                    match dependency["kind"].as_str() {
                        Some(kind) => format!(" ({kind})"),
                        None => String::new(),
                    }
                ));
            }
        }
    }
    let workspace = std::fs::read_to_string(root.join("Cargo.toml"))?;
    for name in keys(&workspace, "workspace.dependencies") {
        let is_member = root.join("crates").join(&name).exists();
        if !used.contains(&name) && !is_member {
            problems.push(format!("Cargo.toml lists {name}, which no crate uses"));
        }
    }
    if !keys(&workspace, "workspace.package").contains("rust-version") {
        problems.push("Cargo.toml does not set rust-version".to_string());
    }
    Ok(())
}

/// A member inherits versions and settings from the workspace.
fn check_manifest(name: &str, manifest: &str, problems: &mut Vec<String>) {
    let mut section = "";
    for line in manifest.lines() {
        if let Some(heading) = line.strip_prefix('[') {
            section = heading.trim_end_matches(']');
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let value = value.trim();
        if section.ends_with("dependencies")
            && (value.starts_with('"') || value.contains("version"))
        {
            problems.push(format!(
                "{name} gives {} a version of its own: it belongs into the workspace's table",
                key.trim()
            ));
        }
    }
    for inherited in ["version", "edition", "license", "publish", "rust-version"] {
        if !manifest.contains(&format!("\n{inherited}.workspace = true")) {
            problems.push(format!(
                "{name} does not inherit {inherited} from the workspace"
            ));
        }
    }
    if !manifest.contains("[lints]\nworkspace = true") {
        problems.push(format!("{name} does not inherit the workspace's lints"));
    }
}

/// The text of a package's sources, by what they are built for.
struct Sources {
    program: String,
    build: String,
    all: String,
}

impl Sources {
    fn read(folder: &Path, package: &Value) -> Result<Sources> {
        let join = |files: Vec<std::path::PathBuf>| -> Result<String> {
            let texts: Result<Vec<String>, _> = files.iter().map(std::fs::read_to_string).collect();
            Ok(texts?.join("\n"))
        };
        let mut all = source::rust_files(folder)?;
        for target in package["targets"].as_array().into_iter().flatten() {
            let file = Path::new(target["src_path"].as_str().unwrap_or_default());
            // Tests that lie beside the package, such as tests/e2e.
            if !file.starts_with(folder) {
                all.extend(source::rust_files(file.parent().context("a folder")?)?);
            }
        }
        let build = folder.join("build.rs");
        Ok(Sources {
            program: join(source::rust_files(&folder.join("src"))?)?,
            build: std::fs::read_to_string(build).unwrap_or_default(),
            all: join(all)?,
        })
    }

    fn of(&self, kind: Option<&str>) -> &str {
        match kind {
            None => &self.program,
            Some("build") => &self.build,
            Some(_) => &self.all,
        }
    }
}

/// Whether the name of a crate occurs as a word.
fn mentions(text: &str, name: &str) -> bool {
    let name = name.replace('-', "_");
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(&name).any(|(at, _)| {
        let before = text[..at].chars().next_back().is_some_and(is_word);
        let after = text[at + name.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

/// The keys of one section of a manifest.
fn keys(manifest: &str, section: &str) -> BTreeSet<String> {
    manifest
        .lines()
        .skip_while(|line| *line != format!("[{section}]"))
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" = "))
        .map(|(key, _)| key.trim().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_words() {
        assert!(mentions("use http_body::Body;", "http-body"));
        assert!(!mentions("use http_body_util::Full;", "http-body"));
        assert!(mentions("libc::kill()", "libc"));
        assert!(!mentions("nix::libcall()", "libc"));
    }

    #[test]
    fn versions_belong_into_the_workspace() {
        let good = "[package]\nname = \"a\"\nversion.workspace = true\nedition.workspace = true\nlicense.workspace = true\npublish.workspace = true\nrust-version.workspace = true\n[lints]\nworkspace = true\n[dependencies]\nserde.workspace = true\ntokio = { workspace = true, features = [\"fs\"] }\n";
        let mut problems = Vec::new();
        check_manifest("a", good, &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        let bad = good.replace(
            "serde.workspace = true",
            "serde = \"1\"\ntoml = { version = \"1\" }",
        );
        check_manifest("a", &bad, &mut problems);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn keys_are_those_of_the_section() {
        let text = "[a]\nx = 1\n[b]\ny = 2\nz-w = { version = \"1\" }\n[c]\nv = 3\n";
        assert_eq!(keys(text, "b"), ["y", "z-w"].map(str::to_string).into());
    }
}
