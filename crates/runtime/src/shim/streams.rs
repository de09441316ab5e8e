//! Streams that clients bring along: execs on their descriptors, attaching to a container's
//! standard streams, and taking over a container's terminal.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::PathBuf,
    time::Duration,
};

use super::{
    attachment::Attachment,
    container::{Exec, Phase},
    event_loop::{JobKind, Shim},
    logs::LineBuffer,
    process::{Pipe, Streams},
    protocol::{Attached, Failure, FailureKind, Message, VERSION},
    requests::failed,
};
use crate::sys;

/// The OCI command has handed its terminal over before it ended; this only guards against one
/// that opens the socket and says nothing.
const CONSOLE_TIMEOUT: Duration = Duration::from_millis(500);

impl Shim {
    pub(super) fn exec_streams(
        &mut self,
        id: &str,
        process: &serde_json::Value,
        wanted: [bool; 3],
        console: Option<PathBuf>,
        connection: u64,
        call: u64,
    ) -> Result<(), Failure> {
        let mut descriptors = self.descriptors_of(connection).into_iter();
        if self.find(id)?.phase != Phase::Running {
            return Err(Failure {
                kind: FailureKind::Conflict,
                message: format!("container {id} is not running"),
            });
        }
        let mut streams = Streams::default();
        let places = [&mut streams.stdin, &mut streams.stdout, &mut streams.stderr];
        for (place, wanted) in places.into_iter().zip(wanted) {
            if wanted {
                *place = Some(descriptors.next().ok_or_else(missing)?);
            }
        }
        let scratch = self.scratch();
        sys::write_private(&scratch.process, process.to_string().as_bytes())
            .map_err(failed("writing the process"))?;
        let process_file = scratch.process.to_string_lossy().into_owned();
        let pid_file = scratch.pid_file.to_string_lossy().into_owned();
        let mut arguments = vec![
            "exec",
            "--detach",
            "--process",
            &process_file,
            "--pid-file",
            &pid_file,
        ];
        let console = console.map(|path| path.to_string_lossy().into_owned());
        if let Some(console) = &console {
            arguments.extend(["--console-socket", console]);
        }
        arguments.push(id);
        let exec = self.next_job;
        self.start(JobKind::Exec { exec }, scratch, &arguments, streams)?;
        self.execs.insert(
            exec,
            Exec {
                container: id.into(),
                pid: None,
                deadline: None,
                timed_out: false,
                captured: [Vec::new(), Vec::new()],
                pipes: [None, None],
                streamed: true,
                connection,
                call,
            },
        );
        Ok(())
    }

    pub(super) fn attach(
        &mut self,
        id: &str,
        wanted: [bool; 2],
        connection: u64,
        call: u64,
    ) -> Result<(), Failure> {
        let mut descriptors = self.descriptors_of(connection).into_iter();
        let container = self.containers.get_mut(id).ok_or_else(|| Failure {
            kind: FailureKind::NotFound,
            message: format!("no container {id}"),
        })?;
        if container.phase != Phase::Running {
            return Err(Failure {
                kind: FailureKind::Conflict,
                message: format!("container {id} is not running"),
            });
        }
        for (number, wanted) in wanted.into_iter().enumerate() {
            if !wanted {
                continue;
            }
            let descriptor = descriptors.next().ok_or_else(missing)?;
            let attachment = Attachment::new(descriptor).map_err(failed("attaching"))?;
            // A stream that has ended already is at its end for the newcomer too.
            if container.output.streams[number].is_some() {
                container.output.attachments[number].push(attachment);
            }
        }
        let message = Message {
            version: VERSION,
            id: Some(call),
            attached: Some(Attached {
                terminal: container.terminal,
            }),
            ..Message::default()
        };
        if let Some(connection) = self.connections.get_mut(&connection) {
            match &container.stdin {
                Some(stdin) => connection.send_with(&message, stdin.as_fd()),
                None => connection.send(&message),
            }
        }
        Ok(())
    }

    pub(super) fn close_stdin(&mut self, id: &str) -> Result<(), Failure> {
        if let Some(container) = self.containers.get_mut(id)
            && !container.terminal
        {
            container.stdin = None;
        }
        Ok(())
    }

    /// The container runs on a terminal, whose other end has been sent to `console`.
    pub(super) fn take_terminal(&mut self, id: &str, console: &UnixListener) {
        let taken = receive(console).and_then(|terminal| {
            let kept = terminal.try_clone()?;
            Ok((Pipe::of_terminal(terminal)?, kept))
        });
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        match taken {
            Ok((pipe, kept)) => {
                container.output.streams[0] = Some((pipe, LineBuffer::new("stdout")));
                container.stdin = Some(kept);
            }
            Err(error) => eprintln!("shim: taking the terminal of {id}: {error}"),
        }
    }

    fn descriptors_of(&mut self, connection: u64) -> Vec<OwnedFd> {
        let connection = self.connections.get_mut(&connection);
        connection
            .map(|connection| connection.take_descriptors())
            .unwrap_or_default()
    }
}

fn receive(console: &UnixListener) -> io::Result<OwnedFd> {
    console.set_nonblocking(true)?;
    let (stream, _) = console.accept()?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(CONSOLE_TIMEOUT))?;
    sys::receive_terminal(&stream)
}

fn missing() -> Failure {
    Failure {
        kind: FailureKind::Failed,
        message: "a descriptor is missing".into(),
    }
}
