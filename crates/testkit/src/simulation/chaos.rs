//! The faults of a simulation: crashes of the server (process or power loss) and of the other
//! components, nodes that are lost for minutes, and phases of a bad network, all determined by a seed.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use store::Store;
use tokio::time::Instant;

use super::witness::Witness;
use super::{NODES, every_part};
use crate::cluster::Crash;
use crate::{Cluster, Faults, Part};

pub struct Chaos {
    random: StdRng,
    witness: Witness,
    /// The lost node, and until when it is lost.
    lost: Option<(Part, Instant)>,
    pub crashes: u32,
}

impl Chaos {
    pub fn new(seed: u64, witness: Witness) -> Chaos {
        Chaos {
            random: StdRng::seed_from_u64(seed ^ 0xc4a05),
            witness,
            lost: None,
            crashes: 0,
        }
    }

    /// Waits until a lost node is back, also after the last other fault.
    pub async fn wait_for_the_lost(&mut self, cluster: &mut Cluster) {
        if let Some((node, until)) = self.lost.take() {
            tokio::time::sleep_until(until).await;
            cluster.start(node);
        }
    }

    /// One fault after a pause: some components crash, and after another pause all of them restart,
    /// and may crash again at once.
    pub async fn strike(&mut self, cluster: &mut Cluster) -> Result<()> {
        self.pause().await;
        self.lose_a_node(cluster);
        match self.random.random_range(0..4) {
            0 => cluster.network().heal(),
            1 => cluster
                .network()
                .degrade(Faults::SEVERE, self.random.random()),
            _ => cluster
                .network()
                .degrade(Faults::MODERATE, self.random.random()),
        }
        let parts: Vec<Part> = every_part().collect();
        let mut struck = BTreeSet::new();
        for _ in 0..self.random.random_range(0..3) {
            struck.insert(parts[self.random.random_range(0..parts.len())]);
        }
        for part in &struck {
            tracing::info!(?part, "crash");
            cluster.crash(*part);
            self.crashes += 1;
        }
        if self.random.random_ratio(2, 5) {
            let crash = if self.random.random_ratio(2, 3) {
                Crash::Power
            } else {
                Crash::Process
            };
            tracing::info!(?crash, "crash of the server");
            cluster.crash_server(crash);
            self.crashes += 1;
            self.pause().await;
            self.start_server(cluster).await?;
        }
        self.pause().await;
        for part in struck {
            if self.lost.is_none_or(|(lost, _)| lost != part) {
                cluster.start(part);
            }
        }
        Ok(())
    }

    /// Sometimes a node is lost for longer than its grace period, sometimes for so long that its
    /// pods are evicted; then it returns with its running pods.
    fn lose_a_node(&mut self, cluster: &mut Cluster) {
        match self.lost {
            Some((node, until)) if Instant::now() >= until => {
                tracing::info!(?node, "back");
                cluster.start(node);
                self.lost = None;
            }
            None if self.random.random_ratio(1, 12) => {
                let node = Part::Node(self.random.random_range(0..NODES));
                let away = Duration::from_secs(self.random.random_range(20..450));
                tracing::info!(?node, ?away, "lost");
                cluster.crash(node);
                self.lost = Some((node, Instant::now() + away));
            }
            _ => {}
        }
    }

    /// Starts the server, which may be killed during the start, and checks that no write that it
    /// acknowledged before is lost.
    async fn start_server(&mut self, cluster: &mut Cluster) -> Result<()> {
        while self.random.random_ratio(1, 4) {
            let patience = Duration::from_micros(self.random.random_range(0..20_000));
            // The server crashes now, whether it became ready or not.
            let started = tokio::time::timeout(patience, cluster.start_server()).await;
            if let Ok(result) = started {
                result.context("starting the server")?;
            }
            cluster.crash_server(Crash::Power);
            self.crashes += 1;
        }
        cluster
            .start_server()
            .await
            .context("starting the server after a crash")?;
        self.witness
            .follow(cluster.store().context("the server runs")?.clone());
        let acknowledged = cluster.network().acknowledged();
        let store = cluster.store().context("the server runs")?;
        let revision = store.revision().await?;
        ensure!(
            revision >= acknowledged,
            "acknowledged revision {acknowledged} is lost, the store came back at {revision}"
        );
        Ok(())
    }

    /// A pause between less than a millisecond and some seconds, distributed logarithmically.
    async fn pause(&mut self) {
        let magnitude = self.random.random_range(0..14);
        let micros = self.random.random_range(0..1_000_u64) << magnitude;
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }
}
