//! A client on the standard streams of a container's own process.

use std::{io, os::fd::OwnedFd};

use streaming::remote_command::{Options, Outcome, Session};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{carry, exec};
use crate::{
    service::{Error, state::Runtime},
    shim::session::{self, Attached},
};

pub async fn run(runtime: &Runtime, container: &str, options: Options, session: Session) {
    match attached(runtime, container, options, session).await {
        Ok(()) => {}
        Err((session, error)) => {
            let told = tonic::Status::from(error);
            let text = format!("error attaching to container: {}", told.message());
            session.finish(&Outcome::Failure(text)).await;
        }
    }
}

async fn attached(
    runtime: &Runtime,
    container: &str,
    options: Options,
    mut session: Session,
) -> Result<(), (Session, Error)> {
    let begun = begin(runtime, container, options).await;
    let (ends, attached) = match begun {
        Ok(begun) => begun,
        Err(error) => return Err((session, error)),
    };
    let mut container_end = match runtime.container_end(container) {
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
    let once = runtime
        .container_record(container)
        .is_ok_and(|record| record.config.stdin_once);
    let closes = StdinClosing {
        runtime: runtime.clone(),
        container: container.to_owned(),
        wanted: options.stdin && once && !attached.terminal,
    };
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
                closes.close().await;
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
        // Its output has its own end; without any, this is it.
        () = over, if !watching => false,
        () = session.closed() => true,
    };
    if left {
        // The one client that may give input is gone.
        helpers.abort_all();
        if options.stdin && once && !attached.terminal {
            close_stdin(runtime, container).await;
        }
        return Ok(());
    }
    ended.cancel();
    drop(helpers);
    session.finish(&Outcome::Success).await;
    Ok(())
}

/// Tells the shim that a container which reads its input once has had it.
struct StdinClosing {
    runtime: Runtime,
    container: String,
    wanted: bool,
}

impl StdinClosing {
    async fn close(&self) {
        if self.wanted {
            close_stdin(&self.runtime, &self.container).await;
        }
    }
}

async fn close_stdin(runtime: &Runtime, container: &str) {
    let shim = runtime
        .container_record(container)
        .and_then(|record| runtime.shim_for(&record));
    if let Ok(shim) = shim
        && let Err(error) = shim.close_stdin(container).await
    {
        tracing::debug!(%error, container, "standard input could not be closed");
    }
}

#[derive(Default)]
struct Ends {
    stdout: Option<tokio::net::unix::pipe::Receiver>,
    stderr: Option<tokio::net::unix::pipe::Receiver>,
}

async fn begin(
    runtime: &Runtime,
    container: &str,
    options: Options,
) -> Result<(Ends, Attached), Error> {
    let record = runtime.running(container)?;
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
    let directory = runtime.shim_directory(&record.sandbox);
    let attached = session::attach(&directory, container, stdout, stderr)
        .await
        .map_err(Error::shim(format!(
            "failed to attach to container {container:?}"
        )))?;
    Ok((ends, attached))
}
