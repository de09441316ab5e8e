//! The plugins of one profile, lined up behind the extension points as its configuration says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    PodInfo, Snapshot,
    configuration::{PluginName, PluginSet, Profile},
    framework::{
        Bind, ClusterEvent, Filter, Permit, Plugin, Points, PostBind, PostFilter, PreBind,
        PreEnqueue, PreFilter, PreScore, Preparation, QueueSort, Reserve, Score,
    },
    plugins::assume::Assume,
    registry::Registry,
};

/// Upstream's plugins in upstream's order, with their weights.
const DEFAULTS: [(&str, Option<i32>); 18] = [
    ("SchedulingGates", None),
    ("PrioritySort", None),
    ("NodeUnschedulable", None),
    ("NodeName", None),
    ("TaintToleration", Some(3)),
    ("NodeAffinity", Some(2)),
    ("NodePorts", None),
    ("NodeResourcesFit", Some(1)),
    ("VolumeRestrictions", None),
    ("NodeVolumeLimits", None),
    ("VolumeBinding", None),
    ("VolumeZone", None),
    ("PodTopologySpread", Some(2)),
    ("InterPodAffinity", Some(2)),
    ("DefaultPreemption", None),
    ("NodeResourcesBalancedAllocation", Some(1)),
    ("ImageLocality", Some(1)),
    ("DefaultBinder", None),
];

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("plugin \"{0}\" does not exist")]
    UnknownPlugin(String),
    #[error("plugin \"{0}\" does not extend {1} plugin")]
    NotAtPoint(String, &'static str),
    #[error("plugin \"{0}\" already registered as \"{1}\"")]
    Twice(String, &'static str),
    #[error("plugin \"{plugin}\"")]
    Refused {
        plugin: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error(
        "only one queue sort plugin required for profile with scheduler name \"{0}\", but got {1}"
    )]
    QueueSort(String, usize),
    #[error("at least one bind plugin is needed for profile with scheduler name \"{0}\"")]
    NoBinder(String),
}

/// The plugins of a profile, in the order in which they are asked.
pub struct Framework {
    pub scheduler_name: String,
    pub pre_enqueues: Vec<Arc<dyn PreEnqueue>>,
    pub queue_sort: Arc<dyn QueueSort>,
    pub pre_filters: Vec<Arc<dyn PreFilter>>,
    pub filters: Vec<Arc<dyn Filter>>,
    pub post_filters: Vec<Arc<dyn PostFilter>>,
    pub pre_scores: Vec<Arc<dyn PreScore>>,
    /// With their weights.
    pub scores: Vec<(i64, Arc<dyn Score>)>,
    pub reserves: Vec<Arc<dyn Reserve>>,
    pub permits: Vec<Arc<dyn Permit>>,
    pub pre_binds: Vec<Arc<dyn PreBind>>,
    pub binders: Vec<Arc<dyn Bind>>,
    pub post_binds: Vec<Arc<dyn PostBind>>,
    /// Each of the above once.
    pub plugins: Vec<Arc<dyn Plugin>>,
}

impl Framework {
    pub fn new(profile: &Profile, registry: &Registry) -> Result<Framework, ProfileError> {
        let multi_point = merged(&profile.plugins.multi_point);
        let mut built = Built {
            profile,
            registry,
            multi_point,
            plugins: BTreeMap::new(),
            used: Vec::new(),
        };
        let sets = &profile.plugins;
        let sorts = built.line_up("QueueSort", &sets.queue_sort, |p| p.queue_sort)?;
        let name = profile.name().to_owned();
        let count = sorts.len();
        let [(_, queue_sort)] =
            <[_; 1]>::try_from(sorts).map_err(|_| ProfileError::QueueSort(name.clone(), count))?;
        let mut reserves: Vec<Arc<dyn Reserve>> = vec![Arc::new(Assume)];
        let more = built.line_up("Reserve", &sets.reserve, |p| p.reserve)?;
        reserves.extend(without_weights(more));
        let framework = Framework {
            pre_enqueues: without_weights(
                built.line_up("PreEnqueue", &sets.pre_enqueue, |p| p.pre_enqueue)?,
            ),
            queue_sort,
            pre_filters: without_weights(
                built.line_up("PreFilter", &sets.pre_filter, |p| p.pre_filter)?,
            ),
            filters: without_weights(built.line_up("Filter", &sets.filter, |p| p.filter)?),
            post_filters: without_weights(
                built.line_up("PostFilter", &sets.post_filter, |p| p.post_filter)?,
            ),
            pre_scores: without_weights(
                built.line_up("PreScore", &sets.pre_score, |p| p.pre_score)?,
            ),
            scores: built.line_up("Score", &sets.score, |p| p.score)?,
            reserves,
            permits: without_weights(built.line_up("Permit", &sets.permit, |p| p.permit)?),
            pre_binds: without_weights(built.line_up("PreBind", &sets.pre_bind, |p| p.pre_bind)?),
            binders: without_weights(built.line_up("Bind", &sets.bind, |p| p.bind)?),
            post_binds: without_weights(
                built.line_up("PostBind", &sets.post_bind, |p| p.post_bind)?,
            ),
            scheduler_name: name,
            plugins: built.used(),
        };
        match framework.binders.is_empty() {
            true => Err(ProfileError::NoBinder(framework.scheduler_name)),
            false => Ok(framework),
        }
    }

    pub fn may_enter(&self, pod: &PodInfo) -> bool {
        self.pre_enqueues.iter().all(|plugin| plugin.may_enter(pod))
    }

    /// The plugins that score nodes for this pod, with their weights.
    pub fn talking_scores<'a>(
        &'a self,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> impl Iterator<Item = &'a (i64, Arc<dyn Score>)> {
        let silent = self.pre_scores.iter();
        let silent = silent.filter(|plugin| !plugin.pre_score(pod, snapshot));
        let silent: Vec<&str> = silent.map(|plugin| plugin.name()).collect();
        let talking = self.scores.iter();
        talking.filter(move |(_, plugin)| !silent.contains(&plugin.name()))
    }

    pub fn reserve(&self, pod: &Arc<PodInfo>, node: &str, snapshot: &mut Snapshot) {
        for plugin in &self.reserves {
            plugin.reserve(pod, node, snapshot);
        }
    }

    pub fn unreserve(&self, pod: &PodInfo, snapshot: &mut Snapshot) {
        for plugin in self.reserves.iter().rev() {
            plugin.unreserve(pod, snapshot);
        }
    }

    pub fn pre_bind(
        &self,
        pod: &Arc<PodInfo>,
        node: &str,
        snapshot: &Snapshot,
    ) -> Vec<Preparation> {
        let plugins = self.pre_binds.iter();
        plugins
            .filter_map(|plugin| plugin.pre_bind(pod, node, snapshot))
            .collect()
    }

    /// The plugin that binds the pod, if one does.
    pub fn binder(&self, pod: &PodInfo) -> Option<Arc<dyn Bind>> {
        let mut binders = self.binders.iter();
        binders.find(|binder| binder.binds(pod)).cloned()
    }

    pub fn post_bind(&self, pod: &PodInfo, node: &str) {
        for plugin in &self.post_binds {
            plugin.post_bind(pod, node);
        }
    }

    /// The plugins that the event may help against.
    pub fn listeners(&self, event: &ClusterEvent<'_>) -> BTreeSet<&'static str> {
        let hearing = self.plugins.iter();
        let hearing = hearing.filter(|plugin| plugin.is_interested_in(event));
        hearing.map(|plugin| plugin.name()).collect()
    }

    /// Whether one of the plugins that rejected the pod expects the event to help; any event
    /// may when it is not known who did.
    pub fn may_help(
        &self,
        event: &ClusterEvent<'_>,
        pod: &PodInfo,
        rejected_by: &BTreeSet<&'static str>,
    ) -> bool {
        let mut plugins = self.plugins.iter();
        rejected_by.is_empty()
            || plugins
                .any(|plugin| rejected_by.contains(plugin.name()) && plugin.may_help(event, pod))
    }
}

/// The default set with what the profile changes about it.
fn merged(custom: &PluginSet) -> Vec<PluginName> {
    let off = |name: &str| {
        let mut disabled = custom.disabled.iter();
        disabled.any(|plugin| plugin.name == name || plugin.name == "*")
    };
    let mut all: Vec<PluginName> = Vec::new();
    for (name, weight) in DEFAULTS.iter().filter(|(name, _)| !off(name)) {
        let said = custom.enabled.iter().find(|plugin| plugin.name == *name);
        all.push(said.cloned().unwrap_or_else(|| PluginName {
            name: (*name).to_owned(),
            weight: *weight,
        }));
    }
    for plugin in &custom.enabled {
        if !all.iter().any(|known| known.name == plugin.name) {
            all.push(plugin.clone());
        }
    }
    all
}

fn without_weights<T: ?Sized>(plugins: Vec<(i64, Arc<T>)>) -> Vec<Arc<T>> {
    plugins.into_iter().map(|(_, plugin)| plugin).collect()
}

/// A framework while it is being put together.
struct Built<'a> {
    profile: &'a Profile,
    registry: &'a Registry,
    multi_point: Vec<PluginName>,
    /// Each plugin is made once, with its points.
    plugins: BTreeMap<String, (Arc<dyn Plugin>, Points)>,
    used: Vec<String>,
}

impl Built<'_> {
    /// The plugins of one point with their weights: those that the point itself reorders or weighs
    /// anew, then the others of the multi point that have something for it, then those that only
    /// the point names.
    fn line_up<T: ?Sized>(
        &mut self,
        point: &'static str,
        set: &PluginSet,
        take: impl Fn(Points) -> Option<Arc<T>>,
    ) -> Result<Vec<(i64, Arc<T>)>, ProfileError> {
        let off = |name: &str| {
            let mut disabled = set.disabled.iter();
            disabled.any(|plugin| plugin.name == name || plugin.name == "*")
        };
        let multi_point = self.multi_point.clone();
        let in_all = |name: &str| multi_point.iter().any(|plugin| plugin.name == name);
        let named = |plugin: &&PluginName| in_all(&plugin.name);
        let (first, last): (Vec<_>, Vec<_>) = set.enabled.iter().partition(named);
        let mut lined: Vec<(i64, Arc<T>)> = Vec::new();
        let mut names: BTreeSet<String> = BTreeSet::new();
        let explicit = first.iter().map(|plugin| (*plugin, true));
        let common = multi_point.iter().map(|plugin| (plugin, false));
        let explicit_last = last.iter().map(|plugin| (*plugin, true));
        for (plugin, is_explicit) in explicit.chain(common).chain(explicit_last) {
            let name = &plugin.name;
            if !is_explicit && (off(name) || names.contains(name)) {
                continue;
            }
            let found = take(self.points(name)?);
            let Some(found) = found else {
                if is_explicit {
                    return Err(ProfileError::NotAtPoint(name.clone(), point));
                }
                continue;
            };
            if !names.insert(name.clone()) {
                return Err(ProfileError::Twice(name.clone(), point));
            }
            if !self.used.contains(name) {
                self.used.push(name.clone());
            }
            let weight = plugin.weight.filter(|weight| *weight != 0).unwrap_or(1);
            lined.push((i64::from(weight), found));
        }
        Ok(lined)
    }

    fn points(&mut self, name: &str) -> Result<Points, ProfileError> {
        if let Some((_, points)) = self.plugins.get(name) {
            return Ok(points.clone());
        }
        let arguments = self.profile.arguments(name);
        let made = self.registry.make(name, arguments);
        let plugin = made
            .ok_or_else(|| ProfileError::UnknownPlugin(name.to_owned()))?
            .map_err(|source| ProfileError::Refused {
                plugin: name.to_owned(),
                source,
            })?;
        let points = plugin.clone().points();
        self.plugins
            .insert(name.to_owned(), (plugin, points.clone()));
        Ok(points)
    }

    fn used(&self) -> Vec<Arc<dyn Plugin>> {
        let used = self.used.iter();
        used.filter_map(|name| self.plugins.get(name).map(|(plugin, _)| plugin.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
