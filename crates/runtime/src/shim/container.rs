//! What the shim knows of one container and of one exec inside it.

use super::{
    logs::{LineBuffer, LogFile},
    process::Pipe,
    protocol::{Exit, OUTPUT_LIMIT},
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
    /// Nothing is left but the knowledge of how it ended.
    Deleted(Exit),
}

pub struct Container {
    pub phase: Phase,
    pub pid: i32,
    pub started_at: i64,
    pub cgroup: String,
    pub output: LoggedOutput,
    /// Kept so that the container's standard input stays open.
    pub stdin: Option<std::os::fd::OwnedFd>,
    /// Clients (connection, call) that wait for the deletion.
    pub deletion_waiters: Vec<(u64, u64)>,
}

impl Container {
    pub fn exit(&self) -> Option<&Exit> {
        match &self.phase {
            Phase::Starting | Phase::Running => None,
            Phase::Ended(exit) | Phase::Deleting(exit) | Phase::Deleted(exit) => Some(exit),
        }
    }
}

/// A container's two streams on their way to its log file.
pub struct LoggedOutput {
    pub log: Option<LogFile>,
    pub streams: [Option<(Pipe, LineBuffer)>; 2],
}

impl LoggedOutput {
    /// Reads one stream; forgets it when its writers are gone.
    pub fn drain(&mut self, number: usize) {
        let Some((pipe, buffer)) = &mut self.streams[number] else {
            return;
        };
        let log = &mut self.log;
        let open = pipe.drain(|bytes| buffer.write(bytes, sys::unix_nanos(), log.as_mut()));
        if !open {
            buffer.finish(sys::unix_nanos(), log.as_mut());
            self.streams[number] = None;
        }
    }

    /// Everything written so far goes to the log; used when the container has ended.
    pub fn drain_all(&mut self) {
        self.drain(0);
        self.drain(1);
    }

    /// Nobody is expected to write any more.
    pub fn close(&mut self) {
        self.drain_all();
        for stream in &mut self.streams {
            if let Some((_, mut buffer)) = stream.take() {
                buffer.finish(sys::unix_nanos(), self.log.as_mut());
            }
        }
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
    pub connection: u64,
    pub call: u64,
}

impl Exec {
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
