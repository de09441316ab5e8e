//! How fast nodes of a zone may be emptied: when much of a zone is lost at once it is more likely
//! the network than the nodes, and driving all pods away would make it worse.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::plan::ready_status;

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

/// Whether no node of any zone is ready.
pub fn is_everything_lost<'a>(mut nodes: impl Iterator<Item = &'a Node>) -> bool {
    !nodes.any(|node| ready_status(node) == "True")
}

/// The time between two nodes of each zone; none while its nodes are left alone.
pub fn paces<'a>(nodes: impl Iterator<Item = &'a Node>) -> BTreeMap<String, Option<Duration>> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for node in nodes {
        let (well, lost) = counts.entry(zone_of(node)).or_default();
        match ready_status(node) {
            "True" => *well += 1,
            _ => *lost += 1,
        }
    }
    let all_lost = counts.values().all(|(well, _)| *well == 0);
    counts
        .into_iter()
        .map(|(zone, (well, lost))| {
            let pace = match health((well, lost)) {
                _ if all_lost => STOPPED,
                Health::Normal | Health::Lost => NORMAL,
                Health::PartlyLost if well + lost > BIG_ZONE => SLOW,
                Health::PartlyLost => STOPPED,
            };
            (zone, pace)
        })
        .collect()
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
    /// Takes the zone's turn; otherwise how long to wait for it.
    pub fn take(
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
        let node = |status: &str| -> Node {
            serde_json::from_value(serde_json::json!({
                "metadata": {"labels": {"topology.kubernetes.io/zone": zone}},
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            }))
            .unwrap()
        };
        let well = (0..well).map(|_| node("True"));
        well.chain((0..lost).map(|_| node("Unknown"))).collect()
    }

    fn pace(nodes: &[Node], zone: &str) -> Option<Duration> {
        paces(nodes.iter())[&format!("/{zone}")]
    }

    #[test]
    fn the_more_is_lost_the_slower() {
        assert_eq!(pace(&nodes("a", 3, 1), "a"), NORMAL);
        assert_eq!(pace(&nodes("a", 2, 3), "a"), STOPPED);
        assert_eq!(pace(&nodes("a", 20, 40), "a"), SLOW);
        assert_eq!(pace(&nodes("a", 0, 1), "a"), STOPPED);
        let two = [nodes("a", 0, 4), nodes("b", 3, 0)].concat();
        assert_eq!(pace(&two, "a"), NORMAL);
        let none = [nodes("a", 0, 4), nodes("b", 0, 3)].concat();
        assert_eq!(pace(&none, "b"), STOPPED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_zone_takes_turns() {
        let mut limiter = Limiter::default();
        let now = Instant::now();
        assert_eq!(limiter.take("a", NORMAL, now), Ok(()));
        assert_eq!(limiter.take("a", NORMAL, now), Err(Duration::from_secs(10)));
        assert_eq!(limiter.take("b", NORMAL, now), Ok(()));
        assert_eq!(
            limiter.take("a", NORMAL, now + Duration::from_secs(10)),
            Ok(())
        );
        assert!(
            limiter
                .take("a", STOPPED, now + Duration::from_secs(99))
                .is_err()
        );
    }
}
