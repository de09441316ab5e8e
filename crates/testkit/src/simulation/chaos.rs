//! What goes wrong, and when: crashes of the server (process or power), of the other parts, nodes
//! that stay away for minutes, and phases of a bad network, all drawn from one seed.

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
    /// A node that is away, and until when.
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

    /// A node that is away stays so for its time, also when nothing else happens any more.
    pub async fn wait_for_the_lost(&mut self, cluster: &mut Cluster) {
        if let Some((node, until)) = self.lost.take() {
            tokio::time::sleep_until(until).await;
            cluster.start(node);
        }
    }

    /// One blow after a pause: some parts crash, and after another pause everything that is down
    /// comes back, though it may be struck again at once.
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

    /// Now and then a node goes away for longer than it is waited for, sometimes for so long that
    /// its pods are given up; then it comes back with what it runs.
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

    /// Starts the server, which may be killed while it starts, and holds it against what it had
    /// promised in its lives before.
    async fn start_server(&mut self, cluster: &mut Cluster) -> Result<()> {
        while self.random.random_ratio(1, 4) {
            let patience = Duration::from_micros(self.random.random_range(0..20_000));
            // Whether it got ready or not, it dies now.
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

    /// From under a millisecond to some seconds, short ones as likely as long ones.
    async fn pause(&mut self) {
        let magnitude = self.random.random_range(0..14);
        let micros = self.random.random_range(0..1_000_u64) << magnitude;
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }
}
