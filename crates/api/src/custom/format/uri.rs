//! URIs of requests, as Go's `url.ParseRequestURI` reads them: absolute, or a path from the root.

pub fn is_request_uri(text: &str) -> bool {
    parse(text).is_some()
}

/// The scheme and the host, both possibly "", of what can be read.
pub fn parse(text: &str) -> Option<(&str, &str)> {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return None;
    }
    if text == "*" {
        return Some(("", ""));
    }
    let (scheme, rest) = scheme(text)?;
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    if !rest.starts_with('/') {
        return (!scheme.is_empty()).then_some((scheme, ""));
    }
    let (host, path) = match rest.strip_prefix("//") {
        Some(rest) if !scheme.is_empty() => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            (host(authority)?, path)
        }
        _ => ("", rest),
    };
    escapes_hold(path).then_some((scheme, host))
}

/// What stands before the first colon, if it can be a scheme; a colon at the start is an error.
fn scheme(text: &str) -> Option<(&str, &str)> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return None,
            b':' => return Some((&text[..index], &text[index + 1..])),
            _ => return Some(("", text)),
        }
    }
    Some(("", text))
}

fn host(authority: &str) -> Option<&str> {
    let host = match authority.rsplit_once('@') {
        None => authority,
        Some((user, host)) => {
            let allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
            if !user.bytes().all(allowed) || !escapes_hold(user) {
                return None;
            }
            host
        }
    };
    let port = match host.strip_prefix('[') {
        Some(_) => &host[host.rfind(']')? + 1..],
        None => host.rfind(':').map_or("", |colon| &host[colon..]),
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let allowed = |byte: u8| {
        byte >= 0x80 || byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&byte)
    };
    (is_port && host.bytes().all(allowed) && escapes_hold(host)).then_some(host)
}

/// Every percent sign is followed by two hexadecimal digits.
fn escapes_hold(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hexadecimal = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_hexdigit);
    bytes
        .iter()
        .enumerate()
        .all(|(index, byte)| *byte != b'%' || (hexadecimal(index + 1) && hexadecimal(index + 2)))
}
