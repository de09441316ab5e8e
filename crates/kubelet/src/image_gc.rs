//! Image garbage collection: when the disk with the images fills up, images that nothing uses are
//! removed, the longest unused first. The choice is pure; this file also looks and removes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use client::events::Severity;
use cri::v1;
use environment::Environment;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    images::Images, measures::Counter, node_settings::NodeSettings, stats::Sampler,
    telemetry::Telemetry,
};

const PERIOD: Duration = Duration::from_secs(300);
/// Containers asked for their mounts at one time.
const ASKED_AT_ONCE: usize = 8;

/// An image as the collection sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    pub id: String,
    pub size: u64,
    pub pinned: bool,
    pub in_use: bool,
    /// When we first knew of it and when it was last in use, in microseconds.
    pub first_seen: i64,
    pub last_used: i64,
}

/// The images to remove, in order, so that `wanted` bytes become free.
pub fn choose(mut images: Vec<Candidate>, wanted: u64, minimum_age: i64, now: i64) -> Vec<String> {
    let removable = |image: &Candidate| !image.pinned && !image.in_use;
    images.retain(|image| removable(image) && now - image.first_seen >= minimum_age);
    images.sort_by(|a, b| {
        (a.last_used, a.first_seen, &a.id).cmp(&(b.last_used, b.first_seen, &b.id))
    });
    let mut freed = 0;
    let mut chosen = Vec::new();
    for image in images {
        if freed >= wanted {
            break;
        }
        freed += image.size;
        chosen.push(image.id);
    }
    chosen
}

/// The images to remove because nothing has used them for `age` microseconds. Only the time counts
/// during which this kubelet has watched them.
pub fn too_old(images: &[Candidate], age: i64, began: i64, now: i64) -> Vec<String> {
    if now - began <= age {
        return Vec::new();
    }
    images
        .iter()
        .filter(|image| !image.pinned && !image.in_use)
        .filter(|image| now - image.last_used.max(image.first_seen) > age)
        .map(|image| image.id.clone())
        .collect()
}

/// When each image was first seen and last used, by its id, in microseconds.
#[derive(Default)]
struct Memory(BTreeMap<String, (i64, i64)>);

impl Memory {
    /// Joins what is there now with what was known before.
    fn update(
        &mut self,
        images: Vec<v1::Image>,
        used: &BTreeSet<String>,
        now: i64,
    ) -> Vec<Candidate> {
        let present: BTreeSet<&String> = images.iter().map(|image| &image.id).collect();
        self.0.retain(|id, _| present.contains(id));
        images
            .into_iter()
            .map(|image| {
                let mut names = image.repo_digests.iter().chain(&image.repo_tags);
                let in_use = used.contains(&image.id) || names.any(|name| used.contains(name));
                let (first_seen, last_used) = self.0.entry(image.id.clone()).or_insert((now, 0));
                if in_use {
                    *last_used = now;
                }
                Candidate {
                    size: image.size,
                    pinned: image.pinned,
                    in_use,
                    first_seen: *first_seen,
                    last_used: *last_used,
                    id: image.id,
                }
            })
            .collect()
    }
}

/// Removes images of this node.
pub struct ImageCollector {
    cri: cri::Client,
    environment: Environment,
    settings: Arc<NodeSettings>,
    telemetry: Telemetry,
    images: Arc<Images>,
    sampler: Arc<Sampler>,
    seen: Mutex<Memory>,
}

impl ImageCollector {
    pub fn new(
        cri: cri::Client,
        environment: Environment,
        settings: Arc<NodeSettings>,
        telemetry: Telemetry,
        images: Arc<Images>,
        sampler: Arc<Sampler>,
    ) -> ImageCollector {
        ImageCollector {
            cri,
            environment,
            settings,
            telemetry,
            images,
            sampler,
            seen: Mutex::default(),
        }
    }

    /// Looks every five minutes until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) {
        let began = self.environment.now_micros();
        let mut ticks = tokio::time::interval(PERIOD);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.collect(began).await;
        }
    }

    /// Removes what is too old, and what nothing uses as far as the disk is too full.
    async fn collect(&self, began: i64) {
        let configuration = &self.settings.configuration;
        let now = self.environment.now_micros();
        let mut candidates = match self.look(now).await {
            Ok(candidates) => candidates,
            Err(status) => {
                tracing::warn!(%status, "images could not be listed");
                return;
            }
        };
        if let Some(age) = configuration.image_maximum_age() {
            let old = too_old(&candidates, age.as_micros() as i64, began, now);
            candidates.retain(|image| !old.contains(&image.id));
            let removed = self.remove(old, "age").await.len();
            if removed > 0 {
                tracing::info!(
                    removed,
                    "images that nothing has used for long were removed"
                );
            }
        }
        // Now and then the runtime is asked again where they are.
        self.sampler.ask_runtime().await;
        let Some(space) = self.sampler.file_systems().await.images else {
            tracing::warn!("the disk with the images could not be measured; no image is removed");
            return;
        };
        let (high, low) = (
            configuration.image_gc_high_threshold_percent,
            configuration.image_gc_low_threshold_percent,
        );
        let warn = |reason: &str, message: String| {
            let name = &self.settings.node_name;
            self.telemetry
                .events
                .node(name, Severity::Warning, reason, message);
        };
        if space.capacity == 0 && high < 100 {
            let message = "invalid capacity 0 on image filesystem".to_owned();
            warn("InvalidDiskCapacity", message);
        }
        let Some(wanted) = to_free(space.capacity, space.available, high, low) else {
            return;
        };
        let minimum_age = configuration.image_minimum_age().as_micros() as i64;
        let chosen = choose(candidates.clone(), wanted, minimum_age, now);
        let removed = self.remove(chosen, "space").await;
        let freed: u64 = candidates
            .iter()
            .filter(|image| removed.contains(&image.id))
            .map(|image| image.size)
            .sum();
        tracing::info!(wanted, freed, "images were removed to free disk space");
        if freed < wanted {
            let percent = used_percent(space.capacity, space.available);
            warn(
                "FreeDiskSpaceFailed",
                format!(
                    "Insufficient free disk space on the node's image filesystem ({percent}% of {} used). \
                     Failed to free sufficient space by deleting unused images (freed {freed} bytes). \
                     Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
                    size(space.capacity)
                ),
            );
        }
    }

    /// Removes every image that nothing uses and that was not just pulled.
    pub async fn free_unused(&self) {
        let now = self.environment.now_micros();
        let minimum_age = self.settings.configuration.image_minimum_age().as_micros() as i64;
        match self.look(now).await {
            Ok(candidates) => {
                let chosen = choose(candidates, u64::MAX, minimum_age, now);
                self.remove(chosen, "space").await;
            }
            Err(status) => tracing::warn!(%status, "images could not be listed"),
        }
    }

    async fn look(&self, now: i64) -> Result<Vec<Candidate>, tonic::Status> {
        let (mut runtime, mut images) = (self.cri.runtime.clone(), self.cri.images.clone());
        let (images, containers) = tokio::try_join!(
            images.list_images(v1::ListImagesRequest { filter: None }),
            runtime.list_containers(v1::ListContainersRequest { filter: None })
        )?;
        let containers = containers.into_inner().containers;
        let mounted = mounted(&self.cri, &containers).await?;
        let used: BTreeSet<String> = containers
            .into_iter()
            .flat_map(|container| {
                let named = container.image.map(|image| image.image);
                [Some(container.image_ref), Some(container.image_id), named]
            })
            .flatten()
            .chain(mounted)
            .filter(|name| !name.is_empty())
            .collect();
        let images = images.into_inner().images;
        Ok(self.seen.lock().update(images, &used, now))
    }

    /// Removes images. Returns those that are gone.
    async fn remove(&self, chosen: Vec<String>, why: &str) -> BTreeSet<String> {
        let mut removed = BTreeSet::new();
        for id in chosen {
            let request = v1::RemoveImageRequest {
                image: Some(v1::ImageSpec {
                    image: id.clone(),
                    ..Default::default()
                }),
            };
            match self.cri.images.clone().remove_image(request).await {
                Ok(_) => {
                    self.telemetry
                        .measures
                        .count(Counter::ImagesCollected, &[why]);
                    self.images.forget(&id).await;
                    removed.insert(id);
                }
                Err(status) => tracing::warn!(%status, image = id, "an image could not be removed"),
            }
        }
        removed
    }
}

/// Bytes as upstream writes them here: with one letter of a binary unit.
fn size(bytes: u64) -> String {
    let (unit, letter) = [
        (1u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ]
    .into_iter()
    .find(|(unit, _)| bytes >= *unit)
    .unwrap_or((1, "B"));
    match unit {
        1 => format!("{bytes} {letter}"),
        _ => format!("{:.1} {letter}", bytes as f64 / unit as f64),
    }
}

/// How many bytes must go, if the disk is fuller than `high` percent: down to `low`.
fn to_free(capacity: u64, available: u64, high: i64, low: i64) -> Option<u64> {
    if capacity == 0 || high >= 100 {
        return None;
    }
    if used_percent(capacity, available) < high {
        return None;
    }
    let wanted_free = u128::from(capacity) * (100 - low).max(0) as u128 / 100;
    Some((wanted_free as u64).saturating_sub(available))
}

fn used_percent(capacity: u64, available: u64) -> i64 {
    100 - (u128::from(available.min(capacity)) * 100 / u128::from(capacity.max(1))) as i64
}

/// The images that containers have mounted as volumes.
async fn mounted(
    cri: &cri::Client,
    containers: &[v1::Container],
) -> Result<Vec<String>, tonic::Status> {
    let ids: Vec<String> = containers.iter().map(|one| one.id.clone()).collect();
    let runtime = cri.runtime.clone();
    let mut asked = futures::stream::iter(ids)
        .map(move |container_id| {
            let mut runtime = runtime.clone();
            let request = v1::ContainerStatusRequest {
                container_id,
                verbose: false,
            };
            async move { runtime.container_status(request).await }
        })
        .buffer_unordered(ASKED_AT_ONCE);
    let mut found = Vec::new();
    while let Some(answer) = asked.next().await {
        let status = match answer {
            Ok(response) => response.into_inner().status,
            // It went while we looked.
            Err(status) if status.code() == tonic::Code::NotFound => continue,
            Err(status) => return Err(status),
        };
        let mounts = status.into_iter().flat_map(|status| status.mounts);
        found.extend(mounts.filter_map(|mount| Some(mount.image?.image)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn image(id: &str, last_used: i64) -> Candidate {
        Candidate {
            id: id.to_owned(),
            size: 100,
            last_used,
            ..Candidate::default()
        }
    }

    #[test]
    fn the_longest_unused_images_are_removed_and_no_more_than_needed() {
        let images = vec![
            image("late", 5),
            image("early", 1),
            Candidate {
                in_use: true,
                ..image("used", 0)
            },
            Candidate {
                pinned: true,
                ..image("pinned", 0)
            },
            Candidate {
                first_seen: 9 * MINUTE,
                ..image("young", 0)
            },
        ];
        let choose = |wanted| choose(images.clone(), wanted, 2 * MINUTE, 10 * MINUTE);
        assert_eq!(choose(50), ["early"]);
        assert_eq!(choose(150), ["early", "late"]);
        assert_eq!(choose(5000), ["early", "late"]);
        assert!(choose(0).is_empty());
    }

    #[test]
    fn images_unused_for_the_maximum_age_are_removed() {
        let images = [
            image("old", 2 * MINUTE),
            image("late", 9 * MINUTE),
            Candidate {
                in_use: true,
                ..image("used", 0)
            },
            Candidate {
                first_seen: 8 * MINUTE,
                ..image("new", 0)
            },
        ];
        assert_eq!(too_old(&images, 5 * MINUTE, 0, 10 * MINUTE), ["old"]);
        assert!(too_old(&images, 5 * MINUTE, 6 * MINUTE, 10 * MINUTE).is_empty());
    }

    #[test]
    fn images_are_removed_from_the_high_to_the_low_threshold() {
        assert_eq!(to_free(1000, 200, 85, 80), None);
        assert_eq!(to_free(1000, 100, 85, 80), Some(100));
        assert_eq!(to_free(0, 0, 85, 80), None);
    }

    #[test]
    fn the_last_use_of_an_image_is_remembered() {
        let mut memory = Memory::default();
        let images = || {
            vec![v1::Image {
                id: "a".to_owned(),
                ..Default::default()
            }]
        };
        let used = BTreeSet::from(["a".to_owned()]);
        assert!(memory.update(images(), &used, 5)[0].in_use);
        let later = memory.update(images(), &BTreeSet::new(), 9);
        assert_eq!((later[0].first_seen, later[0].last_used), (5, 5));
    }
}
