//! Makes sure that a container's image is on the node: the three pull policies, credentials from
//! imagePullSecrets and from provider programs, upstream's reasons and messages. The back-off between
//! tries is the plan's.

mod credentials;
mod names;
mod providers;
mod pull_records;

use std::{collections::BTreeMap, path::Path};

use client::events::Severity;
use cri::v1;
use environment::{Environment, go_duration};
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use tokio::sync::Semaphore;

pub use self::providers::{Error as ProvidersError, Providers};
use self::{credentials::Credential, pull_records::PullRecords};
use crate::{
    configuration::Configuration,
    image::Image,
    measures::{Counter, Histogram, Measures},
    runtime::rpc_error,
    telemetry::Telemetry,
    token_bucket::TokenBucket,
};

/// Makes sure that images are there, and limits how many are pulled at once.
pub struct Images {
    cri: cri::Client,
    environment: Environment,
    telemetry: Telemetry,
    /// `None` means that any number of pulls may run at once.
    slots: Option<Semaphore>,
    rate: Option<TokenBucket>,
    records: PullRecords,
    providers: Option<Providers>,
}

impl Images {
    /// `root` is the kubelet's directory. Blocking.
    pub fn open(
        root: &Path,
        configuration: &Configuration,
        providers: Option<Providers>,
        cri: cri::Client,
        telemetry: Telemetry,
        environment: Environment,
    ) -> Images {
        Images {
            cri,
            environment,
            telemetry,
            slots: pulls_at_once(configuration).map(Semaphore::new),
            rate: TokenBucket::new(
                configuration.registry_pull_qps,
                configuration.registry_burst,
            ),
            records: PullRecords::open(root.join("image_manager"), configuration),
            providers,
        }
    }

    /// The hash of the credential providers' configuration, if there is one.
    pub fn provider_config_hash(&self) -> Option<&str> {
        let providers = self.providers.as_ref();
        providers.map(|providers| providers.hash.as_str())
    }

    /// The image was removed: who may use it is forgotten.
    pub async fn forget(&self, id: &str) {
        self.records.forget(id).await;
    }

    /// Adds the credentials of the provider programs to those of the pod's Secrets.
    async fn ask_providers(&self, found: &mut Vec<Credential>, repository: &str, pod: &Pod) {
        if let Some(providers) = &self.providers {
            found.extend(providers.credentials(repository, pod).await);
        }
    }

    /// Finds or pulls the image of one container.
    pub async fn ensure(&self, request: Request<'_>) -> Result<Image, PullFailure> {
        let Request {
            pod,
            container,
            secrets,
        } = request;
        let (cri, environment) = (&self.cri, &self.environment);
        let policy = container
            .image_pull_policy
            .as_deref()
            .unwrap_or("IfNotPresent");
        let mut looked = EnsureCount {
            measures: &self.telemetry.measures,
            policy,
            present: "unknown",
            pull: "unknown",
        };
        let name = container.image.clone().unwrap_or_default();
        let report = |severity, reason: &str, message: &str| {
            let events = &self.telemetry.events;
            events.container(pod, &container.name, severity, reason, message);
        };
        // Upstream posts a second event with the bare reason.
        let failed = |reason: &'static str, message: String| {
            report(Severity::Warning, "Failed", &format!("Error: {reason}"));
            PullFailure {
                reason,
                message,
                image: name.clone(),
                was_pulled: false,
            }
        };
        let full = match names::with_tag(&name) {
            Ok(full) => full,
            Err(why) => {
                let message = format!(
                    "Failed to apply default image tag \"{name}\": couldn't parse image name \"{name}\": {why}"
                );
                report(Severity::Warning, "InspectFailed", &message);
                return Err(failed("InvalidImageName", message));
            }
        };
        let repository = names::repository(&full);
        let mut credentials = credentials::matching(secrets, &repository);
        let mut asked = false;
        if policy != "Always" {
            let present = match status(cri, &full).await {
                Ok(present) => present,
                Err(error) => {
                    let message = format!("Failed to inspect image \"\": {}", error.message());
                    report(Severity::Warning, "InspectFailed", &message);
                    return Err(failed("ImageInspectError", message));
                }
            };
            looked.present = if present.is_some() { "true" } else { "false" };
            looked.pull = "false";
            let records = &self.records;
            let mut usable = None;
            if let Some(image) = &present {
                let mut may_use = records.may_use(&name, &image.id, &credentials);
                if !may_use && records.knows_accounts(&name, &image.id) {
                    self.ask_providers(&mut credentials, &repository, pod).await;
                    asked = true;
                    may_use = records.may_use(&name, &image.id, &credentials);
                }
                usable = Some(image).filter(|_| may_use);
            }
            if let Some(image) = usable {
                let message = format!(
                    "Container image \"{name}\" already present on machine and can be accessed by the pod"
                );
                report(Severity::Normal, "Pulled", &message);
                return Ok(found(image));
            }
            looked.pull = "true";
            if policy == "Never" {
                let message =
                    format!("Container image \"{name}\" is not present with pull policy of Never");
                report(Severity::Warning, "ErrImageNeverPull", &message);
                return Err(failed("ErrImageNeverPull", message));
            }
        }
        looked.pull = "true";
        if !asked {
            self.ask_providers(&mut credentials, &repository, pod).await;
        }
        report(
            Severity::Normal,
            "Pulling",
            &format!("Pulling image \"{name}\""),
        );
        let wanted = environment.now_micros();
        let slot = match &self.slots {
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        let start = environment.now_micros();
        let intent = self.records.intend(&name).await;
        let pulled = match &self.rate {
            Some(rate) if !rate.try_take(start) => Err("pull QPS exceeded".to_owned()),
            _ => pull(cri, &full, &credentials, pod).await,
        };
        drop(slot);
        match pulled {
            Ok((reference, used)) => {
                let now = environment.now_micros();
                let since = |then: i64| go_duration::format((now - then) / 1000 * 1_000_000);
                let (took, waited) = (since(start), since(wanted));
                let image = status(cri, &reference).await.ok().flatten();
                let size = image.as_ref().map_or(0, |image| image.size);
                let label = [size_label(size)];
                let histogram = Histogram::ImagePullDuration;
                self.telemetry.measures.span(histogram, &label, wanted, now);
                if let Some(image) = &image {
                    let now = environment.now();
                    self.records.pulled(&name, &image.id, used, now).await;
                }
                drop(intent);
                report(
                    Severity::Normal,
                    "Pulled",
                    &format!(
                        "Successfully pulled image \"{name}\" in {took} ({waited} including waiting). Image size: {size} bytes."
                    ),
                );
                let mut found = image.as_ref().map(found).unwrap_or_default();
                found.reference = reference;
                found.pulled = Some((wanted, now));
                Ok(found)
            }
            Err(text) => {
                drop(intent);
                report(
                    Severity::Warning,
                    "Failed",
                    &format!("Failed to pull image \"{name}\": {text}"),
                );
                let (reason, message) = cause(&name, text);
                Err(PullFailure {
                    was_pulled: true,
                    ..failed(reason, message)
                })
            }
        }
    }
}

/// Why an image is not there. `reason` is the waiting reason of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    pub reason: &'static str,
    pub message: String,
    /// As the pod names it.
    pub image: String,
    /// It was a pull that failed: the next one waits.
    pub was_pulled: bool,
}

pub struct Request<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub secrets: &'a [std::sync::Arc<Secret>],
}

/// Counts the request for an image, with what was found out until it ended.
struct EnsureCount<'a> {
    measures: &'a Measures,
    policy: &'a str,
    present: &'static str,
    pull: &'static str,
}

impl Drop for EnsureCount<'_> {
    fn drop(&mut self) {
        let policy = self.policy.to_lowercase();
        let labels = [policy.as_str(), self.present, self.pull];
        self.measures.count(Counter::EnsureImageRequests, &labels);
    }
}

/// The reason of a failed pull, if the runtime's message names one that has a reason of its own.
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
    // The pod for which it is pulled: the runtime records the layers in the pod's timeline.
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
                // A code without a meaning is not shown.
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

/// How many images may be pulled at the same time; `None` means any number.
fn pulls_at_once(configuration: &Configuration) -> Option<usize> {
    match configuration.serialize_image_pulls {
        true => Some(1),
        false => configuration
            .max_parallel_image_pulls
            .map(|most| most.max(1)),
    }
}

fn spec(name: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: name.to_owned(),
        ..Default::default()
    }
}

/// The class of an image of so many bytes, as `/metrics` names it.
fn size_label(bytes: u64) -> &'static str {
    const MB: u64 = 1 << 20;
    const GB: u64 = 1 << 30;
    match bytes {
        0 => "N/A",
        _ if bytes <= 10 * MB => "0-10MB",
        _ if bytes <= 100 * MB => "10MB-100MB",
        _ if bytes <= 500 * MB => "100MB-500MB",
        _ if bytes <= GB => "500MB-1GB",
        _ if bytes <= 5 * GB => "1GB-5GB",
        _ if bytes <= 10 * GB => "5GB-10GB",
        _ if bytes <= 20 * GB => "10GB-20GB",
        _ if bytes <= 30 * GB => "20GB-30GB",
        _ if bytes <= 40 * GB => "30GB-40GB",
        _ if bytes <= 60 * GB => "40GB-60GB",
        _ if bytes <= 100 * GB => "60GB-100GB",
        _ => "GT100GB",
    }
}

fn found(image: &v1::Image) -> Image {
    Image {
        reference: image.id.clone(),
        uid: image.uid.as_ref().map(|uid| uid.value),
        username: image.username.clone(),
        volumes: BTreeMap::new(),
        pulled: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_pulled_side_by_side_unless_the_configuration_limits_that() {
        let mut configuration = Configuration::default();
        assert_eq!(pulls_at_once(&configuration), None);
        configuration.max_parallel_image_pulls = Some(3);
        assert_eq!(pulls_at_once(&configuration), Some(3));
        configuration.serialize_image_pulls = true;
        assert_eq!(pulls_at_once(&configuration), Some(1));
    }

    #[test]
    fn pull_failures_with_a_reason_of_their_own_show_it() {
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
