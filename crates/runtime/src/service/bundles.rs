//! A container's files before it is started: its root file system, its volumes, and its OCI bundle.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use cri::v1::{ContainerConfig, NamespaceMode};

use super::{
    Error,
    container_table::ContainerTable,
    host::Host,
    image_volumes,
    images::Images,
    mapped::{self, Mapped, keep_apart},
    sandbox_options::{namespace_options, oci_cgroup},
};
use crate::{
    images::ImageRecord,
    mount_points::MountPoints,
    records::{ContainerRecord, SandboxRecord},
    spec::{self, ContainerInput, Provided, user::Identity},
    sys,
};

/// Everything here blocks.
pub struct Bundles {
    host: Arc<Host>,
    containers: Arc<ContainerTable>,
    images: Arc<Images>,
    mount_points: MountPoints,
}

/// An image that is mounted as a volume, and the index of its mount in the container's config.
pub type VolumeImage = (usize, ImageRecord);

impl Bundles {
    pub fn open(
        host: Arc<Host>,
        containers: Arc<ContainerTable>,
        images: Arc<Images>,
    ) -> Result<Bundles, Error> {
        let directory = host.config().root.join("mount-points");
        let mount_points = MountPoints::open(directory.clone()).map_err(Error::file(directory))?;
        Ok(Bundles {
            host,
            containers,
            images,
            mount_points,
        })
    }

    /// Finds the images that the container mounts as volumes.
    pub fn volume_images(&self, config: &ContainerConfig) -> Result<Vec<VolumeImage>, Error> {
        let mounts = config.mounts.iter().enumerate();
        mounts
            .filter_map(|(index, mount)| {
                let name = &mount.image.as_ref()?.image;
                (!name.is_empty()).then_some((index, name))
            })
            .map(|(index, name)| Ok((index, self.images.require(name)?)))
            .collect()
    }

    /// Mounts the root file system and writes the bundle. Returns the user of the process.
    pub fn make(
        &self,
        record: &ContainerRecord,
        sandbox: &SandboxRecord,
        image: &ImageRecord,
        volumes: &[VolumeImage],
    ) -> Result<Identity, Error> {
        let host = &self.host;
        let snapshot = host.snapshot(&record.id);
        let layers = self.images.layer_directories(image)?;
        let userns = host.userns(&sandbox.id);
        let mapped = match sandbox.users {
            None => None,
            Some(users) => {
                host.open_passage()?;
                Some(Mapped::create(host.reachable(&record.id), &userns, users)?)
            }
        };
        let rootfs = match (&mapped, sandbox.users) {
            (Some(mapped), Some(users)) => mapped.root(&snapshot, &layers, users)?,
            _ => {
                let mounted = record.config.mounts.iter();
                let mounted = mounted.map(|mount| mount.container_path.as_str());
                let lowest = self.mount_points.layer(mounted);
                let layers: Vec<PathBuf> = std::iter::once(lowest).chain(layers).collect();
                snapshot.mount(&layers)?;
                snapshot.rootfs()
            }
        };
        let mut config = record.config.clone();
        for (index, volume) in volumes {
            let root = snapshot.mount_image(*index, &self.images.layer_directories(volume)?)?;
            let mount = &mut config.mounts[*index];
            let path = spec::user::find_inside(&root, Path::new(&mount.image_sub_path))
                .ok_or_else(|| {
                    Error::Invalid(format!(
                        "image volume has no path {:?}",
                        mount.image_sub_path
                    ))
                })?;
            mount.host_path = path.to_string_lossy().into_owned();
            mount.readonly = true;
            mount.image = None;
        }
        image_volumes::prepare(&mut config, image, &rootfs, &snapshot, sandbox.users)?;
        let files = host.files(&sandbox.id);
        let options = namespace_options(&sandbox.config);
        let shm = files.shm(options.ipc() == NamespaceMode::Node);
        let mut provided = [
            ("shm", shm),
            ("resolv.conf", files.resolv_conf()),
            ("hostname", files.hostname()),
            ("hosts", files.hosts()),
        ];
        if mapped.is_none() {
            keep_apart(&host.reachable(&record.id), &mut config.mounts)?;
        }
        if let Some(mapped) = &mapped {
            mapped.volumes(&mut config.mounts)?;
            for (name, path) in &mut provided {
                *path = mapped.provided(name, path)?;
            }
        }
        let [shm, resolv_conf, hostname_file, hosts] = provided.map(|(_, path)| path);
        let target = target_container(&record.config)
            .map(|target| self.containers.record(target))
            .transpose()?;
        let hostname = fs::read_to_string(files.hostname()).unwrap_or_default();
        let (mut document, identity) = spec::container(&ContainerInput {
            config: &config,
            image,
            rootfs: &rootfs,
            provided: Provided {
                shm: &shm,
                resolv_conf: &resolv_conf,
                hostname: &hostname_file,
                hosts: &hosts,
            },
            hostname: hostname.trim_end(),
            cgroup: &oci_cgroup(&record.cgroup),
            sandbox_pid: sandbox.pid,
            netns: sandbox.netns.as_deref(),
            target_pid: target.map(|target| target.pid),
            hierarchies: host.hierarchies(),
            users: sandbox.users.map(|users| (users, userns.as_path())),
            sandbox: &sandbox.id,
        })?;
        // Other OCI runtimes look at the propagation of each mount.
        let propagation = &mut document["linux"]["rootfsPropagation"];
        if propagation.is_null() && host.config().is_own_oci(&sandbox.runtime_handler) {
            *propagation = "private".into();
        }
        let bundle = host.bundle(&sandbox.id, &record.id);
        fs::create_dir_all(&bundle).map_err(Error::file(&bundle))?;
        let file = bundle.join("config.json");
        sys::write_private(&file, document.to_string().as_bytes()).map_err(Error::file(&file))?;
        Ok(identity)
    }

    /// Unmounts and removes all files of a container but its record and its log.
    pub fn remove(&self, record: &ContainerRecord) -> Result<(), Error> {
        mapped::remove(&self.host.reachable(&record.id))?;
        self.host.snapshot(&record.id).remove()?;
        let _ = fs::remove_dir_all(self.host.bundle(&record.sandbox, &record.id));
        Ok(())
    }
}

/// The container whose processes the new one shall see, if it asks for one.
pub fn target_container(config: &ContainerConfig) -> Option<&str> {
    let security = config.linux.as_ref()?.security_context.as_ref()?;
    let options = security.namespace_options.as_ref()?;
    (options.pid() == NamespaceMode::Target).then_some(options.target_id.as_str())
}
