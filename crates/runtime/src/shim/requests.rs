//! Carries out each request to the shim, and handles the end of each child.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::Engine;
use nix::{
    sys::wait::{Id, WaitPidFlag, WaitStatus, waitid},
    unistd::Pid,
};

use super::{
    Layout,
    container::{Container, Exec, LoggedOutput, Phase},
    event_loop::{Job, JobKind, Shim, kill_group},
    logs::{LineBuffer, LogFile},
    pause::Pause,
    process::{Console, Pipe, Scratch, Streams, last_error, read_pid},
    protocol::{
        Call, ContainerState, Exit, Failure, FailureKind, Message, Output, Request, ShimState,
        Started, VERSION,
    },
};
use crate::{cgroups::Hierarchies, sys};

impl Shim {
    pub(super) fn handle(&mut self, connection: u64, call: Call) {
        let id = call.id;
        let result = match call.request {
            Request::State => {
                self.subscribe(connection);
                let state = Some(self.state());
                self.answer(
                    connection,
                    id,
                    Message {
                        state,
                        ..Message::default()
                    },
                );
                return;
            }
            Request::Run {
                container,
                bundle,
                log,
                stdin,
                cgroup,
                terminal,
                attachable,
                pause,
            } => {
                if pause
                    && self.oci.is_ours()
                    && let Some(outcome) =
                        self.run_pause(&container, &bundle, &cgroup, connection, id)
                {
                    if let Err(error) = outcome {
                        self.refuse(connection, id, error);
                    }
                    return;
                }
                let wishes = Wishes {
                    log,
                    stdin,
                    terminal,
                    attachable,
                };
                self.run_container(&container, bundle, wishes, cgroup, connection, id)
            }
            Request::Kill {
                container,
                signal,
                all,
            } => self.kill(&container, signal, all, connection, id),
            Request::Delete { container } => self.delete(&container, connection, id),
            Request::Exec {
                container,
                process,
                timeout_ms,
            } => self.exec(&container, &process, timeout_ms, connection, id),
            Request::ExecStreams {
                container,
                process,
                stdin,
                stdout,
                stderr,
                console,
            } => {
                let wanted = [stdin, stdout, stderr];
                self.exec_streams(&container, &process, wanted, console, connection, id)
            }
            Request::Attach {
                container,
                stdout,
                stderr,
            } => self.attach(&container, [stdout, stderr], connection, id),
            Request::CloseStdin { container } => self.close_stdin(&container).map(|()| {
                self.answer(connection, id, Message::default());
            }),
            Request::ReopenLog { container } => self.reopen_log(&container).map(|()| {
                self.answer(connection, id, Message::default());
            }),
            Request::Shutdown => self.shutdown().map(|()| {
                self.answer(connection, id, Message::default());
            }),
            Request::Unknown => Err(Failure {
                kind: FailureKind::Unsupported,
                message: format!(
                    "this shim speaks version {VERSION} and does not know the request"
                ),
            }),
        };
        if let Err(error) = result {
            self.refuse(connection, id, error);
        }
    }

    fn refuse(&mut self, connection: u64, call: u64, error: Failure) {
        let message = Message {
            error: Some(error),
            ..Message::default()
        };
        self.answer(connection, call, message);
    }

    fn state(&self) -> ShimState {
        ShimState {
            pid: std::process::id() as i32,
            containers: self
                .containers
                .iter()
                .filter(|(_, container)| container.phase != Phase::Starting)
                .map(|(id, container)| ContainerState {
                    id: id.clone(),
                    pid: container.pid,
                    started_at: container.started_at,
                    exit: container.exit().cloned(),
                })
                .collect(),
        }
    }

    /// `None` means that the OCI runtime has to do it.
    fn run_pause(
        &mut self,
        id: &str,
        bundle: &Path,
        cgroup: &str,
        connection: u64,
        call: u64,
    ) -> Option<Result<(), Failure>> {
        if self.containers.contains_key(id) {
            return None;
        }
        let pause = match Pause::read(bundle) {
            Ok(pause) => pause?,
            Err(error) => return Some(Err(failed("reading the bundle")(error))),
        };
        let pid = match pause.start(&self.hierarchies) {
            Ok(pid) => pid,
            Err(error) => return Some(Err(failed("starting the pause process")(error))),
        };
        let container = Container {
            direct: true,
            ..Container::new(cgroup.to_owned())
        };
        self.containers.insert(id.to_owned(), container);
        self.started(id, pid, connection, call);
        Some(Ok(()))
    }

    fn run_container(
        &mut self,
        id: &str,
        bundle: PathBuf,
        wishes: Wishes,
        cgroup: String,
        connection: u64,
        call: u64,
    ) -> Result<(), Failure> {
        if self.containers.contains_key(id) {
            return Err(Failure {
                kind: FailureKind::Conflict,
                message: format!("container {id} exists"),
            });
        }
        let attachable = wishes.attachable || wishes.log.is_some();
        let log = wishes
            .log
            .map(|path| LogFile::open(&path))
            .transpose()
            .map_err(failed("opening the log"))?;
        let (mut streams, mut outputs) = (Streams::default(), [None, None]);
        if attachable && !wishes.terminal {
            let (out, out_child) = Pipe::new().map_err(failed("making a pipe"))?;
            let (err, err_child) = Pipe::new().map_err(failed("making a pipe"))?;
            streams.stdout = Some(out_child);
            streams.stderr = Some(err_child);
            outputs = [
                Some((out, LineBuffer::new("stdout"))),
                Some((err, LineBuffer::new("stderr"))),
            ];
        }
        let mut kept_stdin = None;
        if wishes.stdin && !wishes.terminal {
            let (reader, writer) = io::pipe().map_err(failed("making a pipe"))?;
            streams.stdin = Some(reader.into());
            kept_stdin = Some(writer.into());
        }
        let scratch = self.scratch();
        let bundle = bundle.to_string_lossy().into_owned();
        let pid_file = scratch.pid_file.to_string_lossy().into_owned();
        let mut arguments = vec![
            "run",
            "--detach",
            "--bundle",
            &bundle,
            "--pid-file",
            &pid_file,
        ];
        let mut console = None;
        if wishes.terminal {
            console = Some(Console::open(&scratch.console).map_err(failed("making a socket"))?);
        }
        let socket = console.as_ref().map(|console| console.path.clone());
        if let Some(socket) = &socket {
            arguments.extend(["--console-socket", socket]);
        }
        arguments.push(id);
        let kind = JobKind::Run {
            container: id.into(),
            connection,
            call,
            console,
            bundle: PathBuf::from(&bundle),
        };
        self.start(kind, scratch, &arguments, streams)?;
        self.containers.insert(
            id.to_owned(),
            Container {
                output: LoggedOutput {
                    log,
                    streams: outputs,
                    attachments: Default::default(),
                },
                stdin: kept_stdin,
                terminal: wishes.terminal,
                ..Container::new(cgroup)
            },
        );
        Ok(())
    }

    fn kill(
        &mut self,
        id: &str,
        signal: i32,
        all: bool,
        connection: u64,
        call: u64,
    ) -> Result<(), Failure> {
        let container = self.find(id)?;
        if container.exit().is_some() {
            self.answer(connection, call, Message::default());
            return Ok(());
        }
        // A process that has not been waited for is still the one we know.
        if container.phase == Phase::Running && (container.direct || self.oci.is_ours() && !all) {
            // SAFETY: kill(2) takes two integers.
            if unsafe { libc::kill(container.pid, signal) } != 0 {
                return Err(failed("sending a signal")(io::Error::last_os_error()));
            }
            self.answer(connection, call, Message::default());
            return Ok(());
        }
        let signal = signal.to_string();
        let mut arguments = vec!["kill"];
        if all {
            arguments.push("--all");
        }
        arguments.extend([id, &signal]);
        let scratch = self.scratch();
        self.start(
            JobKind::Kill {
                container: id.to_owned(),
                connection,
                call,
            },
            scratch,
            &arguments,
            Streams::default(),
        )
    }

    fn delete(&mut self, id: &str, connection: u64, call: u64) -> Result<(), Failure> {
        let Some(container) = self.containers.get_mut(id) else {
            self.answer(connection, call, Message::default());
            return Ok(());
        };
        match container.phase.clone() {
            Phase::Deleted(_) => {
                self.forget(id);
                self.answer(connection, call, Message::default());
                Ok(())
            }
            Phase::Deleting(_) => {
                container.deletion_waiters.push((connection, call));
                Ok(())
            }
            Phase::Ended(exit) => {
                container.deletion_waiters.push((connection, call));
                self.start_deletion(id, exit)
            }
            // Its end will start the deletion.
            Phase::Running => {
                container.deletion_waiters.push((connection, call));
                self.kill(id, libc::SIGKILL, true, 0, 0)
            }
            Phase::Starting => Err(Failure {
                kind: FailureKind::Conflict,
                message: format!("container {id} is being started"),
            }),
        }
    }

    fn exec(
        &mut self,
        id: &str,
        process: &serde_json::Value,
        timeout_ms: u64,
        connection: u64,
        call: u64,
    ) -> Result<(), Failure> {
        let container = self.find(id)?;
        if container.phase != Phase::Running {
            return Err(Failure {
                kind: FailureKind::Conflict,
                message: format!("container {id} is not running"),
            });
        }
        let scratch = self.scratch();
        sys::write_private(&scratch.process, process.to_string().as_bytes())
            .map_err(failed("writing the process"))?;
        let (out, out_child) = Pipe::new().map_err(failed("making a pipe"))?;
        let (err, err_child) = Pipe::new().map_err(failed("making a pipe"))?;
        let streams = Streams {
            stdin: None,
            stdout: Some(out_child),
            stderr: Some(err_child),
        };
        let process_file = scratch.process.to_string_lossy().into_owned();
        let pid_file = scratch.pid_file.to_string_lossy().into_owned();
        let arguments = [
            "exec",
            "--detach",
            "--process",
            &process_file,
            "--pid-file",
            &pid_file,
            id,
        ];
        let exec = self.next_job;
        self.start(JobKind::Exec { exec }, scratch, &arguments, streams)?;
        let deadline = (timeout_ms > 0)
            .then(|| sys::monotonic_millis() + i64::try_from(timeout_ms).unwrap_or(i64::MAX / 2));
        self.execs.insert(
            exec,
            Exec {
                container: id.into(),
                pid: None,
                deadline,
                timed_out: false,
                captured: [Vec::new(), Vec::new()],
                pipes: [Some(out), Some(err)],
                streamed: false,
                connection,
                call,
            },
        );
        Ok(())
    }

    fn reopen_log(&mut self, id: &str) -> Result<(), Failure> {
        let container = self.containers.get_mut(id).ok_or_else(|| Failure {
            kind: FailureKind::NotFound,
            message: format!("no container {id}"),
        })?;
        match &mut container.output.log {
            Some(log) => log.reopen().map_err(failed("reopening the log")),
            None => Ok(()),
        }
    }

    fn shutdown(&mut self) -> Result<(), Failure> {
        if self
            .containers
            .values()
            .any(|container| container.exit().is_none())
        {
            return Err(Failure {
                kind: FailureKind::Conflict,
                message: "containers are running".into(),
            });
        }
        self.stopping = true;
        Ok(())
    }

    /// An OCI command has ended with `code`.
    pub(super) fn job_ended(&mut self, job: Job, code: i32) {
        let Job { kind, scratch } = job;
        let failure = (code != 0).then(|| Failure {
            kind: FailureKind::Failed,
            message: last_error(&scratch.log)
                .unwrap_or_else(|| format!("the OCI command ended with {code}")),
        });
        match kind {
            JobKind::Run {
                container,
                connection,
                call,
                console,
                ..
            } => {
                let pid = read_pid(&scratch.pid_file);
                match (failure, pid) {
                    (None, Some(pid)) => {
                        if let Some(console) = console {
                            self.take_terminal(&container, &console.listener);
                        }
                        self.started(&container, pid, connection, call);
                    }
                    (failure, _) => {
                        self.containers.remove(&container);
                        let error = failure.unwrap_or_else(|| Failure {
                            kind: FailureKind::Failed,
                            message: "the OCI command wrote no pid file".into(),
                        });
                        self.answer(
                            connection,
                            call,
                            Message {
                                error: Some(error),
                                ..Message::default()
                            },
                        );
                    }
                }
            }
            JobKind::Kill {
                container,
                connection,
                call,
            } => {
                // A process that has ended in the meantime needs no signal; its exit is reported as usual.
                let failure = failure.filter(|_| self.find(&container).is_ok_and(is_alive));
                self.answer(
                    connection,
                    call,
                    Message {
                        error: failure,
                        ..Message::default()
                    },
                );
            }
            JobKind::Delete { container } => self.deletion_ended(&container, failure),
            JobKind::Exec { exec } => match (failure, read_pid(&scratch.pid_file)) {
                (None, Some(pid)) => self.exec_started(exec, pid),
                (failure, _) => {
                    if let Some(exec) = self.execs.remove(&exec) {
                        let error = match exec.timed_out {
                            // It was ended on its way in, which is what failed.
                            true => exec.late(),
                            false => failure.unwrap_or_else(|| Failure {
                                kind: FailureKind::Failed,
                                message: "the OCI command wrote no pid file".into(),
                            }),
                        };
                        let message = Message {
                            error: Some(error),
                            ..Message::default()
                        };
                        self.answer(exec.connection, exec.call, message);
                    }
                }
            },
        }
    }

    fn started(&mut self, id: &str, pid: i32, connection: u64, call: u64) {
        let started_at = sys::unix_nanos();
        if let Some(container) = self.containers.get_mut(id) {
            container.phase = Phase::Running;
            container.pod_oom_kills = self.hierarchies.oom_kills_of_pod(&container.cgroup);
            container.pid = pid;
            container.started_at = started_at;
        }
        let started = Some(Started { pid, started_at });
        self.answer(
            connection,
            call,
            Message {
                started,
                ..Message::default()
            },
        );
        if let Some(code) = self.unclaimed.remove(&pid) {
            self.container_ended(id, code);
        }
    }

    /// The container's first process has ended: output first, then the news, then the cleaning up.
    pub(super) fn container_ended(&mut self, id: &str, code: i32) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        // First of all, since systemd may be about to remove the scope of the dead.
        let out_of_memory =
            code == 128 + libc::SIGKILL && killed_for_memory(&self.hierarchies, container);
        container.output.drain_all();
        container.stdin = None;
        let exit = Exit {
            container: id.to_owned(),
            code,
            finished_at: sys::unix_nanos(),
            out_of_memory,
        };
        container.phase = Phase::Ended(exit.clone());
        if out_of_memory {
            for other in self.containers.values_mut() {
                other.pod_oom_kills = self.hierarchies.oom_kills_of_pod(&other.cgroup);
            }
        }
        match serde_json::to_vec(&exit) {
            Ok(bytes) => {
                if let Err(error) = sys::write_atomically(&Layout(&self.directory).exit(id), &bytes)
                {
                    eprintln!("shim: recording the end of {id}: {error}");
                }
            }
            Err(error) => eprintln!("shim: recording the end of {id}: {error}"),
        }
        self.broadcast(&Message {
            version: VERSION,
            exited: Some(exit.clone()),
            ..Message::default()
        });
        if let Err(failure) = self.start_deletion(id, exit) {
            eprintln!("shim: deleting {id}: {}", failure.message);
        }
    }

    fn start_deletion(&mut self, id: &str, exit: Exit) -> Result<(), Failure> {
        if let Some(container) = self.containers.get_mut(id)
            && container.direct
        {
            // What is left of its cgroup goes with the sandbox.
            let _ = self.hierarchies.remove(&container.cgroup);
            container.phase = Phase::Deleting(exit);
            self.deletion_ended(id, None);
            return Ok(());
        }
        let scratch = self.scratch();
        let kind = JobKind::Delete {
            container: id.into(),
        };
        self.start(
            kind,
            scratch,
            &["delete", "--force", id],
            Streams::default(),
        )?;
        if let Some(container) = self.containers.get_mut(id) {
            container.phase = Phase::Deleting(exit);
        }
        Ok(())
    }

    fn deletion_ended(&mut self, id: &str, failure: Option<Failure>) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        let waiters = std::mem::take(&mut container.deletion_waiters);
        if let Phase::Deleting(exit) = container.phase.clone() {
            container.phase = match failure {
                None => Phase::Deleted(exit),
                Some(_) => Phase::Ended(exit),
            };
        }
        if let Some(failure) = &failure {
            eprintln!("shim: deleting {id}: {}", failure.message);
        } else {
            container.output.close();
            if !waiters.is_empty() {
                self.forget(id);
            }
        }
        for (connection, call) in waiters {
            self.answer(
                connection,
                call,
                Message {
                    error: failure.clone(),
                    ..Message::default()
                },
            );
        }
    }

    fn forget(&mut self, id: &str) {
        self.containers.remove(id);
        let _ = fs::remove_file(Layout(&self.directory).exit(id));
    }

    fn exec_started(&mut self, id: u64, pid: i32) {
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        exec.pid = Some(pid);
        if exec.timed_out {
            kill_group(pid);
        }
        if exec.streamed {
            let (connection, call) = (exec.connection, exec.call);
            let started_at = sys::unix_nanos();
            let message = Message {
                started: Some(Started { pid, started_at }),
                ..Message::default()
            };
            self.answer(connection, call, message);
        }
        if let Some(code) = self.unclaimed.remove(&pid) {
            self.exec_ended(id, code);
        }
    }

    pub(super) fn exec_ended(&mut self, id: u64, code: i32) {
        let Some(mut exec) = self.execs.remove(&id) else {
            return;
        };
        exec.drain(0);
        exec.drain(1);
        let message = if exec.timed_out {
            Message {
                error: Some(exec.late()),
                ..Message::default()
            }
        } else {
            let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
            let output = Output {
                code,
                stdout: encode(&exec.captured[0]),
                stderr: encode(&exec.captured[1]),
            };
            Message {
                output: Some(output),
                ..Message::default()
            }
        };
        self.answer(exec.connection, exec.call, message);
    }

    pub(super) fn find(&self, id: &str) -> Result<&Container, Failure> {
        self.containers.get(id).ok_or_else(|| Failure {
            kind: FailureKind::NotFound,
            message: format!("no container {id}"),
        })
    }

    pub(super) fn scratch(&self) -> Scratch {
        Scratch::new(&self.directory, self.next_job)
    }

    pub(super) fn start(
        &mut self,
        kind: JobKind,
        scratch: Scratch,
        arguments: &[&str],
        streams: Streams,
    ) -> Result<(), Failure> {
        let root = Layout(&self.directory).oci_root();
        let bundle = match &kind {
            JobKind::Run { bundle, .. } => Some(bundle.as_path()),
            _ => None,
        };
        let pid = self
            .oci
            .start(&root, &scratch.log, arguments, streams, bundle)
            .map_err(failed("starting the OCI command"))?;
        self.next_job += 1;
        self.jobs.insert(pid, Job { kind, scratch });
        Ok(())
    }
}

/// Whether its first process runs, as far as the kernel knows.
fn is_alive(container: &Container) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    container.exit().is_none()
        && matches!(
            waitid(Id::Pid(Pid::from_raw(container.pid)), flags),
            Ok(WaitStatus::StillAlive)
        )
}

/// By its own count, or, where systemd was quicker and has removed it, by the pod's.
fn killed_for_memory(hierarchies: &Hierarchies, container: &Container) -> bool {
    let group = &container.cgroup;
    hierarchies.oom_kills(group) > 0
        || !hierarchies.exists(group)
            && hierarchies.oom_kills_of_pod(group) > container.pod_oom_kills
}

/// What a container's standard streams shall be.
struct Wishes {
    log: Option<PathBuf>,
    stdin: bool,
    terminal: bool,
    attachable: bool,
}

pub(super) fn failed(what: &str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure {
        kind: FailureKind::Failed,
        message: format!("{what}: {error}"),
    }
}
