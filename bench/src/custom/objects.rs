//! Objects of a custom kind beside ConfigMaps: the same requests by the same load generator.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::DEFINITIONS;
use super::caller::Caller;
use crate::load::drive::{Load, LoadOutcome, Target, drive, same};
use crate::load::{OTHER_PARTS, Server};

const ROUNDS: usize = 5;
const CREATES: usize = 4_000;
const READS: usize = 10_000;
const LISTS: usize = 300;
const LISTED: usize = 500;

/// A kind under load.
struct Kind {
    prefix: &'static str,
    plural: &'static str,
    api_version: &'static str,
    kind: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        prefix: "/api/v1",
        plural: "configmaps",
        api_version: "v1",
        kind: "ConfigMap",
    },
    Kind {
        prefix: "/apis/load.example.com/v1",
        plural: "notes",
        api_version: "load.example.com/v1",
        kind: "Note",
    },
];

impl Kind {
    fn collection(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.prefix, self.plural)
    }

    fn object(&self, name: &str) -> String {
        let text = "what a small object holds, over and over. ".repeat(24);
        json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}, "data": {"text": text}})
            .to_string()
    }
}

pub async fn run(binary: &Path) -> Result<()> {
    let server = Server::coracle(binary, OTHER_PARTS).await?;
    let target = &server.target;
    let mut caller = Caller::open(target).await?;
    // As strict as a ConfigMap: texts by name.
    let schema = json!({"type": "object", "properties": {"data": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 100000}}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "notes.load.example.com"},
        "spec": {
            "group": "load.example.com", "scope": "Namespaced", "names": {"plural": "notes", "kind": "Note"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    caller.post(DEFINITIONS, &definition.to_string()).await?;
    let notes = KINDS[1].collection("bench");
    caller.until_served(&notes, Duration::from_secs(10)).await?;
    for kind in &KINDS {
        for number in 0..LISTED {
            let object = kind.object(&format!("o{number}"));
            caller.post(&kind.collection("bench-500"), &object).await?;
        }
    }
    println!(
        "objects of 1 kB              built-in     custom     ratio    CPU of the server per request"
    );
    row("create", |kind, round| create(target, kind, round))?;
    row("get", |kind, _| {
        let path = format!("{}/o1", kind.collection("bench-500"));
        read(target, &path, 64, READS)
    })?;
    row("list 500", |kind, _| {
        read(target, &kind.collection("bench-500"), 8, LISTS)
    })
}

fn row(name: &str, measure: impl Fn(&Kind, usize) -> Result<LoadOutcome>) -> Result<()> {
    let mut outcomes = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for (kind, outcomes) in KINDS.iter().zip(&mut outcomes) {
            outcomes.push(measure(kind, round)?);
        }
    }
    let [built_in, custom] = outcomes.map(median);
    println!(
        "{name:<24} {:>10.0}/s {:>8.0}/s {:>8.2}    {:.0} µs / {:.0} µs",
        built_in.per_second,
        custom.per_second,
        custom.per_second / built_in.per_second,
        built_in.cpu.as_secs_f64() * 1e6,
        custom.cpu.as_secs_f64() * 1e6,
    );
    Ok(())
}

pub fn median(mut outcomes: Vec<LoadOutcome>) -> LoadOutcome {
    outcomes.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    outcomes.swap_remove(outcomes.len() / 2)
}

fn create(target: &Target, kind: &Kind, round: usize) -> Result<LoadOutcome> {
    let path = kind.collection("bench");
    let requests: Vec<Arc<[u8]>> = (0..CREATES)
        .map(|number| {
            let object = kind.object(&format!("r{round}-{number}"));
            target.request("POST", &path, "", &object).into()
        })
        .collect();
    let load = Load {
        connections: 64,
        count: CREATES,
        requests: Arc::new(move |number| requests[number].clone()),
        code: 201,
    };
    drive(target, &load)
}

fn read(target: &Target, path: &str, connections: usize, count: usize) -> Result<LoadOutcome> {
    let load = Load {
        connections,
        count,
        requests: same(target.request("GET", path, "", "")),
        code: 200,
    };
    drive(target, &load)
}
