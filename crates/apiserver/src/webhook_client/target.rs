//! Where a hook listens, as its `clientConfig` says.

use api::Value;
use base64::Engine;

/// The port of a hook that names none.
const HTTPS_PORT: u16 = 443;

/// Where a hook listens, and who vouches for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub place: Place,
    /// PEM; empty for the authorities that the machine trusts.
    pub ca_bundle: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Service {
        namespace: String,
        name: String,
        port: u16,
        /// Begins with a slash.
        path: String,
    },
    Url {
        /// As the URL has it, with the port where it names one.
        authority: String,
        host: String,
        port: u16,
        path: String,
    },
}

/// Why a `clientConfig` leads nowhere.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("webhook configuration must have either service or URL")]
    Missing,
    #[error("Unparsable URL: {0}")]
    Url(http::uri::InvalidUri),
    #[error("Unparsable URL: {0:?} names no host")]
    NoHost(String),
    #[error("the port {0} does not exist")]
    Port(i64),
    #[error("the caBundle is not base64")]
    CaBundle(#[source] base64::DecodeError),
}

impl Target {
    /// Reads the `clientConfig` of a webhook.
    pub fn of_client_config(config: &Value) -> Result<Target, TargetError> {
        let ca_bundle = base64::engine::general_purpose::STANDARD
            .decode(config.str_at(&["caBundle"]))
            .map_err(TargetError::CaBundle)?;
        // A bundle of white space is none.
        let ca_bundle = match ca_bundle.trim_ascii().is_empty() {
            true => Vec::new(),
            false => ca_bundle,
        };
        let place = match config.get("service") {
            Some(service) if !service.is_null() => Place::of_service(service)?,
            _ => Place::of_url(config.str_at(&["url"]))?,
        };
        Ok(Target { place, ca_bundle })
    }
}

impl Place {
    fn of_service(service: &Value) -> Result<Place, TargetError> {
        let port = match service.i64_at(&["port"]) {
            None | Some(0) => HTTPS_PORT,
            Some(port) => u16::try_from(port).map_err(|_| TargetError::Port(port))?,
        };
        Ok(Place::Service {
            namespace: service.str_at(&["namespace"]).to_string(),
            name: service.str_at(&["name"]).to_string(),
            port,
            path: clean(service.str_at(&["path"])),
        })
    }

    fn of_url(url: &str) -> Result<Place, TargetError> {
        if url.is_empty() {
            return Err(TargetError::Missing);
        }
        let uri: http::Uri = url.parse().map_err(TargetError::Url)?;
        let authority = uri.authority();
        let authority = authority.ok_or_else(|| TargetError::NoHost(url.to_string()))?;
        // Addresses of IPv6 stand in brackets.
        let host = authority.host().trim_matches(['[', ']']).to_string();
        Ok(Place::Url {
            authority: authority.to_string(),
            port: authority.port_u16().unwrap_or(HTTPS_PORT),
            host,
            path: clean(uri.path()),
        })
    }

    /// The name that the hook's certificate must be for.
    pub fn server_name(&self) -> String {
        match self {
            Place::Service {
                namespace, name, ..
            } => format!("{name}.{namespace}.svc"),
            Place::Url { host, .. } => host.clone(),
        }
    }

    /// What stands behind `https://`, up to the path.
    pub fn authority(&self) -> String {
        match self {
            Place::Service { port, .. } => format!("{}:{port}", self.server_name()),
            Place::Url { authority, .. } => authority.clone(),
        }
    }

    pub fn path(&self) -> &str {
        match self {
            Place::Service { path, .. } | Place::Url { path, .. } => path,
        }
    }

    /// Whether HTTP/2 is offered. As upstream, only on this machine: elsewhere one connection
    /// would keep all calls at one of several backends.
    pub fn offers_http2(&self) -> bool {
        let Place::Url { host, .. } = self else {
            return false;
        };
        let address: Option<std::net::IpAddr> = host.parse().ok();
        host.eq_ignore_ascii_case("localhost") || address.is_some_and(|it| it.is_loopback())
    }
}

/// A path as Go's client joins it: one leading slash, none at the end.
fn clean(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let joined: Vec<&str> = parts.collect();
    format!("/{}", joined.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_by_its_namespace_and_has_defaults() {
        let config = api::document!({"service": {"name": "hook", "namespace": "shop"}});
        let target = Target::of_client_config(&config).unwrap();
        assert_eq!(target.place.authority(), "hook.shop.svc:443");
        assert_eq!(target.place.path(), "/");
        assert!(!target.place.offers_http2());
    }

    #[test]
    fn a_url_keeps_its_authority_and_loses_its_last_slash() {
        let config = api::document!({"url": "https://[::1]:8443/a/b/", "caBundle": "Cgo="});
        let target = Target::of_client_config(&config).unwrap();
        assert_eq!(target.place.authority(), "[::1]:8443");
        assert_eq!(target.place.server_name(), "::1");
        assert_eq!(target.place.path(), "/a/b");
        assert!(target.place.offers_http2());
        assert!(target.ca_bundle.is_empty());
        let elsewhere = api::document!({"url": "https://hooks.example.com/a"});
        let target = Target::of_client_config(&elsewhere).unwrap();
        assert!(!target.place.offers_http2());
    }

    #[test]
    fn a_target_without_a_place_is_refused() {
        let refused = Target::of_client_config(&Value::object()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "webhook configuration must have either service or URL"
        );
    }
}
