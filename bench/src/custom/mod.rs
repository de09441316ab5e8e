//! Custom kinds at scale: what hundreds and thousands of CustomResourceDefinitions cost, how soon each
//! is served, how fast their objects are compared with a built-in kind, and what policies and webhooks
//! add to a request. kube-apiserver stands beside ours with as many definitions as it is meant for.

mod admission;
mod caller;
mod hook;
mod objects;
mod samples;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::Instant;

use crate::load::{OTHER_PARTS, Server, cpu_time, memory};
use crate::spread;
use caller::Caller;

/// What upstream names as its limit.
const FEW: usize = 500;
const MANY: usize = 5_000;
const REAL: usize = 500;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs all of it; `real` is a directory with definitions as YAML.
pub async fn run(binary: &Path, kube_apiserver: Option<&Path>, real: Option<&Path>) -> Result<()> {
    println!(
        "definitions with a schema of 2 kB, each with one object and its OpenAPI v3 read once"
    );
    if let Some(path) = kube_apiserver {
        let upstream = Server::upstream(path).await?;
        fill(&upstream, "kube-apiserver and etcd", FEW, samples::small).await?;
    }
    let ours = Server::coracle(binary, OTHER_PARTS).await?;
    fill(&ours, "coracle", FEW, samples::small).await?;
    drop(ours);
    let ours = Server::coracle(binary, OTHER_PARTS).await?;
    fill(&ours, "coracle", MANY, samples::small).await?;
    documents(&ours).await?;
    drop(ours);
    if let Some(directory) = real {
        let ours = Server::coracle(binary, OTHER_PARTS).await?;
        let known = samples::read(&ours, directory).await?;
        ensure!(
            !known.is_empty(),
            "no definitions in {}",
            directory.display()
        );
        println!(
            "{REAL} copies of {} real definitions, likewise",
            known.len()
        );
        let of_number = |number| samples::renamed(&known[number % known.len()], number);
        fill(&ours, "coracle", REAL, of_number).await?;
    }
    objects::run(binary).await?;
    admission::run(binary).await
}

/// A definition and where its objects are.
pub struct Sample {
    pub definition: Value,
    pub collection: String,
    pub document: String,
    pub object: Value,
}

/// Creates definitions one after another and prints what they cost.
async fn fill(
    server: &Server,
    name: &str,
    count: usize,
    sample: impl Fn(usize) -> Sample,
) -> Result<()> {
    let processes = &server.target.processes;
    let (before, cpu, began) = (memory(processes), cpu_time(processes), Instant::now());
    let mut caller = Caller::open(&server.target).await?;
    let mut servable = Vec::new();
    let mut bytes = 0;
    for number in 0..count {
        let sample = sample(number);
        let definition = serde_json::to_string(&sample.definition)?;
        bytes += definition.len();
        caller.post(DEFINITIONS, &definition).await?;
        servable.push(caller.until_served(&sample.collection, PATIENCE).await?);
        let object = serde_json::to_string(&sample.object)?;
        caller.post(&sample.collection, &object).await?;
    }
    for number in 0..count {
        let path = sample(number).document;
        caller.until_served(&path, PATIENCE).await?;
    }
    let used = memory(processes) - before;
    let cpu = cpu_time(processes).saturating_sub(cpu);
    let mut last: Vec<f64> = servable.split_off(count - count.min(500));
    println!(
        "{name:<24} {count:>6} definitions of {:.1} MB JSON: {used:.1} MB more ({:.1} kB each, {:.2} of the JSON), {:.1} MB in all, \
         {:.1} s of CPU in {:.1} s; the last servable after {}",
        bytes as f64 / 1e6,
        used * 1024.0 / count as f64,
        used * 1024.0 * 1024.0 / bytes as f64,
        memory(processes),
        cpu.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        spread(&mut last, "ms"),
    );
    Ok(())
}

/// What a client that discovers everything asks for, at that count.
async fn documents(server: &Server) -> Result<()> {
    let mut caller = Caller::open(&server.target).await?;
    for (path, accept) in [
        ("/apis", "application/json"),
        (
            "/apis",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ),
        ("/openapi/v3", "application/json"),
        ("/openapi/v2", "application/json"),
    ] {
        let mut times = Vec::new();
        let mut length = 0;
        for _ in 0..3 {
            let began = Instant::now();
            length = caller.get_as(path, accept).await?.len();
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        let (first, again) = (times[0], times[2]);
        let form = if accept.contains("as=") {
            ", aggregated"
        } else {
            ""
        };
        println!(
            "    {path}{form}: {:.1} MB, first {first:.0} ms, again {again:.0} ms",
            length as f64 / 1e6
        );
    }
    println!(
        "    {:.1} MB in all after these",
        memory(&server.target.processes)
    );
    Ok(())
}

fn text<'a>(value: &'a Value, path: &str) -> Result<&'a str> {
    let found = value.pointer(path).and_then(Value::as_str);
    found.with_context(|| format!("a definition without {path}"))
}
