//! The catalogue of kinds that an API server serves.
//!
//! A [`Snapshot`] never changes and is what requests look things up in; a [`Catalogue`] swaps one
//! snapshot for another when a kind is added or removed while requests run. The built-in kinds come
//! from a generated table.

mod runtime_config;
mod snapshot;
mod table;
mod versions;

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::features::FeatureGates;
use crate::resource::Resource;

pub use runtime_config::{RuntimeConfig, RuntimeConfigError};
pub use snapshot::{Group, Snapshot};
pub use versions::compare_versions;

/// The kinds that one server serves, which can change while it runs.
pub struct Catalogue(RwLock<Arc<Snapshot>>);

/// The catalogue has a kind of this group, version and plural, or of this group, version and kind.
#[derive(Debug, thiserror::Error)]
#[error("the kind {0:?} is served already")]
pub struct AlreadyServed(pub Arc<Resource>);

impl Catalogue {
    /// Serves the built-in kinds that are on by default.
    pub fn by_default() -> Catalogue {
        Catalogue(RwLock::new(on_by_default().clone()))
    }

    /// Serves the built-in kinds that a configuration and the feature gates leave on.
    pub fn of_configured(config: &RuntimeConfig, gates: &FeatureGates) -> Catalogue {
        Catalogue(RwLock::new(built_in_with(config, gates)))
    }

    /// The kinds that are served now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Serves one more kind, or one more version of a kind, which is preferred least.
    pub fn add(&self, resource: Arc<Resource>) -> Result<(), AlreadyServed> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (group, version, plural) = resource.id();
        if let Some(known) = current.find(group, version, plural) {
            return Err(AlreadyServed(known.clone()));
        }
        let known = current.versions_of(group, plural);
        let versions = known.cloned().chain([resource.clone()]).collect();
        *current = Arc::new(replaced(&current, group, plural, versions)?);
        Ok(())
    }

    /// Serves a kind in these versions, in order of preference, and in no others; in none at all if
    /// there are none. Those who work with what was served keep it until they are done.
    pub fn replace(
        &self,
        group: &str,
        plural: &str,
        versions: Vec<Arc<Resource>>,
    ) -> Result<(), AlreadyServed> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(replaced(&current, group, plural, versions)?);
        Ok(())
    }

    /// Serves a kind no more. Those who work with it keep it until they are done.
    pub fn remove(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let removed = current.find(group, version, plural)?.clone();
        let others = current.versions_of(group, plural);
        let others = others.filter(|other| !Arc::ptr_eq(other, &removed));
        let others = others.cloned().collect();
        *current = Arc::new(replaced(&current, group, plural, others).ok()?);
        Some(removed)
    }
}

/// A snapshot with these versions of a kind. Another kind of the group may not have its name.
fn replaced(
    current: &Snapshot,
    group: &str,
    plural: &str,
    versions: Vec<Arc<Resource>>,
) -> Result<Snapshot, AlreadyServed> {
    for resource in &versions {
        let known = current.find_kind(group, &resource.version, &resource.kind);
        if let Some(known) = known.filter(|known| known.plural != plural) {
            return Err(AlreadyServed(known.clone()));
        }
    }
    let mut snapshot = current.clone();
    snapshot.replace(group, plural, versions);
    Ok(snapshot)
}

/// The kinds that are part of the program, those included that are off by default. A server's
/// catalogue begins with those that are switched on; components and the command line, which know no
/// other kinds, look them up here.
pub fn built_in() -> &'static Arc<Snapshot> {
    static BUILT_IN: OnceLock<Arc<Snapshot>> = OnceLock::new();
    BUILT_IN.get_or_init(|| {
        let mut all = table::read();
        all.retain(|resource| is_served(&resource.group, &resource.version, &resource.plural, ""));
        for resource in &mut all {
            let (group, version) = (resource.group.clone(), resource.version.clone());
            let plural = resource.plural.clone();
            resource
                .subresources
                .retain(|below| is_served(&group, &version, &plural, below.name));
        }
        Arc::new(Snapshot::new(with_storage(all)))
    })
}

/// Those of [`built_in`] that are served unless somebody says otherwise.
pub fn on_by_default() -> &'static Arc<Snapshot> {
    static ON: OnceLock<Arc<Snapshot>> = OnceLock::new();
    ON.get_or_init(|| built_in_with(&RuntimeConfig::default(), &FeatureGates::default()))
}

/// Those of [`built_in`] that a configuration and the feature gates leave on.
fn built_in_with(config: &RuntimeConfig, gates: &FeatureGates) -> Arc<Snapshot> {
    let kinds = built_in().resources();
    let on = kinds.filter(|resource| config.serves(resource));
    let on = on.filter(|resource| closed_gate(resource, gates).is_none());
    Arc::new(Snapshot::new(on.cloned()))
}

/// The built-in kinds that a configuration switches on and a feature gate off, with the gate.
pub fn gated_off<'a>(
    config: &'a RuntimeConfig,
    gates: &'a FeatureGates,
) -> impl Iterator<Item = (&'static Resource, &'static str)> + 'a {
    let kinds = built_in().resources();
    let on = kinds.filter(|resource| config.serves(resource));
    on.filter_map(|resource| Some((&**resource, closed_gate(resource, gates)?)))
}

/// The kinds that are served only while a feature gate is on: group, plural, gate.
const GATED: &[(&str, &str, &str)] = &[(
    "storagemigration.k8s.io",
    "storageversionmigrations",
    "StorageVersionMigrator",
)];

/// The feature gate that is off and without which a kind is not served.
fn closed_gate(resource: &Resource, gates: &FeatureGates) -> Option<&'static str> {
    let (group, _, plural) = resource.id();
    let mut gated = GATED
        .iter()
        .filter(|(of, kind, _)| (*of, *kind) == (group, plural));
    let (_, _, gate) = gated.next()?;
    (!gates.is_on(gate)).then_some(gate)
}

/// Links the versions that are stored in another version to that one.
fn with_storage(all: Vec<Resource>) -> Vec<Arc<Resource>> {
    let stored_as = |resource: &Resource| {
        let (group, version, plural) = resource.id();
        crate::conversion::built_in_storage(group, version, plural)
    };
    let mut shared: Vec<Option<Arc<Resource>>> = Vec::new();
    let mut converted = Vec::new();
    for (index, resource) in all.into_iter().enumerate() {
        shared.push(None);
        match stored_as(&resource) {
            Some(storage) => converted.push((index, resource, storage)),
            None => shared[index] = Some(Arc::new(resource)),
        }
    }
    for (index, mut resource, (group, version)) in converted {
        let mut stored = shared.iter().flatten();
        resource.storage = stored
            .find(|stored| stored.id() == (group, version, &resource.plural))
            .cloned();
        shared[index] = Some(Arc::new(resource));
    }
    shared.into_iter().flatten().collect()
}

/// What upstream serves and we do not: a kind appears only when it takes effect. A group alone
/// stands for all of its kinds, a third word for a subresource.
const NOT_SERVED: &[(&str, &str, &str)] = &[
    // Asks the scheduler's and the controllers' own ports, which one process does not have;
    // deprecated since v1.19.
    ("", "componentstatuses", ""),
];

fn is_served(group: &str, version: &str, plural: &str, subresource: &str) -> bool {
    !NOT_SERVED.iter().any(|&(of, kind, below)| {
        (of == group || of.split_once('/') == Some((group, version)))
            && (kind == plural || (kind.is_empty() && !of.is_empty()))
            && (below.is_empty() || below == subresource)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_path_and_by_kind() {
        let kinds = built_in();
        let deployment = kinds.find("apps", "v1", "deployments").unwrap();
        assert_eq!(deployment.kind, "Deployment");
        assert_eq!(deployment.qualified(), "deployments.apps");
        let by_kind = kinds.find_kind("apps", "v1", "Deployment");
        assert_eq!(by_kind, Some(deployment));
        assert_eq!(kinds.find("apps", "v1", "pods"), None);
        let pods = kinds.find("", "v1", "pods").unwrap();
        assert!(pods.subresource("binding").is_some());
    }

    #[test]
    fn kinds_are_ordered_by_group_and_plural() {
        let kinds = built_in().resources();
        let keys: Vec<_> = kinds.map(|r| (&r.group, &r.plural)).collect();
        assert!(keys.is_sorted());
    }

    #[test]
    fn a_kind_knows_the_version_it_is_stored_in() {
        let find = |group, version, plural| built_in().find(group, version, plural).unwrap();
        let stored = find("autoscaling", "v2", "horizontalpodautoscalers");
        let old = find("autoscaling", "v1", "horizontalpodautoscalers");
        assert!(stored.is_stored_as_itself());
        assert!(Arc::ptr_eq(old.storage.as_ref().unwrap(), stored));
        let versions: Vec<_> = built_in()
            .versions_of("autoscaling", "horizontalpodautoscalers")
            .map(|resource| &*resource.version)
            .collect();
        assert_eq!(versions, ["v2", "v1"]);
    }

    #[test]
    fn a_kind_is_added_and_removed_while_others_hold_it() {
        let catalogue = Catalogue::by_default();
        let before = catalogue.snapshot();
        let widgets = Arc::new(Resource {
            group: "example.com".to_string().into(),
            kind: "Widget".to_string().into(),
            plural: "widgets".to_string().into(),
            ..copied(before.find("", "v1", "configmaps").unwrap())
        });
        catalogue.add(widgets.clone()).unwrap();
        assert!(catalogue.add(widgets.clone()).is_err());
        let during = catalogue.snapshot();
        let found = during.find("example.com", "v1", "widgets").unwrap();
        assert!(Arc::ptr_eq(found, &widgets));
        assert_eq!(before.find("example.com", "v1", "widgets"), None);
        let kinds = during.resources();
        let keys: Vec<_> = kinds.map(|r| (&r.group, &r.plural)).collect();
        assert!(keys.is_sorted());
        let removed = catalogue.remove("example.com", "v1", "widgets");
        assert_eq!(removed, Some(widgets));
        assert!(catalogue.remove("example.com", "v1", "widgets").is_none());
        let after = catalogue.snapshot();
        assert_eq!(after.find("example.com", "v1", "widgets"), None);
        assert!(during.find("example.com", "v1", "widgets").is_some());
    }

    fn copied(resource: &Resource) -> Resource {
        Resource {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            plural: resource.plural.clone(),
            singular: resource.singular.clone(),
            namespaced: resource.namespaced,
            short_names: Vec::new(),
            categories: Vec::new(),
            verbs: resource.verbs.clone(),
            subresources: Vec::new(),
            columns: Vec::new(),
            definition: resource.definition.clone(),
            rules: resource.rules.clone(),
            storage: None,
        }
    }
}
