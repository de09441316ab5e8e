//! The headers in which a front proxy says who the user of a request is: read where requests come
//! in, written where requests are passed on to extension API servers.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, header};

use crate::identity::Identity;

pub(crate) const USER: &str = "x-remote-user";
pub(crate) const UID: &str = "x-remote-uid";
pub(crate) const GROUP: &str = "x-remote-group";
pub(crate) const EXTRA: &str = "x-remote-extra-";

/// Takes away what a client says about itself.
pub(crate) fn forget(headers: &mut HeaderMap) {
    let is_ours = |name: &&HeaderName| {
        let name = name.as_str();
        matches!(name, USER | UID | GROUP) || name.starts_with(EXTRA)
    };
    let found: Vec<HeaderName> = headers.keys().filter(is_ours).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Says who the user is, in place of what the headers said before.
pub(crate) fn set(headers: &mut HeaderMap, identity: &Identity) {
    forget(headers);
    headers.remove(header::AUTHORIZATION);
    let mut add = |name: &str, value: &str| {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            headers.append(name, value);
        }
    };
    add(USER, &identity.user);
    if !identity.uid.is_empty() {
        add(UID, &identity.uid);
    }
    for group in &identity.groups {
        add(GROUP, group);
    }
    for (key, values) in &identity.extra {
        let name = format!("{EXTRA}{}", escaped(key));
        for value in values {
            add(&name, value);
        }
    }
}

/// A key of an extra as part of a header's name: what may not be in one is percent-encoded, and so
/// is the percent sign.
fn escaped(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match is_plain(byte) {
            true => text.push(byte.into()),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_about_itself_is_replaced() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "X-Remote-Extra-Admin", "authorization"] {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.insert(name, HeaderValue::from_static("forged"));
        }
        headers.insert("accept", HeaderValue::from_static("*/*"));
        let mut identity = Identity::component("alice", &["dev"]);
        let values = vec!["a".to_string(), "b".to_string()];
        identity.extra.insert("example.com/scopes".into(), values);
        set(&mut headers, &identity);
        let mut found: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                "accept: */*",
                "x-remote-extra-example.com%2fscopes: a",
                "x-remote-extra-example.com%2fscopes: b",
                "x-remote-group: dev",
                "x-remote-group: system:authenticated",
                "x-remote-user: alice",
            ]
        );
    }
}
