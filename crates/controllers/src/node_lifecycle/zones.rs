//! How fast nodes of a zone may be emptied: when much of a zone is lost at once it is more likely
//! the network than the nodes, and driving all pods away would make it worse.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::plan::ready_status;
use crate::meta;

/// Nodes with this label do not count for the health of their zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// One node every ten seconds.
const NORMAL: Option<Duration> = Some(Duration::from_secs(10));
/// One every hundred, in a big zone of which most is lost.
const SLOW: Option<Duration> = Some(Duration::from_secs(100));
const STOPPED: Option<Duration> = None;
const BIG_ZONE: usize = 50;
const UNHEALTHY_PERCENT: usize = 55;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Normal,
    PartlyLost,
    Lost,
}

/// Region and zone of a node; nodes without labels share one.
pub fn zone_of(node: &Node) -> String {
    let label = |name: &str| {
        let labels = node.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(name))
            .cloned()
            .unwrap_or_default()
    };
    format!(
        "{}/{}",
        label("topology.kubernetes.io/region"),
        label("topology.kubernetes.io/zone")
    )
}

/// How many nodes of each zone are well and how many are not, kept up to date node by node.
#[derive(Default)]
pub struct Census {
    /// The zone of each node, by the name of the node, and whether it is ready.
    nodes: BTreeMap<String, (String, bool)>,
    /// How many are well and how many are not; zones without nodes are not here.
    zones: BTreeMap<String, (usize, usize)>,
    /// How many are well in all zones.
    well: usize,
    is_complete: bool,
}

impl Census {
    /// Counts the node as it is now. Nodes that are excluded from disruption do not count.
    pub fn set(&mut self, node: &Node) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if meta::label(&node.metadata, EXCLUDED).is_some() {
            return self.remove(name);
        }
        let (zone, is_well) = (zone_of(node), ready_status(node) == Some("True"));
        let known = self.nodes.get(name);
        if known.is_some_and(|known| known.0 == zone && known.1 == is_well) {
            return;
        }
        self.remove(name);
        let (well, lost) = self.zones.entry(zone.clone()).or_default();
        match is_well {
            true => *well += 1,
            false => *lost += 1,
        }
        self.well += usize::from(is_well);
        self.nodes.insert(name.to_owned(), (zone, is_well));
    }

    /// Every node of a first list has been counted.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Whether the counts can be acted on.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The node does not exist any more.
    pub fn remove(&mut self, name: &str) {
        let Some((zone, is_well)) = self.nodes.remove(name) else {
            return;
        };
        self.well -= usize::from(is_well);
        if let Some((well, lost)) = self.zones.get_mut(&zone) {
            match is_well {
                true => *well -= 1,
                false => *lost -= 1,
            }
            if (*well, *lost) == (0, 0) {
                self.zones.remove(&zone);
            }
        }
    }

    /// Whether no node of any zone is ready.
    pub fn is_everything_lost(&self) -> bool {
        !self.nodes.is_empty() && self.well == 0
    }

    /// The time between two nodes of a zone; none while its nodes are left alone.
    pub fn pace(&self, zone: &str) -> Option<Duration> {
        let counts = self.zones.get(zone).copied().unwrap_or_default();
        match health(counts) {
            _ if self.is_everything_lost() => STOPPED,
            Health::Normal | Health::Lost => NORMAL,
            Health::PartlyLost if counts.0 + counts.1 > BIG_ZONE => SLOW,
            Health::PartlyLost => STOPPED,
        }
    }
}

fn health((well, lost): (usize, usize)) -> Health {
    if well == 0 && lost > 0 {
        Health::Lost
    } else if lost > 2 && lost * 100 >= (well + lost) * UNHEALTHY_PERCENT {
        Health::PartlyLost
    } else {
        Health::Normal
    }
}

/// When the last node of each zone was taken.
#[derive(Default)]
pub struct Limiter {
    last: BTreeMap<String, Instant>,
}

impl Limiter {
    /// Takes the zone's turn; otherwise says how long to wait for it.
    pub fn take_turn(
        &mut self,
        zone: &str,
        pace: Option<Duration>,
        now: Instant,
    ) -> Result<(), Duration> {
        let Some(pace) = pace else {
            return Err(Duration::from_secs(5));
        };
        if let Some(last) = self.last.get(zone) {
            let next = *last + pace;
            if next > now {
                return Err(next - now);
            }
        }
        self.last.insert(zone.to_string(), now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(zone: &str, well: usize, lost: usize) -> Vec<Node> {
        let node = |number: usize, status: &str| -> Node {
            serde_json::from_value(serde_json::json!({
                "metadata": {
                    "name": format!("{zone}-{number}"),
                    "labels": {"topology.kubernetes.io/zone": zone},
                },
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            }))
            .unwrap()
        };
        let statuses = (0..well + lost).map(|number| (number, number < well));
        statuses
            .map(|(number, is_well)| node(number, if is_well { "True" } else { "Unknown" }))
            .collect()
    }

    fn census(nodes: &[Node]) -> Census {
        let mut census = Census::default();
        nodes.iter().for_each(|node| census.set(node));
        census
    }

    fn pace(nodes: &[Node], zone: &str) -> Option<Duration> {
        census(nodes).pace(&format!("/{zone}"))
    }

    #[test]
    fn counts_follow_nodes_that_change_their_zone_or_are_deleted() {
        let mut census = census(&nodes("a", 2, 1));
        assert_eq!(census.zones["/a"], (2, 1));
        for lost in &nodes("a", 0, 3) {
            census.set(lost);
            census.set(lost);
        }
        assert_eq!(census.zones["/a"], (0, 3));
        assert!(census.is_everything_lost());
        let mut moved = nodes("a", 1, 0).remove(0);
        let labels = moved.metadata.labels.get_or_insert_default();
        labels.insert("topology.kubernetes.io/zone".to_owned(), "b".to_owned());
        census.set(&moved);
        assert_eq!((census.zones["/a"], census.zones["/b"]), ((0, 2), (1, 0)));
        assert!(!census.is_everything_lost());
        for name in ["a-0", "a-1", "a-2", "a-2", "never-seen"] {
            census.remove(name);
        }
        assert!(census.zones.is_empty() && census.nodes.is_empty() && census.well == 0);
        assert!(!census.is_everything_lost());
    }

    #[test]
    fn evictions_slow_down_as_more_nodes_are_lost() {
        assert_eq!(pace(&nodes("a", 3, 1), "a"), NORMAL);
        assert_eq!(pace(&nodes("a", 2, 3), "a"), STOPPED);
        assert_eq!(pace(&nodes("a", 20, 40), "a"), SLOW);
        assert_eq!(pace(&nodes("a", 0, 1), "a"), STOPPED);
        let two = [nodes("a", 0, 4), nodes("b", 3, 0)].concat();
        assert_eq!(pace(&two, "a"), NORMAL);
        let none = [nodes("a", 0, 4), nodes("b", 0, 3)].concat();
        assert_eq!(pace(&none, "b"), STOPPED);
    }

    #[test]
    fn excluded_nodes_do_not_count() {
        let mut zone = nodes("a", 1, 3);
        assert_eq!(pace(&zone, "a"), STOPPED);
        for lost in &mut zone[2..] {
            let labels = lost.metadata.labels.get_or_insert_default();
            labels.insert(EXCLUDED.to_string(), String::new());
        }
        assert_eq!(pace(&zone, "a"), NORMAL);
        let excluded = &zone[2..];
        assert!(!census(excluded).is_everything_lost());
        assert_eq!(pace(excluded, "a"), NORMAL);
    }

    #[tokio::test(start_paused = true)]
    async fn evictions_of_a_zone_are_paced() {
        let mut limiter = Limiter::default();
        let now = Instant::now();
        assert_eq!(limiter.take_turn("a", NORMAL, now), Ok(()));
        assert_eq!(
            limiter.take_turn("a", NORMAL, now),
            Err(Duration::from_secs(10))
        );
        assert_eq!(limiter.take_turn("b", NORMAL, now), Ok(()));
        assert_eq!(
            limiter.take_turn("a", NORMAL, now + Duration::from_secs(10)),
            Ok(())
        );
        assert!(
            limiter
                .take_turn("a", STOPPED, now + Duration::from_secs(99))
                .is_err()
        );
    }
}
