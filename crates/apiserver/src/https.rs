//! The network side: TLS, HTTP/1.1 and HTTP/2, graceful shutdown.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Error;
use crate::authentication::Remembered;
use crate::handler::{self, Caller};
use crate::server::Server;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const STREAMS: u32 = 1000;

pub(crate) async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let acceptor = TlsAcceptor::from(tls);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (server, acceptor) = (server.clone(), acceptor.clone());
                connections.spawn(connection(server, acceptor, stream, shutdown.clone()));
            }
            // Too many open files, or a connection that ended before it was accepted.
            Err(problem) => {
                tracing::warn!(%problem, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    connections.close();
    if tokio::time::timeout(DRAIN_TIMEOUT, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not end in time");
    }
    Ok(())
}

async fn connection(
    server: Arc<Server>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    shutdown: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(problem)) => {
            tracing::debug!(%problem, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let peer = server
        .authenticator
        .certificates
        .judge(stream.get_ref().1.peer_certificates());
    let closing = shutdown.clone();
    let remembered = Remembered::default();
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, peer, closing) = (server.clone(), peer.clone(), closing.clone());
        let remembered = remembered.clone();
        async move {
            let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
            let caller = Caller::Network {
                peer,
                remembered,
                closing,
            };
            Ok::<_, std::convert::Infallible>(handler::handle(server, request, caller).await)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_concurrent_streams(STREAMS);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(problem) = result {
        tracing::debug!(%problem, "a connection ended early");
    }
}
