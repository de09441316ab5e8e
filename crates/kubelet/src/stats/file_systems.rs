//! Which file systems hold pods, images and containers' layers. Where the runtime keeps the latter
//! two is the runtime's to say; where it does not, all of them are one.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use cri::v1;
use files::disk_space::{Space, space};
use parking_lot::Mutex;

use super::disk::Usage;

/// Which of them are on file systems of their own, as upstream distinguishes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Everything shares one file system.
    #[default]
    Shared,
    /// Images and containers' layers have one of their own.
    ImagesApart,
    /// Only images have one of their own; layers are where the pods are.
    ImagesAloneApart,
}

/// The room there is; `None` where it could not be found out.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystems {
    pub node: Option<Space>,
    pub images: Option<Space>,
    pub containers: Option<Space>,
    pub layout: Layout,
}

/// Where the runtime keeps images and layers, and how much it says they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeDisk {
    pub images: Option<PathBuf>,
    pub containers: Option<PathBuf>,
    pub image_usage: Option<Usage>,
    pub container_usage: Option<Usage>,
}

/// The last answer of the runtime. Where it keeps its files does not change; how much they take costs
/// it a walk over them.
#[derive(Default)]
pub struct RuntimePlaces(Mutex<Option<RuntimeDisk>>);

impl RuntimePlaces {
    /// Asks the runtime if it has not been asked yet.
    pub async fn get(&self, cri: &cri::Client) -> RuntimeDisk {
        let known = self.0.lock().clone();
        match known {
            Some(disk) => disk,
            None => self.ask(cri).await,
        }
    }

    /// Asks the runtime. Returns the answer before if it does not answer now.
    pub async fn ask(&self, cri: &cri::Client) -> RuntimeDisk {
        let request = v1::ImageFsInfoRequest {};
        match cri.images.clone().image_fs_info(request).await {
            Ok(response) => {
                let disk = RuntimeDisk::from(response.into_inner());
                *self.0.lock() = Some(disk.clone());
                disk
            }
            Err(status) => {
                tracing::warn!(%status, "the runtime did not answer where its images are");
                self.0.lock().clone().unwrap_or_default()
            }
        }
    }
}

impl From<v1::ImageFsInfoResponse> for RuntimeDisk {
    fn from(response: v1::ImageFsInfoResponse) -> RuntimeDisk {
        let place = |found: &v1::FilesystemUsage| {
            let place = found.fs_id.as_ref()?.mountpoint.as_str();
            (!place.is_empty()).then(|| PathBuf::from(place))
        };
        let usage = |found: &v1::FilesystemUsage| {
            Some(Usage {
                bytes: found.used_bytes.as_ref()?.value,
                inodes: found.inodes_used.as_ref().map(|count| count.value),
            })
        };
        let images = response.image_filesystems.first();
        let containers = response.container_filesystems.first();
        RuntimeDisk {
            images: images.and_then(place),
            // Upstream takes both to be one where the runtime names only one.
            containers: containers.or(images).and_then(place),
            image_usage: images.and_then(usage),
            container_usage: containers.and_then(usage),
        }
    }
}

/// Measures them. Blocking.
pub fn measure(pods_root: &Path, disk: &RuntimeDisk) -> FileSystems {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    let own = device(pods_root);
    // A place that cannot be seen from here is taken to be on the same disk.
    let apart = |path: &Option<PathBuf>| {
        let path = path.as_ref()?;
        device(path).filter(|found| Some(*found) != own)?;
        Some(path.clone())
    };
    let node = space(pods_root);
    let (images, containers) = (apart(&disk.images), apart(&disk.containers));
    let layout = match (&images, &containers) {
        (None, _) => Layout::Shared,
        (Some(_), Some(_)) => Layout::ImagesApart,
        (Some(_), None) => Layout::ImagesAloneApart,
    };
    let or_node = |place: Option<PathBuf>| place.map_or(node, |place| space(&place));
    FileSystems {
        node,
        images: or_node(images),
        containers: or_node(containers),
        layout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime_disk(images: &str, containers: Option<&str>) -> RuntimeDisk {
        let at = |place: &str| v1::FilesystemUsage {
            fs_id: Some(v1::FilesystemIdentifier {
                mountpoint: place.to_owned(),
            }),
            used_bytes: Some(v1::UInt64Value { value: 7 }),
            ..Default::default()
        };
        RuntimeDisk::from(v1::ImageFsInfoResponse {
            image_filesystems: vec![at(images)],
            container_filesystems: containers.map(at).into_iter().collect(),
        })
    }

    #[test]
    fn the_layout_follows_the_runtimes_image_directory() {
        let here = tempfile::tempdir().expect("a directory");
        let here_text = here.path().to_str().expect("a name");
        let layout = |disk: &RuntimeDisk| measure(here.path(), disk).layout;
        assert_eq!(layout(&RuntimeDisk::default()), Layout::Shared);
        assert_eq!(layout(&runtime_disk(here_text, None)), Layout::Shared);
        assert_eq!(layout(&runtime_disk("/not/there", None)), Layout::Shared);
        // Every machine has this one, and no pod lives on it.
        let other = runtime_disk("/proc", None);
        assert_eq!(layout(&other), Layout::ImagesApart);
        assert_eq!(other.image_usage.map(|usage| usage.bytes), Some(7));
        assert_eq!(
            layout(&runtime_disk("/proc", Some(here_text))),
            Layout::ImagesAloneApart
        );
        let found = measure(here.path(), &other);
        let capacity = |space: Option<Space>| space.map(|space| space.capacity);
        assert_eq!(capacity(found.images), Some(0), "that of /proc");
        assert!(capacity(found.node) > Some(0));
    }
}
