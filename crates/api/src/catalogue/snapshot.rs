//! The kinds that are served at one moment, by group. A kind that comes or goes makes a new snapshot
//! that shares all but a few nodes with the one before, so that its cost does not grow with the
//! number of kinds.

use std::sync::Arc;

use imbl::OrdMap;

use super::versions::compare_versions;
use crate::resource::Resource;

/// The kinds that are served at one moment.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// By name: the core group, which has none, comes first.
    groups: OrdMap<Arc<str>, Arc<Group>>,
}

/// The kinds of one group. Whoever makes something of a group can keep it as long as the group is the
/// same one.
#[derive(Clone)]
pub struct Group {
    name: Arc<str>,
    /// By plural, the versions of each in order of preference.
    kinds: OrdMap<Arc<str>, Versions>,
    /// The same by kind.
    by_kind: OrdMap<Arc<str>, Versions>,
    /// How many kinds have a version of this name.
    versions: OrdMap<Arc<str>, usize>,
}

type Versions = Arc<[Arc<Resource>]>;

impl Snapshot {
    /// The versions of a kind are in order of preference.
    pub(super) fn new(resources: impl IntoIterator<Item = Arc<Resource>>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for resource in resources {
            let known = snapshot.versions_of(&resource.group, &resource.plural);
            let mut versions: Vec<_> = known.cloned().collect();
            let (group, plural) = (resource.group.clone(), resource.plural.clone());
            versions.push(resource);
            snapshot.replace(&group, &plural, versions);
        }
        snapshot
    }

    /// Every served kind, in the order of discovery: the core group first, then by group, each
    /// group's kinds by plural; the versions of a kind in order of preference.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.values().flat_map(|group| group.resources())
    }

    /// The groups by name.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.values()
    }

    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.get(name)
    }

    /// The kind served at `/apis/<group>/<version>/<plural>` (`/api/<version>/<plural>` for "").
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        of_version(self.group(group)?.kinds.get(plural)?, version)
    }

    /// The served kind that an object's `apiVersion` and `kind` name.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        of_version(self.group(group)?.by_kind.get(kind)?, version)
    }

    /// The served versions of a kind, the preferred one first.
    pub fn versions_of(&self, group: &str, plural: &str) -> impl Iterator<Item = &Arc<Resource>> {
        let group = self.group(group);
        let versions = group.and_then(|group| group.kinds.get(plural));
        versions.into_iter().flat_map(|versions| versions.iter())
    }

    /// Puts these versions of a kind in the place of those that there are.
    pub(super) fn replace(&mut self, group: &str, plural: &str, versions: Vec<Arc<Resource>>) {
        let known = self.groups.get(group);
        let mut changed = known.map_or_else(|| Group::new(group), |group| Group::clone(group));
        changed.replace(plural, versions);
        match changed.kinds.is_empty() {
            true => self.groups.remove(group),
            false => self.groups.insert(changed.name.clone(), Arc::new(changed)),
        };
    }
}

impl Group {
    fn new(name: &str) -> Group {
        Group {
            name: name.into(),
            kinds: OrdMap::new(),
            by_kind: OrdMap::new(),
            versions: OrdMap::new(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// All kinds in all versions, by plural.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.kinds.values().flat_map(|versions| versions.iter())
    }

    /// The kinds of one version, by plural.
    pub fn of_version<'a>(&'a self, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        let kinds = self.kinds.values();
        kinds.filter_map(move |versions| of_version(versions, version))
    }

    /// The names of the versions, the preferred one first.
    pub fn versions(&self) -> Vec<&str> {
        let mut versions: Vec<&str> = self.versions.keys().map(|version| &**version).collect();
        versions.sort_by(|left, right| compare_versions(right, left));
        versions
    }

    fn replace(&mut self, plural: &str, versions: Vec<Arc<Resource>>) {
        let known = self.kinds.remove(plural);
        for resource in known.iter().flat_map(|known| known.iter()) {
            let others = self.by_kind.get(&*resource.kind).into_iter();
            let others = others.flat_map(|known| known.iter());
            let others: Vec<_> = others
                .filter(|other| !Arc::ptr_eq(other, resource))
                .cloned()
                .collect();
            match others.is_empty() {
                true => self.by_kind.remove(&*resource.kind),
                false => self.by_kind.insert((&*resource.kind).into(), others.into()),
            };
            match self.versions.get(&*resource.version) {
                Some(1) | None => self.versions.remove(&*resource.version),
                Some(times) => self.versions.insert((&*resource.version).into(), times - 1),
            };
        }
        for resource in &versions {
            let others = self.by_kind.get(&*resource.kind).into_iter();
            let mut others: Vec<_> = others.flat_map(|known| known.iter()).cloned().collect();
            others.push(resource.clone());
            self.by_kind.insert((&*resource.kind).into(), others.into());
            let times = self.versions.get(&*resource.version).copied();
            let times = times.unwrap_or_default() + 1;
            self.versions.insert((&*resource.version).into(), times);
        }
        if !versions.is_empty() {
            self.kinds.insert(plural.into(), versions.into());
        }
    }
}

fn of_version<'a>(versions: &'a [Arc<Resource>], version: &str) -> Option<&'a Arc<Resource>> {
    versions.iter().find(|resource| resource.version == version)
}
