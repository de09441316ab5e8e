//! The pod-birth timeline: hops and spans keyed by object UID, bounded, kept in the data directory.
//!
//! Components hold a [`Recorder`]; the server owns the [`Sink`] behind it. Never record bytes of
//! Secrets or tokens: a span carries sizes and short names only.

mod journal;
mod json;
mod render;
mod table;
mod timelines;

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use json::to_json;
pub use render::render;
pub use timelines::Timelines;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("timeline file {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("a timeline that cannot be read")]
    Json(#[from] serde_json::Error),
}

/// The spans of one pod, sorted by hop, then start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub spans: Vec<Span>,
    /// Why the decision was made, line by line, if a component has kept that.
    pub explanation: Vec<String>,
}

/// The eleven hops of the design, and what comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
#[repr(u8)]
pub enum Hop {
    /// The client turns YAML into a request.
    Client = 1,
    /// Authentication, authorization, admission, validation.
    Admission = 2,
    /// The object is put into the store under a condition.
    Put = 3,
    /// The store answers with a revision.
    Revision = 4,
    /// 201 Created.
    Created = 5,
    /// The watch delivers the unscheduled pod to the scheduler.
    WatchScheduler = 6,
    /// Filter, score, reserve, permit.
    Schedule = 7,
    /// The binding is posted.
    Bind = 8,
    /// The watch delivers the pod to its node.
    WatchNode = 9,
    /// CRI: sandbox, network, volumes, image, containers.
    Node = 10,
    /// Status Running is written back.
    Status = 11,
    /// Probes, Ready, endpoints, service rule, DNS; and termination.
    After = 12,
}

impl Hop {
    /// What happens at this hop, in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Hop::Client => "client request",
            Hop::Admission => "admission",
            Hop::Put => "put into the store",
            Hop::Revision => "revision",
            Hop::Created => "created",
            Hop::WatchScheduler => "watch to scheduler",
            Hop::Schedule => "schedule",
            Hop::Bind => "bind",
            Hop::WatchNode => "watch to node",
            Hop::Node => "containers",
            Hop::Status => "status written",
            Hop::After => "after",
        }
    }
}

impl From<Hop> for u8 {
    fn from(hop: Hop) -> u8 {
        hop as u8
    }
}

impl TryFrom<u8> for Hop {
    type Error = UnknownHop;

    fn try_from(number: u8) -> Result<Hop, UnknownHop> {
        use Hop::*;
        [
            Client,
            Admission,
            Put,
            Revision,
            Created,
            WatchScheduler,
            Schedule,
            Bind,
            WatchNode,
            Node,
            Status,
            After,
        ]
        .into_iter()
        .find(|hop| *hop as u8 == number)
        .ok_or(UnknownHop(number))
    }
}

/// A number that is not one of the hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no hop {0}")]
pub struct UnknownHop(u8);

/// One thing that happened on a pod's way. Several spans may share a hop (the steps of hop 10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub hop: Hop,
    /// What was done, e.g. `RunPodSandbox`.
    pub name: String,
    /// The component that did it, e.g. `kubelet`.
    pub component: String,
    /// When work began, in microseconds since the Unix epoch.
    pub start: i64,
    /// How long the work waited before it began.
    pub queue_us: u64,
    pub work_us: u64,
    /// Bytes on the wire or disk, where they mean something.
    pub bytes: u64,
    /// What went wrong, if it was an attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In one line. Never anything of what a Secret holds or a container prints.
    pub error: String,
    /// Which attempt it was, counted from 1.
    pub attempt: u32,
    /// When it is tried again, in microseconds since the Unix epoch; nothing if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<i64>,
}

/// The longest error that is kept, in bytes.
const MAX_ERROR: usize = 400;

impl Failure {
    /// Makes one line of `error`, and cuts off what is too long.
    pub fn new(error: &str, attempt: u32, retry: Option<i64>) -> Failure {
        let words: Vec<&str> = error.split_whitespace().collect();
        let mut error = words.join(" ");
        if error.len() > MAX_ERROR {
            let end = (0..=MAX_ERROR)
                .rev()
                .find(|end| error.is_char_boundary(*end));
            error.truncate(end.unwrap_or(0));
            error.push('…');
        }
        Failure {
            error,
            attempt,
            retry,
        }
    }
}

impl Span {
    /// When work ended, in microseconds since the Unix epoch.
    pub fn end(&self) -> i64 {
        self.start.saturating_add_unsigned(self.work_us)
    }
}

/// Takes spans in; must not block.
pub trait Sink: Send + Sync {
    fn record(&self, uid: &str, span: Span);

    /// Keeps the newest explanation of a pod for a while, in memory only.
    fn explain(&self, uid: &str, explanation: Arc<dyn Explain>) {
        let _ = (uid, explanation);
    }
}

/// Why something was decided. The text is made only when it is read.
pub trait Explain: Send + Sync {
    fn lines(&self) -> Vec<String>;
}

/// The handle components hold. Cheap to clone; records nowhere when built with [`Recorder::off`].
#[derive(Clone)]
pub struct Recorder {
    sink: Option<Arc<dyn Sink>>,
}

impl Recorder {
    pub fn new(sink: Arc<dyn Sink>) -> Recorder {
        Recorder { sink: Some(sink) }
    }

    pub fn off() -> Recorder {
        Recorder { sink: None }
    }

    pub fn record(&self, uid: &str, span: Span) {
        if let Some(sink) = &self.sink {
            sink.record(uid, span);
        }
    }

    pub fn explain(&self, uid: &str, explanation: Arc<dyn Explain>) {
        if let Some(sink) = &self.sink {
            sink.explain(uid, explanation);
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.sink.is_some() {
            "Recorder(on)"
        } else {
            "Recorder(off)"
        })
    }
}
