//! Compares the table of crates in `ARCHITECTURE.md` with the dependencies that cargo knows: every
//! crate is listed, uses nothing that its row does not allow, and its row allows nothing unused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::repository;

type Edges = BTreeMap<String, BTreeSet<String>>;

pub fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let table = std::fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    compare(
        &documented(&table),
        &actual(&repository::packages(root)?),
        problems,
    );
    Ok(())
}

fn compare(allowed: &Edges, actual: &Edges, problems: &mut Vec<String>) {
    for name in actual.keys().filter(|name| !allowed.contains_key(*name)) {
        problems.push(format!(
            "crate {name} is missing from the table in ARCHITECTURE.md"
        ));
    }
    for (name, may_use) in allowed {
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
        for unused in may_use.difference(uses) {
            problems.push(format!(
                "ARCHITECTURE.md lets {name} use {unused}, which it does not"
            ));
        }
    }
}

/// Rows such as "| `api` | … | environment |" below the heading "## Crates".
fn documented(text: &str) -> Edges {
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
fn actual(packages: &[Value]) -> Edges {
    let names: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let uses = dependencies
                .filter(|dependency| dependency["kind"].is_null())
                .filter_map(|dependency| dependency["name"].as_str())
                .filter(|name| names.contains(name))
                .map(str::to_string)
                .collect();
            let name = package["name"].as_str().unwrap_or_default();
            (name.to_string(), uses)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undocumented_unused_and_unknown_edges_are_reported() {
        let table = "## Crates\n| crate | | may use |\n|---|---|---|\n| `a` | x | b, c |\n| `b` | x | – |\n| `gone` | x | – |\n| `top` | x | all |\n## Next\n";
        let edges = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let actual = [
            ("a", edges(&["b", "d"])),
            ("b", edges(&[])),
            ("new", edges(&[])),
            ("top", edges(&["a"])),
        ];
        let actual = actual.map(|(name, uses)| (name.to_string(), uses)).into();
        let mut problems = Vec::new();
        compare(&documented(table), &actual, &mut problems);
        assert_eq!(
            problems,
            [
                "crate new is missing from the table in ARCHITECTURE.md",
                "a uses d, which ARCHITECTURE.md does not allow",
                "ARCHITECTURE.md lets a use c, which it does not",
                "ARCHITECTURE.md names gone, which does not exist",
            ]
        );
    }
}
