//! Real software on a cluster of ours, unmodified: definitions of custom resources, operators, admission
//! webhooks, extension API servers and charts, all from the Go module registry, most of them with
//! their own manifests. Programs are built into images of one file; nothing is pulled.
//!
//! Each check prints one line, "pass" or "FAIL"; a check that fails does not end the others.

mod aggregation;
mod charts;
mod definitions;
mod garden;
mod operators;
mod programs;
mod stage;
mod webhooks;

use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::programs::Programs;
use self::stage::Stage;
use super::cleanup::Cleanup;
use super::setting::{Setting, need_packages};

/// A part of the judgement, and what it does.
type Part = (&'static str, fn(&mut Stage<'_>) -> Result<()>);

const PARTS: [Part; 8] = [
    ("definitions", definitions::judge),
    ("webhooks", webhooks::judge),
    ("prometheus", operators::prometheus),
    ("sample-controller", operators::sample_controller),
    ("garden", garden::judge),
    ("aggregation", aggregation::judge),
    ("metrics", aggregation::judge_metrics),
    ("charts", charts::judge),
];

pub const USAGE: &str = "cargo xtask ecosystem [PART...]
  definitions        custom resources of eleven projects: installed, described, used, refused
  webhooks           a sidecar injector and an image policy, as pods
  prometheus         prometheus-operator
  sample-controller  Kubernetes' example of a controller
  garden             an operator of controller-runtime, and its upgrade with a conversion webhook
  aggregation        sample-apiserver
  metrics            metrics-server takes over metrics.k8s.io
  charts             helm installs, upgrades and removes a chart with a definition and its object
CORACLE: the binary to judge; RESULTS: where logs go; KEEP=1: leave the cluster running";

pub fn main(root: &Path, arguments: &[&str]) -> Result<()> {
    let parts = parts(arguments)?;
    let setting = Setting::new(root);
    need_packages(&[
        "docker-registry",
        "skopeo",
        "curl",
        "openssl",
        "etcd-server",
    ])?;
    let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
    let programs = Programs::build(&setting, &names)?;
    let mut cleanup = Cleanup::start()?;
    let mut stage = Stage::start(&setting, &programs, &mut cleanup)?;
    for (name, judge) in parts {
        println!("== {name}");
        // What a part cannot do without is an error of its own.
        if let Err(error) = judge(&mut stage) {
            stage.failed(&format!("{name} came to its end"), &error);
        }
    }
    let outcome = stage.end();
    cleanup.finish()?;
    outcome
}

fn parts(arguments: &[&str]) -> Result<Vec<Part>> {
    if arguments.is_empty() {
        return Ok(PARTS.to_vec());
    }
    let found: Result<Vec<Part>> = arguments
        .iter()
        .map(|name| {
            let part = PARTS.iter().find(|(known, _)| known == name);
            part.copied()
                .with_context(|| format!("no part {name}\n{USAGE}"))
        })
        .collect();
    let found = found?;
    ensure!(!found.is_empty(), "{USAGE}");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_or_those_that_are_named() {
        let names = |words: &[&str]| -> Result<Vec<&str>> {
            Ok(parts(words)?.iter().map(|(name, _)| *name).collect())
        };
        assert_eq!(names(&[]).unwrap().len(), PARTS.len());
        assert_eq!(names(&["metrics"]).unwrap(), ["metrics"]);
        assert!(names(&["definitions", "toaster"]).is_err());
    }
}
