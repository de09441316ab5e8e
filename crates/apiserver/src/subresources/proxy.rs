//! The proxies: HTTP to a pod, a service or a node, in all methods, bodies streamed both ways.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Reason, Resource, Status, Value};
use bytes::Bytes;
use futures::StreamExt;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, BodyStream, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use streaming::upgrade;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::addresses;
use super::kubelet::locate;
use super::not_served;
use super::rewrite::View;
use super::upgraded::{Line, join};
use crate::body::{Body, RequestBody};
use crate::context::Context;
use crate::query::decode_path;
use crate::server::Server;
use crate::service_endpoints;
use crate::unverified;

const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// A larger page is passed on with its links as they are.
const LARGEST_PAGE: usize = 4 << 20;
/// Headers that speak of one connection only.
const OF_CONNECTION: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Where the proxied server is.
struct Place {
    address: SocketAddr,
    security: Security,
}

enum Security {
    None,
    /// TLS with anybody.
    Unverified,
    /// A kubelet: TLS, and it knows us.
    Kubelet,
}

trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

pub(super) async fn handle(
    context: &Context,
    resource: &Arc<Resource>,
    mut line: Line,
    body: RequestBody,
) -> Result<Response<Body>, Status> {
    let (prefix, path) = split(line.uri.path(), context.info.depth).ok_or_else(not_served)?;
    let is_upgrade = upgrade::is_upgrade(&context.headers);
    let reads = matches!(line.method, Method::GET | Method::HEAD);
    if path.is_empty() && reads && !is_upgrade {
        return Ok(to_directory(&line));
    }
    let place = match &*resource.plural {
        "pods" => pod(context, resource).await?,
        "services" => service(context, resource).await?,
        _ => node(context).await?,
    };
    let query = line.uri.query().map(|query| format!("?{query}"));
    let target = match path {
        "" => format!("/{}", query.unwrap_or_default()),
        path => format!("{path}{}", query.unwrap_or_default()),
    };
    let host = line
        .uri
        .authority()
        .map(|authority| authority.to_string())
        .or_else(|| text(&context.headers, header::HOST))
        .unwrap_or_else(|| place.address.to_string());
    let mut request = Request::new(body);
    *request.method_mut() = line.method.clone();
    *request.uri_mut() = target
        .parse()
        .map_err(|_| Status::bad_request("the path cannot be passed on"))?;
    *request.headers_mut() = headers(&context.headers, &host, prefix, path, is_upgrade);
    let stream = dial(context, &place).await.map_err(unreachable)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(unreachable)?;
    tokio::spawn(connection.with_upgrades());
    let answer = sender.send_request(request).await.map_err(unreachable)?;
    if let (true, Some(near)) = (is_upgrade, line.upgrade.take()) {
        return join(near, answer).await;
    }
    let backend = place.address.to_string();
    let view = View {
        prefix,
        backend: &backend,
        host: &host,
    };
    give_back(answer, &view).await
}

/// What is behind the proxy, as hooks see it.
pub(super) fn path_behind(path: &str, depth: usize) -> &str {
    split(path, depth).map_or("", |(_, behind)| behind)
}

/// The part of the path up to `proxy`, which is its segment number `depth`, and what is behind it,
/// both as they were sent. `None` if an encoded slash hides where that is.
fn split(path: &str, depth: usize) -> Option<(&str, &str)> {
    let begin = path.len() - path.trim_start_matches('/').len();
    let mut slashes = path[begin..].match_indices('/').map(|(at, _)| begin + at);
    let end = slashes.nth(depth - 1).unwrap_or(path.len());
    let (prefix, rest) = path.split_at(end);
    let decoded = decode_path(&prefix[begin..])?;
    let count = |text: &str| text.split('/').count();
    (count(&prefix[begin..]) == depth && count(&decoded) == depth).then_some((prefix, rest))
}

/// Links on a page are relative to its directory, so the root has to end in a slash.
fn to_directory(line: &Line) -> Response<Body> {
    let query = line.uri.query().map(|query| format!("?{query}"));
    let location = format!("{}/{}", line.uri.path(), query.unwrap_or_default());
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn headers(given: &HeaderMap, host: &str, prefix: &str, path: &str, is_upgrade: bool) -> HeaderMap {
    let mut headers = given.clone();
    headers.remove(header::AUTHORIZATION);
    if !is_upgrade {
        for name in OF_CONNECTION {
            headers.remove(name);
        }
        headers.remove("keep-alive");
    }
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set("host", host);
    set("x-forwarded-uri", &format!("{prefix}{path}"));
    set("x-forwarded-host", host);
    set("x-forwarded-proto", "https");
    headers
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_string)
}

async fn dial(context: &Context, place: &Place) -> std::io::Result<Box<dyn Connection>> {
    if let Security::Kubelet = place.security {
        let dialer = context.server.kubelets.as_ref();
        let dialer = dialer.ok_or_else(|| {
            std::io::Error::other("this server has no kubelet client certificate")
        })?;
        let (address, port) = (place.address.ip(), place.address.port());
        return Ok(Box::new(dialer.connect(address, port).await?));
    }
    let dialling = TcpStream::connect(place.address);
    let stream = tokio::time::timeout(DIAL_TIMEOUT, dialling).await??;
    let _ = stream.set_nodelay(true);
    if let Security::None = place.security {
        return Ok(Box::new(stream));
    }
    let name = rustls::pki_types::ServerName::IpAddress(place.address.ip().into());
    let connector = unverified::connector().map_err(std::io::Error::other)?;
    let handshake = tokio::time::timeout(DIAL_TIMEOUT, connector.connect(name, stream));
    Ok(Box::new(handshake.await??))
}

fn unreachable(problem: impl std::fmt::Display) -> Status {
    Status::new(
        Reason::ServiceUnavailable,
        format!("error trying to reach service: {problem}"),
    )
}

async fn give_back(answer: Response<Incoming>, view: &View<'_>) -> Result<Response<Body>, Status> {
    let (mut parts, body) = answer.into_parts();
    for name in OF_CONNECTION {
        parts.headers.remove(name);
    }
    if let Some(location) = text(&parts.headers, header::LOCATION)
        && let Ok(location) = HeaderValue::from_str(&view.address(&location))
    {
        parts.headers.insert(header::LOCATION, location);
    }
    let kind = text(&parts.headers, header::CONTENT_TYPE).unwrap_or_default();
    let length = text(&parts.headers, header::CONTENT_LENGTH);
    let small = length.is_none_or(|length| {
        length
            .parse()
            .is_ok_and(|length: usize| length <= LARGEST_PAGE)
    });
    let coding = text(&parts.headers, header::CONTENT_ENCODING).unwrap_or_default();
    let is_page = kind.split(';').next().unwrap_or_default().trim() == "text/html";
    if !is_page || !small || !matches!(coding.as_str(), "" | "gzip") {
        return Ok(Response::from_parts(parts, streamed(body)));
    }
    let collected = Limited::new(body, LARGEST_PAGE).collect().await;
    let page = collected.map_err(unreachable)?.to_bytes();
    let page = match coding.as_str() {
        "gzip" => unpack(&page).unwrap_or(page),
        _ => page,
    };
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.remove(header::CONTENT_LENGTH);
    let page = match std::str::from_utf8(&page) {
        Ok(text) => Bytes::from(view.page(text)),
        Err(_) => page,
    };
    Ok(Response::from_parts(parts, Body::from(page)))
}

fn unpack(page: &[u8]) -> Option<Bytes> {
    let mut plain = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(page).take(LARGEST_PAGE as u64);
    reader.read_to_end(&mut plain).ok()?;
    Some(plain.into())
}

fn streamed(body: Incoming) -> Body {
    Body::stream(BodyStream::new(body).filter_map(|frame| async {
        match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(problem) => Some(Err(problem.into())),
        }
    }))
}

/// `name`, `name:port` or `scheme:name:port`.
fn parse_name<'a>(name: &'a str, what: &str) -> Result<(bool, &'a str, &'a str), Status> {
    let wrong = || Status::bad_request(format!("invalid {what} request {name:?}"));
    let parts: Vec<&str> = name.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme @ ("" | "http" | "https"), name, port] => (*scheme, *name, *port),
        _ => return Err(wrong()),
    };
    match name {
        "" => Err(wrong()),
        name => Ok((scheme == "https", name, port)),
    }
}

fn place(server: &Server, address: &str, port: u16, secure: bool) -> Result<Place, Status> {
    Ok(Place {
        address: addresses::of_backend(server, address, port)?,
        security: match secure {
            true => Security::Unverified,
            false => Security::None,
        },
    })
}

fn number(port: &str, secure: bool) -> Result<u16, Status> {
    match port {
        "" => Ok(if secure { 443 } else { 80 }),
        port => port
            .parse()
            .map_err(|_| Status::bad_request(format!("invalid port {port:?}"))),
    }
}

async fn pod(context: &Context, resource: &Arc<Resource>) -> Result<Place, Status> {
    let (secure, name, port) = parse_name(&context.info.name, "pod")?;
    let server = &context.server;
    let pod = server
        .objects
        .get(resource, &context.info.namespace, name)
        .await?;
    let pod = pod.object()?;
    let containers = pod.at(&["spec", "containers"]).and_then(Value::as_array);
    let declared = containers.into_iter().flatten().find_map(|container| {
        let ports = container.at(&["ports"]).and_then(Value::as_array);
        let first = ports.into_iter().flatten().next()?;
        u16::try_from(first.at(&["containerPort"])?.as_i64()?).ok()
    });
    let port = match (port, declared) {
        ("", Some(port)) => port,
        (port, _) => number(port, secure)?,
    };
    place(server, pod.str_at(&["status", "podIP"]), port, secure)
}

async fn node(context: &Context) -> Result<Place, Status> {
    let (secure, name, port) = parse_name(&context.info.name, "node")?;
    let (address, kubelet) = locate(context, name).await?;
    if port.is_empty() || port == kubelet.to_string() {
        return Ok(Place {
            address: SocketAddr::new(address, kubelet),
            security: Security::Kubelet,
        });
    }
    let address = address.to_string();
    place(&context.server, &address, number(port, secure)?, secure)
}

/// An endpoint of the service, chosen at random.
async fn service(context: &Context, resource: &Arc<Resource>) -> Result<Place, Status> {
    let (secure, name, port) = parse_name(&context.info.name, "service")?;
    let (server, namespace) = (&context.server, &context.info.namespace);
    let unavailable = |message: String| Status::new(Reason::ServiceUnavailable, message);
    let service = server.objects.get(resource, namespace, name).await;
    let service = service.map_err(|_| Status::not_found("", "endpoints", name))?;
    let service = service.object()?;
    let mut port = port.to_string();
    if let Ok(wanted) = port.parse() {
        let found = service_endpoints::port_name(&service, name, wanted);
        let found = found.map_err(|problem| unavailable(problem.to_string()))?;
        port = found.to_string();
    }
    let mut found: Vec<(String, u16)> = Vec::new();
    for slice in service_endpoints::slices(&server.cache, namespace, name) {
        let Some(number) = service_endpoints::slice_port(&slice, &port) else {
            continue;
        };
        let of_pods = service_endpoints::ready(&slice)
            .filter(|endpoint| endpoint.str_at(&["targetRef", "kind"]) == "Pod");
        let addresses = of_pods.filter_map(service_endpoints::first_address);
        found.extend(addresses.map(|address| (address.to_string(), number)));
    }
    let choice = server
        .environment
        .random_u64()
        .checked_rem(found.len() as u64);
    match choice.and_then(|choice| found.get(choice as usize)) {
        Some((address, port)) => place(server, address, *port, secure),
        None => Err(unavailable(format!(
            "no endpoints available for service {:?}",
            context.info.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_behind_the_proxy() {
        let pod = "/api/v1/namespaces/a/pods/b:80/proxy";
        assert_eq!(split(&format!("{pod}/x/y"), 7), Some((pod, "/x/y")));
        assert_eq!(split(&format!("{pod}//x%2fy"), 7), Some((pod, "//x%2fy")));
        assert_eq!(split(&format!("{pod}/"), 7), Some((pod, "/")));
        assert_eq!(split(pod, 7), Some((pod, "")));
        let node = "/api/v1/nodes/n/proxy";
        assert_eq!(split(&format!("{node}/pods"), 5), Some((node, "/pods")));
        let node = "//api/v1/nodes/%6e/proxy";
        assert_eq!(split(&format!("{node}/pods"), 5), Some((node, "/pods")));
    }

    #[test]
    fn an_encoded_slash_does_not_move_what_is_behind_the_proxy() {
        for path in [
            "/api/v1/nodes/n%2Fproxy%2Fa/b/c",
            "/api/v1/nodes%2Fn/proxy/b/c",
            "/api/v1/nodes/n%2Fproxy",
        ] {
            assert_eq!(split(path, 5), None, "{path}");
        }
    }

    #[test]
    fn names_may_carry_scheme_and_port() {
        assert_eq!(parse_name("a", "pod").unwrap(), (false, "a", ""));
        assert_eq!(parse_name("a:80", "pod").unwrap(), (false, "a", "80"));
        assert_eq!(parse_name("https:a:", "pod").unwrap(), (true, "a", ""));
        for wrong in ["", ":80", "ftp:a:80", "a:b:c:d"] {
            assert!(parse_name(wrong, "pod").is_err(), "{wrong}");
        }
    }
}
