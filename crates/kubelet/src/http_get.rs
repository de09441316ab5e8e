//! One HTTP GET from the node to a pod, for probes and lifecycle hooks: no connection is kept, a
//! server certificate is not checked, as upstream does it.
//!
//! It uses hyper directly, not reqwest, because a redirect to another host is not followed and counts
//! as an answer, no connection is pooled, and every failure has upstream's text.

use std::{
    collections::BTreeSet,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, HTTPHeader},
    apimachinery::pkg::util::intstr::IntOrString,
};
use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// How much of an answer is read.
const MAX_BODY: usize = 10 * 1024;
const MAX_REDIRECTS: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Port(String),
    #[error("Get \"{url}\": {reason}")]
    Failed { url: String, reason: String },
    #[error("Get \"{url}\": http: server gave HTTP response to HTTPS client")]
    PlainAnswer { url: String },
}

pub struct Answer {
    pub status: u16,
    /// Empty when it is long.
    pub body: String,
}

/// Does the GET that `action` describes. `agent` is `probe` or `lifecycle`.
pub async fn get(
    action: &HTTPGetAction,
    container: &Container,
    pod_ip: &str,
    agent: &str,
    timeout: Duration,
) -> Result<Answer, Error> {
    let place = place(action, container, pod_ip)?;
    let scheme = action.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let path = action.path.clone().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let first = format!("{scheme}://{place}{slash}{path}");
    let mut url = first.clone();
    let work = async {
        for _ in 0..MAX_REDIRECTS {
            let Reply {
                status,
                location,
                body,
            } = once(&url, action, agent).await?;
            let follows = matches!(status, 301 | 302 | 303 | 307 | 308);
            let location = location.filter(|location| follows && !location.is_empty());
            let Some(location) = location else {
                return Ok(Answer { status, body });
            };
            let next = resolve(&url, &location);
            let same_host = host_of(&next) == host_of(&url);
            if !same_host {
                // A redirect to another host is not followed, and counts as an answer.
                return Ok(Answer { status, body });
            }
            url = next;
        }
        Err(Error::Failed {
            url: url.clone(),
            reason: format!("stopped after {MAX_REDIRECTS} redirects"),
        })
    };
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::Failed {
            url: first,
            reason: "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
                .to_owned(),
        }),
    }
}

/// One answer, redirects included.
struct Reply {
    status: u16,
    location: Option<String>,
    body: String,
}

/// Host and port of the GET that `action` describes.
pub fn place(action: &HTTPGetAction, container: &Container, pod_ip: &str) -> Result<String, Error> {
    let port = port(&action.port, container)?;
    let host = action.host.as_deref().filter(|host| !host.is_empty());
    Ok(format!("{}:{port}", bracketed(host.unwrap_or(pod_ip))))
}

/// A port by number or by its name in the container.
pub fn port(port: &IntOrString, container: &Container) -> Result<u16, Error> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_deref() == Some(name))
            .map(|port| port.container_port)
            .or_else(|| name.parse().ok()),
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| {
            let text = match port {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(name) => name.clone(),
            };
            Error::Port(format!("invalid port number: {text}"))
        })
}

pub fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// A failed connect in Go's wording.
pub fn dial_error(address: &str, error: &std::io::Error) -> String {
    let what = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => format!("connect: {error}"),
    };
    format!("dial tcp {address}: {what}")
}

async fn once(url: &str, action: &HTTPGetAction, agent: &str) -> Result<Reply, Error> {
    let failed = |reason: String| Error::Failed {
        url: url.to_owned(),
        reason,
    };
    let uri: Uri = url.parse().map_err(|error| failed(format!("{error}")))?;
    let authority = uri.authority().map(|a| a.as_str()).unwrap_or_default();
    let default_port = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    let port = uri.port_u16().unwrap_or(default_port);
    let address = format!("{}:{port}", uri.host().unwrap_or_default());
    let stream = TcpStream::connect(&address)
        .await
        .map_err(|error| failed(dial_error(&address, &error)))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path)
        .header("Host", authority)
        .header("User-Agent", format!("kube-{agent}/1.36"))
        .header("Accept", "*/*")
        .header("Connection", "close");
    if let Some(headers) = request.headers_mut() {
        add(headers, action.http_headers.as_deref().unwrap_or_default());
    }
    let request = request
        .body(Empty::<bytes::Bytes>::new())
        .map_err(|error| failed(error.to_string()))?;
    let response = if uri.scheme_str() == Some("https") {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
        let connector = tokio_rustls::TlsConnector::from(unverified());
        let handshake = connector.connect(name, Overheard::new(stream));
        match handshake.into_fallible().await {
            Ok(stream) => send(TokioIo::new(stream), request).await,
            Err((_, stream)) if stream.spoke_http() => {
                return Err(Error::PlainAnswer {
                    url: url.to_owned(),
                });
            }
            Err((error, _)) => Err(error.to_string()),
        }
    } else {
        send(TokioIo::new(stream), request).await
    };
    response.map_err(failed)
}

/// Adds the headers that somebody asks for. They go before our own, several of one name stay
/// several, and an empty one takes ours away.
fn add(headers: &mut http::HeaderMap, asked: &[HTTPHeader]) {
    let mut seen = BTreeSet::new();
    for header in asked {
        let name = http::HeaderName::try_from(header.name.as_str());
        let value = http::HeaderValue::try_from(header.value.as_str());
        let (Ok(name), Ok(value)) = (name, value) else {
            continue;
        };
        if seen.insert(name.to_string()) {
            headers.insert(name, value);
        } else if name != http::header::HOST {
            headers.append(name, value);
        }
    }
    for name in [http::header::ACCEPT, http::header::USER_AGENT] {
        if headers.get(&name).is_some_and(|value| value.is_empty()) {
            headers.remove(&name);
        }
    }
}

async fn send<T>(stream: T, request: Request<Empty<bytes::Bytes>>) -> Result<Reply, String>
where
    T: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await;
    let result = match response {
        Ok(response) => {
            let location = response.headers().get("Location");
            let location = location
                .and_then(|text| text.to_str().ok())
                .map(str::to_owned);
            let status = response.status().as_u16();
            // Read to its end, up to the limit, so that the server is not cut off mid-answer.
            let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
            let body = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
            Ok(Reply {
                status,
                location,
                body: body.unwrap_or_default(),
            })
        }
        Err(error) if error.is_incomplete_message() => Err("EOF".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    connection.abort();
    result
}

/// The target of a redirect, relative to `base`.
fn resolve(base: &str, location: &str) -> String {
    let location = location.split('#').next().unwrap_or_default();
    let scheme = base.find("://").unwrap_or(0);
    let before_path = location.split(['/', '?']).next().unwrap_or_default();
    if before_path.ends_with(':') {
        return location.to_owned();
    }
    if location.starts_with("//") {
        return format!("{}:{location}", &base[..scheme]);
    }
    let authority = scheme + 3;
    let end = base[authority..]
        .find(['/', '?'])
        .map_or(base.len(), |at| authority + at);
    let (origin, rest) = base.split_at(end);
    let path = rest.split('?').next().unwrap_or_default();
    if location.starts_with('?') {
        return format!("{origin}{path}{location}");
    }
    let (target, query) = match location.find('?') {
        Some(at) => location.split_at(at),
        None => (location, ""),
    };
    let directory = path.rfind('/').map_or("/", |at| &path[..=at]);
    let joined = match target.starts_with('/') {
        true => target.to_owned(),
        false => format!("{directory}{target}"),
    };
    format!("{origin}{}{query}", without_dots(&joined))
}

/// `/a/./b/../c` is `/a/c`.
fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let mut inside = "";
    for part in path.split('/').skip(1) {
        inside = part;
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let slash = if matches!(inside, "." | "..") && !parts.is_empty() {
        "/"
    } else {
        ""
    };
    format!("/{}{slash}", parts.join("/"))
}

fn host_of(url: &str) -> Option<String> {
    url.parse::<Uri>().ok()?.host().map(str::to_owned)
}

/// The beginning of the answer of a server without TLS.
const PLAIN_BEGINNING: &[u8] = b"HTTP/";

/// A connection that remembers the first bytes that came.
struct Overheard {
    stream: TcpStream,
    first: Vec<u8>,
}

impl Overheard {
    fn new(stream: TcpStream) -> Overheard {
        Overheard {
            stream,
            first: Vec::with_capacity(PLAIN_BEGINNING.len()),
        }
    }

    fn spoke_http(&self) -> bool {
        self.first == PLAIN_BEGINNING
    }
}

impl AsyncRead for Overheard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let missing = PLAIN_BEGINNING.len() - self.first.len();
        let new = &buffer.filled()[before..];
        let new = &new[..new.len().min(missing)];
        self.first.extend_from_slice(new);
        polled
    }
}

impl AsyncWrite for Overheard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn unverified() -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let schemes = provider
        .signature_verification_algorithms
        .supported_schemes();
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate { schemes }))
        .with_no_client_auth();
    Arc::new(config)
}

/// Pods have no certificate anybody could check; upstream does not check them either.
#[derive(Debug)]
struct AnyCertificate {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_read_from_where_it_was_given() {
        let check = |location: &str, expected: &str| {
            let base = "http://10.0.0.1:8080/a/b?c=d";
            assert_eq!(resolve(base, location), expected, "{location}");
        };
        check("/x", "http://10.0.0.1:8080/x");
        check("x", "http://10.0.0.1:8080/a/x");
        check("x/?q=/../1#top", "http://10.0.0.1:8080/a/x/?q=/../1");
        check("../x", "http://10.0.0.1:8080/x");
        check("./", "http://10.0.0.1:8080/a/");
        check("?e=f", "http://10.0.0.1:8080/a/b?e=f");
        check("//other/x", "http://other/x");
        check("https://other/x", "https://other/x");
        assert_eq!(resolve("http://h:1", "x"), "http://h:1/x");
    }

    #[test]
    fn headers_that_are_asked_for_go_before_ours() {
        let mut headers = http::HeaderMap::new();
        for (name, value) in [
            ("Accept", "*/*"),
            ("Host", "10.0.0.1"),
            ("User-Agent", "us"),
        ] {
            let name: http::HeaderName = name.parse().expect("a name");
            headers.insert(name, http::HeaderValue::from_static(value));
        }
        let asked = [
            ("X-A", "1"),
            ("x-a", "2"),
            ("Host", "web"),
            ("Host", "other"),
            ("Accept", ""),
            ("user-agent", "me"),
        ];
        let asked = asked.map(|(name, value)| HTTPHeader {
            name: name.to_owned(),
            value: value.to_owned(),
        });
        add(&mut headers, &asked);
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values
                .map(|value| value.to_str().expect("text").to_owned())
                .collect()
        };
        assert_eq!(all("x-a"), ["1", "2"]);
        assert_eq!(all("host"), ["web"]);
        assert_eq!(all("user-agent"), ["me"]);
        assert!(all("accept").is_empty());
    }
}
