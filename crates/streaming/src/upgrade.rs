//! The HTTP side of an upgrade: which protocol a request asks for, and the answer that agrees.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

pub const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
const ACCEPTED_PROTOCOLS: &str = "x-accepted-stream-protocol-versions";
/// A WebSocket subprotocol that begins so carries SPDY frames.
pub const TUNNEL_PREFIX: &str = "SPDY/3.1+";

/// What client and server agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    WebSocket {
        /// The subprotocol, empty if the client named none.
        protocol: String,
        accept: String,
    },
    Spdy {
        /// The stream protocol, empty if the client named none.
        protocol: String,
    },
}

/// Why a request cannot be upgraded, as it is answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub status: StatusCode,
    pub message: String,
    /// Stream protocols that would have been accepted.
    pub accepted: Vec<String>,
}

impl Refusal {
    pub fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal {
            status: StatusCode::BAD_REQUEST,
            message: message.into(),
            accepted: Vec::new(),
        }
    }

    pub fn response(&self) -> Response<String> {
        let mut response = Response::new(self.message.clone());
        *response.status_mut() = self.status;
        for protocol in &self.accepted {
            if let Ok(value) = HeaderValue::from_str(protocol) {
                response.headers_mut().append(ACCEPTED_PROTOCOLS, value);
            }
        }
        response
    }
}

/// Whether the request asks for another protocol at all.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    tokens(headers, header::CONNECTION.as_str())
        .iter()
        .any(|token| token.eq_ignore_ascii_case("upgrade"))
}

pub fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    is_upgrade(headers)
        && upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// The WebSocket subprotocols a request offers.
pub fn subprotocols(headers: &HeaderMap) -> Vec<String> {
    tokens(headers, header::SEC_WEBSOCKET_PROTOCOL.as_str())
}

/// The stream protocols behind the tunnels that a WebSocket request offers.
pub fn tunnelled(headers: &HeaderMap) -> Vec<String> {
    subprotocols(headers)
        .iter()
        .filter(|name| name.ends_with(".k8s.io"))
        .filter_map(|name| name.strip_prefix(TUNNEL_PREFIX).map(str::to_owned))
        .collect()
}

/// Agrees on the first of the client's protocols that we speak. An empty name among ours means
/// that a client may name none.
pub fn negotiate(
    headers: &HeaderMap,
    websocket: &[&str],
    spdy: &[&str],
) -> Result<Upgrade, Refusal> {
    if is_websocket(headers) {
        let key = headers.get(header::SEC_WEBSOCKET_KEY);
        let key = key.ok_or_else(|| Refusal::bad_request("challenge/response failure"))?;
        let offered = subprotocols(headers);
        let protocol = choose(&offered, websocket).ok_or_else(|| {
            Refusal::bad_request(format!(
                "requested protocol(s) are not supported: [{}]; supports [{}]",
                offered.join(" "),
                websocket.join(" ")
            ))
        })?;
        return Ok(Upgrade::WebSocket {
            protocol,
            accept: derive_accept_key(key.as_bytes()),
        });
    }
    let upgrade = headers.get(header::UPGRADE);
    let wants_spdy =
        upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(SPDY.as_bytes()));
    if !is_upgrade(headers) || !wants_spdy {
        return Err(Refusal::bad_request(
            "unable to upgrade: missing upgrade headers in request",
        ));
    }
    let offered = tokens(headers, STREAM_PROTOCOL);
    match choose(&offered, spdy) {
        Some(protocol) => Ok(Upgrade::Spdy { protocol }),
        None if offered.is_empty() => Ok(Upgrade::Spdy {
            protocol: String::new(),
        }),
        None => Err(Refusal {
            status: StatusCode::FORBIDDEN,
            message: format!(
                "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
                offered.join(" "),
                spdy.join(" ")
            ),
            accepted: spdy.iter().map(|name| (*name).to_owned()).collect(),
        }),
    }
}

impl Upgrade {
    /// The answer that switches protocols.
    pub fn response<B: Default>(&self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        match self {
            Upgrade::WebSocket { protocol, accept } => {
                set("upgrade", "websocket");
                set("sec-websocket-accept", accept);
                if !protocol.is_empty() {
                    set("sec-websocket-protocol", protocol);
                }
            }
            Upgrade::Spdy { protocol } => {
                set("upgrade", SPDY);
                if !protocol.is_empty() {
                    set(STREAM_PROTOCOL, protocol);
                }
            }
        }
        response
    }
}

/// The headers that ask for SPDY with one of `protocols`, in place of those that asked for
/// WebSocket.
pub fn ask_for_spdy(headers: &mut HeaderMap, protocols: &[String]) {
    for name in [
        header::SEC_WEBSOCKET_PROTOCOL,
        header::SEC_WEBSOCKET_KEY,
        header::SEC_WEBSOCKET_VERSION,
        header::SEC_WEBSOCKET_EXTENSIONS,
        header::CONTENT_LENGTH,
    ] {
        headers.remove(name);
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    headers.remove(STREAM_PROTOCOL);
    for protocol in protocols {
        if let Ok(value) = HeaderValue::from_str(protocol) {
            headers.append(STREAM_PROTOCOL, value);
        }
    }
}

fn choose(offered: &[String], spoken: &[&str]) -> Option<String> {
    if offered.is_empty() {
        return spoken.contains(&"").then(String::new);
    }
    let found = offered.iter().find(|name| spoken.contains(&name.as_str()));
    found.cloned()
}

/// The comma-separated values of all headers of a name.
fn tokens(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_first_known_protocol_of_the_client_is_chosen() {
        let request = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            (
                "sec-websocket-protocol",
                "v9.channel.k8s.io, v5.channel.k8s.io",
            ),
            ("sec-websocket-protocol", "v4.channel.k8s.io"),
        ]);
        let spoken = ["", "v4.channel.k8s.io", "v5.channel.k8s.io"];
        let upgrade = negotiate(&request, &spoken, &[]).unwrap();
        let response: Response<()> = upgrade.response();
        assert_eq!(
            response.headers()["sec-websocket-protocol"],
            "v5.channel.k8s.io"
        );
        assert_eq!(
            response.headers()["sec-websocket-accept"],
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert!(negotiate(&request, &["other"], &[]).is_err());
    }

    #[test]
    fn spdy_may_name_no_protocol_but_not_a_wrong_one() {
        let mut request = headers(&[("connection", "upgrade"), ("upgrade", "spdy/3.1")]);
        let none = Upgrade::Spdy {
            protocol: String::new(),
        };
        assert_eq!(negotiate(&request, &[], &["v4.channel.k8s.io"]), Ok(none));
        request.append(
            STREAM_PROTOCOL,
            HeaderValue::from_static("v9.channel.k8s.io"),
        );
        let refusal = negotiate(&request, &[], &["v4.channel.k8s.io"]).unwrap_err();
        assert_eq!(refusal.status, 403);
        let response = refusal.response();
        assert_eq!(response.headers()[ACCEPTED_PROTOCOLS], "v4.channel.k8s.io");
        assert!(negotiate(&HeaderMap::new(), &[], &[]).is_err());
    }

    #[test]
    fn a_tunnel_names_the_protocol_inside() {
        let request = headers(&[("sec-websocket-protocol", "SPDY/3.1+portforward.k8s.io, x")]);
        assert_eq!(tunnelled(&request), ["portforward.k8s.io"]);
    }
}
