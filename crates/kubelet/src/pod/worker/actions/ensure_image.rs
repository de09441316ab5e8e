//! Makes sure that a container's image is there, and those that it mounts as volumes.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use trace::Hop;

use crate::{
    image::Image,
    images::{self, PullFailure},
    pod::{services::PodServices, status::Waiting, worker::Worker},
    pod_spec::{self, uid},
    volumes::HeldObjects,
};

pub(super) fn begin(worker: &mut Worker, container: String) {
    let pod = worker.pod().clone();
    let Some(spec) = pod_spec::find(&pod, &container) else {
        return;
    };
    worker.images.pull_begins(&container);
    worker.attempts.begins(step(&container));
    let wanted = worker.timing.received().max(worker.now());
    let (services, held) = (worker.services.clone(), worker.watches.held());
    let work = ensure(services, pod, spec, held, wanted);
    worker
        .tasks
        .spawn_preparation(work, move |worker, result| ended(worker, container, result));
}

fn ended(worker: &mut Worker, container: String, result: Result<Image, PullFailure>) {
    let now = worker.now();
    match result {
        Ok(image) => {
            if let Some((from, to)) = image.pulled {
                worker.timing.pulled(from, to);
            }
            worker.attempts.succeeded(&step(&container));
            worker.starts.image_is_there(&container, now);
            worker.images.pull_succeeded(container, image);
        }
        Err(failure) => {
            worker.starts.replaced(&container);
            let PullFailure {
                reason, message, ..
            } = failure.clone();
            let until = worker.images.pull_failed(container.clone(), failure, now);
            let error = format!("{reason}: {message}");
            worker
                .attempts
                .failed(&step(&container), &error, Some(until));
            let waiting = Waiting {
                reason: reason.to_owned(),
                message,
            };
            worker.starts.show_waiting(&container, waiting);
        }
    }
}

/// The step as the timeline names it.
fn step(container: &str) -> String {
    format!("EnsureImage {container}")
}

async fn ensure(
    services: Arc<PodServices>,
    pod: Arc<Pod>,
    container: Container,
    held: HeldObjects,
    wanted: i64,
) -> Result<Image, PullFailure> {
    let spans = &services.telemetry.spans;
    let start = spans.now();
    let secrets = pull_secrets(&services, &pod, &held).await;
    let request = images::Request {
        pod: &pod,
        container: &container,
        secrets: &secrets,
    };
    let mut image = services.images.ensure(request).await?;
    image.volumes = volume_images(&services, &pod, &container, &secrets).await?;
    spans.record(&uid(&pod), Hop::Node, step(&container.name), wanted, start);
    Ok(image)
}

/// Pulls the images that the container mounts as volumes. Returns their references by volume name.
async fn volume_images(
    services: &PodServices,
    pod: &Pod,
    container: &Container,
    secrets: &[Arc<Secret>],
) -> Result<BTreeMap<String, String>, PullFailure> {
    let mut found = BTreeMap::new();
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    for volume in volumes {
        let mut mounts = container.volume_mounts.iter().flatten();
        let is_mounted = mounts.any(|mount| mount.name == volume.name);
        let Some(source) = volume.image.as_ref().filter(|_| is_mounted) else {
            continue;
        };
        let wanted = Container {
            name: container.name.clone(),
            image: source.reference.clone(),
            image_pull_policy: source.pull_policy.clone(),
            ..Container::default()
        };
        let request = images::Request {
            pod,
            container: &wanted,
            secrets,
        };
        let image = services.images.ensure(request).await?;
        found.insert(volume.name.clone(), image.reference);
    }
    Ok(found)
}

/// The Secrets of the pod's imagePullSecrets. An event names those that are missing.
async fn pull_secrets(services: &PodServices, pod: &Pod, held: &HeldObjects) -> Vec<Arc<Secret>> {
    let mut secrets: Vec<Arc<Secret>> = Vec::new();
    let mut missing: Vec<&str> = Vec::new();
    let spec = pod.spec.as_ref();
    for reference in spec
        .iter()
        .flat_map(|spec| spec.image_pull_secrets.iter().flatten())
        .filter(|reference| !reference.name.is_empty())
    {
        let found = match held.secrets.get(&reference.name) {
            Some(held) => held.get().await.flatten(),
            None => None,
        };
        match found {
            Some(secret) => secrets.push(secret),
            None => missing.push(&reference.name),
        }
    }
    if !missing.is_empty() {
        services.telemetry.events.warning(
            pod,
            "FailedToRetrieveImagePullSecret",
            format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            ),
        );
    }
    secrets
}
