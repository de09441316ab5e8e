//! Requests that a front proxy passes on: whoever shows a certificate of the front proxy's
//! authority says in headers who the user is. Nobody else's headers count.

use http::{HeaderMap, HeaderValue};
use rustls::pki_types::CertificateDer;

use super::authority::Verifier;
use crate::Error;
use crate::extension_servers::FrontProxy;
use crate::front_proxy_headers::{EXTRA, GROUP, UID, USER};
use crate::identity::{AUTHENTICATED, Identity};
use crate::query::decode_path;

/// Recognizes front proxies.
pub(super) struct FrontProxies {
    verifier: Verifier,
    names: Vec<String>,
}

impl FrontProxies {
    pub fn new(config: &FrontProxy) -> Result<FrontProxies, Error> {
        Ok(FrontProxies {
            verifier: Verifier::new(&config.ca_pem, "front-proxy CA")?,
            names: config.allowed_names.clone(),
        })
    }

    /// Whether this client may say who the user is. Without names every certificate of the
    /// authority may.
    pub fn accept(&self, chain: &[CertificateDer<'_>], seconds: u64) -> bool {
        let is_named = |der: &CertificateDer<'_>| {
            let subject = api::certificate::Subject::of_certificate(der);
            subject.is_ok_and(|subject| self.names.contains(&subject.common_name))
        };
        self.verifier.verify(chain, seconds).is_ok()
            && (self.names.is_empty() || chain.first().is_some_and(is_named))
    }
}

/// The user whom the headers of a front proxy name; `None` where they name none.
pub(super) fn user_of(headers: &HeaderMap) -> Option<Identity> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let all = |name: &str| {
        let values = headers.get_all(name).iter().map(text);
        values.filter(|value| !value.is_empty()).collect::<Vec<_>>()
    };
    let mut identity = Identity {
        user: headers
            .get(USER)
            .map(text)
            .filter(|user| !user.is_empty())?,
        uid: headers.get(UID).map(text).unwrap_or_default(),
        groups: all(GROUP),
        ..Identity::default()
    };
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            // What is not encoded properly counts as it is.
            let key = decode_path(key).unwrap_or_else(|| key.to_string());
            identity.extra.entry(key).or_default().push(text(value));
        }
    }
    let is_settled = |group: &String| {
        matches!(
            group.as_str(),
            AUTHENTICATED | crate::identity::UNAUTHENTICATED
        )
    };
    if identity.user != crate::identity::ANONYMOUS && !identity.groups.iter().any(is_settled) {
        identity.groups.push(AUTHENTICATED.to_string());
    }
    Some(identity)
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
    fn the_headers_name_user_groups_uid_and_extras() {
        let identity = user_of(&headers(&[
            ("x-remote-user", "alice"),
            ("x-remote-group", "dev"),
            ("x-remote-group", ""),
            ("x-remote-group", "ops"),
            ("x-remote-uid", "7"),
            ("x-remote-extra-example.com%2fscopes", "a"),
            ("x-remote-extra-example.com%2fscopes", "b"),
        ]))
        .unwrap();
        assert_eq!(identity.user, "alice");
        assert_eq!(identity.uid, "7");
        assert_eq!(identity.groups, ["dev", "ops", "system:authenticated"]);
        let values = &identity.extra["example.com/scopes"];
        assert_eq!(values, &["a", "b"]);
    }

    #[test]
    fn headers_without_a_user_give_no_identity() {
        assert_eq!(user_of(&headers(&[("x-remote-group", "dev")])), None);
        assert_eq!(user_of(&headers(&[("x-remote-user", "")])), None);
        let anonymous = user_of(&headers(&[("x-remote-user", "system:anonymous")])).unwrap();
        assert!(anonymous.groups.is_empty());
    }
}
