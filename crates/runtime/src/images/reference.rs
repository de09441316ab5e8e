//! Image names as users write them and as the store keeps them (`docker.io/library/busybox:latest`).

use super::{Error, content};

const DEFAULT_REGISTRY: &str = "docker.io";
const LONGEST_NAME: usize = 255;

/// A name with nothing left to guess. Parsed by hand: names are looked up on every pod's path, and
/// compiling the usual expression takes longer than starting a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub registry: String,
    pub repository: String,
    pub tag: Option<String>,
    pub digest: Option<String>,
}

/// The full form of a name: registry, repository and tag or digest all present.
pub fn normalise(name: &str) -> Result<String, Error> {
    Ok(Name::parse(name)?.to_string())
}

impl Name {
    pub fn parse(text: &str) -> Result<Name, Error> {
        let invalid = |why: &str| Error::Reference(text.into(), why.into());
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        if let Some(digest) = digest {
            content::hex_of(digest)?;
        }
        // A colon after the last slash begins a tag; before it, a port.
        let after_slash = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (path, tag) = match rest[after_slash..].find(':') {
            Some(colon) => {
                let colon = after_slash + colon;
                (&rest[..colon], Some(&rest[colon + 1..]))
            }
            None => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid("invalid tag"));
        }
        let (registry, repository) = match path.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
                (first, rest.to_owned())
            }
            Some(_) => (DEFAULT_REGISTRY, path.to_owned()),
            None => (DEFAULT_REGISTRY, format!("library/{path}")),
        };
        let registry = if registry == "index.docker.io" {
            DEFAULT_REGISTRY
        } else {
            registry
        };
        let repository = match registry {
            DEFAULT_REGISTRY if !repository.contains('/') => format!("library/{repository}"),
            _ => repository,
        };
        if !registry
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
        {
            return Err(invalid("invalid registry"));
        }
        if !repository.split('/').all(is_component) || repository.len() > LONGEST_NAME {
            return Err(invalid(
                "invalid repository: lower-case letters, digits and single separators",
            ));
        }
        let tag = match (tag, digest) {
            (None, None) => Some("latest"),
            (tag, _) => tag,
        };
        Ok(Name {
            registry: registry.to_owned(),
            repository,
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// `registry/repository@sha256:…` for a manifest found under this name.
    pub fn with_digest(&self, digest: &str) -> String {
        format!("{}/{}@{digest}", self.registry, self.repository)
    }
}

/// A name with a digest is known by it alone.
impl std::fmt::Display for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        match (&self.digest, &self.tag) {
            (Some(digest), _) => write!(formatter, "@{digest}"),
            (None, Some(tag)) => write!(formatter, ":{tag}"),
            (None, None) => Ok(()),
        }
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag
            .bytes()
            .all(|byte| word(byte) || byte == b'.' || byte == b'-')
}

/// Lower-case words joined by one dot, one or two underscores, or any number of dashes.
fn is_component(component: &str) -> bool {
    let word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let joined = |separator: &[u8]| {
        matches!(separator, b"." | b"_" | b"__")
            || (!separator.is_empty() && separator.iter().all(|byte| *byte == b'-'))
    };
    bytes.first().is_some_and(word)
        && bytes.last().is_some_and(word)
        && bytes
            .split(word)
            .filter(|separator| !separator.is_empty())
            .all(joined)
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
        let digest = format!("sha256:{}", "0".repeat(64));
        assert_eq!(
            normalise(&format!("busybox:1@{digest}")).ok(),
            Some(format!("docker.io/library/busybox@{digest}"))
        );
        for bad in [
            "UPPER/CASE",
            "",
            "a//b",
            "a/../b",
            "x:",
            "x:ta g",
            "x@sha256:12",
            "-a",
            "a___b",
            "Not A Name",
        ] {
            assert!(normalise(bad).is_err(), "{bad}");
        }
        assert!(normalise("a__b/c--d/e.f_g").is_ok());
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
