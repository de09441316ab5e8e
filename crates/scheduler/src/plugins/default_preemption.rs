//! Makes room for a pod by sending pods of lower priority away.

use std::sync::Arc;

use crate::{
    configuration::PreemptionArguments,
    framework::{ClusterEvent, Plugin, Points, PostFilter, Room, Unplaced},
    preempt::preempt,
};

#[derive(Default)]
pub struct DefaultPreemption {
    pub arguments: PreemptionArguments,
}

impl DefaultPreemption {
    /// How many nodes on which room can be made are enough to choose among.
    fn enough(&self, nodes: usize) -> usize {
        let number = |number: i32| usize::try_from(number).unwrap_or(0);
        let share = nodes * number(self.arguments.min_candidate_nodes_percentage) / 100;
        let least = number(self.arguments.min_candidate_nodes_absolute);
        share.max(least).min(nodes)
    }
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        "DefaultPreemption"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            post_filter: Some(self),
            ..Points::default()
        }
    }

    fn hears_of(&self, _: &ClusterEvent<'_>) -> bool {
        false
    }
}

impl PostFilter for DefaultPreemption {
    fn post_filter(&self, unplaced: &Unplaced<'_>) -> Result<Room, String> {
        let enough = self.enough(unplaced.snapshot().node_count());
        preempt(unplaced, enough).map_err(|reason| format!("preemption: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_nodes_a_share_is_enough() {
        let plugin = DefaultPreemption::default();
        assert_eq!(plugin.enough(7), 7);
        assert_eq!(plugin.enough(500), 100);
        assert_eq!(plugin.enough(5000), 500);
    }
}
