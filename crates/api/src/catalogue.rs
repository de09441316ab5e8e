//! The catalogue of built-in kinds that the API server serves: names, scope, verbs, subresources.
//!
//! The facts come from a generated table; what of it is served is said here. What the objects look like is `schema`'s; how they behave is `strategy`'s.

mod table;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::table::Column;

/// A served kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// "" for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub namespaced: bool,
    pub short_names: Vec<&'static str>,
    pub categories: Vec<&'static str>,
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// What `kubectl get` shows.
    pub columns: Vec<Column>,
    /// The name of its schema, e.g. `io.k8s.api.core.v1.Pod`.
    pub definition: &'static str,
}

/// A path below an object, such as `status`.
#[derive(Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// What is sent and received there; it may be of another group than the object.
    pub kind: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// `v1` or `apps/v1`, as `apiVersion` has it.
    pub fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// `pods` or `deployments.apps`, as errors name it.
    pub fn qualified(&self) -> String {
        match self.group {
            "" => self.plural.to_string(),
            group => format!("{}.{group}", self.plural),
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }

    /// Whether a finished delete answers with the object; the others answer with a `Status`.
    pub fn returns_deleted(&self) -> bool {
        matches!(
            (self.group, self.plural),
            (
                "",
                "persistentvolumeclaims"
                    | "persistentvolumes"
                    | "pods"
                    | "podtemplates"
                    | "resourcequotas"
                    | "serviceaccounts"
                    | "services",
            ) | ("resource.k8s.io" | "storage.k8s.io", _)
        ) && self.plural != "csistoragecapacities"
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// Whether `status` is a resource of its own below the object.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

/// Every served kind: the core group first, then by group, each group's kinds by plural.
pub fn resources() -> &'static [Resource] {
    static RESOURCES: OnceLock<Vec<Resource>> = OnceLock::new();
    RESOURCES.get_or_init(|| {
        let mut all = table::read();
        all.retain(|resource| is_served(resource.group, resource.version, resource.plural, ""));
        for resource in &mut all {
            let (group, version, plural) = (resource.group, resource.version, resource.plural);
            resource
                .subresources
                .retain(|below| is_served(group, version, plural, below.name));
        }
        all
    })
}

/// The kind served at `/apis/<group>/<version>/<plural>` (`/api/<version>/<plural>` for "").
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    static INDEX: OnceLock<Index> = OnceLock::new();
    let index = INDEX.get_or_init(|| index_by(|resource| resource.plural));
    index.get(&(group, version, plural)).copied()
}

/// The served kind that an object's `apiVersion` and `kind` name.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    static INDEX: OnceLock<Index> = OnceLock::new();
    let index = INDEX.get_or_init(|| index_by(|resource| resource.kind));
    index.get(&(group, version, kind)).copied()
}

/// `v1` for the core group, `group/version` for others.
pub fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_string(),
        _ => format!("{group}/{version}"),
    }
}

/// The opposite of [`api_version`].
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

type Index = BTreeMap<(&'static str, &'static str, &'static str), &'static Resource>;

fn index_by(name: impl Fn(&Resource) -> &'static str) -> Index {
    resources()
        .iter()
        .map(|resource| ((resource.group, resource.version, name(resource)), resource))
        .collect()
}

/// What upstream serves and we do not: a kind appears only when it takes effect. A group alone
/// stands for all of its kinds, a third word for a subresource.
const NOT_SERVED: &[(&str, &str, &str)] = &[
    ("admissionregistration.k8s.io", "", ""),
    ("apiextensions.k8s.io", "", ""),
    ("apiregistration.k8s.io", "", ""),
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
    fn finds_by_path_and_by_kind() {
        let deployment = find("apps", "v1", "deployments").unwrap();
        assert_eq!(deployment.kind, "Deployment");
        assert_eq!(deployment.qualified(), "deployments.apps");
        assert_eq!(find_kind("apps", "v1", "Deployment"), Some(deployment));
        assert_eq!(find("apps", "v1", "pods"), None);
        assert!(
            find("", "v1", "pods")
                .unwrap()
                .subresource("binding")
                .is_some()
        );
    }

    #[test]
    fn kinds_are_ordered_by_group_and_plural() {
        let keys: Vec<_> = resources().iter().map(|r| (r.group, r.plural)).collect();
        assert!(keys.is_sorted());
    }
}
