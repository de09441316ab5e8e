//! A container's environment: service variables, then `envFrom`, then `env`, with `$(VAR)`
//! expanded. Objects it refers to are fetched first; a missing one keeps the container waiting.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret};

use super::{
    env_file,
    expansion::expand,
    fields::{self, NodeFacts},
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{kind} \"{name}\" not found")]
    Missing { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    Key {
        kind: &'static str,
        namespace: String,
        name: String,
        key: String,
    },
    #[error(transparent)]
    Field(#[from] fields::Error),
    #[error("cannot find the volume \"{0}\" referenced by FileKeyRef")]
    FileVolume(String),
    #[error("couldn't parse env file")]
    File,
    #[error("environment variable key \"{key}\" not found in file \"{path}\"")]
    FileKey { key: String, path: String },
}

/// The objects an environment refers to, by name; `None` for those that do not exist.
#[derive(Clone, Debug, Default)]
pub struct Referenced {
    pub config_maps: BTreeMap<String, Option<std::sync::Arc<ConfigMap>>>,
    pub secrets: BTreeMap<String, Option<std::sync::Arc<Secret>>>,
    /// Files in volumes by volume and path; `None` for those that could not be read.
    pub files: BTreeMap<(String, String), Option<String>>,
}

/// Names of the ConfigMaps and Secrets a container's environment refers to.
pub fn references(container: &Container) -> (Vec<String>, Vec<String>) {
    let (mut config_maps, mut secrets) = (Vec::new(), Vec::new());
    for source in container.env_from.iter().flatten() {
        config_maps.extend(source.config_map_ref.iter().map(|found| found.name.clone()));
        secrets.extend(source.secret_ref.iter().map(|found| found.name.clone()));
    }
    for variable in container.env.iter().flatten() {
        if let Some(source) = &variable.value_from {
            let config_map = source.config_map_key_ref.iter();
            config_maps.extend(config_map.map(|found| found.name.clone()));
            let secret = source.secret_key_ref.iter();
            secrets.extend(secret.map(|found| found.name.clone()));
        }
    }
    (config_maps, secrets)
}

/// The environment in the order the container sees it, without duplicates.
pub fn build(
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
    services: &BTreeMap<String, String>,
    referenced: &Referenced,
) -> Result<Vec<(String, String)>, Error> {
    let mut from_sources: BTreeMap<String, String> = BTreeMap::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            let found = referenced
                .config_maps
                .get(&reference.name)
                .cloned()
                .flatten();
            match found {
                Some(config_map) => {
                    for (key, value) in config_map.data.iter().flatten() {
                        from_sources.insert(format!("{prefix}{key}"), value.clone());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(missing("configmap", &reference.name)),
            }
        }
        if let Some(reference) = &source.secret_ref {
            let found = referenced.secrets.get(&reference.name).cloned().flatten();
            match found {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        let text = String::from_utf8_lossy(&value.0).into_owned();
                        from_sources.insert(format!("{prefix}{key}"), text);
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(missing("secret", &reference.name)),
            }
        }
    }

    let mut known = services.clone();
    known.extend(from_sources.clone());
    let mut explicit: Vec<(String, String)> = Vec::new();
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) if !value.is_empty() => Some(expand(value, &known)),
            (_, Some(_)) => from_source(pod, container, facts, referenced, variable)?,
            _ => Some(String::new()),
        };
        let Some(value) = value else { continue };
        known.insert(variable.name.clone(), value.clone());
        explicit.retain(|(name, _)| *name != variable.name);
        explicit.push((variable.name.clone(), value));
    }
    let mut result = explicit;
    for (name, value) in from_sources.into_iter().chain(services.clone()) {
        if !result.iter().any(|(known, _)| *known == name) {
            result.push((name, value));
        }
    }
    Ok(result)
}

/// `None` for an optional source that is not there.
fn from_source(
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
    referenced: &Referenced,
    variable: &EnvVar,
) -> Result<Option<String>, Error> {
    let Some(source) = &variable.value_from else {
        return Ok(None);
    };
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    if let Some(reference) = &source.field_ref {
        return Ok(Some(fields::field(pod, facts, &reference.field_path)?));
    }
    if let Some(reference) = &source.resource_field_ref {
        return Ok(Some(fields::resource(
            pod,
            facts,
            reference,
            Some(container),
        )?));
    }
    if let Some(reference) = &source.config_map_key_ref {
        let optional = reference.optional == Some(true);
        let found = referenced
            .config_maps
            .get(&reference.name)
            .cloned()
            .flatten();
        let Some(config_map) = found else {
            return optional_or(optional, missing("configmap", &reference.name));
        };
        let value = config_map
            .data
            .as_ref()
            .and_then(|data| data.get(&reference.key));
        return match value {
            Some(value) => Ok(Some(value.clone())),
            None => optional_or(
                optional,
                Error::Key {
                    kind: "ConfigMap",
                    namespace,
                    name: reference.name.clone(),
                    key: reference.key.clone(),
                },
            ),
        };
    }
    if let Some(reference) = &source.secret_key_ref {
        let optional = reference.optional == Some(true);
        let found = referenced.secrets.get(&reference.name).cloned().flatten();
        let Some(secret) = found else {
            return optional_or(optional, missing("secret", &reference.name));
        };
        let value = secret
            .data
            .as_ref()
            .and_then(|data| data.get(&reference.key));
        return match value {
            Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            None => optional_or(
                optional,
                Error::Key {
                    kind: "Secret",
                    namespace,
                    name: reference.name.clone(),
                    key: reference.key.clone(),
                },
            ),
        };
    }
    if let Some(reference) = &source.file_key_ref {
        let place = (reference.volume_name.clone(), reference.path.clone());
        let file = referenced
            .files
            .get(&place)
            .ok_or_else(|| Error::FileVolume(reference.volume_name.clone()))?;
        let optional = reference.optional == Some(true);
        let Some(text) = file else {
            return optional_or(optional, Error::File);
        };
        return match env_file::value(text, &reference.key) {
            Ok(Some(value)) => Ok(Some(value)),
            Ok(None) => optional_or(
                optional,
                Error::FileKey {
                    key: reference.key.clone(),
                    path: reference.path.clone(),
                },
            ),
            Err(error) => {
                tracing::info!(%error, "an env file could not be parsed");
                Err(Error::File)
            }
        };
    }
    Ok(Some(String::new()))
}

/// The files in volumes that a container's environment refers to, as (volume, path).
pub fn files(container: &Container) -> Vec<(String, String)> {
    container
        .env
        .iter()
        .flatten()
        .filter_map(|variable| variable.value_from.as_ref()?.file_key_ref.as_ref())
        .map(|reference| (reference.volume_name.clone(), reference.path.clone()))
        .collect()
}

fn optional_or(optional: bool, error: Error) -> Result<Option<String>, Error> {
    if optional { Ok(None) } else { Err(error) }
}

fn missing(kind: &'static str, name: &str) -> Error {
    Error::Missing {
        kind,
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(container: serde_json::Value, expected: Result<&[(&str, &str)], &str>) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [container]},
        }))
        .expect("a pod");
        let container = pod.spec.as_ref().expect("spec").containers[0].clone();
        let config_map: ConfigMap =
            serde_json::from_value(json!({"data": {"k": "v", "URL": "http"}})).expect("map");
        let secret: Secret =
            serde_json::from_value(json!({"data": {"pw": "czNjcmV0"}})).expect("secret");
        let referenced = Referenced {
            config_maps: BTreeMap::from([("cm".to_owned(), Some(config_map.into()))]),
            secrets: BTreeMap::from([("s".to_owned(), Some(secret.into()))]),
            files: BTreeMap::from([(
                ("v".to_owned(), "f".to_owned()),
                Some("X='in file'".to_owned()),
            )]),
        };
        let services = BTreeMap::from([("SVC_HOST".to_owned(), "10.0.0.1".to_owned())]);
        let facts = NodeFacts {
            node_name: "n1".to_owned(),
            ..NodeFacts::default()
        };
        let result = build(&pod, &container, &facts, &services, &referenced);
        match expected {
            Ok(expected) => {
                let result = result.expect("an environment");
                let result: Vec<(&str, &str)> = result
                    .iter()
                    .map(|(k, v)| (k.as_str(), v.as_str()))
                    .collect();
                assert_eq!(result, expected);
            }
            Err(message) => assert_eq!(result.expect_err("an error").to_string(), message),
        }
    }

    #[test]
    fn values_come_from_all_sources_and_are_expanded() {
        check(
            json!({"name": "c", "env": [
                {"name": "A", "value": "x"},
                {"name": "B", "value": "$(A)-$(SVC_HOST)-$(LATER)"},
                {"name": "LATER", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
                {"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pw"}}},
                {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "no", "key": "x", "optional": true}}},
                {"name": "A", "value": "again"},
            ]}),
            Ok(&[
                ("B", "x-10.0.0.1-$(LATER)"),
                ("LATER", "n1"),
                ("K", "v"),
                ("P", "s3cret"),
                ("A", "again"),
                ("SVC_HOST", "10.0.0.1"),
            ]),
        );
    }

    #[test]
    fn files_in_volumes_are_read() {
        let variable = |key: &str, volume: &str| {
            json!({"name": "c", "env": [{"name": "F", "valueFrom": {"fileKeyRef":
                {"volumeName": volume, "path": "f", "key": key}}}]})
        };
        check(
            variable("X", "v"),
            Ok(&[("F", "in file"), ("SVC_HOST", "10.0.0.1")]),
        );
        check(
            variable("Y", "v"),
            Err("environment variable key \"Y\" not found in file \"f\""),
        );
        check(
            variable("X", "w"),
            Err("cannot find the volume \"w\" referenced by FileKeyRef"),
        );
    }

    #[test]
    fn env_from_is_prefixed_and_overridden_by_env() {
        check(
            json!({"name": "c", "env": [{"name": "X_k", "value": "mine"}],
                "envFrom": [{"prefix": "X_", "configMapRef": {"name": "cm"}}]}),
            Ok(&[("X_k", "mine"), ("X_URL", "http"), ("SVC_HOST", "10.0.0.1")]),
        );
    }

    #[test]
    fn missing_objects_and_keys_are_named() {
        check(
            json!({"name": "c", "envFrom": [{"configMapRef": {"name": "gone"}}]}),
            Err("configmap \"gone\" not found"),
        );
        check(
            json!({"name": "c", "env": [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "zz"}}}]}),
            Err("couldn't find key zz in ConfigMap shop/cm"),
        );
    }
}
