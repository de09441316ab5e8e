//! Counts the lines of Rust that are neither blank, nor comments, nor tests, by package.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::repository;

pub fn print(root: &Path) -> Result<()> {
    let mut texts = BTreeMap::new();
    for name in repository::files(root, "*.rs")? {
        let text = std::fs::read_to_string(root.join(&name))?;
        texts.insert(name, text);
    }
    let tests: BTreeSet<String> = texts
        .iter()
        .flat_map(|(name, text)| test_modules(name, text))
        .collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (name, text) in &texts {
        let stem = name.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        let is_test = name
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs")
            || tests
                .iter()
                .any(|test| stem == test || stem.starts_with(&format!("{test}/")));
        if !is_test {
            let parts = if name.starts_with("crates/") { 2 } else { 1 };
            let package = name.split('/').take(parts).collect::<Vec<_>>().join("/");
            *counts.entry(package).or_default() += count(text);
        }
    }
    for (package, lines) in &counts {
        println!("{lines:8} {package}");
    }
    println!("{:8} in all", counts.values().sum::<usize>());
    Ok(())
}

/// The files of `#[cfg(test)] mod name;`, without their endings.
fn test_modules(name: &str, text: &str) -> Vec<String> {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let folder = match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_string(),
        file => format!("{folder}/{}", file.trim_end_matches(".rs")),
    };
    let mut found = Vec::new();
    let mut after_attribute = false;
    for line in text.lines().map(str::trim) {
        let module = line
            .trim_start_matches("pub ")
            .trim_start_matches("pub(crate) ");
        if let Some(module) = module
            .strip_prefix("mod ")
            .and_then(|rest| rest.strip_suffix(';'))
            && after_attribute
        {
            found.push(format!("{folder}/{module}"));
        }
        after_attribute = line == "#[cfg(test)]" || after_attribute && line.starts_with("#[");
    }
    found
}

/// The lines that count; an item behind `#[cfg(test)]` ends where its indentation is closed.
fn count(text: &str) -> usize {
    let (mut lines, mut test_indent, mut begun) = (0, None, false);
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with("//") {
            continue;
        }
        let indent = line.len() - trimmed.len();
        match test_indent {
            None if trimmed.starts_with("#[cfg(test)]") => {
                (test_indent, begun) = (Some(indent), false)
            }
            None => lines += 1,
            Some(_) if !begun && trimmed.starts_with("#[") => {}
            Some(_) if !begun => {
                begun = true;
                if trimmed.ends_with([';', ',']) || trimmed.contains('{') && trimmed.ends_with('}')
                {
                    test_indent = None;
                }
            }
            Some(outer) if indent <= outer && trimmed.starts_with(['}', ')']) => test_indent = None,
            Some(_) => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_do_not_count() {
        let text = "//! Header.\n\nuse a;\n\n/// Doc.\nfn b() {\n    c(); // why\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn d() {\n    }\n}\n\n#[cfg(test)]\nmod e;\nfn f() {}\n";
        assert_eq!(count(text), 5);
        assert_eq!(
            test_modules("crates/x/src/lib.rs", text),
            ["crates/x/src/e"]
        );
        assert_eq!(
            test_modules("crates/x/src/y.rs", text),
            ["crates/x/src/y/e"]
        );
    }
}
