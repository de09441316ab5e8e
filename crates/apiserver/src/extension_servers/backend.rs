//! Connections to the endpoints of one Service: TLS with the front proxy's certificate, kept for
//! reuse, bounded in number.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::client::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::config::{AggregationConfig, DialServices};
use super::specification::Specification;
use crate::Error;
use crate::body::RequestBody;
use crate::unverified;
use crate::webhook_client::{Failure, tls, words};

/// For the connection and its TLS handshake.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections to the endpoints of one Service; who needs one more waits until one is free.
const MOST_CONNECTIONS: usize = 1024;
/// Connections to one endpoint that are kept although they are idle, as upstream keeps them.
const MOST_IDLE: usize = 25;
const LONGEST_IDLE: Duration = Duration::from_secs(90);
/// How an HTTP/2 connection shows that it lives.
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// What all connections to extension servers have in common.
pub(super) struct Dialing {
    dialer: Arc<dyn DialServices>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

/// Why there are no connections to a Service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    #[error(transparent)]
    Bundle(#[from] tls::Error),
    #[error("the TLS client could not be set up")]
    Tls(#[source] rustls::Error),
    #[error("{0:?} is no name of a server")]
    Name(String),
}

impl Dialing {
    pub fn new(config: &AggregationConfig) -> Result<Dialing, Error> {
        let wrong = |problem: rustls::pki_types::pem::Error| {
            Error::Configuration(format!("front proxy client: {problem}"))
        };
        let identity = match &config.front_proxy {
            None => None,
            Some(proxy) => {
                let chain = CertificateDer::pem_slice_iter(proxy.certificate_pem.as_bytes());
                let chain = chain.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
                let key = PrivateKeyDer::from_pem_slice(proxy.key_pem.as_bytes());
                Some((chain, key.map_err(wrong)?))
            }
        };
        Ok(Dialing {
            dialer: config.dialer.clone(),
            identity,
        })
    }

    fn tls(&self, specification: &Specification) -> Result<ClientConfig, BackendError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(BackendError::Tls)?;
        let builder = match specification.skip_verification {
            true => builder
                .dangerous()
                .with_custom_certificate_verifier(unverified::verifier(provider)),
            false => {
                let verifier = tls::verifier(&specification.ca_bundle, provider)?;
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier)
            }
        };
        Ok(match &self.identity {
            Some((chain, key)) => builder
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(BackendError::Tls)?,
            None => builder.with_no_client_auth(),
        })
    }
}

/// The connections to one Service.
pub(crate) struct Backend {
    /// For requests that are answered soon, which may share connections.
    short: Client<Connector, RequestBody>,
    /// For watches, which would take all the streams that a shared connection may have.
    lasting: Client<Connector, RequestBody>,
    /// For requests that take over their connection.
    single: Connector,
}

impl Backend {
    pub(super) fn new(
        dialing: &Dialing,
        specification: &Specification,
    ) -> Result<Backend, BackendError> {
        let service = &specification.service;
        let name = format!("{}.{}.svc", service.name, service.namespace);
        let name = ServerName::try_from(name.clone()).map_err(|_| BackendError::Name(name))?;
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let tls = dialing.tls(specification)?;
        let connector = |protocols: &[&[u8]]| {
            let mut tls = tls.clone();
            tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Connector {
                tls: TlsConnector::from(Arc::new(tls)),
                name: name.clone(),
                dialer: dialing.dialer.clone(),
                places: places.clone(),
            }
        };
        let client = |connector: Connector| {
            Client::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(LONGEST_IDLE)
                .pool_max_idle_per_host(MOST_IDLE)
                .http2_keep_alive_interval(PING_AFTER)
                .http2_keep_alive_timeout(PING_TIMEOUT)
                .build(connector)
        };
        Ok(Backend {
            short: client(connector(&[b"h2", b"http/1.1"])),
            lasting: client(connector(&[b"http/1.1"])),
            single: connector(&[b"http/1.1"]),
        })
    }

    /// Sends a request to the endpoint that its address names, and returns the head of the answer.
    /// `lasts` for one whose answer goes on, such as a watch.
    pub async fn send(
        &self,
        request: Request<RequestBody>,
        lasts: bool,
    ) -> Result<Response<Incoming>, Failure> {
        let client = if lasts { &self.lasting } else { &self.short };
        client
            .request(request)
            .await
            .map_err(|problem| Failure(innermost(&problem)))
    }

    /// A connection for one request alone.
    pub async fn connect(&self, address: SocketAddr) -> Result<TlsStream<TcpStream>, Failure> {
        self.single.connect(address).await
    }
}

/// Opens connections.
#[derive(Clone)]
struct Connector {
    tls: TlsConnector,
    name: ServerName<'static>,
    dialer: Arc<dyn DialServices>,
    places: Arc<Semaphore>,
}

impl Connector {
    async fn connect(&self, address: SocketAddr) -> Result<TlsStream<TcpStream>, Failure> {
        let dialling = async {
            let stream = self
                .dialer
                .dial(address)
                .await
                .map_err(|problem| Failure(words::of_dial(address, &problem)))?;
            let _ = stream.set_nodelay(true);
            let stream = self.tls.connect(self.name.clone(), stream).await;
            stream.map_err(|problem| Failure(words::of_handshake(&problem)))
        };
        let timeout = || Failure(format!("dial tcp {address}: i/o timeout"));
        let dialled = tokio::time::timeout(DIAL_TIMEOUT, dialling).await;
        dialled.map_err(|_| timeout())?
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Failure>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let authority = uri.authority().map(|authority| authority.as_str());
            let address = authority.and_then(|authority| authority.parse().ok());
            let address =
                address.ok_or_else(|| Failure(format!("dial tcp: {uri} is no address")))?;
            let place = connector.places.clone().acquire_owned();
            let place = tokio::time::timeout(DIAL_TIMEOUT, place).await;
            let Ok(Ok(place)) = place else {
                let words = format!("dial tcp {address}: too many connections to this Service");
                return Err(Failure(words));
            };
            let stream = connector.connect(address).await?;
            Ok(Stream {
                io: TokioIo::new(stream),
                _place: place,
            })
        })
    }
}

/// A connection that gives its place back when it is closed.
struct Stream {
    io: TokioIo<TlsStream<TcpStream>>,
    _place: OwnedSemaphorePermit,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let (_, session) = self.io.inner().get_ref();
        match session.alpn_protocol() == Some(b"h2") {
            true => Connected::new().negotiated_h2(),
            false => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, buffers)
    }
}

/// What went wrong with a request, in the dialler's words where it is to blame.
fn innermost(problem: &ClientError) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = problem;
    loop {
        if let Some(exchange) = cause.downcast_ref::<hyper::Error>() {
            return words::of_exchange(exchange);
        }
        match cause.source() {
            Some(inner) => cause = inner,
            None => return cause.to_string(),
        }
    }
}
