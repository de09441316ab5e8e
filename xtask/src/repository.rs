//! The repository: its root, its files as git knows them, and what cargo knows of its packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    Ok(root.context("xtask lies in the repository")?.to_path_buf())
}

/// Every file that git knows or would add and that matches the pattern, relative to the root.
pub fn files(root: &Path, pattern: &str) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .arg(pattern)
        .current_dir(root)
        .output()?;
    ensure!(output.status.success(), "git ls-files: {}", output.status);
    let mut files: Vec<String> = String::from_utf8(output.stdout)?
        .lines()
        .filter(|line| root.join(line).exists())
        .map(str::to_string)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// The packages of the workspace, as `cargo metadata` describes them.
pub fn packages(root: &Path) -> Result<Vec<Value>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(metadata["packages"].as_array().context("packages")?.clone())
}
