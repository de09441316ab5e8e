//! A client on the standard streams of a container's own process.

use std::{io, os::fd::OwnedFd, sync::Arc};

use environment::chain;
use streaming::remote_command::{CommandOutcome, Options, Session};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{SessionParts, carry, exec};
use crate::{
    service::{Error, container_table::ContainerTable, sandbox_table::SandboxTable},
    shim::session::{self, Attached},
};

pub async fn run(parts: &SessionParts, container: &str, options: Options, session: Session) {
    match attached(parts, container, options, session).await {
        Ok(()) => {}
        Err((session, error)) => {
            let text = format!("error attaching to container: {}", chain(&error));
            session.finish(&CommandOutcome::Failure(text)).await;
        }
    }
}

async fn attached(
    parts: &SessionParts,
    container: &str,
    options: Options,
    mut session: Session,
) -> Result<(), (Session, Error)> {
    let begun = begin(parts, container, options).await;
    let (ends, attached) = match begun {
        Ok(begun) => begun,
        Err(error) => return Err((session, error)),
    };
    let mut container_end = match parts.containers.end(container) {
        Ok(end) => end,
        Err(error) => return Err((session, error)),
    };
    let ended = CancellationToken::new();
    let mut outputs = JoinSet::new();
    for (reader, sink) in [
        (ends.stdout, session.stdout.clone()),
        (ends.stderr, session.stderr.clone()),
    ] {
        if let (Some(reader), Some(sink)) = (reader, sink) {
            outputs.spawn(carry::output(reader, sink, ended.clone()));
        }
    }
    let mut helpers = JoinSet::new();
    let once = parts
        .containers
        .record(container)
        .is_ok_and(|record| record.config.stdin_once);
    let closes_stdin = options.stdin && once && !attached.terminal;
    let stdin_closing = StdinClosing::new(parts, container);
    if let Some(stdin) = attached.stdin {
        if attached.terminal
            && let Ok(terminal) = stdin.try_clone()
        {
            helpers.spawn(exec::resize(session.resizes(), terminal));
        }
        if let Some(source) = session.stdin.take()
            && let Ok(mut writer) = carry::writer(stdin)
        {
            helpers.spawn(async move {
                carry::input(source, &mut writer).await;
                drop(writer);
                if closes_stdin {
                    stdin_closing.close().await;
                }
            });
        }
    }
    let watching = !outputs.is_empty();
    let drained = async {
        while outputs.join_next().await.is_some() {}
        if !watching {
            std::future::pending::<()>().await;
        }
    };
    let over = async {
        let _ = container_end.wait_for(|ended| *ended).await;
    };
    let left = tokio::select! {
        () = drained => false,
        // The session ends with the output, or without any output with the container.
        () = over, if !watching => false,
        () = session.closed() => true,
    };
    if left {
        // The one client that may give input is gone.
        helpers.abort_all();
        if closes_stdin {
            StdinClosing::new(parts, container).close().await;
        }
        return Ok(());
    }
    ended.cancel();
    drop(helpers);
    session.finish(&CommandOutcome::Success).await;
    Ok(())
}

/// Closes the standard input of a container that reads it once (`stdinOnce`).
struct StdinClosing {
    sandboxes: Arc<SandboxTable>,
    containers: Arc<ContainerTable>,
    container: String,
}

impl StdinClosing {
    fn new(parts: &SessionParts, container: &str) -> StdinClosing {
        StdinClosing {
            sandboxes: parts.sandboxes.clone(),
            containers: parts.containers.clone(),
            container: container.to_owned(),
        }
    }

    async fn close(self) {
        let container = &self.container;
        let record = self.containers.record(container);
        let shim = record.and_then(|record| self.sandboxes.running_shim(&record.sandbox));
        if let Ok(shim) = shim
            && let Err(error) = shim.close_stdin(container).await
        {
            let error = chain(&error);
            tracing::debug!(%error, container, "standard input could not be closed");
        }
    }
}

#[derive(Default)]
struct Ends {
    stdout: Option<tokio::net::unix::pipe::Receiver>,
    stderr: Option<tokio::net::unix::pipe::Receiver>,
}

async fn begin(
    parts: &SessionParts,
    container: &str,
    options: Options,
) -> Result<(Ends, Attached), Error> {
    let record = parts.containers.running(container)?;
    let mut ends = Ends::default();
    let pipe = || -> io::Result<(tokio::net::unix::pipe::Receiver, OwnedFd)> {
        let (ours, theirs) = io::pipe()?;
        Ok((carry::reader(ours.into())?, theirs.into()))
    };
    let failed = || Error::file("a pipe");
    let (mut stdout, mut stderr) = (None, None);
    if options.stdout {
        let (ours, theirs) = pipe().map_err(failed())?;
        (ends.stdout, stdout) = (Some(ours), Some(theirs));
    }
    if options.stderr && !record.config.tty {
        let (ours, theirs) = pipe().map_err(failed())?;
        (ends.stderr, stderr) = (Some(ours), Some(theirs));
    }
    let directory = parts.host.shim_directory(&record.sandbox);
    let attached = session::attach(&directory, container, stdout, stderr)
        .await
        .map_err(Error::shim(format!(
            "failed to attach to container {container:?}"
        )))?;
    Ok((ends, attached))
}
