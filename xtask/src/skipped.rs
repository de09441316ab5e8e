//! Tests that could not run on this machine. Each of them appends a line `BINARY::TEST: WHY` to the
//! file named by the environment variable `CORACLE_SKIPPED_TESTS`; `make test` counts them at its
//! end and compares them with the committed list, so that no test stops running unnoticed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

const LIST: &str = "tests/skipped.txt";

pub fn compare(root: &Path, recorded: &Path) -> Result<()> {
    let list = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    let listed = parse(&list)?;
    // No file: nothing was skipped.
    let skipped = parse(&std::fs::read_to_string(recorded).unwrap_or_default())?;
    for (test, why) in &skipped {
        println!("skipped: {test}: {why}");
    }
    for test in listed.keys().filter(|test| !skipped.contains_key(*test)) {
        println!("ran here, though {LIST} lists it: {test}");
    }
    let unlisted: Vec<&String> = skipped
        .keys()
        .filter(|test| !listed.contains_key(*test))
        .collect();
    println!(
        "{} tests were skipped on this machine, {} are listed in {LIST}",
        skipped.len(),
        listed.len()
    );
    if !unlisted.is_empty() {
        bail!(
            "{} skipped tests are not listed in {LIST}: {unlisted:?}",
            unlisted.len()
        );
    }
    Ok(())
}

/// The reason by test. A test that was skipped several times counts once.
fn parse(text: &str) -> Result<BTreeMap<String, String>> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (test, why) = line
                .split_once(": ")
                .with_context(|| format!("expected BINARY::TEST: WHY, found {line:?}"))?;
            Ok((test.to_string(), why.to_string()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(listed: &str, recorded: Option<&str>) -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tests")).unwrap();
        std::fs::write(folder.path().join(LIST), listed).unwrap();
        let file = folder.path().join("recorded");
        if let Some(text) = recorded {
            std::fs::write(&file, text).unwrap();
        }
        compare(folder.path(), &file)
    }

    #[test]
    fn only_listed_tests_may_be_skipped() {
        let list = "# Known.\nnode::a::runs: no crun\n";
        assert!(compared(list, None).is_ok());
        assert!(
            compared(
                list,
                Some("node::a::runs: no crun\nnode::a::runs: no crun\n")
            )
            .is_ok()
        );
        assert!(compared(list, Some("node::b::runs: no runc\n")).is_err());
        assert!(compared(list, Some("no reason\n")).is_err());
    }
}
