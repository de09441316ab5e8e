//! A command in a container on a client's streams.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use environment::chain;
use streaming::remote_command::{CommandOutcome, Options, Resizes, Session};
use tokio::{net::UnixListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{SessionParts, carry};
use crate::{
    run_files,
    service::{Error, host::Host},
    shim::session::{self, Running, Stdio},
    sys,
};

/// How long the OCI command may take to hand over a terminal.
const CONSOLE_TIMEOUT: Duration = Duration::from_secs(30);
/// A terminal's last output arrives after its process has ended, but not long after.
const TERMINAL_TIMEOUT: Duration = Duration::from_secs(2);

pub async fn run(
    parts: &SessionParts,
    container: &str,
    command: &[String],
    options: Options,
    mut session: Session,
) {
    let started = match options.tty {
        true => on_terminal(parts, container, command).await,
        false => on_pipes(parts, container, command, options).await,
    };
    let (running, ends) = match started {
        Ok(started) => started,
        Err(error) => {
            let text = format!("error executing command in container: {}", chain(&error));
            return session.finish(&CommandOutcome::Failure(text)).await;
        }
    };
    let ended = CancellationToken::new();
    let mut outputs = JoinSet::new();
    for (reader, sink) in [
        (ends.stdout, session.stdout.clone()),
        (ends.stderr, session.stderr.clone()),
    ] {
        if let (Some(reader), Some(sink)) = (reader, sink) {
            let ended = match options.tty {
                // A terminal's output has an end of its own.
                true => CancellationToken::new(),
                false => ended.clone(),
            };
            outputs.spawn(carry::output(reader, sink, ended));
        }
    }
    let mut helpers = JoinSet::new();
    if let (Some(mut writer), Some(source)) = (ends.stdin, session.stdin.take()) {
        // The end of the client's input ends the command's; a terminal stays open.
        helpers.spawn(async move { carry::input(source, &mut writer).await });
    }
    if let Some(terminal) = ends.terminal {
        helpers.spawn(resize(session.resizes(), terminal));
    }
    let code = tokio::select! {
        code = running.ended() => code,
        // The command loses its streams, as it would lose a terminal.
        () = session.closed() => return,
    };
    ended.cancel();
    let drained = async { while outputs.join_next().await.is_some() {} };
    match options.tty {
        true => drop(tokio::time::timeout(TERMINAL_TIMEOUT, drained).await),
        false => tokio::select! {
            () = drained => {}
            () = session.closed() => {}
        },
    }
    drop(helpers);
    let outcome = match code {
        Ok(code) => CommandOutcome::Exit(code),
        Err(error) => {
            let text = format!("error executing command in container: {}", chain(&error));
            CommandOutcome::Failure(text)
        }
    };
    session.finish(&outcome).await;
}

/// Sets the terminal to each size that the client reports; never ends by itself.
pub async fn resize(mut resizes: Resizes, terminal: OwnedFd) {
    loop {
        let size = resizes.next().await;
        if size.width > 0
            && size.height > 0
            && let Err(error) = sys::set_window(terminal.as_fd(), size.width, size.height)
        {
            tracing::debug!(%error, "a terminal could not be resized");
        }
    }
}

/// Our ends of a process's streams.
#[derive(Default)]
struct Ends {
    stdin: Option<tokio::net::unix::pipe::Sender>,
    stdout: Option<tokio::net::unix::pipe::Receiver>,
    stderr: Option<tokio::net::unix::pipe::Receiver>,
    terminal: Option<OwnedFd>,
}

async fn on_pipes(
    parts: &SessionParts,
    container: &str,
    command: &[String],
    options: Options,
) -> Result<(Running, Ends), Error> {
    let record = parts.containers.running(container)?;
    let process = parts
        .execution
        .process_to_exec(&record, command, false)
        .await?;
    let (ends, stdio) = pipes(options).map_err(Error::file("a pipe"))?;
    let directory = parts.host.shim_directory(&record.sandbox);
    let running = session::exec(&directory, container, process, stdio, None)
        .await
        .map_err(Error::shim(format!(
            "failed to exec in container {container:?}"
        )))?;
    Ok((running, ends))
}

fn pipes(options: Options) -> io::Result<(Ends, Stdio)> {
    let (mut ends, mut stdio) = (Ends::default(), Stdio::default());
    if options.stdin {
        let (theirs, ours) = io::pipe()?;
        stdio.stdin = Some(theirs.into());
        ends.stdin = Some(carry::writer(ours.into())?);
    }
    if options.stdout {
        let (ours, theirs) = io::pipe()?;
        stdio.stdout = Some(theirs.into());
        ends.stdout = Some(carry::reader(ours.into())?);
    }
    if options.stderr {
        let (ours, theirs) = io::pipe()?;
        stdio.stderr = Some(theirs.into());
        ends.stderr = Some(carry::reader(ours.into())?);
    }
    Ok((ends, stdio))
}

async fn on_terminal(
    parts: &SessionParts,
    container: &str,
    command: &[String],
) -> Result<(Running, Ends), Error> {
    let record = parts.containers.running(container)?;
    let process = parts
        .execution
        .process_to_exec(&record, command, true)
        .await?;
    let console = Console::open(&parts.host)?;
    let directory = parts.host.shim_directory(&record.sandbox);
    let path = Some(console.path.clone());
    let starting = async {
        session::exec(&directory, container, process, Stdio::default(), path)
            .await
            .map_err(Error::shim(format!(
                "failed to exec in container {container:?}"
            )))
    };
    let (running, terminal) = tokio::try_join!(starting, console.terminal())?;
    let ends = || -> io::Result<Ends> {
        Ok(Ends {
            stdin: Some(carry::writer(terminal.try_clone()?)?),
            stdout: Some(carry::reader(terminal.try_clone()?)?),
            stderr: None,
            terminal: Some(terminal.try_clone()?),
        })
    };
    Ok((running, ends().map_err(Error::file("a terminal"))?))
}

/// A socket where an OCI command hands over a terminal; removed when dropped.
struct Console {
    path: PathBuf,
    listener: UnixListener,
}

impl Console {
    fn open(host: &Host) -> Result<Console, Error> {
        let directory = host.config().state.join("consoles");
        let path = directory.join(&host.new_id()[..16]);
        let open = || -> io::Result<Console> {
            run_files::create_directory(&directory)?;
            let listener = sys::listen(&path)?;
            listener.set_nonblocking(true)?;
            Ok(Console {
                path: path.clone(),
                listener: UnixListener::from_std(listener)?,
            })
        };
        open().map_err(Error::file(&path))
    }

    async fn terminal(&self) -> Result<OwnedFd, Error> {
        let receiving = async {
            let (stream, _) = self.listener.accept().await?;
            stream.readable().await?;
            let stream = stream.into_std()?;
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(CONSOLE_TIMEOUT))?;
            sys::receive_terminal(&stream)
        };
        match tokio::time::timeout(CONSOLE_TIMEOUT, receiving).await {
            Ok(terminal) => terminal.map_err(Error::file(&self.path)),
            Err(_) => Err(Error::Deadline("no terminal was handed over".into())),
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = run_files::remove(&self.path);
    }
}
