//! The machine shuts down: pods are terminated in order of their priority while logind waits
//! ([`logind`]), the node becomes unready and admits no new ones. Off unless the configuration gives
//! pods time ([`groups`]).

mod groups;
mod logind;

use std::{path::PathBuf, sync::Arc, time::Duration};

use client::events::Severity;
use environment::Environment;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use tokio_util::sync::CancellationToken;

use self::logind::{Lock, Logind};
use crate::{
    configuration::ShutdownGracePeriod,
    node_settings::NodeSettings,
    pod::termination::Termination,
    pod_spec::is_static,
    pods::Pods,
    runtime::observe,
    shutdown_state::{Shutdown, ShutdownState},
    telemetry::Telemetry,
};

const RECONNECT: Duration = Duration::from_secs(1);
/// How often, and how long at first, logind is asked whether it has read its settings again.
const RELOADS: u32 = 5;
const FIRST_RELOAD: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// The name is upstream's.
const STATE_FILE: &str = "graceful_node_shutdown_state";

/// The addresses of logind.
#[derive(Clone, Debug)]
pub struct SystemBus {
    /// The socket of the system's message bus.
    pub socket: PathBuf,
    /// Settings of logind that come after its own.
    pub logind_settings: PathBuf,
}

/// The parts of the kubelet that the watcher of the machine's shutdown uses.
pub struct ShutdownContext {
    pub settings: Arc<NodeSettings>,
    pub telemetry: Telemetry,
    pub environment: Environment,
    pub cri: cri::Client,
    pub state: Arc<ShutdownState>,
    pub pods: Pods,
}

/// Watches for the machine's shutdown, until `shutdown` of the kubelet itself.
pub async fn run(
    node: ShutdownContext,
    bus: SystemBus,
    state_dir: PathBuf,
    shutdown: CancellationToken,
) {
    let watch = Watch {
        periods: groups::periods(&node.settings.configuration),
        state_file: state_dir.join(STATE_FILE),
        node,
        bus,
    };
    if watch.periods.is_empty() {
        return;
    }
    watch.remember().await;
    let mut logged = String::new();
    loop {
        let ended = tokio::select! {
            () = shutdown.cancelled() => return,
            Err(error) = watch.run() => error.to_string(),
        };
        // A machine without logind is no reason to repeat it every second.
        if ended != logged {
            tracing::warn!("the machine's shutdown cannot be watched: {ended}");
            logged = ended;
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(RECONNECT) => {}
        }
    }
}

struct Watch {
    node: ShutdownContext,
    bus: SystemBus,
    periods: Vec<ShutdownGracePeriod>,
    state_file: PathBuf,
}

impl Watch {
    async fn run(&self) -> Result<std::convert::Infallible, dbus::Error> {
        let mut logind = Logind::connect(&self.bus.socket).await?;
        self.ask_for_time(&mut logind).await?;
        let mut lock = Some(logind.delay_shutdown().await?);
        tracing::info!("the machine's shutdown waits for pods");
        loop {
            let down = logind.next().await?;
            let message = match down {
                true => "Shutdown manager detected shutdown event",
                false => "Shutdown manager detected shutdown cancellation",
            };
            self.report(message);
            self.node.state.set(down);
            match down {
                true => self.end_pods(lock.take()).await,
                false => lock = Some(logind.delay_shutdown().await?),
            }
        }
    }

    async fn ask_for_time(&self, logind: &mut Logind) -> Result<(), dbus::Error> {
        let needed = groups::total(&self.periods);
        if logind.longest_delay().await? >= needed {
            return Ok(());
        }
        let settings = &self.bus.logind_settings;
        logind.allow_delay(settings, needed).await?;
        let mut pause = FIRST_RELOAD;
        for _ in 0..RELOADS {
            if logind.longest_delay().await? >= needed {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(dbus::Error::Protocol(
            "logind does not allow the delay that shutdownGracePeriod asks for",
        ))
    }

    /// Terminates all pods, one priority after the other, then lets the machine shut down.
    async fn end_pods(&self, lock: Option<Lock>) {
        self.note(|state, now| {
            state.start_time = Some(now);
            state.end_time = None;
        })
        .await;
        for (period, group) in groups::of(&self.periods, self.node.pods.active()) {
            if group.is_empty() {
                continue;
            }
            let grace = period.shutdown_grace_period_seconds;
            for pod in &group {
                let termination = Termination {
                    reason: "Terminated".to_owned(),
                    message: MESSAGE.to_owned(),
                    disruption: true,
                    grace: Some(grace),
                    ..Termination::default()
                };
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                self.node.pods.end(uid, termination);
            }
            let limit = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
            let ended = tokio::time::timeout(limit, self.ended(&group)).await;
            let in_time = ended.is_ok();
            tracing::info!(priority = period.priority, in_time, "pods were ended");
        }
        self.note(|state, now| state.end_time = Some(now)).await;
        drop(lock);
    }

    /// Waits until nothing of these pods runs and the API knows it.
    async fn ended(&self, group: &[Arc<Pod>]) {
        let changed = self.node.pods.runtime_changed();
        for pod in group {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            loop {
                let hint = changed.notified();
                let is_reported = is_static(pod) || self.node.pods.end_is_reported(uid);
                let observed = observe::pod(&self.node.cri, uid).await;
                let over = observed.is_ok_and(|observed| {
                    observed.running().next().is_none() && observed.ready_sandbox().is_none()
                });
                if is_reported && over {
                    break;
                }
                let _ = tokio::time::timeout(LOOK_AGAIN, hint).await;
            }
        }
    }

    fn report(&self, message: &str) {
        let node = &self.node;
        node.telemetry.events.node(
            &node.settings.node_name,
            Severity::Normal,
            "NodeShutdown",
            message,
        );
    }

    async fn remember(&self) {
        let Ok(bytes) = tokio::fs::read(&self.state_file).await else {
            return;
        };
        match serde_json::from_slice::<Shutdown>(&bytes) {
            Ok(earlier) => self.node.state.restore(earlier),
            Err(error) => tracing::warn!(%error, "the last shutdown's state could not be read"),
        }
    }

    async fn note(&self, change: impl FnOnce(&mut Shutdown, Timestamp)) {
        let now = self.node.environment.now();
        let state = self.node.state.change(|shutdown| change(shutdown, now));
        let written = match serde_json::to_vec(&state) {
            Ok(bytes) => tokio::fs::write(&self.state_file, bytes).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "the shutdown's state could not be kept");
        }
    }
}
