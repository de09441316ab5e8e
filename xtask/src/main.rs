//! Repository chores. `cargo xtask` without arguments lists them.

mod conformance_data;
mod judges;
mod lines;
mod reference;
mod repository;
mod skipped;
mod source;
mod tables;
mod tidy;

use anyhow::{Result, bail};

use judges::{cleanup, ecosystem, images, swap_control_plane, swap_node, test_vm};

const USAGE: &str = "usage: cargo xtask COMMAND

  tidy                        check the house rules that a compiler cannot
  tables [--check]            make the tables of facts about Kubernetes' kinds (needs Go), or compare them
  reference                   write docs/reference.md from the declarations in the source
  conformance-data SUMMARY    write docs/conformance-data.md from a summary of `make conformance`
  skipped FILE                compare the tests that were skipped with tests/skipped.txt
  lines                       count the lines that are neither blank, comments nor tests, by package

Judges (see the Makefile; they need root, and Go):
  conformance-images [NAME...], ecosystem [PART...], swap-control-plane [STAGE...], swap-node [ours|theirs], test-vm";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = repository::root()?;
    match words[..] {
        ["tidy"] => tidy::run(&root),
        ["tables"] => tables::write(&root),
        ["tables", "--check"] => tables::check(&root),
        ["reference"] => reference::write(&root),
        ["conformance-data", summary] => conformance_data::write(&root, summary.as_ref()),
        ["skipped", file] => skipped::compare(&root, file.as_ref()),
        ["lines"] => lines::print(&root),
        ["conformance-images", ref names @ ..] => images::main(&root, names),
        ["ecosystem", ref parts @ ..] => ecosystem::main(&root, parts),
        ["swap-control-plane", ref stages @ ..] => swap_control_plane::main(&root, stages),
        ["swap-node", ref which @ ..] => swap_node::main(&root, which),
        ["test-vm", ref rest @ ..] => test_vm::main(&root, rest),
        // Started by the judges themselves.
        [swap_node::INSIDE, ref rest @ ..] => swap_node::inside(rest),
        [cleanup::COMMAND] => cleanup::serve(),
        _ => bail!("{USAGE}"),
    }
}
