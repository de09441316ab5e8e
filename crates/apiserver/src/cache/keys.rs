//! Where objects live in the store: `/registry/<kind's prefix>/[<namespace>/]<name>`, the prefixes
//! being upstream's: of one word for built-in kinds, of group and plural for added ones.

use api::Resource;
use bytes::Bytes;

pub(crate) const ROOT: &str = "/registry/";

/// A kind's prefix with its closing slash.
pub(crate) fn storage_prefix(resource: &Resource) -> String {
    if !resource.is_built_in() {
        return format!("{ROOT}{}/{}/", resource.group, resource.plural);
    }
    let place = match (&*resource.group, &*resource.plural) {
        ("", "nodes") => "minions",
        ("", "services") => "services/specs",
        ("", "endpoints") => "services/endpoints",
        ("", "replicationcontrollers") => "controllers",
        ("networking.k8s.io", "ingresses") => "ingress",
        (_, plural) => plural,
    };
    format!("{ROOT}{place}/")
}

/// The key of an object inside its kind: `namespace/name`, or `name`.
pub(crate) fn key_of(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_string(),
        _ => format!("{namespace}/{name}"),
    }
}

pub(crate) fn storage_key(resource: &Resource, key: &str) -> Bytes {
    Bytes::from(storage_prefix(resource) + key)
}
