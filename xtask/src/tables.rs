//! The committed tables of facts about Kubernetes' kinds, and the Go programs in `tools/tables` that
//! make them. Needs Go and Debian's etcd-server; building Coracle needs neither.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The kinds whose samples are committed; the check takes those of every kind.
const SAMPLED: &str = "crates/api/src/protobuf/samples.txt";

/// Makes every table anew.
pub fn write(root: &Path) -> Result<()> {
    for (file, text) in generate(root)? {
        std::fs::write(root.join(file), text).context(file)?;
        println!("{file}");
    }
    Ok(())
}

/// Compares the committed tables with what the generators make, and our protobuf with Go's for every
/// kind. Changes nothing.
pub fn check(root: &Path) -> Result<()> {
    let mut differ = Vec::new();
    for (file, text) in generate(root)? {
        let committed = std::fs::read_to_string(root.join(file)).context(file)?;
        match first_difference(&committed, &text) {
            Some(line) => differ.push(format!("{file}:{line}")),
            None => println!("{file}: {} lines, as generated", text.lines().count()),
        }
    }
    if !differ.is_empty() {
        bail!(
            "not what the generator makes (see `cargo xtask tables`): {}",
            differ.join(", ")
        );
    }
    check_protobuf(root)
}

/// Encodes and decodes samples of every kind and compares them with Go's bytes.
fn check_protobuf(root: &Path) -> Result<()> {
    let samples = go(root, &["run", "./samples"])?;
    let file = std::env::temp_dir().join(format!("protobuf-samples-{}", std::process::id()));
    std::fs::write(&file, &samples)?;
    let result = Command::new("cargo")
        .args(["test", "--locked", "-q", "-p", "api", "--lib", "by_go"])
        .env("CORACLE_PROTOBUF_SAMPLES", &file)
        .current_dir(root)
        .status();
    std::fs::remove_file(&file)?;
    if !result?.success() {
        bail!("protobuf differs from Go's");
    }
    println!(
        "protobuf: {} objects of every kind, byte for byte as Go writes them",
        samples.lines().count()
    );
    Ok(())
}

/// Each table with what its generator prints.
fn generate(root: &Path) -> Result<Vec<(&'static str, String)>> {
    let tools = run(Command::new(root.join("scripts/conformance-tools")).arg("kube-apiserver"))?;
    let server = Path::new(tools.trim()).join("kube-apiserver");
    let server = server.to_str().context("a path in UTF-8")?;
    let sampled = std::fs::read_to_string(root.join(SAMPLED))?;
    let mut samples = vec!["run", "./samples"];
    for line in sampled.lines() {
        let kind = line.split('\t').nth(1).context("a sample has a kind")?;
        if !samples.contains(&kind) {
            samples.push(kind);
        }
    }
    Ok(vec![
        ("crates/api/src/schema/types.tbl", go(root, &["run", "."])?),
        (
            "crates/api/src/catalogue/kinds.tbl",
            go(root, &["run", "./kinds", "--kube-apiserver", server])?,
        ),
        (
            "crates/api/src/features/features.tbl",
            go(root, &["run", "./features"])?,
        ),
        (SAMPLED, go(root, &samples)?),
    ])
}

fn go(root: &Path, arguments: &[&str]) -> Result<String> {
    run(Command::new("go")
        .args(arguments)
        .current_dir(root.join("tools/tables")))
}

fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The number of the first line that is not the same.
fn first_difference(left: &str, right: &str) -> Option<usize> {
    let same = left
        .lines()
        .zip(right.lines())
        .take_while(|(left, right)| left == right)
        .count();
    (left != right).then_some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
    }
}
