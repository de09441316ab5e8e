//! The repository: its root, its files as git knows them, and what cargo knows of its packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The repository of the package that cargo runs, or the one around the present directory: not the
/// one where this program was compiled, since worktrees may share a target directory.
pub fn root() -> Result<PathBuf> {
    let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(manifest) => PathBuf::from(manifest),
        None => std::env::current_dir()?,
    };
    let root = start
        .ancestors()
        .find(|path| path.join("Cargo.lock").exists());
    Ok(root
        .context("the command runs in the repository")?
        .to_path_buf())
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
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(metadata["packages"].as_array().context("packages")?.clone())
}
