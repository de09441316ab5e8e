//! secret volumes: the keys of a Secret as files, on a tmpfs so that they never reach a disk.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{KeyToPath, SecretVolumeSource};

use super::{Context, Error, Payload, missing, project};

pub(super) async fn payload(
    context: &Context<'_>,
    source: &SecretVolumeSource,
) -> Result<Payload, Error> {
    files(
        context,
        source.secret_name.as_deref().unwrap_or_default(),
        source.items.as_deref().unwrap_or_default(),
        source.default_mode.unwrap_or(0o644),
        source.optional == Some(true),
    )
    .await
}

/// Also what a projected volume takes from a Secret.
pub(super) async fn files(
    context: &Context<'_>,
    name: &str,
    items: &[KeyToPath],
    default_mode: i32,
    optional: bool,
) -> Result<Payload, Error> {
    let Some(secret) = context.secret(name).await? else {
        return missing("secret", name, optional);
    };
    let data: BTreeMap<String, &[u8]> = secret
        .data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.0.as_slice()))
        .collect();
    project(&data, items, default_mode, optional, |key| {
        Error::Key(format!("references non-existent secret key: {key}"))
    })
}
