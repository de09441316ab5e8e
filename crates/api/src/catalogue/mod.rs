//! The catalogue of kinds that an API server serves.
//!
//! A [`Snapshot`] never changes and is what requests look things up in; a [`Catalogue`] swaps one
//! snapshot for another when a kind is added or removed while requests run. The built-in kinds come
//! from a generated table.

mod table;

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::resource::Resource;

/// The kinds that are served at one moment.
pub struct Snapshot {
    /// The core group first, then by group, each group's kinds by plural; the versions of a kind
    /// in order of preference.
    resources: Vec<Arc<Resource>>,
    /// The same by group, version and plural.
    by_plural: Vec<Arc<Resource>>,
    /// The same by group, version and kind.
    by_kind: Vec<Arc<Resource>>,
}

impl Snapshot {
    fn new(resources: Vec<Arc<Resource>>) -> Snapshot {
        let mut by_plural = resources.clone();
        by_plural.sort_by(|left, right| left.id().cmp(&right.id()));
        let mut by_kind = resources.clone();
        by_kind.sort_by(|left, right| kind_id(left).cmp(&kind_id(right)));
        Snapshot {
            resources,
            by_plural,
            by_kind,
        }
    }

    /// Every served kind, in the order of discovery.
    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The kind served at `/apis/<group>/<version>/<plural>` (`/api/<version>/<plural>` for "").
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let wanted = (group, version, plural);
        let found = self
            .by_plural
            .binary_search_by(|resource| resource.id().cmp(&wanted));
        found.ok().map(|index| &self.by_plural[index])
    }

    /// The served kind that an object's `apiVersion` and `kind` name.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let wanted = (group, version, kind);
        let found = self
            .by_kind
            .binary_search_by(|resource| kind_id(resource).cmp(&wanted));
        found.ok().map(|index| &self.by_kind[index])
    }

    /// The served versions of a kind, the preferred one first.
    pub fn versions_of<'a>(
        &'a self,
        group: &'a str,
        plural: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.resources
            .iter()
            .filter(move |resource| resource.group == group && resource.plural == plural)
    }
}

fn kind_id(resource: &Resource) -> (&str, &str, &str) {
    (&resource.group, &resource.version, &resource.kind)
}

/// The kinds that one server serves, which can change while it runs.
pub struct Catalogue(RwLock<Arc<Snapshot>>);

/// The catalogue has a kind of this group, version and plural, or of this group, version and kind.
#[derive(Debug, thiserror::Error)]
#[error("the kind {0:?} is served already")]
pub struct AlreadyServed(pub Arc<Resource>);

impl Catalogue {
    /// Serves the built-in kinds.
    pub fn of_built_in() -> Catalogue {
        Catalogue(RwLock::new(built_in().clone()))
    }

    /// The kinds that are served now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Serves one more kind, or one more version of a kind.
    pub fn add(&self, resource: Arc<Resource>) -> Result<(), AlreadyServed> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (group, version, plural) = resource.id();
        let known = current
            .find(group, version, plural)
            .or_else(|| current.find_kind(group, version, &resource.kind));
        if let Some(known) = known {
            return Err(AlreadyServed(known.clone()));
        }
        let mut resources = current.resources.clone();
        let place = resources
            .partition_point(|known| (&known.group, &*known.plural) <= (&resource.group, plural));
        resources.insert(place, resource);
        *current = Arc::new(Snapshot::new(resources));
        Ok(())
    }

    /// Serves a kind no more. Those who work with it keep it until they are done.
    pub fn remove(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let removed = current.find(group, version, plural)?.clone();
        let mut resources = current.resources.clone();
        resources.retain(|resource| !Arc::ptr_eq(resource, &removed));
        *current = Arc::new(Snapshot::new(resources));
        Some(removed)
    }
}

/// The kinds that are part of the program. A server's catalogue begins with them; components and
/// the command line, which know no other kinds, look them up here.
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
    ("admissionregistration.k8s.io", "", ""),
    ("apiextensions.k8s.io", "", ""),
    ("flowcontrol.apiserver.k8s.io", "", ""),
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
        let kinds = built_in().resources().iter();
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
        let catalogue = Catalogue::of_built_in();
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
        let kinds = during.resources().iter();
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
            definition: resource.definition,
            rules: resource.rules.clone(),
            storage: None,
        }
    }
}
