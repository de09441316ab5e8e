//! The house rules that a compiler cannot check: documented files of bearable size, no unfinished
//! code, unsafe only where it belongs, crates that depend on each other as `ARCHITECTURE.md` says,
//! modules without import cycles, no blocking calls in async code, and documents whose paths, tests and keys exist. Checks, never
//! fixes.

mod blocking;
mod crates;
mod cycles;
mod dependencies;
mod documents;
mod files;
mod layout;
mod places;

use std::path::Path;

use anyhow::{Result, bail};

type Check = fn(&Path, &mut Vec<String>) -> Result<()>;

const CHECKS: [Check; 9] = [
    files::check,
    crates::check,
    dependencies::check,
    cycles::check,
    blocking::check,
    layout::check,
    documents::check,
    places::check,
    crate::reference::check,
];

pub fn run(root: &Path) -> Result<()> {
    let mut problems = Vec::new();
    for check in CHECKS {
        check(root, &mut problems)?;
    }
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => bail!("{count} problems"),
    }
}
