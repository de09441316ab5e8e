//! What the server serves, as clients ask for it: the documents at `/api`, `/apis` and below, and
//! aggregated discovery.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::catalogue::{Group, Snapshot};
use crate::document::{Object, Value};
use crate::resource::{Resource, Subresource, api_version};

/// The media type of aggregated discovery.
pub const AGGREGATED_V2: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Clients prefer groups in this order when a short name or kind is in several.
const GROUP_ORDER: &[&str] = &[
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "storagemigration.k8s.io",
];

/// The document at `/api`; `server_address` is `host:port`.
pub fn api_versions(server_address: &str) -> Value {
    crate::document!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": server_address},
        ],
    })
}

/// The document at `/apis`.
pub fn api_group_list(kinds: &Snapshot) -> Value {
    let groups = groups(kinds).into_iter();
    let groups: Vec<Value> = groups.map(|known| group(known)).collect();
    crate::document!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The document at `/apis/<group>`.
pub fn api_group(kinds: &Snapshot, name: &str) -> Option<Value> {
    let known = kinds.group(name).filter(|_| !name.is_empty())?;
    let mut document = group(known);
    document.set(&["kind"], "APIGroup");
    document.set(&["apiVersion"], "v1");
    Some(document)
}

/// The document at `/api/v1` (for the group "") or `/apis/<group>/<version>`.
pub fn api_resource_list(kinds: &Snapshot, group: &str, version: &str) -> Option<Value> {
    let served: Vec<&Arc<Resource>> = kinds.group(group)?.of_version(version).collect();
    if served.is_empty() {
        return None;
    }
    let mut entries = Vec::new();
    for resource in served {
        entries.push(resource_entry(resource));
        let subresources = resource.subresources.iter();
        entries.extend(subresources.map(|subresource| subresource_entry(resource, subresource)));
    }
    let mut document = crate::document!({
        "kind": "APIResourceList",
        "groupVersion": api_version(group, version),
        "resources": entries,
    });
    if !group.is_empty() {
        document.set(&["apiVersion"], "v1");
    }
    Some(document)
}

/// The aggregated form of `/api` (`legacy`) or of `/apis`.
pub fn aggregated_v2(kinds: &Snapshot, legacy: bool) -> Value {
    let served = match legacy {
        true => kinds.group("").into_iter().collect(),
        false => groups(kinds),
    };
    let items = served.into_iter();
    let items: Vec<Value> = items.map(|group| aggregated_group(group)).collect();
    crate::document!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

/// The served groups but the core one, in order of preference. Groups that are not built in come
/// last, by name.
pub fn groups(kinds: &Snapshot) -> Vec<&Arc<Group>> {
    let groups = kinds.groups().filter(|group| !group.name().is_empty());
    let mut groups: Vec<_> = groups.collect();
    groups.sort_by_key(|group| {
        let place = GROUP_ORDER.iter().position(|known| *known == group.name());
        place.unwrap_or(GROUP_ORDER.len())
    });
    groups
}

/// The served versions of a group, the preferred one first.
pub fn versions<'a>(kinds: &'a Snapshot, group: &str) -> Vec<&'a str> {
    let group = kinds.group(group);
    group.map_or_else(Vec::new, |group| group.versions())
}

/// Tells when the stored form of a kind changes.
pub fn storage_version_hash(resource: &Resource) -> String {
    let custom = resource.definition.custom();
    let resource = resource.storage.as_deref().unwrap_or(resource);
    let version = custom.map_or(&*resource.version, |custom| &*custom.kind.storage_version);
    let text = format!("{}/{version}/{}", resource.group, resource.kind);
    STANDARD.encode(&Sha256::digest(text)[..8])
}

/// What discovery shows of a resource's verbs. Upstream shows no change but deletion while the
/// definition of the kind is being deleted.
fn verbs(resource: &Resource) -> Vec<&'static str> {
    let mut verbs = resource.verbs.clone();
    let custom = resource.definition.custom();
    if custom.is_some_and(|custom| custom.kind.is_terminating) {
        verbs.retain(|verb| !matches!(*verb, "create" | "patch" | "update"));
    }
    verbs
}

fn group(group: &Group) -> Value {
    let name = group.name();
    let versions: Vec<Value> = group
        .versions()
        .into_iter()
        .map(|version| crate::document!({"groupVersion": api_version(name, version), "version": version}))
        .collect();
    crate::document!({"name": name, "preferredVersion": versions[0], "versions": versions})
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = crate::document!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource),
    });
    names_of(resource, &mut entry);
    // What is never stored has no stored version.
    if resource.has_verb("get") {
        entry.set(&["storageVersionHash"], storage_version_hash(resource));
    }
    entry
}

fn subresource_entry(resource: &Resource, subresource: &Subresource) -> Value {
    let mut entry = crate::document!({
        "name": format!("{}/{}", resource.plural, subresource.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": subresource.kind,
        "verbs": subresource.verbs,
    });
    if is_foreign(resource, subresource) {
        entry.set(&["group"], &*subresource.group);
        entry.set(&["version"], &*subresource.version);
    }
    entry
}

/// A group in the aggregated form.
pub fn aggregated_group(group: &Group) -> Value {
    let name = group.name();
    let versions: Vec<Value> = group
        .versions()
        .into_iter()
        .map(|version| {
            let entries: Vec<Value> = group
                .of_version(version)
                .map(|resource| aggregated_resource(resource))
                .collect();
            crate::document!({"version": version, "resources": entries, "freshness": "Current"})
        })
        .collect();
    let mut metadata = Object::default();
    if !name.is_empty() {
        metadata.insert("name", name);
    }
    let mut item = crate::document!({"versions": versions});
    item.set(&["metadata"], metadata);
    item
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = crate::document!({
        "resource": resource.plural,
        "responseKind": response_kind(resource, &resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    names_of(resource, &mut entry);
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let Subresource {
                group,
                version,
                kind,
                ..
            } = subresource;
            crate::document!({
                "subresource": subresource.name,
                "responseKind": response_kind(resource, group, version, kind),
                "verbs": subresource.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry.set(&["subresources"], subresources);
    }
    entry
}

/// Upstream leaves group and version empty where they are those of the document around, except for
/// custom kinds.
fn response_kind(resource: &Resource, group: &str, version: &str, kind: &str) -> Value {
    let is_same = (group, version) == (&*resource.group, &*resource.version);
    let (group, version) = match is_same && !resource.is_custom() {
        true => ("", ""),
        false => (group, version),
    };
    crate::document!({"group": group, "version": version, "kind": kind})
}

fn names_of(resource: &Resource, entry: &mut Value) {
    for (key, names) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !names.is_empty() {
            let names: Vec<Value> = names.iter().map(|name| Value::from(&**name)).collect();
            entry.set(&[key], names);
        }
    }
}

fn is_foreign(resource: &Resource, subresource: &Subresource) -> bool {
    (&subresource.group, &subresource.version) != (&resource.group, &resource.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::built_in;

    #[test]
    fn every_served_kind_is_listed() {
        let apps = api_resource_list(built_in(), "apps", "v1").unwrap();
        let names: Vec<&str> = apps
            .get("resources")
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry.str_at(&["name"]))
            .collect();
        assert_eq!(
            names,
            [
                "controllerrevisions",
                "daemonsets",
                "daemonsets/status",
                "deployments",
                "deployments/scale",
                "deployments/status",
                "replicasets",
                "replicasets/scale",
                "replicasets/status",
                "statefulsets",
                "statefulsets/scale",
                "statefulsets/status",
            ]
        );
        assert_eq!(apps.str_at(&["groupVersion"]), "apps/v1");
        assert!(api_resource_list(built_in(), "apps", "v2").is_none());
        assert_eq!(
            api_group(built_in(), "apps")
                .unwrap()
                .str_at(&["preferredVersion", "groupVersion"]),
            "apps/v1"
        );
        assert!(api_group(built_in(), "").is_none());
    }

    #[test]
    fn groups_come_in_order_of_preference() {
        let groups = groups(built_in());
        let names: Vec<&str> = groups.iter().map(|group| group.name()).collect();
        assert_eq!(names[..2], ["apiregistration.k8s.io", "apps"]);
        let last = ["flowcontrol.apiserver.k8s.io", "storagemigration.k8s.io"];
        assert_eq!(names[names.len() - 2..], last);
        let aggregated = aggregated_v2(built_in(), true);
        let core = &aggregated.get("items").unwrap().as_array().unwrap()[0];
        assert_eq!(core.get("metadata"), Some(&Value::object()));
    }

    #[test]
    fn the_storage_version_hash_is_upstreams() {
        let config_maps = built_in().find("", "v1", "configmaps").unwrap();
        assert_eq!(storage_version_hash(config_maps), "qFsyl6wFWjQ=");
    }
}
