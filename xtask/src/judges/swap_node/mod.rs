//! Nodes and control planes are exchanged, with authentication and authorization on: our agent is a
//! node of upstream's API server, scheduler and controllers; upstream's kubelet, on our runtime, is
//! a node of our control plane. Both run the same workload; what was shown is printed, what does not
//! work fails.
//!
//! Each runs on a stage of its own: namespaces of mounts and network, in which names of public image
//! registries lead nowhere and nothing of the machine is touched but cgroups.

mod scenario;
mod stage;
mod upstream;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use self::stage::Stage;
use super::cleanup::Cleanup;
use super::command::{command, output, run, text};
use super::images;
use super::setting::{Setting, need_packages};

pub const USAGE: &str = "cargo xtask swap-node [ours|theirs]
  ours    our agent is a node of upstream's control plane
  theirs  upstream's kubelet, on our runtime, is a node of our control plane
CORACLE: the binary to judge; RESULTS: where logs go";

/// The hidden command that runs inside the namespaces.
pub const INSIDE: &str = "swap-node-inside";

#[derive(Clone, Copy, PartialEq, Debug)]
enum Which {
    Ours,
    Theirs,
}

impl Which {
    fn parse(word: &str) -> Result<Which> {
        match word {
            "ours" => Ok(Which::Ours),
            "theirs" => Ok(Which::Theirs),
            _ => bail!("{USAGE}"),
        }
    }

    /// Also the name of the node.
    fn name(self) -> &'static str {
        match self {
            Which::Ours => "ours",
            Which::Theirs => "theirs",
        }
    }
}

fn parse(arguments: &[&str]) -> Result<Vec<Which>> {
    match arguments {
        [] => Ok(vec![Which::Ours, Which::Theirs]),
        [word] => Ok(vec![Which::parse(word)?]),
        _ => bail!("{USAGE}"),
    }
}

/// Builds what both need, then runs each in namespaces of its own.
pub fn main(root: &Path, arguments: &[&str]) -> Result<()> {
    let wanted = parse(arguments)?;
    let user = output(&mut command(&["id", "-u"]))?;
    ensure!(user == "0", "This target needs root.");
    need_packages(&[
        "curl",
        "jq",
        "openssl",
        "iproute2",
        "iptables",
        "containernetworking-plugins",
        "etcd-server",
    ])?;
    let setting = Setting::new(root);
    let coracle = setting.coracle()?;
    let tools = setting.tools(&[
        "kube-apiserver",
        "kube-scheduler",
        "kube-controller-manager",
        "kubelet",
        "kubectl",
    ])?;
    let results = setting.results("swap-node");
    std::fs::create_dir_all(&results)?;
    let image = results.join("coracle-test.tar");
    run(setting
        .script("image")
        .arg("docker.io/library/coracle-test:1")
        .arg(&image))?;
    let critest = images::make(&setting, &["critest"])?;
    let archive = critest.join("critest/test-image-digest.tar");
    let index = output(&mut command(&[
        "tar",
        "-xOf",
        text(&archive)?,
        "index.json",
    ]))?;
    let digest = first_digest(&index).context("a digest in the image's index")?;
    let cri_tools = output(setting.script("critest-tools").arg(digest))?;
    for which in wanted {
        run(Command::new("unshare")
            .args(["--mount", "--net", "--propagation", "private"])
            .arg(std::env::current_exe()?)
            .args([INSIDE, which.name(), text(&coracle)?, text(&tools)?])
            .args([
                &cri_tools,
                text(&image)?,
                text(&results.join(which.name()))?,
            ]))?;
    }
    Ok(())
}

/// What runs inside the namespaces.
pub fn inside(arguments: &[&str]) -> Result<()> {
    let [which, coracle, tools, cri_tools, image, results] = arguments else {
        bail!("{USAGE}");
    };
    let which = Which::parse(which)?;
    let mut cleanup = Cleanup::start()?;
    let programs = Programs {
        coracle: coracle.into(),
        upstream: tools.into(),
        cri_tools: cri_tools.into(),
        image: image.into(),
    };
    let mut stage = Stage::open(which, programs, &mut cleanup, Path::new(results))?;
    let done = stage.play();
    if done.is_err() {
        stage.show_failure();
    }
    drop(stage);
    cleanup.finish()?;
    done
}

/// What is judged, and by what.
struct Programs {
    coracle: PathBuf,
    /// The folder with upstream's commands.
    upstream: PathBuf,
    /// The folder with crictl.
    cri_tools: PathBuf,
    /// The archive of the workload's image.
    image: PathBuf,
}

/// The first `sha256:…` of an index.
fn first_digest(index: &str) -> Option<&str> {
    let rest = &index[index.find("sha256:")?..];
    let end = rest[7..].find(|letter: char| !letter.is_ascii_hexdigit());
    Some(&rest[..7 + end.unwrap_or(rest.len() - 7)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_exchange_or_both() {
        assert_eq!(parse(&[]).unwrap(), [Which::Ours, Which::Theirs]);
        assert_eq!(parse(&["theirs"]).unwrap(), [Which::Theirs]);
        assert!(parse(&["both"]).is_err());
        assert!(parse(&["ours", "theirs"]).is_err());
    }

    #[test]
    fn a_digest_is_found_in_an_index() {
        let index = r#"{"manifests":[{"digest":"sha256:0af1","size":2}]}"#;
        assert_eq!(first_digest(index), Some("sha256:0af1"));
        assert_eq!(first_digest("{}"), None);
    }
}
