//! Nodes that already have the pod's images score higher, large and widespread images most.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use crate::{
    NodeInfo, PodInfo, Snapshot,
    framework::{MAX_SCORE, NodeScore, Plugin, Points},
};

const LEAST: i64 = 23 << 20;
const MOST_PER_CONTAINER: i64 = 1000 << 20;

pub struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            score: Some(self),
            ..Points::default()
        }
    }

    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        for container in pod.containers() {
            key.push_str(container.image.as_deref().unwrap_or_default());
            key.push('\t');
        }
        key.push('\n');
        for image in mounted(pod) {
            key.push_str(image);
            key.push('\t');
        }
        true
    }
}

impl NodeScore for ImageLocality {
    /// On how many of how many nodes each image is. Images that no node has score nothing, however
    /// many nodes there are.
    fn depends_on(&self, pod: &PodInfo, snapshot: &Snapshot) -> u64 {
        let images = pod.containers().filter_map(|one| one.image.as_deref());
        let images = images.chain(mounted(pod));
        let spread: Vec<usize> = images
            .map(|image| snapshot.nodes_with_image(&with_tag(image)))
            .collect();
        if spread.iter().all(|count| *count == 0) {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (snapshot.node_count(), spread).hash(&mut hasher);
        hasher.finish()
    }

    fn score(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64 {
        let containers = pod.containers().count() as i64;
        if containers == 0 || snapshot.node_count() == 0 {
            return 0;
        }
        let present: i64 = pod
            .containers()
            .filter_map(|container| container.image.as_deref())
            .chain(mounted(pod))
            .map(|image| weight(&with_tag(image), node, snapshot))
            .sum();
        let most = MOST_PER_CONTAINER * containers;
        MAX_SCORE * (present.clamp(LEAST, most) - LEAST) / (most - LEAST)
    }
}

/// The image's size if the node has it, times the share of nodes that do: an image that only one
/// node has must not draw every pod there.
/// The images of volumes.
fn mounted(pod: &PodInfo) -> impl Iterator<Item = &str> {
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
    let volumes = volumes.unwrap_or_default().iter();
    volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_deref())
}

fn weight(image: &str, node: &NodeInfo, snapshot: &Snapshot) -> i64 {
    let Some(size) = node.images.get(image) else {
        return 0;
    };
    let spread = snapshot.nodes_with_image(image) as f64 / snapshot.node_count() as f64;
    (*size as f64 * spread) as i64
}

fn with_tag(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    match name.contains(':') {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, pod};

    #[test]
    fn tags_are_made_explicit() {
        assert_eq!(with_tag("web"), "web:latest");
        assert_eq!(with_tag("registry:5000/web"), "registry:5000/web:latest");
        assert_eq!(with_tag("registry:5000/web:1"), "registry:5000/web:1");
        assert_eq!(with_tag("web@sha256:ab"), "web@sha256:ab");
    }

    #[test]
    fn large_and_widespread_images_count_most() {
        let score = |size_mi: i64, other_has_it: bool| {
            let mut snapshot = Snapshot::default();
            let image = format!(
                r#"{{"images":[{{"names":["web:1"],"sizeBytes":{}}}]}}"#,
                size_mi << 20
            );
            snapshot.set_node(node("n1", "{}", &image));
            snapshot.set_node(node("n2", "{}", if other_has_it { &image } else { "{}" }));
            let pod = pod("web", r#"{"containers":[{"name":"c","image":"web:1"}]}"#);
            let node = snapshot.node("n1").expect("n1");
            ImageLocality.score(&pod, node, &snapshot)
        };
        assert_eq!(score(10, true), 0);
        assert_eq!(score(1000, true), 100);
        assert_eq!(score(5000, true), 100);
        assert_eq!(score(1000, false), 48);
        assert_eq!(score(46, false), 0);
    }

    #[test]
    fn a_pod_without_images_scores_nothing() {
        let mut snapshot = Snapshot::default();
        snapshot.set_node(node("n1", "{}", "{}"));
        let node = snapshot.node("n1").expect("n1");
        let score = |spec| ImageLocality.score(&pod("web", spec), node, &snapshot);
        assert_eq!(score(r#"{"containers":[]}"#), 0);
        assert_eq!(score(r#"{"containers":[{"name":"c"}]}"#), 0);
    }
}
