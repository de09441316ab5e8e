//! Repository chores: `cargo xtask tidy` checks the house rules that a compiler cannot.

mod tidy;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(),
        _ => bail!("usage: cargo xtask tidy"),
    }
}
