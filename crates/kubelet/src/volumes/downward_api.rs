//! downwardAPI volumes: the pod's own fields as files.

use k8s_openapi::api::core::v1::DownwardAPIVolumeFile;

use super::{Context, Error, File, Payload};
use crate::container::fields;

/// Also what a projected volume takes from the downward API.
pub(super) fn payload(
    context: &Context<'_>,
    items: &[DownwardAPIVolumeFile],
    default_mode: i32,
) -> Result<Payload, Error> {
    let mut payload = Payload::new();
    for item in items {
        let text = if let Some(reference) = &item.field_ref {
            fields::field(context.pod, context.facts, &reference.field_path)?
        } else if let Some(reference) = &item.resource_field_ref {
            fields::resource(context.pod, context.facts, reference, None)?
        } else {
            continue;
        };
        let mode = item.mode.unwrap_or(default_mode);
        payload.insert(item.path.clone(), File::new(text.as_bytes(), mode));
    }
    Ok(payload)
}
