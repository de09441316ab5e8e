//! projected volumes: several sources in one directory, among them the ServiceAccount token.

use k8s_openapi::api::core::v1::{Pod, ProjectedVolumeSource};

use super::{Context, Error, File, Payload, config_map, downward_api, secret};

/// The files, and when a token among them must be renewed.
pub(super) async fn payload(
    context: &Context<'_>,
    source: &ProjectedVolumeSource,
) -> Result<(Payload, Option<i64>), Error> {
    let default_mode = source.default_mode.unwrap_or(0o644);
    let mut payload = Payload::new();
    let mut refresh_at: Option<i64> = None;
    for part in source.sources.iter().flatten() {
        if let Some(part) = &part.config_map {
            let items = part.items.as_deref().unwrap_or_default();
            let optional = part.optional == Some(true);
            payload.extend(
                config_map::files(context, &part.name, items, default_mode, optional).await?,
            );
        }
        if let Some(part) = &part.secret {
            let items = part.items.as_deref().unwrap_or_default();
            let optional = part.optional == Some(true);
            payload
                .extend(secret::files(context, &part.name, items, default_mode, optional).await?);
        }
        if let Some(part) = &part.downward_api {
            let items = part.items.as_deref().unwrap_or_default();
            payload.extend(downward_api::payload(context, items, default_mode)?);
        }
        if let Some(part) = &part.service_account_token {
            let tokens = &context.volumes.tokens;
            let token = tokens
                .get(
                    context.pod,
                    part.audience.as_deref().unwrap_or_default(),
                    part.expiration_seconds.unwrap_or(3600),
                )
                .await
                .map_err(Error::Token)?;
            let owner = common_user(context.pod);
            // A token readable by its user or group alone, where the pod says which.
            let restricted = owner.is_some() || context.fs_group().is_some();
            let mode = if restricted { 0o600 } else { default_mode };
            let mut file = File::new(token.text.as_bytes(), mode);
            file.owner = owner;
            payload.insert(part.path.clone(), file);
            refresh_at = Some(refresh_at.map_or(token.refresh_at, |at| at.min(token.refresh_at)));
        }
        if part.cluster_trust_bundle.is_some() || part.pod_certificate.is_some() {
            return Err(Error::Unsupported);
        }
    }
    Ok((payload, refresh_at))
}

/// The user all containers run as, if it is one and the same.
fn common_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let shared = spec
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_user);
    let mut users = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .map(|container| {
            let own = container.security_context.as_ref();
            own.and_then(|context| context.run_as_user).or(shared)
        });
    let first = users.next()??;
    users
        .all(|user| user == Some(first))
        .then(|| u32::try_from(first).ok())
        .flatten()
}
