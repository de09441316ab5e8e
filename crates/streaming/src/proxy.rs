//! Passing an upgrade on: the same question asked of the next server, its answer given back, and
//! from then on bytes both ways.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

/// How long the next server may take to answer the question.
const ANSWER: Duration = Duration::from_secs(30);
/// When one side is done, the other gets this long for its last bytes.
const LINGER: Duration = Duration::from_secs(5);
const CHUNK: usize = 32 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("no answer in time")]
    Timeout,
}

/// Sends `request`, which may ask for an upgrade, on a connection made for it alone.
pub async fn ask<I>(io: I, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>, Error>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asking = async {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await
    };
    match tokio::time::timeout(ANSWER, asking).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::Timeout),
    }
}

/// The headers of an upgrade request as the next server shall see them.
pub fn passed_on(headers: &HeaderMap, host: &str) -> HeaderMap {
    let mut passed = headers.clone();
    for name in [header::AUTHORIZATION, header::CONTENT_LENGTH, header::HOST] {
        passed.remove(name);
    }
    if let Ok(host) = host.parse() {
        passed.insert(header::HOST, host);
    }
    passed
}

/// Carries bytes both ways until one side is done.
pub async fn join<A, B>(near: A, far: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (near_reader, near_writer) = tokio::io::split(near);
    let (far_reader, far_writer) = tokio::io::split(far);
    let outward = copy(near_reader, far_writer);
    let inward = copy(far_reader, near_writer);
    tokio::pin!(outward, inward);
    tokio::select! {
        () = &mut outward => { let _ = tokio::time::timeout(LINGER, inward).await; }
        () = &mut inward => { let _ = tokio::time::timeout(LINGER, outward).await; }
    }
}

async fn copy<A: AsyncRead, B: AsyncWrite>(mut reader: ReadHalf<A>, mut writer: WriteHalf<B>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
        let written = writer.write_all(&buffer[..count]).await;
        if written.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}
