//! Image names as users write them and as the store keeps them (`docker.io/library/busybox:latest`).

use oci_client::Reference;

use super::Error;

/// The full form of a name: registry, repository and tag or digest all present.
pub fn normalise(name: &str) -> Result<String, Error> {
    Ok(parse(name)?.whole())
}

pub(super) fn parse(name: &str) -> Result<Reference, Error> {
    name.parse::<Reference>()
        .map_err(|error| Error::Reference(name.into(), error.to_string()))
}

/// `registry/repository@sha256:…` for a manifest found under `reference`.
pub(super) fn with_digest(reference: &Reference, digest: &str) -> String {
    format!(
        "{}/{}@{digest}",
        reference.registry(),
        reference.repository()
    )
}

/// True for registries that are on this machine and therefore spoken to without TLS.
pub(super) fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => registry,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_grow_to_their_full_form() {
        for (name, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("someone/thing", "docker.io/someone/thing:latest"),
            ("localhost:5000/a/b:c", "localhost:5000/a/b:c"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
        ] {
            assert_eq!(normalise(name).ok().as_deref(), Some(full));
        }
        assert!(normalise("UPPER/CASE").is_err());
        assert!(normalise("").is_err());
    }

    #[test]
    fn loopback_registries_are_recognised() {
        for registry in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:5000",
            "[::1]:5000",
        ] {
            assert!(is_loopback(registry), "{registry}");
        }
        assert!(!is_loopback("registry.k8s.io"));
        assert!(!is_loopback("10.0.0.1:5000"));
    }
}
