//! The streaming server: exec, attach and port-forward are asked for over CRI, which answers with
//! a URL here that is good once and for a minute. It listens on loopback only.

mod attach;
mod carry;
mod exec;
mod forward;
mod tickets;

pub use tickets::Tickets;

use std::{collections::VecDeque, convert::Infallible, io, time::Duration};

use cri::v1::{AttachRequest, ExecRequest, PortForwardRequest};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use streaming::{
    Upgrade, port_forward,
    remote_command::{self, Options, Session},
    upgrade::Refusal,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{Error, state::Runtime};
use tickets::Wish;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections whose session has not begun; one more closes the oldest. Whoever can reach the
/// loopback address can connect.
const WAITING: usize = 256;

type Body = Full<bytes::Bytes>;

/// Opens the server's socket and remembers where it is.
pub async fn listen(runtime: &Runtime) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    runtime.0.tickets.listen_at(listener.local_addr()?);
    Ok(listener)
}

/// Serves until `shutdown`; sessions end with it.
pub async fn serve(runtime: Runtime, listener: TcpListener, shutdown: CancellationToken) {
    let mut waiting = Waiting::default();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let over = waiting.add();
                let connection = connection(runtime.clone(), stream, shutdown.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = over.cancelled() => {}
                        () = connection => over.cancel(),
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a streaming connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The connections whose session has not begun, the oldest first. Each is told to end, or tells
/// that it has ended, by its token.
#[derive(Default)]
struct Waiting(VecDeque<CancellationToken>);

impl Waiting {
    fn add(&mut self) -> CancellationToken {
        if self.0.len() >= WAITING {
            self.0.retain(|over| !over.is_cancelled());
        }
        if self.0.len() >= WAITING
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.cancel();
        }
        let over = CancellationToken::new();
        self.0.push_back(over.clone());
        over
    }
}

async fn connection(runtime: Runtime, stream: TcpStream, shutdown: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let ending = shutdown.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(&runtime, request, &ending);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        () = shutdown.cancelled() => {}
        result = connection => {
            if let Err(error) = result {
                tracing::debug!(%error, "a streaming connection ended early");
            }
        }
    }
}

/// Switches protocols and lets the session go on by itself.
fn answer(
    runtime: &Runtime,
    request: Request<Incoming>,
    shutdown: &CancellationToken,
) -> Response<Body> {
    let path = request.uri().path().trim_matches('/');
    let wish = path.split_once('/').and_then(|(kind, token)| {
        let tickets = &runtime.0.tickets;
        tickets.redeem(token).filter(|wish| wish.kind() == kind)
    });
    let Some(wish) = wish else {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    let agreed = match &wish {
        Wish::Exec(..) | Wish::Attach(..) => remote_command::negotiate(request.headers()),
        Wish::Forward(..) => port_forward::negotiate(request.headers()),
    };
    let upgrade = match agreed {
        Ok(upgrade) => upgrade,
        Err(refusal) => return refused(&refusal),
    };
    let response = upgrade.response();
    let (runtime, shutdown) = (runtime.clone(), shutdown.clone());
    tokio::spawn(async move {
        let session = async {
            match hyper::upgrade::on(request).await {
                Ok(upgraded) => fulfil(runtime, wish, TokioIo::new(upgraded), upgrade).await,
                Err(error) => tracing::debug!(%error, "a session did not begin"),
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = session => {}
        }
    });
    response
}

async fn fulfil(
    runtime: Runtime,
    wish: Wish,
    io: TokioIo<hyper::upgrade::Upgraded>,
    upgrade: Upgrade,
) {
    match wish {
        Wish::Exec(container, command, options) => {
            if let Some(session) = begin(io, &upgrade, options).await {
                exec::run(&runtime, &container, &command, options, session).await;
            }
        }
        Wish::Attach(container, options) => {
            if let Some(session) = begin(io, &upgrade, options).await {
                attach::run(&runtime, &container, options, session).await;
            }
        }
        Wish::Forward(sandbox, ports) => {
            forward::run(&runtime, &sandbox, &ports, io, &upgrade).await;
        }
    }
}

async fn begin(
    io: TokioIo<hyper::upgrade::Upgraded>,
    upgrade: &Upgrade,
    options: Options,
) -> Option<Session> {
    match Session::start(io, upgrade, options).await {
        Ok(session) => Some(session),
        Err(error) => {
            tracing::debug!(%error, "a session did not begin");
            None
        }
    }
}

fn refused(refusal: &Refusal) -> Response<Body> {
    refusal.response().map(|text| Full::new(text.into()))
}

fn text(status: StatusCode, message: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(message.into()));
    *response.status_mut() = status;
    response
}

impl Runtime {
    pub fn prepare_exec(&self, request: ExecRequest) -> Result<String, Error> {
        let options = options(request.stdin, request.stdout, request.stderr, request.tty)?;
        let id = self.running(&self.container_id(&request.container_id)?)?.id;
        self.ticket(Wish::Exec(id, request.cmd, options))
    }

    pub fn prepare_attach(&self, request: AttachRequest) -> Result<String, Error> {
        let options = options(request.stdin, request.stdout, request.stderr, request.tty)?;
        let id = self.running(&self.container_id(&request.container_id)?)?.id;
        self.ticket(Wish::Attach(id, options))
    }

    pub fn prepare_port_forward(&self, request: PortForwardRequest) -> Result<String, Error> {
        let id = self.sandbox_id(&request.pod_sandbox_id)?;
        let ports = request
            .port
            .iter()
            .map(|port| u16::try_from(*port).ok().filter(|port| *port > 0))
            .collect::<Option<Vec<u16>>>()
            .ok_or_else(|| Error::Invalid("a port is not between 1 and 65535".into()))?;
        self.ticket(Wish::Forward(id, ports))
    }

    fn ticket(&self, wish: Wish) -> Result<String, Error> {
        let mut token = [0; 18];
        self.0.environment.fill(&mut token);
        self.0.tickets.issue(wish, &token)
    }
}

fn options(stdin: bool, stdout: bool, stderr: bool, tty: bool) -> Result<Options, Error> {
    if tty && stderr {
        return Err(Error::Invalid("tty and stderr cannot both be true".into()));
    }
    if !stdin && !stdout && !stderr {
        return Err(Error::Invalid(
            "one of stdin, stdout, or stderr must be set".into(),
        ));
    }
    Ok(Options {
        stdin,
        stdout,
        stderr,
        tty,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_too_many_closes_the_oldest_that_waits() {
        let mut waiting = Waiting::default();
        let first: Vec<_> = (0..WAITING).map(|_| waiting.add()).collect();
        first[0].cancel();
        waiting.add();
        assert!(!first[1].is_cancelled(), "the first had ended already");
        waiting.add();
        assert!(first[1].is_cancelled() && !first[2].is_cancelled());
        assert_eq!(waiting.0.len(), WAITING);
    }
}
