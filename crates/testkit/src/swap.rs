//! The scenario by which control planes are compared: the same workloads, edits and losses on any
//! API server with any scheduler and any controllers, and in the end a picture of every object,
//! without what chance decides. Equal pictures mean that a swapped part did the same.
//!
//! The judge is `make swap-control-plane`; nothing of this runs in `make test` but the tests of
//! the picture itself.

mod disruption;
mod fine_print;
mod objects;
mod picture;
mod stage;
mod storage;
mod workloads;

use std::collections::BTreeMap;

use anyhow::Result;
use client::Informers;
use environment::Environment;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trace::Recorder;

use crate::fake_node::{FakeNode, Machine};
pub use picture::Picture;
use stage::Stage;

/// The namespaces that are looked at in the end.
const NAMESPACES: [&str; 2] = ["swap", "swap-quota"];

/// Runs the scenario on a cluster whose node `node-0` is there already, or not: `fakes` are the
/// nodes without containers that this process plays. `node-1` and `node-2` must be among them.
pub async fn run(client: kube::Client, fakes: &[String]) -> Result<Vec<(String, Picture)>> {
    let mut nodes = FakeNodes::new(client.clone());
    for name in fakes {
        nodes.start(name);
    }
    let stage = Stage::new(client);
    let mut pictures = Vec::new();
    stage.nodes_are_ready(3).await?;
    workloads::begin(&stage).await?;
    storage::begin(&stage).await?;
    fine_print::begin(&stage).await?;
    workloads::change(&stage).await?;
    storage::change(&stage).await?;
    fine_print::change(&stage).await?;
    workloads::finish(&stage).await?;
    fine_print::finish(&stage).await?;
    disruption::evict(&stage).await?;
    pictures.push(("after all edits".to_owned(), stage.picture().await?));
    disruption::taint(&stage, "node-2").await?;
    pictures.push(("while a node is tainted".to_owned(), stage.picture().await?));
    nodes.stop("node-2").await?;
    disruption::lost(&stage, "node-2").await?;
    pictures.push(("while a node is lost".to_owned(), stage.picture().await?));
    nodes.start("node-2");
    disruption::back(&stage, "node-2").await?;
    disruption::untaint(&stage, "node-2").await?;
    pictures.push(("after it came back".to_owned(), stage.picture().await?));
    nodes.stop_all().await?;
    Ok(pictures)
}

/// The nodes that this process plays.
struct FakeNodes {
    client: kube::Client,
    environment: Environment,
    machines: BTreeMap<String, Machine>,
    running: BTreeMap<String, (CancellationToken, JoinHandle<()>)>,
}

impl FakeNodes {
    fn new(client: kube::Client) -> FakeNodes {
        FakeNodes {
            client,
            environment: Environment::system(),
            machines: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }

    fn start(&mut self, name: &str) {
        let number = self.machines.len() as u8 + 1;
        let machine = self
            .machines
            .entry(name.to_owned())
            .or_insert_with(|| Machine::new(name, number).reliable())
            .clone();
        let node = FakeNode {
            informers: Informers::new(self.client.clone(), self.environment.clone()),
            client: self.client.clone(),
            machine,
            environment: self.environment.clone(),
            recorder: Recorder::off(),
        };
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(node.run(shutdown.clone()));
        self.running.insert(name.to_owned(), (shutdown, task));
    }

    async fn stop(&mut self, name: &str) -> Result<()> {
        if let Some((shutdown, task)) = self.running.remove(name) {
            shutdown.cancel();
            task.await?;
        }
        Ok(())
    }

    async fn stop_all(&mut self) -> Result<()> {
        let names: Vec<String> = self.running.keys().cloned().collect();
        for name in names {
            self.stop(&name).await?;
        }
        Ok(())
    }
}

/// A value at a path like `/status/replicas`, as a number; what is absent is zero.
fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The status of a condition, empty when it is not there.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .find(|one| text(one, "/type") == kind)
        .map_or("", |one| text(one, "/status"))
}
