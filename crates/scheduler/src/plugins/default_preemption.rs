//! Preempts pods of lower priority so that a waiting pod fits.

use std::sync::Arc;

use crate::{
    configuration::PreemptionArguments,
    framework::{
        ClusterEvent, NoPreemption, Plugin, Points, PostFilter, Preemption, UnschedulablePod,
    },
    preempt::preempt,
};

#[derive(Default)]
pub struct DefaultPreemption {
    pub arguments: PreemptionArguments,
}

impl DefaultPreemption {
    /// How many nodes on which preemption helps are enough to choose among.
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

    fn is_interested_in(&self, _: &ClusterEvent<'_>) -> bool {
        false
    }
}

impl PostFilter for DefaultPreemption {
    fn post_filter(
        &self,
        unschedulable: &UnschedulablePod<'_>,
    ) -> Result<Preemption, NoPreemption> {
        let enough = self.enough(unschedulable.snapshot().node_count());
        preempt(unschedulable, enough)
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
