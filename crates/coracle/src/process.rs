//! The life of a process: logging, signals, the asynchronous runtime, and the parts of a server or
//! node that run until it shuts down.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

/// How long parts of the process get to stop after a shutdown was requested.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long blocking calls may still run when the asynchronous runtime is dropped.
const RUNTIME_STOP_LIMIT: Duration = Duration::from_secs(2);

/// The long-running parts of the process. When one of them fails, all of them shut down, so that
/// the keeper can restart the whole process.
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
    /// The message of the first part that failed.
    failure: Arc<parking_lot::Mutex<Option<String>>>,
}

impl Tasks {
    pub fn new(shutdown: CancellationToken) -> Tasks {
        Tasks {
            tracker: TaskTracker::new(),
            shutdown,
            failure: Arc::default(),
        }
    }

    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    pub fn spawn(
        &self,
        name: &'static str,
        future: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        let (shutdown, first) = (self.shutdown.clone(), self.failure.clone());
        let task = tokio::spawn(future);
        self.tracker.spawn(async move {
            let failure = match task.await {
                Ok(Ok(())) => return,
                Ok(Err(failure)) => environment::chain(failure.as_ref()).to_string(),
                Err(failure) => failure.to_string(),
            };
            error!(component = name, "A component failed: {failure}");
            let mut first = first.lock();
            first.get_or_insert_with(|| format!("{name} failed: {failure}"));
            drop(first);
            shutdown.cancel();
        });
    }

    /// Waits until all parts have stopped. The wait is bounded: a part that hangs must not keep the
    /// machine from shutting down.
    pub async fn finish(&self) {
        self.tracker.close();
        let stopped = tokio::time::timeout(STOP_LIMIT, self.tracker.wait()).await;
        if stopped.is_err() {
            let seconds = STOP_LIMIT.as_secs();
            error!("Some components did not stop within {seconds} s; the process ends anyway");
        }
    }

    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}

/// Returns when the process gets SIGTERM or SIGINT, or when `shutdown` is cancelled.
pub async fn wait_for_shutdown(shutdown: &CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = shutdown.cancelled() => {}
    }
    Ok(())
}

/// Writes log lines that pass the filter `log` to standard error.
pub fn start_logging(log: &str, as_json: bool) -> Result<()> {
    let filter =
        tracing_subscriber::EnvFilter::try_new(log).with_context(|| format!("--log {log}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match as_json {
        true => builder.json().init(),
        false => builder.init(),
    }
    Ok(())
}

/// Runs a long-lived command on as many threads as the machine has cores.
pub fn run_on_all_cores(future: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(RUNTIME_STOP_LIMIT);
    result.map(|()| ExitCode::SUCCESS)
}

/// Runs a short command on the current thread. The command may block it, since nothing else runs on
/// it.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}
