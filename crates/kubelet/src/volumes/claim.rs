//! persistentVolumeClaim and generic ephemeral volumes: the claim is followed to its volume, and
//! the volume to a place on this node. Volumes that need a driver are not here.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim};
use kube::Api;

use super::{Context, Error, blocking, devices, host_path, ownership};

pub(super) struct Bound {
    /// The path of the volume, or of the link to its device.
    pub path: PathBuf,
    pub device: bool,
    pub read_only: bool,
}

/// The path of the volume that the claim `name` of the pod's namespace is bound to. `used_as`: what
/// the pod calls it. `owned`: the claim must have been made for this pod.
pub(super) async fn set_up(
    context: &Context<'_>,
    used_as: &str,
    name: &str,
    owned: bool,
) -> Result<Bound, Error> {
    let namespace = context
        .pod
        .metadata
        .namespace
        .as_deref()
        .unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(context.volumes.client.clone(), namespace);
    let about =
        |what: String| Error::Claim(format!("error processing PVC {namespace}/{name}: {what}"));
    let claim = claims
        .get_opt(name)
        .await
        .map_err(|error| about(format!("failed to fetch PVC from API server: {error}")))?
        .ok_or_else(|| {
            about(format!(
                "failed to fetch PVC from API server: persistentvolumeclaims \"{name}\" not found"
            ))
        })?;
    if owned && !is_owned(&claim, context.uid()) {
        let pod = context.pod.metadata.name.as_deref().unwrap_or_default();
        return Err(Error::Claim(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
        )));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(about("PVC is being deleted".to_owned()));
    }
    let phase = claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let volume_name = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.as_deref())
        .filter(|volume| !volume.is_empty() && phase == Some("Bound"))
        .ok_or_else(|| about("PVC is not bound".to_owned()))?;
    let volumes: Api<PersistentVolume> = Api::all(context.volumes.client.clone());
    let volume = volumes.get(volume_name).await.map_err(|error| {
        about(format!(
            "failed to fetch PV {volume_name} from API server: {error}"
        ))
    })?;
    let spec = volume.spec.unwrap_or_default();
    let claimed_by = spec.claim_ref.as_ref().and_then(|claim| claim.uid.clone());
    if claimed_by.is_some() && claimed_by != claim.metadata.uid {
        return Err(about(format!("PV {volume_name} is bound to another PVC")));
    }
    if !context.volumes.reaches(&spec) {
        return Err(Error::NodeAffinity(volume_name.to_owned()));
    }
    let read_only = spec
        .access_modes
        .is_some_and(|modes| modes == ["ReadOnlyMany"]);
    let mode = spec.volume_mode.as_deref().unwrap_or("Filesystem");
    devices::check_mode(context.pod, used_as, mode)?;
    if mode == "Block" {
        // Of what is here, only local volumes can be devices.
        let local = spec.local.ok_or(Error::Unsupported)?;
        let link = context.device_link("kubernetes.io~local-volume", volume_name);
        let (path, device) = (link.clone(), PathBuf::from(local.path));
        blocking(move || devices::link(&link, &device)).await?;
        return Ok(Bound {
            path,
            device: true,
            read_only,
        });
    }
    if let Some(local) = &spec.local {
        let path = PathBuf::from(&local.path);
        let (root, group) = (path.clone(), context.fs_group());
        let only_on_mismatch = context.changes_owner_on_mismatch_only();
        blocking(move || {
            if !root.exists() {
                return Err(Error::HostPath(format!(
                    "path \"{}\" does not exist",
                    root.display()
                )));
            }
            if !root.is_dir() && !root.is_file() {
                return Err(Error::HostPath(format!(
                    "path \"{}\" is neither a directory nor a file: devices are not formatted",
                    root.display()
                )));
            }
            ownership::apply(&root, group, read_only, only_on_mismatch)
        })
        .await?;
        let claims = &context.volumes.claims;
        claims.mounted(context.uid(), namespace, name, &path);
        return Ok(Bound {
            path,
            device: false,
            read_only,
        });
    }
    if let Some(source) = &spec.host_path {
        let source = HostPathVolumeSource {
            path: source.path.clone(),
            type_: source.type_.clone(),
        };
        let path = host_path::set_up(&source).await?;
        return Ok(Bound {
            path,
            device: false,
            read_only,
        });
    }
    Err(Error::Unsupported)
}

fn is_owned(claim: &PersistentVolumeClaim, pod_uid: &str) -> bool {
    semantics::owner::is_controlled_by(&claim.metadata, pod_uid)
}
