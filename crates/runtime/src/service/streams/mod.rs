//! The streaming server. A client asks for exec, attach or port-forward over CRI and gets a URL of
//! this server that can be used once and for a minute. The server listens on loopback only.

mod attach;
mod carry;
mod exec;
mod forward;
mod tickets;

use std::{collections::VecDeque, convert::Infallible, io, sync::Arc, time::Duration};

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

use super::{
    Error, container_table::ContainerTable, execution::Execution, host::Host,
    sandbox_table::SandboxTable,
};
use tickets::{SessionRequest, Tickets};

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections whose session has not begun; one more closes the oldest. Whoever can reach the
/// loopback address can connect.
const WAITING: usize = 256;

type Body = Full<bytes::Bytes>;

/// The streaming server's state.
pub struct Streams {
    parts: SessionParts,
    tickets: Tickets,
}

/// The parts of the server that a session works with.
pub struct SessionParts {
    pub host: Arc<Host>,
    pub sandboxes: Arc<SandboxTable>,
    pub containers: Arc<ContainerTable>,
    pub execution: Arc<Execution>,
}

impl Streams {
    pub fn new(parts: SessionParts) -> Streams {
        Streams {
            parts,
            tickets: Tickets::default(),
        }
    }

    /// Opens the streaming server's socket, whose address is part of every URL.
    pub async fn listen(&self) -> io::Result<TcpListener> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        self.tickets.listen_at(listener.local_addr()?);
        Ok(listener)
    }

    pub fn prepare_exec(&self, request: ExecRequest) -> Result<String, Error> {
        let options = options(request.stdin, request.stdout, request.stderr, request.tty)?;
        let container = self.running(&request.container_id)?;
        self.ticket(SessionRequest::Exec(container, request.cmd, options))
    }

    pub fn prepare_attach(&self, request: AttachRequest) -> Result<String, Error> {
        let options = options(request.stdin, request.stdout, request.stderr, request.tty)?;
        let container = self.running(&request.container_id)?;
        self.ticket(SessionRequest::Attach(container, options))
    }

    pub fn prepare_port_forward(&self, request: PortForwardRequest) -> Result<String, Error> {
        let sandbox = self.parts.sandboxes.id(&request.pod_sandbox_id)?;
        let ports = request
            .port
            .iter()
            .map(|port| u16::try_from(*port).ok().filter(|port| *port > 0))
            .collect::<Option<Vec<u16>>>()
            .ok_or_else(|| Error::Invalid("a port is not between 1 and 65535".into()))?;
        self.ticket(SessionRequest::PortForward(sandbox, ports))
    }

    /// The full id of a container, which must run.
    fn running(&self, id: &str) -> Result<String, Error> {
        let containers = &self.parts.containers;
        Ok(containers.running(&containers.id(id)?)?.id)
    }

    fn ticket(&self, request: SessionRequest) -> Result<String, Error> {
        let mut token = [0; 18];
        self.parts.host.environment().fill(&mut token);
        self.tickets.issue(request, &token)
    }
}

/// Serves until `shutdown`; sessions end with it.
pub async fn serve(streams: Arc<Streams>, listener: TcpListener, shutdown: CancellationToken) {
    let mut waiting = Waiting::default();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let over = waiting.add();
                let connection = connection(streams.clone(), stream, shutdown.clone());
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

/// The connections whose session has not begun, the oldest first. The token of each is cancelled to
/// end it, and cancelled by itself when it has ended.
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

async fn connection(streams: Arc<Streams>, stream: TcpStream, shutdown: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let ending = shutdown.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(&streams, request, &ending);
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

/// Switches protocols; the session then runs in a task of its own.
fn answer(
    streams: &Arc<Streams>,
    request: Request<Incoming>,
    shutdown: &CancellationToken,
) -> Response<Body> {
    let path = request.uri().path().trim_matches('/');
    let wanted = path.split_once('/').and_then(|(kind, token)| {
        let wanted = streams.tickets.redeem(token);
        wanted.filter(|wanted| wanted.kind() == kind)
    });
    let Some(wanted) = wanted else {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    let agreed = match &wanted {
        SessionRequest::Exec(..) | SessionRequest::Attach(..) => {
            remote_command::negotiate(request.headers())
        }
        SessionRequest::PortForward(..) => port_forward::negotiate(request.headers()),
    };
    let upgrade = match agreed {
        Ok(upgrade) => upgrade,
        Err(refusal) => return refused(&refusal),
    };
    let response = upgrade.response();
    let (streams, shutdown) = (streams.clone(), shutdown.clone());
    tokio::spawn(async move {
        let session = async {
            match hyper::upgrade::on(request).await {
                Ok(upgraded) => run(&streams.parts, wanted, TokioIo::new(upgraded), upgrade).await,
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

async fn run(
    parts: &SessionParts,
    wanted: SessionRequest,
    io: TokioIo<hyper::upgrade::Upgraded>,
    upgrade: Upgrade,
) {
    match wanted {
        SessionRequest::Exec(container, command, options) => {
            if let Some(session) = begin(io, &upgrade, options).await {
                exec::run(parts, &container, &command, options, session).await;
            }
        }
        SessionRequest::Attach(container, options) => {
            if let Some(session) = begin(io, &upgrade, options).await {
                attach::run(parts, &container, options, session).await;
            }
        }
        SessionRequest::PortForward(sandbox, ports) => {
            forward::run(parts, &sandbox, &ports, io, &upgrade).await;
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
    fn one_waiting_connection_too_many_closes_the_oldest() {
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
