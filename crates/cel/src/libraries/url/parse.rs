//! Texts to URLs with the rules and words of Go's `net/url`. Parts are kept as bytes, because an
//! unescaped host or path need not be valid text.

use crate::libraries::net::address::{AddressError, parse_address};
use crate::libraries::quote::quoted;

/// A URL taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub scheme: String,
    opaque: String,
    user: Option<User>,
    pub host: Vec<u8>,
    path: Vec<u8>,
    raw_path: String,
    has_empty_query: bool,
    pub raw_query: String,
    fragment: Vec<u8>,
    raw_fragment: String,
    is_without_host: bool,
}

#[derive(Clone, Debug)]
struct User {
    name: Vec<u8>,
    password: Option<Vec<u8>>,
}

/// Why a text is no URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parse {}: {reason}", quoted(text))]
pub(crate) struct UrlError {
    text: String,
    reason: UrlReason,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum UrlReason {
    #[error("net/url: invalid control character in URL")]
    Control,
    #[error("empty url")]
    Empty,
    #[error("missing protocol scheme")]
    Scheme,
    #[error("invalid URI for request")]
    Relative,
    #[error("first path segment in URL cannot contain colon")]
    FirstSegment,
    #[error("net/url: invalid userinfo")]
    UserInfo,
    #[error("invalid IP-literal")]
    Literal,
    #[error("missing ']' in host")]
    Bracket,
    #[error("invalid port {} after host", quoted(.0))]
    Port(String),
    #[error("invalid host: {0}")]
    Host(AddressError),
    #[error("invalid URL escape {}", quoted(.0))]
    Escape(String),
    #[error("invalid character {} in host name", quoted(.0))]
    HostCharacter(String),
}

/// Which characters a part of a URL has as they are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    User,
    Query,
    Fragment,
}

impl Part {
    fn is_plain(self, byte: u8) -> bool {
        let more: &[u8] = match self {
            Part::Path => b"$&+,/:;=@",
            Part::Host | Part::Zone => b"!\"$&'()*+,:;<=>[]",
            Part::User => b"$&+,;=",
            Part::Query => b"",
            Part::Fragment => b"!$&()*+,/:;=?@",
        };
        byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || more.contains(&byte)
    }
}

/// What requests take: an absolute URI or an absolute path, without regard to fragments.
pub(crate) fn parse_request_uri(text: &str) -> Result<Parts, UrlError> {
    parse(text, true).map_err(|reason| UrlError {
        text: text.to_owned(),
        reason,
    })
}

/// Any URL or reference.
pub(crate) fn parse_url(text: &str) -> Result<Parts, UrlError> {
    let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut parts = parse(before, false).map_err(|reason| UrlError {
        text: before.to_owned(),
        reason,
    })?;
    if !fragment.is_empty() {
        parts.fragment = unescape(fragment, Part::Fragment).map_err(|reason| UrlError {
            text: text.to_owned(),
            reason,
        })?;
        if escape(&parts.fragment, Part::Fragment) != fragment {
            parts.raw_fragment = fragment.to_owned();
        }
    }
    Ok(parts)
}

fn parse(text: &str, is_request: bool) -> Result<Parts, UrlReason> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(UrlReason::Control);
    }
    if text.is_empty() && is_request {
        return Err(UrlReason::Empty);
    }
    let mut parts = Parts::default();
    if text == "*" {
        parts.path = b"*".to_vec();
        return Ok(parts);
    }
    let (scheme, mut rest) = split_scheme(text)?;
    parts.scheme = scheme.to_lowercase();
    if rest.ends_with('?') && rest.matches('?').count() == 1 {
        parts.has_empty_query = true;
        rest = &rest[..rest.len() - 1];
    } else if let Some((before, query)) = rest.split_once('?') {
        parts.raw_query = query.to_owned();
        rest = before;
    }
    if !rest.starts_with('/') {
        if !parts.scheme.is_empty() {
            parts.opaque = rest.to_owned();
            return Ok(parts);
        }
        if is_request {
            return Err(UrlReason::Relative);
        }
        if first_segment(rest).contains(':') {
            return Err(UrlReason::FirstSegment);
        }
    }
    let has_scheme = !parts.scheme.is_empty();
    let has_authority = has_scheme || (!is_request && !rest.starts_with("///"));
    if has_authority && let Some(after) = rest.strip_prefix("//") {
        let end = after.find('/').unwrap_or(after.len());
        let (authority, path) = after.split_at(end);
        parse_authority(&mut parts, authority)?;
        rest = path;
    } else if has_scheme && rest.starts_with('/') {
        parts.is_without_host = true;
    }
    parts.path = unescape(rest, Part::Path)?;
    if escape(&parts.path, Part::Path) != rest {
        parts.raw_path = rest.to_owned();
    }
    Ok(parts)
}

fn first_segment(text: &str) -> &str {
    text.split('/').next().unwrap_or_default()
}

fn split_scheme(text: &str) -> Result<(&str, &str), UrlReason> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err(UrlReason::Scheme),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_authority(parts: &mut Parts, authority: &str) -> Result<(), UrlReason> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        parts.host = parse_host(&parts.scheme, authority)?;
        return Ok(());
    };
    parts.host = parse_host(&parts.scheme, host)?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(is_valid) {
        return Err(UrlReason::UserInfo);
    }
    let (name, password) = match user.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (user, None),
    };
    parts.user = Some(User {
        name: unescape(name, Part::User)?,
        password: password
            .map(|password| unescape(password, Part::User))
            .transpose()?,
    });
    Ok(())
}

fn parse_host(scheme: &str, host: &str) -> Result<Vec<u8>, UrlReason> {
    match host.rfind('[') {
        Some(0) => return parse_literal(host),
        Some(_) => return Err(UrlReason::Literal),
        None => {}
    }
    if let (Some(first), Some(last)) = (host.find(':'), host.rfind(':')) {
        let is_strict = scheme == "http" || scheme == "https";
        let port = &host[if is_strict { first } else { last }..];
        if !is_optional_port(port.as_bytes()) {
            return Err(UrlReason::Port(port.to_owned()));
        }
    }
    unescape(host, Part::Host)
}

/// An IPv6 address in brackets, maybe with a zone and a port.
fn parse_literal(host: &str) -> Result<Vec<u8>, UrlReason> {
    let (name, port) = host[1..].rsplit_once(']').ok_or(UrlReason::Bracket)?;
    if !is_optional_port(port.as_bytes()) {
        return Err(UrlReason::Port(port.to_owned()));
    }
    let port = unescape(port, Part::Host)?;
    let name = match name.find("%25") {
        Some(zone) => {
            let mut name_and_zone = unescape(&name[..zone], Part::Host)?;
            name_and_zone.extend(unescape(&name[zone..], Part::Zone)?);
            name_and_zone
        }
        None => unescape(name, Part::Host)?,
    };
    let text = String::from_utf8_lossy(&name);
    let parsed = parse_address(&text).map_err(UrlReason::Host)?;
    if parsed.address.is_ipv4() {
        return Err(UrlReason::Literal);
    }
    Ok([b"[", &name[..], b"]", &port[..]].concat())
}

fn is_optional_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, UrlReason> {
    let bytes = text.as_bytes();
    let mut output = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        match bytes[index] {
            b'%' => {
                let escape = &bytes[index..bytes.len().min(index + 3)];
                let wrong = || UrlReason::Escape(String::from_utf8_lossy(escape).into_owned());
                let digit = |at: usize| {
                    let byte = escape.get(at)?;
                    char::from(*byte).to_digit(16)
                };
                let (Some(high), Some(low)) = (digit(1), digit(2)) else {
                    return Err(wrong());
                };
                let byte = (high * 16 + low) as u8;
                let is_percent = escape == b"%25";
                let is_refused = match part {
                    Part::Host => high < 8 && !is_percent,
                    Part::Zone => !is_percent && byte != b' ' && !Part::Host.is_plain(byte),
                    _ => false,
                };
                if is_refused {
                    return Err(wrong());
                }
                output.push(byte);
                index += 3;
                continue;
            }
            b'+' if part == Part::Query => output.push(b' '),
            byte => {
                let is_host = matches!(part, Part::Host | Part::Zone);
                if is_host && byte < 0x80 && !part.is_plain(byte) {
                    return Err(UrlReason::HostCharacter(char::from(byte).to_string()));
                }
                output.push(byte);
            }
        }
        index += 1;
    }
    Ok(output)
}

fn escape(bytes: &[u8], part: Part) -> String {
    let mut output = String::with_capacity(bytes.len());
    for byte in bytes {
        if part.is_plain(*byte) {
            output.push(char::from(*byte));
        } else {
            output.push_str(&format!("%{byte:02X}"));
        }
    }
    output
}

/// Whether a text may stand as the escaped form of a path or fragment.
fn is_escaped(text: &str, part: Part) -> bool {
    text.bytes()
        .all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || part.is_plain(byte))
}

impl Parts {
    pub fn escaped_path(&self) -> String {
        if !self.raw_path.is_empty() && is_escaped(&self.raw_path, Part::Path) {
            return self.raw_path.clone();
        }
        if self.path == b"*" {
            return "*".to_owned();
        }
        escape(&self.path, Part::Path)
    }

    fn escaped_fragment(&self) -> String {
        if !self.raw_fragment.is_empty() && is_escaped(&self.raw_fragment, Part::Fragment) {
            return self.raw_fragment.clone();
        }
        escape(&self.fragment, Part::Fragment)
    }

    /// The host without its port, and the port.
    pub fn host_and_port(&self) -> (&[u8], &[u8]) {
        let (mut host, mut port): (&[u8], &[u8]) = (&self.host, b"");
        if let Some(colon) = host.iter().rposition(|byte| *byte == b':')
            && is_optional_port(&host[colon..])
        {
            port = &host[colon + 1..];
            host = &host[..colon];
        }
        if let [b'[', inner @ .., b']'] = host {
            host = inner;
        }
        (host, port)
    }

    /// The parameters of the query in their order; what cannot be read is left out.
    pub fn query(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        const MOST: usize = 10_000;
        if self.raw_query.matches('&').count() + 1 > MOST {
            return Vec::new();
        }
        let pairs = self.raw_query.split('&').filter_map(|pair| {
            if pair.is_empty() || pair.contains(';') {
                return None;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = unescape(key, Part::Query).ok()?;
            Some((key, unescape(value, Part::Query).ok()?))
        });
        pairs.collect()
    }
}

/// The URL as a text again; this is what is compared.
impl std::fmt::Display for Parts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        if !self.scheme.is_empty() {
            text.push_str(&self.scheme);
            text.push(':');
        }
        if self.opaque.is_empty() {
            let has_host = !self.host.is_empty();
            let has_authority = has_host || self.user.is_some();
            if has_authority || (!self.scheme.is_empty() && !self.is_without_host) {
                if has_authority || !self.path.is_empty() {
                    text.push_str("//");
                }
                if let Some(user) = &self.user {
                    text.push_str(&escape(&user.name, Part::User));
                    if let Some(password) = &user.password {
                        text.push(':');
                        text.push_str(&escape(password, Part::User));
                    }
                    text.push('@');
                }
                text.push_str(&escape(&self.host, Part::Host));
            }
            let path = self.escaped_path();
            if has_host && !path.is_empty() && !path.starts_with('/') {
                text.push('/');
            }
            if text.is_empty() && first_segment(&path).contains(':') {
                text.push_str("./");
            }
            text.push_str(&path);
        } else {
            text.push_str(&self.opaque);
        }
        if self.has_empty_query || !self.raw_query.is_empty() {
            text.push('?');
            text.push_str(&self.raw_query);
        }
        if !self.fragment.is_empty() {
            text.push('#');
            text.push_str(&self.escaped_fragment());
        }
        formatter.write_str(&text)
    }
}
