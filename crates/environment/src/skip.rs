//! Tests that cannot run on every machine, because it lacks a kernel feature or a program.
//!
//! This is the only place outside the binary that reads an environment variable: it is called by
//! tests alone.

use std::io::Write;

/// The variable with the path of the file to which skipped tests are appended.
const RECORD: &str = "CORACLE_SKIPPED_TESTS";

/// Reports that the current test does not run on this machine, and why. The caller then returns.
///
/// Prints `skipped: BINARY::TEST: WHY` on standard error, also where the test harness captures
/// output, and appends `BINARY::TEST: WHY` to the file in `CORACLE_SKIPPED_TESTS`, if it is set. It
/// must be called on the test's own thread, which has the name of the test.
pub fn skip_test(why: &str) {
    let thread = std::thread::current();
    let line = line(&binary(), thread.name().unwrap_or("unknown"), why);
    let _ = writeln!(std::io::stderr(), "skipped: {line}");
    let Some(file) = std::env::var_os(RECORD) else {
        return;
    };
    let file = std::path::PathBuf::from(file);
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file);
    // One write per line, so that lines of tests that run side by side do not mix.
    let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        panic!("{} cannot be written: {error}", file.display());
    }
}

fn line(binary: &str, test: &str, why: &str) -> String {
    format!("{binary}::{test}: {why}")
}

/// The name of the test binary without the hash that cargo appends.
fn binary() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    match stem.rsplit_once('-') {
        Some((name, _)) => name.to_owned(),
        None => stem.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_recorded_with_its_binary_and_reason() {
        assert_eq!(
            line(&binary(), "node::runs", "no crun"),
            "environment::node::runs: no crun"
        );
    }
}
