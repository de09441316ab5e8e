//! Makes sure that a container's image is on the node: the three pull policies, credentials from
//! imagePullSecrets, upstream's reasons and messages. The waiting between tries is the plan's.

use base64::{Engine, engine::general_purpose::STANDARD};
use client::events::Severity;
use cri::v1;
use environment::Environment;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};

use crate::{backoff::go_duration, events::Events};

/// An image that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// What CreateContainer is given.
    pub reference: String,
    /// The user the image wants, by number or by name.
    pub uid: Option<i64>,
    pub username: String,
}

/// Why there is none: `reason` is the container's waiting reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
}

pub struct Request<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub secrets: &'a [std::sync::Arc<Secret>],
}

pub async fn ensure(
    cri: &cri::Client,
    events: &Events,
    environment: &Environment,
    request: Request<'_>,
) -> Result<Image, Failure> {
    let Request {
        pod,
        container,
        secrets,
    } = request;
    let name = container.image.clone().unwrap_or_default();
    let tell = |severity, reason: &str, message: &str| {
        events.container(pod, &container.name, severity, reason, message);
    };
    let full = match with_tag(&name) {
        Ok(full) => full,
        Err(why) => {
            let message = format!(
                "Failed to apply default image tag \"{name}\": couldn't parse image name \"{name}\": {why}"
            );
            tell(Severity::Warning, "InspectFailed", &message);
            return Err(failed(&tell, "InvalidImageName", message));
        }
    };
    let policy = container
        .image_pull_policy
        .as_deref()
        .unwrap_or("IfNotPresent");
    if policy != "Always" {
        let present = match status(cri, &full).await {
            Ok(present) => present,
            Err(error) => {
                let message = format!("Failed to inspect image \"\": {}", error.message());
                tell(Severity::Warning, "InspectFailed", &message);
                return Err(failed(&tell, "ImageInspectError", message));
            }
        };
        if let Some(image) = present {
            let message = format!(
                "Container image \"{name}\" already present on machine and can be accessed by the pod"
            );
            tell(Severity::Normal, "Pulled", &message);
            return Ok(found(&image));
        }
        if policy == "Never" {
            let message =
                format!("Container image \"{name}\" is not present with pull policy of Never");
            tell(Severity::Warning, "ErrImageNeverPull", &message);
            return Err(failed(&tell, "ErrImageNeverPull", message));
        }
    }
    tell(
        Severity::Normal,
        "Pulling",
        &format!("Pulling image \"{name}\""),
    );
    let start = environment.now_micros();
    match pull(cri, &full, secrets, pod).await {
        Ok(reference) => {
            let took = go_duration(environment.now_micros() - start);
            let image = status(cri, &reference).await.ok().flatten();
            let size = image.as_ref().map_or(0, |image| image.size);
            tell(
                Severity::Normal,
                "Pulled",
                &format!(
                    "Successfully pulled image \"{name}\" in {took} ({took} including waiting). Image size: {size} bytes."
                ),
            );
            let mut found = image.as_ref().map(found).unwrap_or_default();
            found.reference = reference;
            Ok(found)
        }
        Err(error) => {
            let text = rpc_error(&error);
            tell(
                Severity::Warning,
                "Failed",
                &format!("Failed to pull image \"{name}\": {text}"),
            );
            Err(failed(&tell, "ErrImagePull", text))
        }
    }
}

/// Upstream posts a second event with the bare reason.
fn failed(tell: &impl Fn(Severity, &str, &str), reason: &'static str, message: String) -> Failure {
    tell(Severity::Warning, "Failed", &format!("Error: {reason}"));
    Failure { reason, message }
}

/// A gRPC error as Go prints it.
pub fn rpc_error(status: &tonic::Status) -> String {
    format!(
        "rpc error: code = {:?} desc = {}",
        status.code(),
        status.message()
    )
}

async fn status(cri: &cri::Client, name: &str) -> Result<Option<v1::Image>, tonic::Status> {
    let request = v1::ImageStatusRequest {
        image: Some(spec(name)),
        verbose: false,
    };
    match cri.images.clone().image_status(request).await {
        Ok(response) => Ok(response.into_inner().image),
        Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

/// Pulls with each matching credential, without any if there is none.
async fn pull(
    cri: &cri::Client,
    name: &str,
    secrets: &[std::sync::Arc<Secret>],
    pod: &Pod,
) -> Result<String, tonic::Status> {
    // For whom: the runtime tells the pod's timeline how the layers arrive.
    let sandbox_config = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            attempt: 0,
        }),
        ..Default::default()
    };
    let mut credentials: Vec<Option<v1::AuthConfig>> = secrets
        .iter()
        .flat_map(|secret| auth_configs(secret))
        .filter(|(registry, _)| registry_matches(registry, name))
        .map(|(_, auth)| Some(auth))
        .collect();
    if credentials.is_empty() {
        credentials.push(None);
    }
    let mut last = tonic::Status::unknown("no pull was tried");
    for auth in credentials {
        let request = v1::PullImageRequest {
            image: Some(spec(name)),
            auth,
            sandbox_config: Some(sandbox_config.clone()),
        };
        match cri.images.clone().pull_image(request).await {
            Ok(response) => return Ok(response.into_inner().image_ref),
            Err(status) => last = status,
        }
    }
    Err(last)
}

fn spec(name: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: name.to_owned(),
        ..Default::default()
    }
}

fn found(image: &v1::Image) -> Image {
    Image {
        reference: image.id.clone(),
        uid: image.uid.as_ref().map(|uid| uid.value),
        username: image.username.clone(),
    }
}

/// The registries and credentials in a `kubernetes.io/dockerconfigjson` Secret.
fn auth_configs(secret: &Secret) -> Vec<(String, v1::AuthConfig)> {
    #[derive(serde::Deserialize)]
    struct DockerConfig {
        #[serde(default)]
        auths: std::collections::BTreeMap<String, Entry>,
    }
    #[derive(serde::Deserialize)]
    struct Entry {
        #[serde(default)]
        username: String,
        #[serde(default)]
        password: String,
        #[serde(default)]
        auth: String,
        #[serde(default)]
        identitytoken: String,
    }
    let data = secret.data.as_ref();
    let Some(json) = data.and_then(|data| data.get(".dockerconfigjson")) else {
        return Vec::new();
    };
    let Ok(config) = serde_json::from_slice::<DockerConfig>(&json.0) else {
        return Vec::new();
    };
    config
        .auths
        .into_iter()
        .map(|(registry, mut entry)| {
            let decoded = STANDARD.decode(&entry.auth).ok();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((user, password)) = decoded.as_deref().and_then(|text| text.split_once(':'))
                && entry.username.is_empty()
            {
                entry.username = user.to_owned();
                entry.password = password.to_owned();
            }
            let auth = v1::AuthConfig {
                username: entry.username,
                password: entry.password,
                identity_token: entry.identitytoken,
                ..Default::default()
            };
            (registry, auth)
        })
        .collect()
}

fn registry_matches(registry: &str, image: &str) -> bool {
    let bare = registry
        .trim_start_matches("https://")
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let bare = bare.trim_end_matches("/v1").trim_end_matches("/v2");
    let (host, path) = match image.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => ("docker.io", image),
    };
    if matches!(bare, "index.docker.io" | "docker.io") {
        return host == "docker.io";
    }
    match bare.split_once('/') {
        None => bare == host,
        Some((own_host, prefix)) => own_host == host && path.starts_with(prefix),
    }
}

/// The name with `:latest` when it has neither tag nor digest, or why it is no image name.
fn with_tag(name: &str) -> Result<String, &'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_a_tag_or_a_complaint() {
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
    fn credentials_belong_to_registries() {
        let secret: Secret = serde_json::from_value(serde_json::json!({"data": {
            ".dockerconfigjson": STANDARD.encode(
                format!(r#"{{"auths":{{"https://reg.example/v1/":{{"auth":"{}"}}}}}}"#, STANDARD.encode("me:pw"))
            )}}))
        .expect("a secret");
        let configs = auth_configs(&secret);
        assert_eq!(
            (
                configs[0].1.username.as_str(),
                configs[0].1.password.as_str()
            ),
            ("me", "pw")
        );
        assert!(registry_matches(&configs[0].0, "reg.example/x:1"));
        assert!(!registry_matches(&configs[0].0, "other.example/x:1"));
        assert!(registry_matches("index.docker.io", "library/x"));
    }
}
