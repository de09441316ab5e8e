//! `/healthz` on a port of its own (`healthzPort`), for programs of this machine: without TLS and
//! authentication. It reports nothing but that the kubelet answers.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use super::{Body, text};

const RETRY: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 64;
/// How long a request's head may take.
const HEADER: Duration = Duration::from_secs(5);
/// How long one connection may take.
const LONGEST: Duration = Duration::from_secs(30);

/// Serves until `shutdown`; does nothing for port 0.
pub async fn run(address: &str, port: u16, shutdown: CancellationToken) {
    if port == 0 {
        return;
    }
    loop {
        match TcpListener::bind((address, port)).await {
            Ok(listener) => return serve(listener, shutdown).await,
            Err(error) => tracing::warn!(%error, port, "the health check could not listen"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

async fn serve(listener: TcpListener, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = shutdown.cancelled() => return,
            next = next => next,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
            Ok::<_, Infallible>(answer(request.uri().path()))
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER)
            .serve_connection(TokioIo::new(stream), service);
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            let _place = place;
            tokio::select! {
                () = shutdown.cancelled() => {}
                _ = tokio::time::timeout(LONGEST, connection) => {}
            }
        });
    }
}

fn answer(path: &str) -> Response<Body> {
    match path {
        "/healthz" | "/healthz/ping" => text(StatusCode::OK, "ok"),
        _ => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn healthz_answers_without_authentication() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(serve(listener, shutdown.clone()));
        for (path, wanted) in [("/healthz", "200"), ("/pods", "404")] {
            let mut stream = tokio::net::TcpStream::connect(address)
                .await
                .expect("there");
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("answered");
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {wanted}")),
                "{answer}"
            );
        }
        shutdown.cancel();
        server.await.expect("ended");
    }
}
