//! Connections over TLS in memory, with a clock that only moves when everybody waits.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::ledger::Ledger;

type TestBody = UnsyncBoxBody<Bytes, Infallible>;

struct Served {
    ledger: Arc<Ledger>,
    client: DuplexStream,
    root: CertificateDer<'static>,
    task: JoinHandle<()>,
}

/// A connection in whose memory `room` bytes fit in each direction.
fn start(room: usize) -> Served {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["localhost".to_string()]);
    let certificate = parameters.expect("a name").self_signed(&key);
    let root = certificate.expect("a certificate").der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![root.clone()], key)
        .expect("a certificate");
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let ledger = Ledger::new(Bounds::default());
    let slot = ledger.admit([192, 0, 2, 1].into(), 10).expect("a place");
    let (client, server) = tokio::io::duplex(room);
    let task = tokio::spawn(serve(
        server,
        TlsAcceptor::from(Arc::new(tls)),
        slot,
        ledger.bounds.clone(),
        Arc::new(|_: Connected<'_>| answer),
        CancellationToken::new(),
    ));
    Served {
        ledger,
        client,
        root,
        task,
    }
}

/// `/lasting` answers one byte every ten minutes for two hours, `/large` a megabyte at once,
/// `/pieces` a megabyte in pieces, `/upgrade` echoes.
async fn answer(mut request: Request<Incoming>) -> Response<TestBody> {
    match request.uri().path() {
        "/lasting" => {
            let (sender, receiver) = tokio::sync::mpsc::channel(1);
            tokio::spawn(async move {
                for _ in 0..12 {
                    tokio::time::sleep(Duration::from_secs(600)).await;
                    let frame = Ok(Frame::data(Bytes::from_static(b"x")));
                    if sender.send(frame).await.is_err() {
                        return;
                    }
                }
            });
            Response::new(StreamBody::new(Frames(receiver)).boxed_unsync())
        }
        "/large" => Response::new(Full::new(Bytes::from(vec![0; 1024 * 1024])).boxed_unsync()),
        "/pieces" => Response::new(Pieces(1024).boxed_unsync()),
        "/upgrade" => {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.expect("upgraded"));
                let mut byte = [0];
                while let Ok(1) = stream.read(&mut byte).await {
                    stream.write_all(&byte).await.expect("echoed");
                    stream.flush().await.expect("echoed");
                }
            });
            let mut response = Response::new(Empty::new().boxed_unsync());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert("connection", HeaderValue::from_static("upgrade"));
            headers.insert("upgrade", HeaderValue::from_static("echo"));
            response
        }
        _ => Response::new(Full::new(Bytes::from_static(b"hello")).boxed_unsync()),
    }
}

/// So many pieces of a kilobyte.
struct Pieces(u64);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready((self.0 > 0).then(|| {
            self.0 -= 1;
            Ok(Frame::data(Bytes::from(vec![0; 1024])))
        }))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0 * 1024)
    }
}

/// The receiving half of a channel as a stream.
struct Frames(tokio::sync::mpsc::Receiver<Result<Frame<Bytes>, Infallible>>);

impl futures::Stream for Frames {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

async fn handshake(
    client: DuplexStream,
    root: CertificateDer<'static>,
    protocol: &str,
) -> TlsStream<DuplexStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, client).await.expect("a handshake")
}

/// How long the connection lasts from now on, in whole seconds.
async fn lasts(task: JoinHandle<()>) -> u64 {
    let begun = Instant::now();
    task.await.expect("ended");
    begun.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_shake_hands_is_cut_off() {
    let served = start(4096);
    assert_eq!(lasts(served.task).await, 10);
    assert_eq!(served.ledger.counts().unauthenticated, 0);
    drop(served.client);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_no_request_is_cut_off() {
    for protocol in ["h2", "http/1.1"] {
        let served = start(4096);
        let stream = handshake(served.client, served.root, protocol).await;
        assert_eq!(lasts(served.task).await, 32, "{protocol}");
        assert_eq!(served.ledger.counts().unauthenticated, 0);
        drop(stream);
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_peer_that_opens_no_stream_is_cut_off() {
    let served = start(4096);
    let stream = handshake(served.client, served.root, "h2").await;
    let io = TokioIo::new(stream);
    let client =
        hyper::client::conn::http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), io);
    let (sender, connection) = client.await.expect("a connection");
    tokio::spawn(connection);
    assert_eq!(lasts(served.task).await, 32);
    drop(sender);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_in_is_cut_off() {
    let served = start(4096);
    let stream = handshake(served.client, served.root, "http/1.1").await;
    let (mut reader, mut writer) = tokio::io::split(stream);
    writer
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .expect("sent");
    let mut answer = [0; 15];
    reader.read_exact(&mut answer).await.expect("answered");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    tokio::spawn(async move {
        for byte in "GET / HTTP/1.1\r\nX: "
            .bytes()
            .chain(std::iter::repeat(b'x'))
        {
            if writer.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    let lasted = lasts(served.task).await;
    assert!((32..=40).contains(&lasted), "{lasted}");
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_ninety_seconds() {
    let served = start(4096);
    let mut stream = handshake(served.client, served.root, "http/1.1").await;
    for pause in [0, 80, 80] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .expect("sent");
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).await.expect("answered");
        assert!(answer[..length].starts_with(b"HTTP/1.1 200 OK"));
    }
    assert_eq!(lasts(served.task).await, 90);
}

#[tokio::test(start_paused = true)]
async fn answers_that_last_are_never_cut_off() {
    for protocol in ["h2", "http/1.1"] {
        let served = start(4096);
        let stream = handshake(served.client, served.root, protocol).await;
        let body = get(stream, protocol, "/lasting").await;
        let collected = body.collect().await.expect("the whole answer");
        assert_eq!(collected.to_bytes().len(), 12, "{protocol}");
    }
}

#[tokio::test(start_paused = true)]
async fn upgraded_connections_are_never_cut_off_and_keep_their_place() {
    let served = start(4096);
    let mut stream = handshake(served.client, served.root, "http/1.1").await;
    let request =
        b"GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(request).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("answered"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        stream.write_all(b"x").await.expect("sent");
        assert_eq!(stream.read_u8().await.expect("echoed"), b'x');
    }
    assert_eq!(served.ledger.counts().unauthenticated, 1);
    drop(stream);
    while served.ledger.counts().unauthenticated > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_its_answer_is_cut_off() {
    for protocol in ["h2", "http/1.1"] {
        for path in ["/large", "/pieces"] {
            let served = start(4096);
            let stream = handshake(served.client, served.root, protocol).await;
            let body = get(stream, protocol, path).await;
            let lasted = lasts(served.task).await;
            assert!((60..=110).contains(&lasted), "{protocol} {path}: {lasted}");
            drop(body);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_gets_its_whole_answer() {
    for path in ["/large", "/pieces"] {
        let served = start(4096);
        let mut stream = handshake(served.client, served.root, "http/1.1").await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let (mut total, mut buffer) = (0, vec![0; 8192]);
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            match stream.read(&mut buffer).await.expect("not cut off") {
                0 => break,
                length => total += length,
            }
        }
        assert!(total > 1024 * 1024, "{path}: {total}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_evicted_connection_closes_at_once() {
    let served = start(4096);
    let stream = handshake(served.client, served.root, "http/1.1").await;
    served.ledger.make_room();
    assert_eq!(lasts(served.task).await, 0);
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn answers_to_head_have_a_length_and_no_body() {
    for protocol in ["h2", "http/1.1"] {
        for path in ["/", "/lasting"] {
            let served = start(4096);
            let stream = handshake(served.client, served.root, protocol).await;
            let response = ask(stream, protocol, Method::HEAD, path).await;
            let length = response.headers().get(CONTENT_LENGTH).cloned();
            let expected = (path == "/").then(|| HeaderValue::from_static("5"));
            assert_eq!(length, expected, "{protocol} {path}");
            let body = response
                .into_body()
                .collect()
                .await
                .expect("no stream error");
            assert!(body.to_bytes().is_empty());
        }
    }
}

async fn get(stream: TlsStream<DuplexStream>, protocol: &str, path: &str) -> Incoming {
    let response = ask(stream, protocol, Method::GET, path).await;
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

async fn ask(
    stream: TlsStream<DuplexStream>,
    protocol: &str,
    method: Method,
    path: &str,
) -> Response<Incoming> {
    let request = Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
        .header("host", "localhost")
        .body(Empty::<Bytes>::new())
        .expect("a request");
    let io = TokioIo::new(stream);
    if protocol == "h2" {
        let client = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1024)
            .handshake(io)
            .await;
        let (mut sender, connection) = client.expect("a connection");
        tokio::spawn(connection);
        sender.send_request(request).await.expect("an answer")
    } else {
        let client = hyper::client::conn::http1::handshake(io).await;
        let (mut sender, connection) = client.expect("a connection");
        tokio::spawn(connection);
        sender.send_request(request).await.expect("an answer")
    }
}
