//! Which plugins there are, and how each is made from its arguments. One's own are added here.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    WorkloadSelectors,
    configuration::{
        BalancedAllocationArguments, FitArguments, InterPodAffinityArguments,
        NodeAffinityArguments, PreemptionArguments, SpreadArguments, VolumeBindingArguments,
    },
    framework::Plugin,
    plugins::{
        default_preemption::DefaultPreemption,
        image_locality::ImageLocality,
        inter_pod_affinity::InterPodAffinity,
        node_affinity::NodeAffinity,
        node_name::NodeName,
        node_ports::NodePorts,
        node_resources_balanced_allocation::NodeResourcesBalancedAllocation,
        node_resources_fit::NodeResourcesFit,
        node_unschedulable::NodeUnschedulable,
        node_volume_limits::NodeVolumeLimits,
        pod_topology_spread::PodTopologySpread,
        priority_sort::PrioritySort,
        scheduling_gates::SchedulingGates,
        taint_toleration::TaintToleration,
        volume_binding::{VolumeBinding, binder::VolumeBinder},
        volume_restrictions::VolumeRestrictions,
        volume_zone::VolumeZone,
    },
};

/// A plugin made from the arguments that the configuration has for it, or why they are not accepted.
pub type Made = Result<Arc<dyn Plugin>, Box<dyn std::error::Error + Send + Sync>>;

type Maker = Box<dyn Fn(Option<&Value>) -> Made + Send + Sync>;

#[derive(Default)]
pub struct Registry {
    makers: BTreeMap<&'static str, Maker>,
}

impl Registry {
    /// Upstream's plugins. `binder` writes bindings; pods that say nothing about spreading are
    /// spread by `workloads`, if given; `volumes` writes which volumes pods get.
    pub fn in_tree(
        binder: Arc<dyn Plugin>,
        workloads: Option<Arc<dyn WorkloadSelectors>>,
        volumes: Option<VolumeBinder>,
    ) -> Registry {
        let mut registry = Registry::default();
        registry.add("SchedulingGates", |_| Ok(Arc::new(SchedulingGates)));
        registry.add("PrioritySort", |_| Ok(Arc::new(PrioritySort)));
        registry.add("NodeUnschedulable", |_| Ok(Arc::new(NodeUnschedulable)));
        registry.add("NodeName", |_| Ok(Arc::new(NodeName)));
        registry.add("TaintToleration", |_| Ok(Arc::new(TaintToleration)));
        registry.add("NodeAffinity", |given| {
            Ok(Arc::new(NodeAffinity::new(NodeAffinityArguments::of(
                given,
            ))))
        });
        registry.add("NodePorts", |_| Ok(Arc::new(NodePorts)));
        registry.add("NodeResourcesFit", |given| {
            Ok(Arc::new(NodeResourcesFit::new(FitArguments::of(given))))
        });
        registry.add("VolumeRestrictions", |_| Ok(Arc::new(VolumeRestrictions)));
        registry.add("NodeVolumeLimits", |_| Ok(Arc::new(NodeVolumeLimits)));
        registry.add("VolumeBinding", move |given| {
            let seconds = VolumeBindingArguments::of(given).bind_timeout_seconds;
            let patience = std::time::Duration::from_secs(seconds.unsigned_abs());
            let binder = volumes.clone().map(|binder| binder.with_patience(patience));
            Ok(Arc::new(VolumeBinding { binder }))
        });
        registry.add("VolumeZone", |_| Ok(Arc::new(VolumeZone)));
        registry.add("PodTopologySpread", move |given| {
            let arguments = SpreadArguments::of(given);
            Ok(Arc::new(PodTopologySpread::new(
                workloads.clone(),
                arguments,
            )))
        });
        registry.add("InterPodAffinity", |given| {
            let arguments = InterPodAffinityArguments::of(given);
            Ok(Arc::new(InterPodAffinity::new(&arguments)))
        });
        registry.add("DefaultPreemption", |given| {
            let arguments = PreemptionArguments::of(given);
            Ok(Arc::new(DefaultPreemption { arguments }))
        });
        registry.add("NodeResourcesBalancedAllocation", |given| {
            let arguments = BalancedAllocationArguments::of(given);
            Ok(Arc::new(NodeResourcesBalancedAllocation::new(arguments)))
        });
        registry.add("ImageLocality", |_| Ok(Arc::new(ImageLocality)));
        registry.add("DefaultBinder", move |_| Ok(binder.clone()));
        registry
    }

    /// Adds a plugin, or replaces one. It is used once a profile enables it.
    pub fn add(
        &mut self,
        name: &'static str,
        maker: impl Fn(Option<&Value>) -> Made + Send + Sync + 'static,
    ) {
        self.makers.insert(name, Box::new(maker));
    }

    pub(crate) fn make(&self, name: &str, arguments: Option<&Value>) -> Option<Made> {
        Some(self.makers.get(name)?(arguments))
    }
}
