//! The seeded simulation: a whole cluster on one thread under simulated time, while its components
//! crash, its disk loses unsynced data and its network fails. A seed determines everything.
//!
//! Users apply, scale, change and delete Deployments, StatefulSets, DaemonSets and Jobs, while faults
//! happen. A witness checks every change against what Kubernetes guarantees at any moment. Then the
//! faults end, and within bounded time everything that the users asked for must be true.

mod chaos;
mod convergence;
mod user;
mod violation;
mod witness;
mod workloads;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use rand::{SeedableRng, rngs::StdRng};
use store::embedded::{Options, Window};
use store::{KeyRange, RangeRequest, Store};

use crate::{Cluster, Part};
use chaos::Chaos;
pub use user::Promises;
use witness::Witness;

const NODES: usize = 2;
/// Sets of controllers, of which one leads.
const CANDIDATES: usize = 2;
/// How long after the last fault the cluster must have converged (simulated time). Retries back off
/// for minutes, and a node that was lost is tainted for a while.
const CONVERGENCE_LIMIT: Duration = Duration::from_secs(1_800);
/// How long it must stay converged.
const STABLE: Duration = Duration::from_secs(60);

/// The result of a simulation; equal for equal seeds.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub crashes: u32,
    pub writes: u32,
    pub revision: u64,
    /// The number of changes that the witness checked.
    pub judged: u64,
    /// A digest of every key and value in the store at the end.
    pub digest: u64,
    /// Simulated time between the last fault and convergence.
    pub converged_after: Duration,
}

/// Runs one simulation to its end.
pub fn run(seed: u64) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(simulate(seed))
}

/// 1. A cluster with everything running.
/// 2. The user works through its list while chaos crashes parts and degrades the network.
/// 3. All faults end and everything is started again.
/// 4. What the user wants becomes true and stays true; no acknowledged write is missing.
async fn simulate(seed: u64) -> Result<Report> {
    let mut cluster = Cluster::builder()
        .simulated(seed)
        .scheduler()
        .controllers()
        .nodes(NODES)
        .store_options(Options {
            checkpoint_bytes: 200_000,
            history: Window {
                revisions: 500,
                bytes: 4 << 20,
            },
            ..Options::default()
        })
        .start()
        .await
        .context("starting the cluster")?;
    for part in every_part() {
        cluster.start(part);
    }
    let witness = Witness::default();
    witness.follow(cluster.store().context("the server runs")?.clone());
    let promises = Arc::new(Mutex::new(Promises::default()));
    let work = tokio::spawn(user::work(
        cluster.client(),
        StdRng::seed_from_u64(seed ^ 0x75),
        promises.clone(),
    ));
    let wanted = Arc::default();
    let more_work = tokio::spawn(workloads::work(
        cluster.client(),
        StdRng::seed_from_u64(seed ^ 0x3a),
        Arc::clone(&wanted),
    ));
    let mut chaos = Chaos::new(seed, witness.clone());
    while !(work.is_finished() && more_work.is_finished()) {
        chaos.strike(&mut cluster).await?;
    }
    work.await?.context("the user")?;
    more_work.await?.context("the user of other workloads")?;

    chaos.wait_for_the_lost(&mut cluster).await;
    cluster.network().heal();
    for part in every_part() {
        cluster.start(part);
    }
    let client = cluster.client();
    let healed = tokio::time::Instant::now();
    convergence::wait(&client, &promises, CONVERGENCE_LIMIT).await?;
    workloads::wait(&client, &wanted, NODES, CONVERGENCE_LIMIT).await?;
    let converged_after = healed.elapsed();
    tokio::time::sleep(STABLE).await;
    convergence::check(&client, &promises)
        .await?
        .context("the cluster did not stay converged")?;
    workloads::check(&client, &wanted, NODES)
        .await?
        .context("the cluster did not stay converged")?;
    convergence::check_machines(&client, cluster.machines()).await?;

    witness
        .check()
        .context("the cluster broke a guarantee of Kubernetes")?;

    let store = cluster.store().context("the server runs")?;
    let revision = store.revision().await?;
    ensure!(
        revision >= cluster.network().acknowledged(),
        "the store is at {revision}, but {} was acknowledged",
        cluster.network().acknowledged()
    );
    let everything = RangeRequest {
        range: KeyRange::prefix(""),
        revision: None,
        limit: 0,
    };
    let mut digest = Digest::default();
    for item in store.range(everything).await?.items {
        digest.add(&item.key);
        // The authority of a cluster is made anew each time, and this object has its certificate.
        if !item.key.ends_with(b"/extension-apiserver-authentication") {
            digest.add(&item.value);
        }
    }
    let writes = promises.lock().writes;
    Ok(Report {
        crashes: chaos.crashes,
        writes,
        revision,
        judged: witness.judged(),
        digest: digest.0,
        converged_after,
    })
}

fn every_part() -> impl Iterator<Item = Part> {
    [Part::Scheduler]
        .into_iter()
        .chain((0..CANDIDATES).map(Part::Controllers))
        .chain((0..NODES).map(Part::Node))
}

/// FNV-1a: small, and the same on every run.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
