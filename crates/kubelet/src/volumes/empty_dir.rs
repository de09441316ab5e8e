//! emptyDir volumes: a directory that lives as long as the pod, on disk, in memory or in huge pages.

use std::{collections::BTreeSet, os::unix::fs::PermissionsExt, path::PathBuf};

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};

use super::{Context, Error, at, blocking, mount_table, ownership};
use crate::resources;

/// The file system that is mounted for an emptyDir.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Medium {
    Disk,
    Memory { size: i64 },
    HugePages { page: String },
}

pub(super) async fn set_up(
    context: &Context<'_>,
    source: &EmptyDirVolumeSource,
    path: PathBuf,
) -> Result<(), Error> {
    let fs_group = context.fs_group();
    let medium = medium(context.pod, source, context.facts.allocatable_memory)?;
    blocking(move || {
        let fresh = !path.exists();
        std::fs::create_dir_all(&path).map_err(at("creating", &path))?;
        let mounted = match medium {
            Medium::Disk => false,
            Medium::Memory { size } => {
                mount_table::mount_tmpfs(&path, Some(size).filter(|size| *size > 0))?
            }
            Medium::HugePages { page } => mount_table::mount_huge_pages(&path, &page)?,
        };
        if fresh || mounted {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))
                .map_err(at("changing", &path))?;
            ownership::apply(&path, fs_group, false, false)?;
        }
        Ok(())
    })
    .await
}

fn medium(pod: &Pod, source: &EmptyDirVolumeSource, allocatable: i64) -> Result<Medium, Error> {
    let name = source.medium.as_deref().unwrap_or_default();
    match name {
        "" => Ok(Medium::Disk),
        "Memory" => {
            // Never more than all pods, this pod, or the volume may have.
            let own = source.size_limit.as_ref().and_then(resources::whole);
            let limits = [resources::pod_limits(pod).memory, own];
            let limits = limits.into_iter().flatten().filter(|limit| *limit > 0);
            let size = limits.fold(allocatable, |size, limit| match size {
                0 => limit,
                size => size.min(limit),
            });
            Ok(Medium::Memory { size })
        }
        huge => huge_pages(pod, huge),
    }
}

/// The page size comes from the medium's name, or from the one size that the pod requests.
fn huge_pages(pod: &Pod, name: &str) -> Result<Medium, Error> {
    let bytes = |text: &str| Quantity::parse(text).ok().map(Quantity::value);
    let requested: BTreeSet<(i64, String)> = resources::requested_names(pod)
        .iter()
        .filter_map(|name| name.strip_prefix("hugepages-"))
        .filter_map(|size| Some((bytes(size)?, size.to_owned())))
        .collect();
    let wanted = name.strip_prefix("HugePages-").and_then(bytes);
    if name == "HugePages" && requested.len() > 1 {
        return Err(Error::Medium(format!(
            "medium: {name} can't be used if container requests multiple huge page sizes"
        )));
    }
    let found = requested
        .into_iter()
        .find(|(size, _)| wanted.is_none_or(|wanted| wanted == *size));
    match found {
        Some((_, page)) => Ok(Medium::HugePages { page }),
        None => Err(Error::Medium(format!(
            "medium {name}: hugePages storage requested, but there is no resource request for huge pages"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_medium_gets_its_size_from_limits_and_the_node() {
        let check = |source: serde_json::Value, resources: serde_json::Value| {
            let pod: Pod = serde_json::from_value(
                json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}),
            )
            .expect("a pod");
            let source = serde_json::from_value(source).expect("a source");
            medium(&pod, &source, 1 << 30).map_err(|error| error.to_string())
        };
        let memory = |size: i64| Ok(Medium::Memory { size });
        let page = |page: &str| {
            Ok(Medium::HugePages {
                page: page.to_owned(),
            })
        };
        assert_eq!(check(json!({}), json!({})), Ok(Medium::Disk));
        assert_eq!(
            check(json!({"medium": "Memory"}), json!({})),
            memory(1 << 30)
        );
        let limited = json!({"limits": {"memory": "64Mi"}});
        assert_eq!(
            check(json!({"medium": "Memory"}), limited.clone()),
            memory(64 << 20)
        );
        let sized = json!({"medium": "Memory", "sizeLimit": "1Mi"});
        assert_eq!(check(sized, limited), memory(1 << 20));
        let huge = json!({"requests": {"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}});
        assert_eq!(
            check(json!({"medium": "HugePages-2Mi"}), huge.clone()),
            page("2Mi")
        );
        assert_eq!(
            check(json!({"medium": "HugePages"}), huge),
            Err(
                "medium: HugePages can't be used if container requests multiple huge page sizes"
                    .to_owned()
            )
        );
        assert_eq!(
            check(json!({"medium": "HugePages"}), json!({})),
            Err("medium HugePages: hugePages storage requested, but there is no resource request for huge pages".to_owned())
        );
    }
}
