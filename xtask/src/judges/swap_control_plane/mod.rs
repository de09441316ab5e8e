//! Parts of the control plane change places with upstream's, built from Kubernetes' own module, and
//! must bring the same workloads to the same end. The scenario is the crate `testkit`'s `swap`:
//! every kind of workload, edits, rollbacks, deletions, quota, volumes, evictions, a node that is
//! tainted, lost and found. It ends in the state of all objects without what chance decides (generated
//! names, hashes, addresses, times, placements); any difference between two states is a failure.
//!
//! On our API server node-0 is a real node; the others, and all of upstream's, are simulated.

mod stage;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use self::stage::run_stage;
use super::command::{run, sh, text};
use super::setting::{Setting, need_packages, variable};

const STAGES: [&str; 5] = ["upstream", "ours", "scheduler", "controllers", "foreign"];

pub const USAGE: &str = "cargo xtask swap-control-plane [STAGE...]
  upstream     kube-apiserver, etcd, kube-scheduler, kube-controller-manager: what is right
  ours         Coracle alone
  scheduler    Coracle's API server and controllers, kube-scheduler
  controllers  Coracle's API server and scheduler, kube-controller-manager
  foreign      kube-apiserver and etcd, Coracle's scheduler and controllers, each a process
CORACLE, SWAP: the binaries to judge with; RESULTS: where lists and logs go; PICTURES=1: only compare
what lies there";

pub fn main(root: &Path, arguments: &[&str]) -> Result<()> {
    let stages = stages(arguments)?;
    let setting = Setting::new(root);
    let results = setting.results("swap-control-plane");
    std::fs::create_dir_all(&results)?;
    if variable("PICTURES").is_none() {
        let parts = Parts::prepare(&setting)?;
        for stage in &stages {
            run_stage(&parts, stage, &results.join(stage))?;
        }
    }
    compare(&results, &stages)
}

fn stages<'a>(arguments: &[&'a str]) -> Result<Vec<&'a str>> {
    if arguments.is_empty() {
        return Ok(STAGES.to_vec());
    }
    for stage in arguments {
        ensure!(STAGES.contains(stage), "no stage {stage}\n{USAGE}");
    }
    Ok(arguments.to_vec())
}

fn say(text: &str) {
    println!("swap-control-plane: {text}");
}

/// The programs and images that all stages use.
struct Parts {
    upstream: PathBuf,
    coracle: PathBuf,
    swap: PathBuf,
    images: [PathBuf; 2],
}

impl Parts {
    fn prepare(setting: &Setting) -> Result<Parts> {
        need_packages(&["etcd-server", "openssl", "curl"])?;
        let upstream = setting.tools(&[
            "kube-apiserver",
            "kube-scheduler",
            "kube-controller-manager",
        ])?;
        let coracle = setting.coracle()?;
        let swap = match variable("SWAP") {
            Some(file) => PathBuf::from(file),
            None => {
                run(Command::new("cargo")
                    .args(["build", "--locked", "--release", "-p", "testkit"])
                    .args(["--example", "swap"])
                    .current_dir(&setting.root))?;
                setting.target().join("release/examples/swap")
            }
        };
        let folder = setting.judges.join("images/swap");
        let images = ["v1", "v2"].map(|version| folder.join(format!("{version}.tar")));
        for (image, version) in images.iter().zip(["v1", "v2"]) {
            if !image.exists() {
                run(setting
                    .script("image")
                    .arg(format!("registry.test/swap/work:{version}"))
                    .arg(image))?;
            }
        }
        Ok(Parts {
            upstream,
            coracle,
            swap: swap.canonicalize().context("the scenario")?,
            images,
        })
    }
}

/// Compares the lists of every stage with upstream's, if that ran, now or before.
fn compare(results: &Path, stages: &[&str]) -> Result<()> {
    let reference = match results.join("upstream/pictures").is_dir() {
        true => "upstream",
        false => stages[0],
    };
    let mut differences = 0;
    for stage in stages.iter().filter(|stage| **stage != reference) {
        let mut lists: Vec<PathBuf> = std::fs::read_dir(results.join(reference).join("pictures"))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        lists.sort();
        for list in lists {
            let file = list.file_name().unwrap_or_default();
            let other = results.join(stage).join("pictures").join(file);
            let name = list.file_stem().unwrap_or_default().to_string_lossy();
            let name = name.split_once(' ').map_or(&*name, |(_, name)| name);
            let objects = std::fs::read_to_string(&list)?.lines().count();
            if sh(&["diff", text(&list)?, text(&other)?]).is_ok() {
                say(&format!(
                    "{stage}: the same {objects} objects as {reference}, {name}"
                ));
            } else {
                say(&format!("{stage}: differs from {reference}, {name}"));
                differences += 1;
            }
        }
    }
    ensure!(
        differences == 0,
        "swap-control-plane: FAILED: {differences} lists differ"
    );
    say(
        "what was compared: Deployments, ReplicaSets, StatefulSets, DaemonSets, ControllerRevisions, Jobs, CronJobs, ReplicationControllers, Pods, Services, Endpoints, EndpointSlices, claims, volumes, budgets, quota, accounts, roles, namespaces, nodes; all of it is equal",
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_all_or_those_that_are_named() {
        assert_eq!(stages(&[]).unwrap(), STAGES);
        assert_eq!(stages(&["ours"]).unwrap(), ["ours"]);
        assert!(stages(&["theirs"]).is_err());
    }

    #[test]
    fn lists_that_differ_are_a_failure() {
        let results = tempfile::tempdir().unwrap();
        let list = |stage: &str, text: &str| {
            let folder = results.path().join(stage).join("pictures");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("1 end.txt"), text).unwrap();
        };
        list("upstream", "a\n");
        list("ours", "a\n");
        list("foreign", "b\n");
        assert!(compare(results.path(), &["upstream", "ours"]).is_ok());
        assert!(compare(results.path(), &["ours", "foreign"]).is_err());
    }
}
