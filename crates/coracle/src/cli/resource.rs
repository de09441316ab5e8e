//! What a user calls a resource (`po`, `deploy/web`, `pods.v1.`) and the path it has on the server.

use anyhow::{Result, anyhow, bail};
use api::{Resource, catalogue};

/// Finds a built-in resource by plural, singular, kind or short name, with an optional group
/// (`deployments.apps`).
pub fn find(word: &str) -> Result<&'static Resource> {
    let lower = word.to_ascii_lowercase();
    let (name, group) = match lower.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (lower.as_str(), None),
    };
    catalogue::built_in()
        .resources()
        .iter()
        .find(|resource| {
            let named = resource.plural == name
                || resource.singular == name
                || resource.kind.eq_ignore_ascii_case(name)
                || resource.short_names.iter().any(|short| short == name);
            named && group.is_none_or(|group| resource.group == group)
        })
        .map(|resource| &**resource)
        .ok_or_else(|| anyhow!("the server doesn't have a resource type \"{word}\""))
}

/// The resource of an object by its `apiVersion` and `kind`.
pub fn of_object(object: &api::Value) -> Result<&'static Resource> {
    let (api_version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    if api_version.is_empty() || kind.is_empty() {
        bail!("an object has no apiVersion or kind");
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    catalogue::built_in()
        .find_kind(group, version, kind)
        .map(|resource| &**resource)
        .ok_or_else(|| anyhow!("no matches for kind \"{kind}\" in version \"{api_version}\""))
}

/// `pod web`, `pod/web`, `pods`, `pod/a pod/b`, `pod a b`: the resources and names meant.
/// An empty name means all of them.
pub fn parse_targets(words: &[String]) -> Result<Vec<(&'static Resource, String)>> {
    let Some(first) = words.first() else {
        bail!("you must specify the type of resource, and possibly its name");
    };
    if first.contains('/') {
        return words
            .iter()
            .map(|word| {
                let (kind, name) = word.split_once('/').ok_or_else(|| {
                    anyhow!("there is no need to mix \"type/name\" and \"type name\"")
                })?;
                Ok((find(kind)?, name.to_string()))
            })
            .collect();
    }
    let mut targets = Vec::new();
    for kind in first.split(',') {
        let resource = find(kind)?;
        if words.len() == 1 {
            targets.push((resource, String::new()));
        }
        for name in &words[1..] {
            targets.push((resource, name.clone()));
        }
    }
    Ok(targets)
}

/// The collection's path; `namespace` is ignored for cluster-wide kinds and empty means all.
pub fn collection_path(resource: &Resource, namespace: &str) -> String {
    let root = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    if resource.namespaced && !namespace.is_empty() {
        format!("{root}/namespaces/{namespace}/{}", resource.plural)
    } else {
        format!("{root}/{}", resource.plural)
    }
}

pub fn object_path(resource: &Resource, namespace: &str, name: &str) -> String {
    format!("{}/{name}", collection_path(resource, namespace))
}

/// How kubectl names an object in its messages: `deployment.apps/web`.
pub fn display_name(resource: &Resource, name: &str) -> String {
    match &*resource.group {
        "" => format!("{}/{name}", resource.singular),
        group => format!("{}.{group}/{name}", resource.singular),
    }
}
