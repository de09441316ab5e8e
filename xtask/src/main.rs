//! Repository chores: `cargo xtask tidy` checks the house rules that a compiler cannot; `cargo xtask
//! tables` makes the tables of facts about Kubernetes' kinds (needs Go), with `--check` it compares them.

mod cycles;
mod tables;
mod tidy;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["tidy"] => tidy::run(),
        ["tables"] => tables::write(),
        ["tables", "--check"] => tables::check(),
        _ => bail!("usage: cargo xtask tidy | tables [--check]"),
    }
}
