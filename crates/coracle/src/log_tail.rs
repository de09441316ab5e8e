//! The end of a log file, for the error of a command whose server failed.

use std::path::Path;

const LINES: usize = 12;

/// The last lines of a log file; empty where it cannot be read.
pub fn log_tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
