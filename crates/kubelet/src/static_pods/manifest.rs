//! One manifest: read, defaulted, checked as the API server would, and marked as a static pod of
//! this node. The same file on the same node gives the same UID, so that a kubelet that starts
//! again finds its pods.

use std::{io::Read as _, path::Path};

use api::Value;
use k8s_openapi::api::core::v1::Pod;
use sha2::{Digest as _, Sha256};

use super::HASH;
use crate::pod_spec::CONFIG_SOURCE;

/// Upstream's limit of a manifest.
const LONGEST: u64 = 10 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it could not be read")]
    File(#[from] std::io::Error),
    #[error("it is longer than {LONGEST} bytes")]
    Long,
    #[error("{0}")]
    Format(String),
    #[error("it must hold one Pod of v1")]
    Kind,
    #[error("{0}")]
    Invalid(String),
}

pub fn read(path: &Path, node_name: &str) -> Result<Pod, Error> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(Error::Long);
    }
    pod(&bytes, &path.to_string_lossy(), node_name)
}

/// The Pod or the PodList that `url` answered with.
pub fn of_url(bytes: &[u8], url: &str, node_name: &str) -> Result<Vec<Pod>, Error> {
    let object = document(bytes)?;
    if object.str_at(&["kind"]) != "PodList" {
        return Ok(vec![made(object, Origin::Url(url), node_name)?]);
    }
    let items = object.list_at(&["items"]).iter().map(|item| {
        let mut item = item.clone();
        // The items of a list need no apiVersion and kind.
        item.set_default(&["apiVersion"], "v1");
        item.set_default(&["kind"], "Pod");
        made(item, Origin::Url(url), node_name)
    });
    items.collect()
}

fn pod(bytes: &[u8], path: &str, node_name: &str) -> Result<Pod, Error> {
    made(document(bytes)?, Origin::File(path), node_name)
}

fn document(bytes: &[u8]) -> Result<Value, Error> {
    let documents = api::document::yaml::parse_documents(bytes)
        .map_err(|error| Error::Format(error.to_string()))?;
    let mut documents = documents.into_iter().filter(|document| !document.is_null());
    match (documents.next(), documents.next()) {
        (Some(object), None) => Ok(object),
        _ => Err(Error::Kind),
    }
}

/// The source of a manifest.
#[derive(Clone, Copy)]
enum Origin<'a> {
    File(&'a str),
    Url(&'a str),
}

fn made(mut object: Value, origin: Origin<'_>, node_name: &str) -> Result<Pod, Error> {
    let (place, source) = match origin {
        Origin::File(path) => (path, "file"),
        Origin::Url(url) => (url, "http"),
    };
    if object.str_at(&["apiVersion"]) != "v1" || object.str_at(&["kind"]) != "Pod" {
        return Err(Error::Kind);
    }
    let kinds = api::catalogue::built_in();
    let resource = kinds.find("", "v1", "pods").ok_or(Error::Kind)?;
    let hash = hash(&object, place, node_name);
    let name = format!("{}-{node_name}", object.str_at(&["metadata", "name"]));
    object.set(&["metadata", "name"], name.to_lowercase());
    object.set_default(&["metadata", "namespace"], "default");
    object.set(&["metadata", "uid"], hash.clone());
    for (key, value) in [(HASH, hash.as_str()), (CONFIG_SOURCE, source)] {
        object.set(&["metadata", "annotations", key], value);
    }
    object.set(&["spec", "nodeName"], node_name);
    object.remove(&["status"]);
    // A static pod stays regardless of the node's taints.
    let everything = api::document!({"operator": "Exists", "effect": "NoExecute"});
    let tolerations = object.list_at(&["spec", "tolerations"]);
    if matches!(origin, Origin::File(_)) && !tolerations.contains(&everything) {
        let mut tolerations = object.list_at(&["spec", "tolerations"]).to_vec();
        tolerations.push(everything);
        object.set(&["spec", "tolerations"], Value::Array(tolerations));
    }
    let strategy = resource.strategy();
    api::schema::defaults(resource, &mut object);
    strategy.default(&mut object);
    if let Some(error) = strategy.validate_create(&object).first() {
        return Err(Error::Invalid(error.to_string()));
    }
    serde_json::from_slice(&object.to_json()).map_err(|error| Error::Format(error.to_string()))
}

/// 32 hexadecimal digits, as long as upstream's.
fn hash(object: &Value, path: &str, node_name: &str) -> String {
    let mut digest = Sha256::new();
    for part in [node_name.as_bytes(), path.as_bytes(), &object.to_json()] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: Web}\nspec:\n  containers: [{name: main, image: 'a:1'}]\n";

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
        let made = pod(MANIFEST.as_bytes(), "/m/web.yaml", "n1").expect("a pod");
        assert_eq!(made.metadata.name.as_deref(), Some("web-n1"));
        assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
        let spec = made.spec.clone().expect("a spec");
        assert_eq!(spec.node_name.as_deref(), Some("n1"));
        assert_eq!(spec.termination_grace_period_seconds, Some(30));
        assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
        assert!(crate::pod_spec::is_static(&made));
        let again = pod(MANIFEST.as_bytes(), "/m/web.yaml", "n1").expect("a pod");
        assert_eq!(made, again);
        let other = MANIFEST.replace("a:1", "a:2");
        let other = pod(other.as_bytes(), "/m/web.yaml", "n1").expect("a pod");
        assert_ne!(made.metadata.uid, other.metadata.uid);
    }

    #[test]
    fn a_url_may_answer_with_a_list_of_pods() {
        let one = of_url(MANIFEST.as_bytes(), "http://x/pods", "n1").expect("a pod");
        assert_eq!(one.len(), 1);
        assert!(crate::pod_spec::is_static(&one[0]));
        let spec = one[0].spec.clone().expect("a spec");
        assert!(spec.tolerations.unwrap_or_default().is_empty());
        let item = "{metadata: {name: NAME}, spec: {containers: [{name: c, image: 'a:1'}]}}";
        let list = format!(
            "apiVersion: v1\nkind: PodList\nitems:\n- {}\n- {}\n",
            item.replace("NAME", "a"),
            item.replace("NAME", "b")
        );
        let several = of_url(list.as_bytes(), "http://x/pods", "n1").expect("pods");
        let names: Vec<_> = several
            .iter()
            .map(|pod| pod.metadata.name.clone())
            .collect();
        assert_eq!(names, [Some("a-n1".to_owned()), Some("b-n1".to_owned())]);
        assert!(of_url(b"kind: Service\n", "http://x/pods", "n1").is_err());
    }

    #[test]
    fn a_manifest_that_is_not_a_pod_is_rejected() {
        for text in [
            "",
            "a: [",
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n",
            &format!("{MANIFEST}---\n{MANIFEST}"),
        ] {
            assert!(pod(text.as_bytes(), "/m/a", "n1").is_err(), "{text}");
        }
    }
}
