//! Rules for single Rust files: they open with what they are, have a bearable size, contain nothing
//! unfinished, and use `unsafe` only in the crates that talk to the kernel.

use std::path::Path;

use anyhow::Result;

use crate::repository;

const MAX_LINES: usize = 1000;
/// Crates that talk to the kernel and may use `unsafe`.
const UNSAFE_CRATES: [&str; 2] = ["runtime", "network"];

pub fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    for name in repository::files(root, "*.rs")? {
        let text = std::fs::read_to_string(root.join(&name))?;
        check_text(&name, &text, problems);
    }
    Ok(())
}

fn check_text(name: &str, text: &str, problems: &mut Vec<String>) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_opens_with_what_it_is_and_is_not_too_long() {
        let mut problems = Vec::new();
        check_text("good.rs", "//! Good.\n", &mut problems);
        assert!(problems.is_empty());
        check_text("bare.rs", "fn main() {}\n", &mut problems);
        check_text(
            "long.rs",
            &format!("//! Long.\n{}", "\n".repeat(1000)),
            &mut problems,
        );
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
