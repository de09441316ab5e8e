//! The house rules: documented files of bearable size, no unfinished code, unsafe only where it
//! belongs, crates that depend on each other as `ARCHITECTURE.md` says, and modules that do not
//! import each other in a circle. Checks, never fixes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

const MAX_LINES: usize = 1000;
/// Crates that talk to the kernel and may use `unsafe`.
const UNSAFE_CRATES: [&str; 2] = ["runtime", "network"];

pub fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in the repository")?;
    let mut problems = Vec::new();
    for file in rust_files(root)? {
        check_file(root, &file, &mut problems)?;
    }
    check_crates(root, &mut problems)?;
    crate::cycles::check(root, &mut problems)?;
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => bail!("{count} problems"),
    }
}

/// Every Rust file that git knows or would add.
fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.rs",
        ])
        .current_dir(root)
        .output()?;
    Ok(String::from_utf8(output.stdout)?
        .lines()
        .map(|line| root.join(line))
        .filter(|path| path.exists())
        .collect())
}

fn check_file(root: &Path, file: &Path, problems: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(file)?;
    let name = file.strip_prefix(root)?.display().to_string();
    if !text.lines().take(12).any(|line| line.starts_with("//!")) {
        problems.push(format!("{name} does not open with //! saying what it is"));
    }
    let lines = text.lines().count();
    let reasoned = text
        .lines()
        .take(12)
        .any(|line| line.contains("Long because"));
    if lines > MAX_LINES && !reasoned {
        problems.push(format!("{name} has {lines} lines: split it"));
    }
    // Spelt apart so that this file does not find itself.
    for word in [["todo", "!("], ["unimplemented", "!("], ["#[ign", "ore"]] {
        if text.contains(&word.concat()) {
            problems.push(format!("{name} contains {}", word.concat()));
        }
    }
    let in_unsafe_crate = UNSAFE_CRATES
        .iter()
        .any(|krate| name.starts_with(&format!("crates/{krate}/")));
    let allows = text.contains(&["allow(unsafe", "_code)"].concat());
    if allows && !in_unsafe_crate {
        problems.push(format!(
            "{name} allows unsafe code outside runtime and network"
        ));
    }
    Ok(())
}

/// Compares the table of crates in `ARCHITECTURE.md` with what cargo knows.
fn check_crates(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let allowed = documented_edges(&std::fs::read_to_string(root.join("ARCHITECTURE.md"))?);
    let actual = actual_edges(root)?;
    for name in actual.keys().filter(|name| !allowed.contains_key(*name)) {
        problems.push(format!(
            "crate {name} is missing from the table in ARCHITECTURE.md"
        ));
    }
    for (name, may_use) in &allowed {
        let Some(uses) = actual.get(name) else {
            problems.push(format!(
                "ARCHITECTURE.md names {name}, which does not exist"
            ));
            continue;
        };
        if may_use.contains("all") {
            continue;
        }
        for used in uses.difference(may_use) {
            problems.push(format!(
                "{name} uses {used}, which ARCHITECTURE.md does not allow"
            ));
        }
    }
    Ok(())
}

/// Rows such as "| `api` | … | environment |" below the heading "## Crates".
fn documented_edges(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    text.lines()
        .skip_while(|line| *line != "## Crates")
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let name = cells.first()?.strip_prefix('`')?.strip_suffix('`')?;
            let uses = cells
                .last()?
                .split(',')
                .map(|word| word.trim().to_string())
                .filter(|word| word != "–" && !word.is_empty())
                .collect();
            Some((name.to_string(), uses))
        })
        .collect()
}

/// Per workspace crate, the workspace crates it depends on outside of tests.
fn actual_edges(root: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let names: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    Ok(packages
        .iter()
        .map(|package| {
            let uses = package["dependencies"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|dependency| dependency["kind"].is_null())
                .filter_map(|dependency| dependency["name"].as_str())
                .filter(|name| names.contains(name))
                .map(str::to_string)
                .collect();
            (
                package["name"].as_str().unwrap_or_default().to_string(),
                uses,
            )
        })
        .collect())
}
