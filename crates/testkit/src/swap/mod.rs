//! The scenario by which control planes are compared: the same workloads, edits and node failures on
//! any API server with any scheduler and any controllers, and then the normalized state of all
//! objects. Equal states mean that a replaced component behaves alike.
//!
//! `make swap-control-plane` runs it. `make test` only runs the tests of the normalization.

mod disruption;
mod fine_print;
mod objects;
mod scenario_client;
mod state;
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
use scenario_client::ScenarioClient;
pub use state::NormalizedState;

/// The namespaces whose objects are compared.
const NAMESPACES: [&str; 2] = ["swap", "swap-quota"];

/// Runs the scenario on a cluster of three nodes. `fakes` are the names of the nodes without
/// containers that this process simulates; `node-1` and `node-2` must be among them. Returns the
/// states at several moments.
pub async fn run(client: kube::Client, fakes: &[String]) -> Result<Vec<(String, NormalizedState)>> {
    let mut nodes = FakeNodes::new(client.clone());
    for name in fakes {
        nodes.start(name);
    }
    let client = ScenarioClient::new(client);
    let mut states = Vec::new();
    client.nodes_are_ready(3).await?;
    workloads::begin(&client).await?;
    storage::begin(&client).await?;
    fine_print::begin(&client).await?;
    workloads::change(&client).await?;
    storage::change(&client).await?;
    fine_print::change(&client).await?;
    workloads::finish(&client).await?;
    fine_print::finish(&client).await?;
    disruption::evict(&client).await?;
    states.push(("after all edits".to_owned(), state::settled(&client).await?));
    disruption::taint(&client, "node-2").await?;
    states.push((
        "while a node is tainted".to_owned(),
        state::settled(&client).await?,
    ));
    nodes.stop("node-2").await?;
    disruption::lost(&client, "node-2").await?;
    states.push((
        "while a node is lost".to_owned(),
        state::settled(&client).await?,
    ));
    nodes.start("node-2");
    disruption::back(&client, "node-2").await?;
    disruption::untaint(&client, "node-2").await?;
    states.push((
        "after it came back".to_owned(),
        state::settled(&client).await?,
    ));
    nodes.stop_all().await?;
    Ok(states)
}

/// The nodes that this process simulates.
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

/// The number at a path like `/status/replicas`, zero where there is none.
fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The status of a condition, empty where the object does not have it.
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
