//! The shim's one loop: the socket, its clients, the containers' output, the ends of children and
//! the deadlines of execs. What each request does is in `requests`.

use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::PathBuf,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::{
    attachment::Attachment,
    connection::Connection,
    container::{Container, Exec},
    process::{Console, OciCommand, Scratch},
    protocol::{Call, Message, ShimConfig, VERSION},
};
use crate::{cgroups::Hierarchies, sys};

pub struct Shim {
    pub(super) directory: PathBuf,
    pub(super) oci: OciCommand,
    pub(super) hierarchies: Hierarchies,
    listener: UnixListener,
    wake: OwnedFd,
    pub(super) connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    pub(super) next_job: u64,
    pub(super) containers: BTreeMap<String, Container>,
    pub(super) execs: BTreeMap<u64, Exec>,
    /// Running OCI commands by pid.
    pub(super) jobs: BTreeMap<i32, Job>,
    /// Exits of processes whose pid is not known yet, since their OCI command still runs.
    pub(super) unclaimed: BTreeMap<i32, i32>,
    pub(super) stopping: bool,
}

/// An OCI command under way, and what its end means.
pub struct Job {
    pub kind: JobKind,
    pub scratch: Scratch,
}

pub enum JobKind {
    Run {
        container: String,
        connection: u64,
        call: u64,
        /// Where its terminal arrives, if it has one.
        console: Option<Console>,
        bundle: PathBuf,
    },
    Kill {
        container: String,
        connection: u64,
        call: u64,
    },
    Delete {
        container: String,
    },
    Exec {
        exec: u64,
    },
}

/// What a descriptor in the poll set belongs to.
enum Source {
    Listener,
    Wake,
    Connection(u64),
    Output(String, usize),
    /// A client attached to a container's output can take more.
    Attached(String, usize),
    Captured(u64, usize),
}

impl Shim {
    pub fn new(
        directory: PathBuf,
        config: ShimConfig,
        listener: UnixListener,
        wake: OwnedFd,
        hierarchies: Hierarchies,
    ) -> Shim {
        Shim {
            directory,
            oci: OciCommand::new(config.oci_command),
            hierarchies,
            listener,
            wake,
            connections: BTreeMap::new(),
            next_connection: 1,
            next_job: 1,
            containers: BTreeMap::new(),
            execs: BTreeMap::new(),
            jobs: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            stopping: false,
        }
    }

    /// Runs until a client asks for the end.
    pub fn run(mut self) -> io::Result<()> {
        while !self.stopping {
            for source in self.wait()? {
                match source {
                    Source::Listener => self.accept(),
                    Source::Wake => self.reap(),
                    Source::Connection(id) => self.serve(id),
                    Source::Output(container, stream) => {
                        if let Some(container) = self.containers.get_mut(&container) {
                            container.output.drain(stream);
                        }
                    }
                    Source::Attached(container, stream) => {
                        if let Some(container) = self.containers.get_mut(&container) {
                            for attachment in &mut container.output.attachments[stream] {
                                attachment.flush();
                            }
                            container.output.forget_attachments(stream);
                        }
                    }
                    Source::Captured(exec, stream) => {
                        if let Some(exec) = self.execs.get_mut(&exec) {
                            exec.drain(stream);
                        }
                    }
                }
            }
            self.enforce_deadlines();
            self.connections.retain(|_, connection| !connection.closed);
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut fds = Vec::new();
        let mut sources = Vec::new();
        let mut watch = |fd: BorrowedFd<'_>, flags: PollFlags, source: Source| {
            // SAFETY: every descriptor is owned by `self`, which is not changed until the poll set
            // is gone at the end of this function.
            let fd = unsafe { BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&fd)) };
            fds.push(PollFd::new(fd, flags));
            sources.push(source);
        };
        watch(self.wake.as_fd(), PollFlags::POLLIN, Source::Wake);
        watch(self.listener.as_fd(), PollFlags::POLLIN, Source::Listener);
        for (id, connection) in &self.connections {
            let mut flags = PollFlags::POLLIN;
            if connection.wants_to_write() {
                flags |= PollFlags::POLLOUT;
            }
            watch(connection.fd(), flags, Source::Connection(*id));
        }
        for (id, container) in &self.containers {
            for (number, stream) in container.output.streams.iter().enumerate() {
                if let Some((pipe, _)) = stream
                    && !container.output.is_held_up(number)
                {
                    watch(
                        pipe.fd(),
                        PollFlags::POLLIN,
                        Source::Output(id.clone(), number),
                    );
                }
                for attachment in &container.output.attachments[number] {
                    // Without flags it is only heard of when the reader is gone.
                    let flags = match attachment.waits() {
                        true => PollFlags::POLLOUT,
                        false => PollFlags::empty(),
                    };
                    watch(attachment.fd(), flags, Source::Attached(id.clone(), number));
                }
            }
        }
        for (id, exec) in &self.execs {
            for (number, pipe) in exec.pipes.iter().enumerate() {
                if let Some(pipe) = pipe {
                    watch(pipe.fd(), PollFlags::POLLIN, Source::Captured(*id, number));
                }
            }
        }
        match poll(&mut fds, self.next_deadline()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = fds
            .iter()
            .map(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
            .collect();
        Ok(sources
            .into_iter()
            .zip(ready)
            .filter(|(_, ready)| *ready)
            .map(|(source, _)| source)
            .collect())
    }

    fn next_deadline(&self) -> PollTimeout {
        let now = sys::monotonic_millis();
        let execs = self.execs.values().filter(|exec| !exec.timed_out);
        let attachments = self.containers.values().flat_map(|container| {
            let attachments = container.output.attachments.iter().flatten();
            attachments.filter_map(Attachment::deadline)
        });
        execs
            .filter_map(|exec| exec.deadline)
            .chain(attachments)
            .map(|deadline| (deadline - now).clamp(0, i64::from(i32::MAX)))
            .min()
            .and_then(|millis| PollTimeout::try_from(millis).ok())
            .unwrap_or(PollTimeout::NONE)
    }

    fn enforce_deadlines(&mut self) {
        let now = sys::monotonic_millis();
        for container in self.containers.values_mut() {
            for number in 0..2 {
                for attachment in &mut container.output.attachments[number] {
                    attachment.enforce_deadline(now);
                }
                container.output.forget_attachments(number);
            }
        }
        for (id, exec) in &mut self.execs {
            if exec.deadline.is_some_and(|deadline| deadline <= now) && !exec.timed_out {
                exec.timed_out = true;
                // Until the process is known it is the command that enters the container.
                let entering = || {
                    let mut jobs = self.jobs.iter();
                    jobs.find(|(_, job)| matches!(&job.kind, JobKind::Exec { exec } if exec == id))
                        .map(|(pid, _)| *pid)
                };
                if let Some(pid) = exec.pid.or_else(entering) {
                    kill_group(pid);
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            match Connection::new(stream) {
                Ok(connection) => {
                    self.connections.insert(self.next_connection, connection);
                    self.next_connection += 1;
                }
                Err(error) => eprintln!("shim: accepting: {error}"),
            }
        }
    }

    fn serve(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.flush();
        for document in connection.read() {
            match serde_json::from_slice::<Call>(&document) {
                Ok(call) => self.handle(id, call),
                Err(error) => {
                    eprintln!("shim: a request that cannot be read: {error}");
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.closed = true;
                    }
                    return;
                }
            }
        }
    }

    pub(super) fn subscribe(&mut self, connection: u64) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.subscribed = true;
        }
    }

    pub(super) fn answer(&mut self, connection: u64, call: u64, message: Message) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.send(&Message {
                version: VERSION,
                id: Some(call),
                ..message
            });
        }
    }

    pub(super) fn broadcast(&mut self, message: &Message) {
        for connection in self
            .connections
            .values_mut()
            .filter(|connection| connection.subscribed)
        {
            connection.send(message);
        }
    }

    /// Waits for all children that have ended, our own and adopted ones.
    fn reap(&mut self) {
        let mut counter = [0; 8];
        let _ = nix::unistd::read(&self.wake, &mut counter);
        loop {
            let (pid, code) = match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid.as_raw(), code),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid.as_raw(), 128 + signal as i32),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => break,
                Err(Errno::EINTR) | Ok(_) => continue,
                Err(errno) => {
                    eprintln!("shim: waiting: {errno}");
                    break;
                }
            };
            self.ended(pid, code);
        }
        if !self
            .jobs
            .values()
            .any(|job| matches!(job.kind, JobKind::Run { .. } | JobKind::Exec { .. }))
        {
            self.unclaimed.clear();
        }
    }

    fn ended(&mut self, pid: i32, code: i32) {
        if let Some(job) = self.jobs.remove(&pid) {
            return self.job_ended(job, code);
        }
        let container = self
            .containers
            .iter()
            .find(|(_, container)| container.pid == pid && container.exit().is_none())
            .map(|(id, _)| id.clone());
        if let Some(container) = container {
            return self.container_ended(&container, code);
        }
        let exec = self
            .execs
            .iter()
            .find(|(_, exec)| exec.pid == Some(pid))
            .map(|(id, _)| *id);
        match exec {
            Some(exec) => self.exec_ended(exec, code),
            None => {
                self.unclaimed.insert(pid, code);
            }
        }
    }
}

/// Kills the process group that an exec leads.
pub(super) fn kill_group(pid: i32) {
    let _ = kill(Pid::from_raw(-pid), Signal::SIGKILL);
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}
