//! Makes sure that a container's image is on the node: the three pull policies, credentials from
//! imagePullSecrets, upstream's reasons and messages. The waiting between tries is the plan's.

mod credentials;
mod names;
mod pull_records;

use std::path::Path;

use client::events::Severity;
use cri::v1;
use environment::Environment;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use tokio::sync::Semaphore;

use self::{credentials::Credential, pull_records::PullRecords};
use crate::{
    backoff::go_duration, configuration::Configuration, events::Events, token_bucket::TokenBucket,
};

/// What all pulls of this node share: how many run at once, and who may use what was pulled.
pub struct Pulls {
    /// `None`: as many as there are.
    slots: Option<Semaphore>,
    rate: Option<TokenBucket>,
    pub records: PullRecords,
}

impl Pulls {
    /// `root`: the kubelet's directory. Blocking.
    pub fn open(root: &Path, configuration: &Configuration) -> Pulls {
        let at_once = match configuration.serialize_image_pulls {
            true => Some(1),
            false => configuration.max_parallel_image_pulls,
        };
        Pulls {
            slots: at_once.map(|count| Semaphore::new(count.max(1))),
            rate: TokenBucket::new(
                configuration.registry_pull_qps,
                configuration.registry_burst,
            ),
            records: PullRecords::open(root.join("image_manager"), configuration),
        }
    }
}

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
    pulls: &Pulls,
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
    let full = match names::with_tag(&name) {
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
    let repository = names::repository(&full);
    let credentials = credentials::matching(secrets, &repository);
    if policy != "Always" {
        let present = match status(cri, &full).await {
            Ok(present) => present,
            Err(error) => {
                let message = format!("Failed to inspect image \"\": {}", error.message());
                tell(Severity::Warning, "InspectFailed", &message);
                return Err(failed(&tell, "ImageInspectError", message));
            }
        };
        let records = &pulls.records;
        let may_use = |image: &&v1::Image| records.may_use(&name, &image.id, &credentials);
        if let Some(image) = present.as_ref().filter(may_use) {
            let message = format!(
                "Container image \"{name}\" already present on machine and can be accessed by the pod"
            );
            tell(Severity::Normal, "Pulled", &message);
            return Ok(found(image));
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
    let wanted = environment.now_micros();
    let slot = match &pulls.slots {
        Some(slots) => slots.acquire().await.ok(),
        None => None,
    };
    let start = environment.now_micros();
    let intent = pulls.records.intend(&name).await;
    let pulled = match &pulls.rate {
        Some(rate) if !rate.take(start) => Err("pull QPS exceeded".to_owned()),
        _ => pull(cri, &full, &credentials, pod).await,
    };
    drop(slot);
    match pulled {
        Ok((reference, used)) => {
            let now = environment.now_micros();
            let (took, waited) = (go_duration(now - start), go_duration(now - wanted));
            let image = status(cri, &reference).await.ok().flatten();
            let size = image.as_ref().map_or(0, |image| image.size);
            if let Some(image) = &image {
                let now = environment.now();
                pulls.records.pulled(&name, &image.id, used, now).await;
            }
            drop(intent);
            tell(
                Severity::Normal,
                "Pulled",
                &format!(
                    "Successfully pulled image \"{name}\" in {took} ({waited} including waiting). Image size: {size} bytes."
                ),
            );
            let mut found = image.as_ref().map(found).unwrap_or_default();
            found.reference = reference;
            Ok(found)
        }
        Err(text) => {
            drop(intent);
            tell(
                Severity::Warning,
                "Failed",
                &format!("Failed to pull image \"{name}\": {text}"),
            );
            let (reason, message) = cause(&name, text);
            Err(failed(&tell, reason, message))
        }
    }
}

/// The reason in a failed pull's words, where the runtime gives one of those that have a name.
fn cause(image: &str, text: String) -> (&'static str, String) {
    for (reason, why) in [
        ("RegistryUnavailable", "the registry is unavailable"),
        (
            "SignatureValidationFailed",
            "the signature validation failed",
        ),
    ] {
        if let Some(rest) = text.strip_prefix(reason) {
            let message = format!("image pull failed for {image} because {why}{rest}");
            return (reason, message);
        }
    }
    ("ErrImagePull", text)
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

/// Pulls with each matching credential, without any if there is none. Returns with which it went.
async fn pull<'a>(
    cri: &cri::Client,
    name: &str,
    credentials: &'a [Credential],
    pod: &Pod,
) -> Result<(String, Option<&'a Credential>), String> {
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
    let mut tries: Vec<Option<&Credential>> = credentials.iter().map(Some).collect();
    if tries.is_empty() {
        tries.push(None);
    }
    let mut failures: Vec<String> = Vec::new();
    for credential in tries {
        let request = v1::PullImageRequest {
            image: Some(spec(name)),
            auth: credential.map(|credential| credential.auth.clone()),
            sandbox_config: Some(sandbox_config.clone()),
        };
        match cri.images.clone().pull_image(request).await {
            Ok(response) => return Ok((response.into_inner().image_ref, credential)),
            Err(status) => {
                // A code that says nothing is not worth showing.
                let text = match status.code() {
                    tonic::Code::Unknown => status.message().to_owned(),
                    _ => rpc_error(&status),
                };
                if !failures.contains(&text) {
                    failures.push(text);
                }
            }
        }
    }
    Err(match failures.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_with_a_name_are_told_by_it() {
        let check = |text: &str, reason: &str, message: &str| {
            let found = cause("x:1", text.to_owned());
            assert_eq!(found, (reason, message.to_owned()));
        };
        check(
            "RegistryUnavailable: no answer",
            "RegistryUnavailable",
            "image pull failed for x:1 because the registry is unavailable: no answer",
        );
        check("not found", "ErrImagePull", "not found");
    }
}
