//! The shim's state of one container and of one exec inside it.

use super::{
    attachment::Attachment,
    logs::{LineBuffer, LogFile},
    process::Pipe,
    protocol::{Exit, Failure, FailureKind, OUTPUT_LIMIT},
};
use crate::sys;

/// Where a container is in its life, as far as the shim is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The OCI command is creating and starting it.
    Starting,
    Running,
    Ended(Exit),
    /// Ended, and the OCI command is removing what it kept.
    Deleting(Exit),
    /// Only its exit code is left.
    Deleted(Exit),
}

pub struct Container {
    pub phase: Phase,
    pub pid: i32,
    pub started_at: i64,
    pub cgroup: String,
    /// The count of out-of-memory kills in the pod that was last read.
    pub pod_oom_kills: u64,
    /// Whether the shim itself started it, so that no OCI runtime knows it.
    pub direct: bool,
    pub output: LoggedOutput,
    /// Kept so that the container's standard input stays open, and for those who attach: the
    /// writing end of a pipe, or its terminal.
    pub stdin: Option<std::os::fd::OwnedFd>,
    pub terminal: bool,
    /// Clients (connection, call) that wait for the deletion.
    pub deletion_waiters: Vec<(u64, u64)>,
}

impl Container {
    /// One that is being started and has no streams.
    pub fn new(cgroup: String) -> Container {
        Container {
            phase: Phase::Starting,
            pid: 0,
            started_at: 0,
            cgroup,
            pod_oom_kills: 0,
            direct: false,
            output: LoggedOutput {
                log: None,
                streams: [None, None],
                attachments: Default::default(),
            },
            stdin: None,
            terminal: false,
            deletion_waiters: Vec::new(),
        }
    }

    pub fn exit(&self) -> Option<&Exit> {
        match &self.phase {
            Phase::Starting | Phase::Running => None,
            Phase::Ended(exit) | Phase::Deleting(exit) | Phase::Deleted(exit) => Some(exit),
        }
    }
}

/// A container's two streams on their way to its log file and to those who are attached.
pub struct LoggedOutput {
    pub log: Option<LogFile>,
    pub streams: [Option<(Pipe, LineBuffer)>; 2],
    pub attachments: [Vec<Attachment>; 2],
}

impl LoggedOutput {
    /// Reads one stream; forgets it when its writers are gone.
    pub fn drain(&mut self, number: usize) {
        let Some((pipe, buffer)) = &mut self.streams[number] else {
            return;
        };
        let log = &mut self.log;
        let attachments = &mut self.attachments[number];
        let open = pipe.drain(|bytes| {
            buffer.write(bytes, sys::unix_nanos(), log.as_mut());
            for attachment in attachments.iter_mut() {
                attachment.write(bytes);
            }
        });
        if !open {
            buffer.finish(sys::unix_nanos(), log.as_mut());
            self.streams[number] = None;
        }
        self.forget_attachments(number);
    }

    /// Whether somebody attached has not taken what was read before; then no more is read.
    pub fn is_held_up(&self, number: usize) -> bool {
        self.attachments[number].iter().any(Attachment::waits)
    }

    /// Drops clients that are gone and, after the stream's end, clients that have read everything.
    pub fn forget_attachments(&mut self, number: usize) {
        let open = self.streams[number].is_some();
        self.attachments[number]
            .retain(|attachment| !attachment.gone && (open || attachment.waits()));
    }

    /// Everything written so far goes to the log; used when the container has ended.
    pub fn drain_all(&mut self) {
        self.drain(0);
        self.drain(1);
    }

    /// No process is expected to write any more.
    pub fn close(&mut self) {
        self.drain_all();
        for stream in &mut self.streams {
            if let Some((_, mut buffer)) = stream.take() {
                buffer.finish(sys::unix_nanos(), self.log.as_mut());
            }
        }
        self.forget_attachments(0);
        self.forget_attachments(1);
        self.log = None;
    }
}

/// A process run inside a container, whose output is kept for the answer.
pub struct Exec {
    pub container: String,
    /// Known once the OCI command has started it.
    pub pid: Option<i32>,
    pub deadline: Option<i64>,
    pub timed_out: bool,
    pub captured: [Vec<u8>; 2],
    pub pipes: [Option<Pipe>; 2],
    /// The client has given its own streams: it gets an answer at the start, and no output is kept.
    pub streamed: bool,
    pub connection: u64,
    pub call: u64,
}

impl Exec {
    /// The failure of an exec that was killed because its time was over.
    pub fn late(&self) -> Failure {
        Failure {
            kind: FailureKind::Timeout,
            message: format!(
                "the command in container {} did not end in time",
                self.container
            ),
        }
    }

    pub fn drain(&mut self, number: usize) {
        let Some(pipe) = &mut self.pipes[number] else {
            return;
        };
        let kept = &mut self.captured[number];
        let open = pipe.drain(|bytes| {
            let room = OUTPUT_LIMIT - kept.len();
            kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        });
        if !open {
            self.pipes[number] = None;
        }
    }
}
