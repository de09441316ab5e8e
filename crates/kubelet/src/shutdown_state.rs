//! Whether the machine is shutting down. The shutdown watcher writes it; admission, the Node's status
//! and the metrics read it.

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// The state of the machine's shutdown, shared by everybody who must know it.
#[derive(Default)]
pub struct ShutdownState {
    shutdown: Mutex<Shutdown>,
    changed: Notify,
}

/// The last shutdown. It is kept on disk, so that the next kubelet can report it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Shutdown {
    #[serde(skip)]
    now: bool,
    pub start_time: Option<Timestamp>,
    pub end_time: Option<Timestamp>,
}

impl ShutdownState {
    /// Whether the machine is shutting down now.
    pub fn now(&self) -> bool {
        self.shutdown.lock().now
    }

    /// Waits until [`ShutdownState::now`] changes.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// When the last shutdown began and ended, in seconds; 0 where it did not.
    pub fn times(&self) -> (f64, f64) {
        let seconds =
            |time: Option<Timestamp>| time.map_or(0.0, |time| time.as_microsecond() as f64 / 1e6);
        let shutdown = self.shutdown.lock();
        (seconds(shutdown.start_time), seconds(shutdown.end_time))
    }

    pub fn set(&self, now: bool) {
        self.shutdown.lock().now = now;
        self.changed.notify_one();
    }

    /// Takes over what an earlier kubelet wrote to disk.
    pub fn restore(&self, earlier: Shutdown) {
        *self.shutdown.lock() = earlier;
    }

    /// Changes the times of the shutdown and returns what is to be written to disk.
    pub fn change(&self, change: impl FnOnce(&mut Shutdown)) -> Shutdown {
        let mut shutdown = self.shutdown.lock();
        change(&mut shutdown);
        shutdown.clone()
    }
}
