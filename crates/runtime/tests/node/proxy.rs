//! A proxy in front of a registry that cuts, stalls, lies, asks for tokens and sends elsewhere.

use std::{convert::Infallible, sync::Arc};

use anyhow::Result;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

type Body = BoxBody<Bytes, std::io::Error>;

/// What it does to blobs, unless said otherwise.
#[derive(Clone, Default)]
pub struct Faults {
    /// The connection is cut after this many bytes of a body.
    pub cut_after: Option<usize>,
    /// Nothing more comes after this many bytes.
    pub stall_after: Option<usize>,
    /// One byte is another.
    pub lie: bool,
    /// The `Range` header is ignored, as some registries do.
    pub ignore_range: bool,
    /// A part that begins elsewhere than asked.
    pub wrong_range: bool,
    /// Answered with 503 this often, any path.
    pub unavailable: usize,
    /// Only `Bearer <this>` is let in; the token is given for tester:secret or the identity.
    pub token: Option<String>,
    /// Blobs are at another port.
    pub redirect_to: Option<u16>,
    /// A manifest without end.
    pub endless_manifest: bool,
}

/// What it was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
    pub odd_header: Option<String>,
}

#[derive(Clone)]
pub struct Proxy {
    pub port: u16,
    upstream: u16,
    pub faults: Arc<Mutex<Faults>>,
    pub asked: Arc<Mutex<Vec<Asked>>>,
}

impl Proxy {
    pub async fn start(upstream: u16) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = Proxy {
            port: listener.local_addr()?.port(),
            upstream,
            faults: Arc::default(),
            asked: Arc::default(),
        };
        let served = proxy.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let proxy = served.clone();
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let proxy = proxy.clone();
                        async move { Ok::<_, Infallible>(proxy.answer(request).await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(proxy)
    }

    pub fn set(&self, faults: Faults) {
        *self.faults.lock() = faults;
        self.asked.lock().clear();
    }

    /// The ranges that blobs were asked for.
    pub fn ranges(&self) -> Vec<Option<String>> {
        let asked = self.asked.lock();
        let blobs = asked.iter().filter(|one| one.path.contains("/blobs/"));
        blobs.map(|one| one.range.clone()).collect()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let header = |name: &str| {
            let value = request.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let asked = Asked {
            path: request.uri().to_string(),
            range: header("range"),
            authorization: header("authorization"),
            odd_header: header("x-odd"),
        };
        let accept = header("accept");
        self.asked.lock().push(asked.clone());
        let faults = {
            let mut faults = self.faults.lock();
            let found = faults.clone();
            faults.unavailable = faults.unavailable.saturating_sub(1);
            found
        };
        if faults.unavailable > 0 {
            return status(503);
        }
        if let Some(token) = &faults.token {
            if asked.path.starts_with("/token") {
                return self.give_token(request, &asked, token).await;
            }
            if asked.authorization != Some(format!("Bearer {token}")) {
                let realm = format!(
                    "Bearer realm=\"http://127.0.0.1:{}/token\",service=\"test\"",
                    self.port
                );
                let mut refusal = status(401);
                refusal
                    .headers_mut()
                    .insert("www-authenticate", realm.parse().expect("a header"));
                return refusal;
            }
        }
        let blob = asked.path.contains("/blobs/");
        if let Some(port) = faults.redirect_to.filter(|_| blob) {
            let mut redirect = status(307);
            let target = format!("http://127.0.0.1:{port}{}", asked.path);
            redirect
                .headers_mut()
                .insert("location", target.parse().expect("a header"));
            return redirect;
        }
        if faults.endless_manifest && asked.path.contains("/manifests/") {
            let zeros = stream::repeat(Bytes::from_static(&[b' '; 4096]));
            return Response::new(body(zeros.map(Ok).boxed()));
        }
        self.forward(&asked, accept, &faults, blob)
            .await
            .unwrap_or_else(|_| status(502))
    }

    async fn give_token(
        &self,
        request: Request<Incoming>,
        asked: &Asked,
        token: &str,
    ) -> Response<Body> {
        let basic = asked.authorization.as_deref() == Some("Basic dGVzdGVyOnNlY3JldA==");
        let form = request
            .into_body()
            .collect()
            .await
            .map(|body| body.to_bytes());
        let form = String::from_utf8_lossy(&form.unwrap_or_default()).into_owned();
        let identity = form.contains("grant_type=refresh_token")
            && form.contains("refresh_token=long-lived")
            && form.contains("scope=repository%3Ateam%2Fbox%3Apull");
        match basic || identity {
            true => {
                let json = format!("{{\"access_token\":\"{token}\"}}");
                Response::new(body(stream::iter([Ok(Bytes::from(json))]).boxed()))
            }
            false => status(401),
        }
    }

    async fn forward(
        &self,
        asked: &Asked,
        accept: Option<String>,
        faults: &Faults,
        blob: bool,
    ) -> Result<Response<Body>> {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.upstream)).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::get(asked.path.as_str()).header("host", "upstream");
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        if let Some(range) = asked.range.as_ref().filter(|_| !faults.ignore_range) {
            request = request.header("range", range);
        }
        let request = request.body(http_body_util::Empty::<Bytes>::new())?;
        let (mut head, incoming) = sender.send_request(request).await?.into_parts();
        let mut bytes = incoming.collect().await?.to_bytes().to_vec();
        if !blob {
            return Ok(Response::from_parts(
                head,
                body(stream::iter([Ok(bytes.into())]).boxed()),
            ));
        }
        if faults.lie && !bytes.is_empty() {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        if faults.wrong_range && head.status == 206 {
            let wrong = format!("bytes 1-{}/{}", bytes.len(), bytes.len() + 1);
            head.headers.insert("content-range", wrong.parse()?);
        }
        let bytes = Bytes::from(bytes);
        let pieces = if let Some(count) = faults.cut_after.filter(|count| *count < bytes.len()) {
            let cut = std::io::Error::other("cut");
            stream::iter([Ok(bytes.slice(..count)), Err(cut)]).boxed()
        } else if let Some(count) = faults.stall_after.filter(|count| *count < bytes.len()) {
            stream::iter([Ok(bytes.slice(..count))])
                .chain(stream::pending())
                .boxed()
        } else {
            stream::iter([Ok(bytes)]).boxed()
        };
        Ok(Response::from_parts(head, body(pieces)))
    }
}

fn body(pieces: stream::BoxStream<'static, std::io::Result<Bytes>>) -> Body {
    // BoxBody must be Sync, which a boxed stream is not.
    let pieces = sync_wrapper(pieces.map(|piece| piece.map(Frame::data)).boxed());
    BodyExt::boxed(StreamBody::new(pieces))
}

/// Pieces handed over by a task, so that the receiving end may be shared.
fn sync_wrapper(
    mut pieces: stream::BoxStream<'static, std::io::Result<Frame<Bytes>>>,
) -> tokio_stream::wrappers::ReceiverStream<std::io::Result<Frame<Bytes>>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(piece) = pieces.next().await {
            if sender.send(piece).await.is_err() {
                return;
            }
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}

fn status(code: u16) -> Response<Body> {
    let mut response = Response::new(body(stream::empty().boxed()));
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a status");
    response
}
