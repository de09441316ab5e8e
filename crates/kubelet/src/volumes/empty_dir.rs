//! emptyDir volumes: a directory that lives as long as the pod, on disk or in memory.

use std::{os::unix::fs::PermissionsExt, path::PathBuf};

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;

use super::{Context, Error, at, blocking, mount_table, ownership};
use crate::resources;

pub(super) async fn set_up(
    context: &Context<'_>,
    source: &EmptyDirVolumeSource,
    path: PathBuf,
) -> Result<(), Error> {
    let fs_group = context.fs_group();
    let in_memory = source.medium.as_deref() == Some("Memory");
    let size = source
        .size_limit
        .as_ref()
        .and_then(resources::whole)
        .filter(|size| *size > 0);
    blocking(move || {
        let fresh = !path.exists();
        std::fs::create_dir_all(&path).map_err(at("creating", &path))?;
        let mounted = in_memory && mount_table::mount_tmpfs(&path, size)?;
        if fresh || mounted {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))
                .map_err(at("changing", &path))?;
            ownership::apply(&path, fs_group, false, false)?;
        }
        Ok(())
    })
    .await
}
