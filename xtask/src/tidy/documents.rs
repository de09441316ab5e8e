//! Documents: paths and links in them exist, the differences have unique keys and tests that exist,
//! and every test that the lists of bugs and promises name is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::repository;

const DIFFERENCES: &str = "docs/differences.md";
/// Documents whose words in backticks with two underscores or more are names of tests.
const CITING: [&str; 2] = ["docs/found.md", "SPECIFICATION.md"];
/// Such words that are names of metrics or functions instead.
const NOT_TESTS: [&str; 4] = ["coracle_", "kubelet_", "etcd_", "apiserver_"];
/// Folders whose paths are checked wherever a document names them in backticks.
const FOLDERS: [&str; 9] = [
    "crates/",
    "docs/",
    "scripts/",
    "tests/",
    "xtask/",
    "tools/",
    "bench/",
    "examples/",
    ".ci/",
];

pub fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let mut functions = BTreeSet::new();
    let mut sources = BTreeMap::new();
    for name in repository::files(root, "*.rs")? {
        let text = std::fs::read_to_string(root.join(&name))?;
        functions.extend(declared_functions(&text));
        sources.insert(name, text);
    }
    for name in repository::files(root, "*.md")? {
        // What was true once.
        if name == "CHANGELOG.md" {
            continue;
        }
        let text = std::fs::read_to_string(root.join(&name))?;
        check_paths(root, &name, &text, problems);
        if CITING.contains(&name.as_str()) {
            check_cited(&name, &text, &functions, problems);
        }
    }
    let text = std::fs::read_to_string(root.join(DIFFERENCES))?;
    check_differences(&text, &sources, problems);
    Ok(())
}

/// Paths of the repository in backticks, and targets of links.
fn check_paths(root: &Path, name: &str, text: &str, problems: &mut Vec<String>) {
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    for word in text.split('`').skip(1).step_by(2) {
        // "crates/x/src/y.rs:12" and "crates/x/src/y.rs::name" name something in the file.
        let path = word.split([':', ' ']).next().unwrap_or_default();
        let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder));
        let is_pattern = path.contains(['*', '<', '{', '…', '$']) || path.contains("NAME");
        if is_path && !is_pattern && !root.join(path).exists() {
            problems.push(format!("{name} names {path}, which does not exist"));
        }
    }
    for (target, _) in links(text) {
        let file = target.split('#').next().unwrap_or_default();
        if !file.is_empty() && !file.contains("://") && !root.join(folder).join(file).exists() {
            problems.push(format!("{name} links to {target}, which does not exist"));
        }
    }
}

/// Targets and labels of `[label](target)`.
fn links(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let label = rest[..at].rsplit('[').next().unwrap_or_default();
        let after = &rest[at + 2..];
        let end = after.find(')').unwrap_or(after.len());
        found.push((&after[..end], label));
        rest = &after[end..];
    }
    found
}

fn check_cited(name: &str, text: &str, functions: &BTreeSet<String>, problems: &mut Vec<String>) {
    for word in text.split('`').skip(1).step_by(2) {
        let is_name = word.matches('_').count() >= 2
            && word.chars().all(|letter| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'
            });
        let is_test = is_name && !NOT_TESTS.iter().any(|prefix| word.starts_with(prefix));
        if is_test && !functions.contains(word) {
            problems.push(format!("{name} cites {word}, which is not a test any more"));
        }
    }
}

fn declared_functions(text: &str) -> impl Iterator<Item = String> + '_ {
    text.match_indices("fn ").filter_map(|(at, _)| {
        let rest = &text[at + 3..];
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
        Some(rest[..end].to_string())
    })
}

/// Rows such as "| D-API-1 | what | upstream | Coracle | why | [`test`](../file.rs) |".
fn check_differences(text: &str, sources: &BTreeMap<String, String>, problems: &mut Vec<String>) {
    let (mut keys, mut subjects) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if cells[0] == "key" {
            continue;
        }
        let key = cells[0];
        if cells.len() != 6 || !key.starts_with("D-") {
            problems.push(format!(
                "{DIFFERENCES}: a row without key or with other than six cells: {key}"
            ));
            continue;
        }
        if !keys.insert(key) {
            problems.push(format!("{DIFFERENCES} has the key {key} twice"));
        }
        if !subjects.insert(cells[1]) {
            problems.push(format!("{DIFFERENCES} has two rows about {}", cells[1]));
        }
        let tests = links(cells[5]);
        if tests.is_empty() {
            problems.push(format!("{DIFFERENCES}: {key} links to no test"));
        }
        for (target, label) in tests {
            let file = target.trim_start_matches("../");
            let name = label.trim_matches('`');
            // A list or a comparison is linked by its file's name.
            if file.ends_with(&format!("/{name}")) || !file.ends_with(".rs") {
                continue;
            }
            let declared = sources
                .get(file)
                .is_some_and(|text| declared_functions(text).any(|function| function == name));
            if !declared {
                problems.push(format!("{DIFFERENCES}: {key}: {file} has no test {name}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_targets_and_labels() {
        assert_eq!(
            links("see [`a`](../b.rs), [c](d.md#e)"),
            [("../b.rs", "`a`"), ("d.md#e", "c")]
        );
    }

    #[test]
    fn differences_have_unique_keys_and_tests_that_exist() {
        let row = |key: &str, what: &str, test: &str| {
            format!("| {key} | {what} | a | b | c | {test} |\n")
        };
        let sources = [(
            "crates/a/src/b.rs".to_string(),
            "fn it_works() {}".to_string(),
        )];
        let sources = BTreeMap::from(sources);
        let check = |rows: String| {
            let mut problems = Vec::new();
            check_differences(&format!("| key | what |\n{rows}"), &sources, &mut problems);
            problems
        };
        let good = "[`it_works`](../crates/a/src/b.rs)";
        assert_eq!(check(row("D-A-1", "one", good)), [""; 0]);
        assert_eq!(
            check(row("D-A-1", "one", good) + &row("D-A-1", "two", good)).len(),
            1
        );
        assert_eq!(
            check(row("D-A-1", "one", good) + &row("D-A-2", "one", good)).len(),
            1
        );
        assert_eq!(
            check(row("D-A-1", "one", "[`gone`](../crates/a/src/b.rs)")).len(),
            1
        );
        assert_eq!(check(row("D-A-1", "one", "by hand")).len(), 1);
    }

    #[test]
    fn cited_tests_must_exist() {
        let functions = BTreeSet::from(["it_does_work".to_string()]);
        let mut problems = Vec::new();
        check_cited(
            "x.md",
            "`it_does_work`, `it_is_gone`, `coracle_a_total`",
            &functions,
            &mut problems,
        );
        assert_eq!(problems.len(), 1);
    }
}
