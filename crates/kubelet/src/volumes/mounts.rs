//! The mounts of one container: its volumes, the managed `/etc/hosts`, and the file for its
//! termination message.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Component, PathBuf},
};

use cri::v1;
use environment::chain;
use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeMount};

use super::{Error, Mounted, Volumes, at, blocking, sub_path};
use crate::container::expansion::expand_known;

const HOSTS: &str = "/etc/hosts";

/// The part of a container's mounts that differs from one start to the next.
pub struct Particulars {
    pub restart_count: i32,
    /// The content of its `/etc/hosts`.
    pub hosts: String,
    /// Whether the runtime can make mounts read-only with all that is mounted below them.
    pub recursive: bool,
}

/// Mounts of one container start.
pub async fn prepare(
    volumes: &Volumes,
    pod: &Pod,
    container: &Container,
    mounted: &Mounted,
    environment: &BTreeMap<String, String>,
    particulars: Particulars,
) -> Result<Vec<v1::Mount>, Error> {
    let Particulars {
        restart_count,
        hosts,
        recursive,
    } = particulars;
    let pod_dir = volumes.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
    let declared: BTreeMap<String, Volume> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten())
        .map(|volume| (volume.name.clone(), volume.clone()))
        .collect();
    let message_file = termination_message_file(volumes, pod, container, restart_count);
    let (container, mounted, environment) =
        (container.clone(), mounted.clone(), environment.clone());
    blocking(move || {
        let mut result = Vec::new();
        let mut has_hosts = false;
        for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let sub = match (&mount.sub_path, &mount.sub_path_expr) {
                (Some(sub), _) if !sub.is_empty() => Some(sub.clone()),
                (_, Some(expression)) if !expression.is_empty() => {
                    Some(expand_known(expression, &environment)
                        .map_err(|error| Error::Key(error.to_string()))?)
                }
                _ => None,
            };
            if let Some(image) = mounted.images.get(&mount.name) {
                result.push(image_mount(mount, image, sub)?);
                continue;
            }
            let Some(path) = mounted.paths.get(&mount.name) else {
                return Err(Error::Key(format!(
                    "cannot find volume \"{}\" to mount into container \"{}\"",
                    mount.name, container.name
                )));
            };
            has_hosts |= mount.mount_path == HOSTS;
            let host_path = match sub {
                None => path.clone(),
                Some(sub) => {
                    let target = pod_dir
                        .join("volume-subpaths")
                        .join(&mount.name)
                        .join(&container.name)
                        .join(index.to_string());
                    sub_path::bind(path, &sub, &target).map_err(|error| {
                        tracing::info!(error = %chain(&error), volume = mount.name, "a subPath was refused");
                        Error::Key(format!(
                            "failed to prepare subPath for volumeMount \"{}\" of container \"{}\"",
                            mount.name, container.name
                        ))
                    })?
                }
            };
            let generated = declared.get(&mount.name).is_some_and(|volume| {
                volume.config_map.is_some()
                    || volume.secret.is_some()
                    || volume.projected.is_some()
                    || volume.downward_api.is_some()
            });
            result.push(v1::Mount {
                container_path: mount.mount_path.clone(),
                host_path: text(&host_path),
                readonly: mount.read_only == Some(true)
                    || generated
                    || mounted.read_only.contains(&mount.name),
                propagation: match mount.mount_propagation.as_deref() {
                    Some("HostToContainer") => v1::MountPropagation::PropagationHostToContainer,
                    Some("Bidirectional") => v1::MountPropagation::PropagationBidirectional,
                    _ => v1::MountPropagation::PropagationPrivate,
                } as i32,
                recursive_read_only: recursive_read_only(mount, recursive).map_err(Error::Key)?,
                ..Default::default()
            });
        }
        if !has_hosts {
            let file = pod_dir.join("etc-hosts");
            std::fs::create_dir_all(&pod_dir).map_err(at("creating", &pod_dir))?;
            std::fs::write(&file, hosts).map_err(at("writing", &file))?;
            // Every user that the container may run as can read it, regardless of our umask.
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))
                .map_err(at("changing", &file))?;
            result.push(v1::Mount {
                container_path: HOSTS.to_owned(),
                host_path: text(&file),
                ..Default::default()
            });
        }
        let message_path = container.termination_message_path.as_deref();
        if let Some(path) = message_path.filter(|path| !path.is_empty()) {
            if let Some(parent) = message_file.parent() {
                std::fs::create_dir_all(parent).map_err(at("creating", parent))?;
            }
            std::fs::File::create(&message_file).map_err(at("creating", &message_file))?;
            // Every user that the container may run as can write it.
            std::fs::set_permissions(&message_file, std::fs::Permissions::from_mode(0o666))
                .map_err(at("changing", &message_file))?;
            result.push(v1::Mount {
                container_path: path.to_owned(),
                host_path: text(&message_file),
                ..Default::default()
            });
        }
        Ok(result)
    })
    .await
}

/// Whether the mount is read-only recursively. The rule and the messages are upstream's.
fn recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, String> {
    let mode = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    if mode == "Disabled" {
        return Ok(false);
    }
    let refused = |why: &str| {
        Err(format!(
            "volume \"{}\" requested recursive read-only mode, but it is {why}",
            mount.name
        ))
    };
    if mount.read_only != Some(true) {
        return refused("not read-only");
    }
    match mount.mount_propagation.as_deref() {
        None | Some("None") => {}
        Some(other) => {
            return refused(&format!("not compatible with propagation \"{other}\""));
        }
    }
    match (mode, supported) {
        ("IfPossible", supported) => Ok(supported),
        (_, true) => Ok(true),
        (_, false) => refused("not supported by the runtime"),
    }
}

/// The runtime mounts the image itself, always read-only.
fn image_mount(mount: &VolumeMount, image: &str, sub: Option<String>) -> Result<v1::Mount, Error> {
    let sub = sub.unwrap_or_default();
    let path = std::path::Path::new(&sub);
    if path.is_absolute() {
        let what = format!("error SubPath `{sub}` must not be an absolute path");
        return Err(Error::Key(what));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(Error::Key(format!(
            "unable to provision SubPath `{sub}`: must not contain '..'"
        )));
    }
    Ok(v1::Mount {
        container_path: mount.mount_path.clone(),
        readonly: true,
        image: Some(v1::ImageSpec {
            image: image.to_owned(),
            ..Default::default()
        }),
        image_sub_path: sub,
        ..Default::default()
    })
}

/// Found again after a restart of the kubelet: named after the container and its count.
pub fn termination_message_file(
    volumes: &Volumes,
    pod: &Pod,
    container: &Container,
    restart_count: i32,
) -> PathBuf {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let name = format!("{}.{restart_count}.termination", container.name);
    volumes.pod_dir(uid).join(name)
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mode: &str, read_only: bool, propagation: Option<&str>, supported: bool) -> String {
        let mount = VolumeMount {
            name: "v".into(),
            read_only: Some(read_only),
            recursive_read_only: Some(mode.into()),
            mount_propagation: propagation.map(str::to_owned),
            ..VolumeMount::default()
        };
        match recursive_read_only(&mount, supported) {
            Ok(applied) => applied.to_string(),
            Err(error) => error,
        }
    }

    #[test]
    fn a_part_of_an_image_lies_inside_it() {
        let mount = VolumeMount::default();
        let of = |sub: &str| image_mount(&mount, "i", Some(sub.to_owned()));
        assert_eq!(of("a/b").expect("a mount").image_sub_path, "a/b");
        assert!(of("/a").is_err());
        assert!(of("a/../..").is_err());
    }

    #[test]
    fn recursive_read_only_is_applied_or_refused() {
        assert_eq!(check("Disabled", false, None, true), "false");
        assert_eq!(check("IfPossible", true, None, true), "true");
        assert_eq!(check("IfPossible", true, Some("None"), false), "false");
        assert_eq!(check("Enabled", true, None, true), "true");
        assert!(check("Enabled", true, None, false).ends_with("not supported by the runtime"));
        assert!(check("Enabled", false, None, true).ends_with("not read-only"));
        let shared = check("Enabled", true, Some("Bidirectional"), true);
        assert!(
            shared.ends_with("propagation \"Bidirectional\""),
            "{shared}"
        );
    }
}
