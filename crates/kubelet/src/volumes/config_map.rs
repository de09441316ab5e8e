//! configMap volumes: the keys of a ConfigMap as files.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath};

use super::{Context, Error, Payload, missing, project};

pub(super) async fn payload(
    context: &Context<'_>,
    source: &ConfigMapVolumeSource,
) -> Result<Payload, Error> {
    files(
        context,
        &source.name,
        source.items.as_deref().unwrap_or_default(),
        source.default_mode.unwrap_or(0o644),
        source.optional == Some(true),
    )
    .await
}

/// Also what a projected volume takes from a ConfigMap.
pub(super) async fn files(
    context: &Context<'_>,
    name: &str,
    items: &[KeyToPath],
    default_mode: i32,
    optional: bool,
) -> Result<Payload, Error> {
    let Some(config_map) = context.config_map(name).await? else {
        return missing("configmap", name, optional);
    };
    project(&data(&config_map), items, default_mode, optional, |key| {
        Error::Key(format!(
            "configmap references non-existent config key: {key}"
        ))
    })
}

fn data(config_map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = config_map.data.iter().flatten();
    let binary = config_map.binary_data.iter().flatten();
    text.map(|(key, value)| (key.clone(), value.clone().into_bytes()))
        .chain(binary.map(|(key, value)| (key.clone(), value.0.clone())))
        .collect()
}
