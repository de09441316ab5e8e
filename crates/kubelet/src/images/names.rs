//! Image names: which are valid, their default tag, and their repository. Pure.

const DEFAULT_HOST: &str = "docker.io";

/// The name with `:latest` when it has neither tag nor digest, or why it is no image name.
pub fn with_tag(name: &str) -> Result<String, &'static str> {
    const INVALID: &str = "invalid reference format";
    let (rest, digest) = match name.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (name, None),
    };
    if digest.is_some_and(|digest| {
        !digest
            .split_once(':')
            .is_some_and(|(algorithm, hex)| !algorithm.is_empty() && hex.len() >= 32)
    }) {
        return Err(INVALID);
    }
    let (repository, tag) = match rest.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (rest, None),
    };
    let tag_good = |tag: &str| {
        !tag.is_empty()
            && tag.len() <= 128
            && !tag.starts_with(['.', '-'])
            && tag
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    if tag.is_some_and(|tag| !tag_good(tag)) {
        return Err(INVALID);
    }
    let path = match repository.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => repository,
    };
    let part_good = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-', '_'])
            && !part.ends_with(['.', '-', '_'])
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
    };
    if path.chars().any(|c| c.is_ascii_uppercase()) {
        return Err("invalid reference format: repository name must be lowercase");
    }
    if !path.split('/').all(part_good) {
        return Err(INVALID);
    }
    if tag.is_none() && digest.is_none() {
        return Ok(format!("{name}:latest"));
    }
    Ok(name.to_owned())
}

/// The repository in full, without tag and digest: `docker.io/library/nginx` for `nginx:1`.
pub fn repository(name: &str) -> String {
    let name = name.split('@').next().unwrap_or_default();
    let name = match name.rsplit_once(':') {
        Some((rest, tag)) if !tag.contains('/') => rest,
        _ => name,
    };
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        Some(_) => format!("{DEFAULT_HOST}/{name}"),
        None => format!("{DEFAULT_HOST}/library/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_get_a_default_tag_and_wrong_ones_are_rejected() {
        assert_eq!(with_tag("nginx").as_deref(), Ok("nginx:latest"));
        assert_eq!(
            with_tag("127.0.0.1:5000/a/b").as_deref(),
            Ok("127.0.0.1:5000/a/b:latest")
        );
        assert_eq!(with_tag("a/b:1.2").as_deref(), Ok("a/b:1.2"));
        let digest = format!("a@sha256:{}", "0".repeat(64));
        assert_eq!(with_tag(&digest).as_deref(), Ok(digest.as_str()));
        for bad in ["", "a b", "a:", "/x", "a@sha256", "-x", "a:b c"] {
            assert!(with_tag(bad).is_err(), "{bad}");
        }
        assert_eq!(
            with_tag("Nginx"),
            Err("invalid reference format: repository name must be lowercase")
        );
    }

    #[test]
    fn a_repository_has_a_host() {
        for (name, expected) in [
            ("nginx", "docker.io/library/nginx"),
            ("me/app:1", "docker.io/me/app"),
            ("localhost/x@sha256:abc", "localhost/x"),
            ("reg.example:5000/a/b:2", "reg.example:5000/a/b"),
        ] {
            assert_eq!(repository(name), expected);
        }
    }
}
