//! One connection to a hook: TCP, TLS, and HTTP/1.1 or HTTP/2 as both sides agree.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::resolve::Place;
use super::words::{self, Failure};

/// What is sent over a connection.
pub(super) type Message = Request<Full<Bytes>>;

/// A connection that takes requests.
pub(super) enum Connection {
    /// One request at a time.
    Http1(http1::SendRequest<Full<Bytes>>),
    /// Many at once; clones share it.
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A request that got no answer.
pub(super) struct Unanswered {
    pub problem: Failure,
    /// The request, if nothing of it was sent: it may be tried on another connection.
    pub unsent: Option<Box<Message>>,
}

impl Connection {
    pub fn is_open(&self) -> bool {
        match self {
            Connection::Http1(sender) => !sender.is_closed(),
            Connection::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Sends a request and returns the head of the answer.
    pub async fn ask(&mut self, message: Message) -> Result<Response<Incoming>, Unanswered> {
        let ready = match self {
            Connection::Http1(sender) => sender.ready().await,
            Connection::Http2(sender) => sender.ready().await,
        };
        if let Err(problem) = ready {
            return Err(Unanswered {
                problem: Failure(words::of_exchange(&problem)),
                unsent: Some(message.into()),
            });
        }
        let answer = match self {
            Connection::Http1(sender) => sender.try_send_request(message).await,
            Connection::Http2(sender) => sender.try_send_request(message).await,
        };
        answer.map_err(|mut refused| Unanswered {
            unsent: refused.take_message().map(Box::new),
            problem: Failure(words::of_exchange(refused.error())),
        })
    }
}

/// Connects to a place; `name` is whom its certificate must be for.
pub(super) async fn connect(
    connector: &TlsConnector,
    place: &Place,
    name: &str,
) -> Result<Connection, Failure> {
    let stream = reach(place).await?;
    let _ = stream.set_nodelay(true);
    let name = ServerName::try_from(name.to_string())
        .map_err(|_| Failure(format!("tls: {name:?} is no name of a server")))?;
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|problem| Failure(words::of_handshake(&problem)))?;
    let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    let failed = |problem: hyper::Error| Failure(words::of_exchange(&problem));
    if agreed {
        let handshake = http2::handshake(TokioExecutor::new(), stream).await;
        let (sender, connection) = handshake.map_err(failed)?;
        // It ends with the last sender, or when the hook closes it.
        tokio::spawn(connection);
        return Ok(Connection::Http2(sender));
    }
    let (sender, connection) = http1::handshake(stream).await.map_err(failed)?;
    tokio::spawn(connection);
    Ok(Connection::Http1(sender))
}

/// A TCP connection to the first address that takes it.
async fn reach(place: &Place) -> Result<TcpStream, Failure> {
    let addresses: Vec<SocketAddr> = match place {
        Place::Address(address) => vec![*address],
        Place::Host(host, port) => {
            let found = tokio::net::lookup_host((host.as_str(), *port)).await;
            let unknown = |_| Failure(format!("dial tcp: lookup {host}: no such host"));
            found.map_err(unknown)?.collect()
        }
    };
    let mut failure = "dial tcp: the name has no address".to_string();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(problem) => failure = words::of_dial(address, &problem),
        }
    }
    Err(Failure(failure))
}
