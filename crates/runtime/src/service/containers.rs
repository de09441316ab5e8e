//! Containers: created (file system and bundle on disk), started, stopped and removed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cri::v1::{ContainerConfig, ContainerEventType, NamespaceMode, PodSandboxConfig, Signal};
use tokio::sync::watch;

use super::{
    Error,
    events::container_state,
    image_volumes,
    mapped::{Mapped, keep_apart},
    sandboxes::namespace_options,
    sandboxes::oci_cgroup,
    state::{ContainerEntry, Runtime, blocking},
};
use crate::{
    images::{ImageRecord, reference},
    records::{ContainerRecord, ExitRecord, SandboxPhase, SandboxRecord},
    shim::client::{ContainerStreams, Shim, Start},
    spec::{self, ContainerInput, Provided, user::Identity},
    sys,
};

/// How long a killed container may take to be gone.
const PATIENCE: Duration = Duration::from_secs(60);

impl Runtime {
    pub async fn create_container(
        &self,
        sandbox: &str,
        config: ContainerConfig,
        sandbox_config: Option<PodSandboxConfig>,
    ) -> Result<String, Error> {
        self.expect_moves();
        let sandbox = self.sandbox_record(&self.sandbox_id(sandbox)?)?;
        if sandbox.phase != SandboxPhase::Ready {
            return Err(Error::Precondition(format!(
                "sandbox {:?} is not running",
                sandbox.id
            )));
        }
        let name = config
            .image
            .as_ref()
            .map(|image| image.image.clone())
            .unwrap_or_default();
        let images = self.0.images.clone();
        let wanted = name.clone();
        let found = blocking(move || Ok(images.find_sound(&wanted)?)).await?;
        let image = found.ok_or_else(|| Error::NotFound {
            kind: "image",
            id: name,
        })?;
        self.check_company(&sandbox, &config)?;
        let id = self.new_id();
        let runtime = self.clone();
        let wanted = config.clone();
        let volumes = match config.mounts.iter().any(|mount| mount.image.is_some()) {
            true => blocking(move || runtime.volume_images(&wanted)).await?,
            false => Vec::new(),
        };
        let record =
            self.reserve_container(&id, &sandbox, config, sandbox_config, &image, &volumes)?;
        let (runtime, sandbox_id) = (self.clone(), sandbox.id.clone());
        let made =
            blocking(move || runtime.make_container(&record, &sandbox, &image, &volumes)).await;
        match made {
            Ok(identity) => {
                self.update_container(&id, |record| {
                    (record.uid, record.gid, record.groups) =
                        (identity.uid, identity.gid, identity.groups);
                })?;
                self.announce(&id, &sandbox_id, ContainerEventType::ContainerCreatedEvent);
                Ok(id)
            }
            Err(error) => {
                if let Err(error) = self.remove_container(&id).await {
                    tracing::warn!(%error, container = id, "undoing a failed container");
                }
                Err(error)
            }
        }
    }

    /// A container whose processes are to be seen must be of the same pod, and run.
    fn check_company(
        &self,
        sandbox: &SandboxRecord,
        config: &ContainerConfig,
    ) -> Result<(), Error> {
        let linux = config.linux.as_ref();
        let security = linux.and_then(|linux| linux.security_context.as_ref());
        let Some(options) = security.and_then(|security| security.namespace_options.as_ref())
        else {
            return Ok(());
        };
        if options.pid() != NamespaceMode::Target {
            return Ok(());
        }
        let target = self.container_record(&options.target_id)?;
        if target.sandbox != sandbox.id {
            return Err(Error::Invalid(format!(
                "invalid target container: {:?} is in another sandbox",
                target.id
            )));
        }
        if target.started_at == 0 || target.exit.is_some() {
            return Err(Error::Invalid(format!(
                "invalid target container: {:?} is not running",
                target.id
            )));
        }
        Ok(())
    }

    fn reserve_container(
        &self,
        id: &str,
        sandbox: &SandboxRecord,
        mut config: ContainerConfig,
        sandbox_config: Option<PodSandboxConfig>,
        image: &ImageRecord,
        volumes: &[(usize, ImageRecord)],
    ) -> Result<ContainerRecord, Error> {
        if let Some(asked) = &mut config.image {
            name_image(asked, image);
        }
        let metadata = config
            .metadata
            .clone()
            .filter(|metadata| !metadata.name.is_empty())
            .ok_or_else(|| Error::Invalid("container config must include metadata".into()))?;
        let log_directory = sandbox_config
            .map(|config| config.log_directory)
            .filter(|directory| !directory.is_empty())
            .unwrap_or_else(|| sandbox.config.log_directory.clone());
        let log = (!log_directory.is_empty() && !config.log_path.is_empty())
            .then(|| PathBuf::from(log_directory).join(&config.log_path));
        let parent = sandbox
            .cgroup
            .rsplit_once('/')
            .map_or("", |(parent, _)| parent);
        let record = ContainerRecord {
            id: id.to_owned(),
            sandbox: sandbox.id.clone(),
            image_id: image.id.clone(),
            image_ref: image.digests.first().unwrap_or(&image.id).clone(),
            layers: std::iter::once(image)
                .chain(volumes.iter().map(|(_, volume)| volume))
                .flat_map(|image| image.layers.clone())
                .collect(),
            created_at: self.now_nanos(),
            started_at: 0,
            pid: 0,
            exit: None,
            cgroup: self.0.config.cgroup_below(parent, id),
            log,
            stop_signal: stop_signal(&config, image),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            config,
        };
        let mut state = self.0.state.lock();
        let same = |entry: &&ContainerEntry| {
            entry.record.sandbox == sandbox.id
                && entry.record.config.metadata.as_ref() == Some(&metadata)
        };
        if let Some(entry) = state.containers.values().find(same) {
            return Err(Error::Exists(format!(
                "container {}_{} is reserved for {:?}",
                metadata.name, metadata.attempt, entry.record.id
            )));
        }
        self.0
            .container_records
            .write(id, &record)
            .map_err(Error::file(self.0.container_records.of(id)))?;
        state
            .containers
            .insert(id.to_owned(), ContainerEntry::new(record.clone()));
        Ok(record)
    }

    /// The images that are to be mounted as volumes, with the place of their mount in `config`.
    fn volume_images(&self, config: &ContainerConfig) -> Result<Vec<(usize, ImageRecord)>, Error> {
        let wanted = config
            .mounts
            .iter()
            .enumerate()
            .filter_map(|(index, mount)| {
                let image = mount.image.as_ref()?;
                (!image.image.is_empty()).then(|| (index, image.image.clone()))
            });
        wanted
            .map(|(index, name)| {
                let found = self.0.images.find_sound(&name)?;
                let image = found.ok_or_else(|| Error::NotFound {
                    kind: "image",
                    id: name,
                })?;
                Ok((index, image))
            })
            .collect()
    }

    fn layer_directories(&self, image: &ImageRecord) -> Result<Vec<PathBuf>, Error> {
        let directories: Result<Vec<_>, _> = image
            .layers
            .iter()
            .map(|layer| self.0.images.layer_directory(layer))
            .collect();
        Ok(directories?)
    }

    /// The file system and the bundle. Returns who the process will be.
    fn make_container(
        &self,
        record: &ContainerRecord,
        sandbox: &SandboxRecord,
        image: &ImageRecord,
        volumes: &[(usize, ImageRecord)],
    ) -> Result<Identity, Error> {
        let snapshot = self.snapshot(&record.id);
        let layers = self.layer_directories(image)?;
        let userns = self.userns(&sandbox.id);
        let mapped = match sandbox.users {
            None => None,
            Some(users) => {
                self.open_passage()?;
                Some(Mapped::create(self.reachable(&record.id), &userns, users)?)
            }
        };
        let rootfs = match (&mapped, sandbox.users) {
            (Some(mapped), Some(users)) => mapped.root(&snapshot, &layers, users)?,
            _ => {
                let mounted = record.config.mounts.iter();
                let mounted = mounted.map(|mount| mount.container_path.as_str());
                let lowest = self.0.mount_points.layer(mounted);
                let layers: Vec<PathBuf> = std::iter::once(lowest).chain(layers).collect();
                snapshot.mount(&layers)?;
                snapshot.rootfs()
            }
        };
        let mut config = record.config.clone();
        for (index, volume) in volumes {
            let root = snapshot.mount_image(*index, &self.layer_directories(volume)?)?;
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
        let files = self.files(&sandbox.id);
        let options = namespace_options(&sandbox.config);
        let shm = files.shm(options.ipc() == NamespaceMode::Node);
        let mut provided = [
            ("shm", shm),
            ("resolv.conf", files.resolv_conf()),
            ("hostname", files.hostname()),
            ("hosts", files.hosts()),
        ];
        if mapped.is_none() {
            keep_apart(&self.reachable(&record.id), &mut config.mounts)?;
        }
        if let Some(mapped) = &mapped {
            mapped.volumes(&mut config.mounts)?;
            for (name, path) in &mut provided {
                *path = mapped.provided(name, path)?;
            }
        }
        let [shm, resolv_conf, hostname_file, hosts] = provided.map(|(_, path)| path);
        let target = record
            .config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .and_then(|security| security.namespace_options.as_ref())
            .filter(|options| options.pid() == NamespaceMode::Target)
            .map(|options| self.container_record(&options.target_id))
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
            hierarchies: &self.0.hierarchies,
            users: sandbox.users.map(|users| (users, userns.as_path())),
            sandbox: &sandbox.id,
        })?;
        // Other OCI commands look at each mount's own wish.
        let propagation = &mut document["linux"]["rootfsPropagation"];
        if propagation.is_null() && self.0.config.is_own_oci(&sandbox.runtime_handler) {
            *propagation = "private".into();
        }
        let bundle = self.bundle(&sandbox.id, &record.id);
        fs::create_dir_all(&bundle).map_err(Error::file(&bundle))?;
        let file = bundle.join("config.json");
        sys::write_private(&file, document.to_string().as_bytes()).map_err(Error::file(&file))?;
        Ok(identity)
    }

    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        self.expect_moves();
        let _guard = self.lock_container(id)?.lock_owned().await;
        let record = self.container_record(id)?;
        if record.started_at != 0 || record.exit.is_some() {
            return Err(Error::Precondition(format!(
                "container {id:?} is in {:?} state",
                container_state(&record)
            )));
        }
        if self.sandbox_record(&record.sandbox)?.users.is_some() {
            // A server that was started since has closed it.
            self.open_passage()?;
        }
        let shim = self.shim_for(&record)?;
        let bundle = self.bundle(&record.sandbox, id);
        let streams = ContainerStreams {
            stdin: record.config.stdin,
            terminal: record.config.tty,
            attachable: true,
        };
        match shim
            .run(Start {
                container: id,
                bundle: &bundle,
                log: record.log.clone(),
                streams,
                cgroup: &record.cgroup,
                pause: false,
            })
            .await
        {
            Ok(started) => {
                self.update_container(id, |record| {
                    record.started_at = started.started_at;
                    if record.exit.is_none() {
                        record.pid = started.pid;
                    }
                })?;
                self.announce(
                    id,
                    &record.sandbox,
                    ContainerEventType::ContainerStartedEvent,
                );
                Ok(())
            }
            Err(source) => {
                let error = Error::shim("failed to start container")(source);
                self.container_ended(
                    id,
                    ExitRecord {
                        code: 128,
                        finished_at: self.now_nanos(),
                        reason: "StartError".into(),
                        message: error.to_string(),
                    },
                )?;
                self.announce(
                    id,
                    &record.sandbox,
                    ContainerEventType::ContainerStoppedEvent,
                );
                Err(error)
            }
        }
    }

    /// The stop signal, `timeout` seconds of grace, then SIGKILL. A container that does not run is
    /// already stopped.
    pub async fn stop_container(&self, id: &str, timeout: i64) -> Result<(), Error> {
        let record = self.container_record(id)?;
        if record.started_at == 0 || record.exit.is_some() {
            return Ok(());
        }
        let mut ended = self.container_end(id)?;
        let Some(shim) = self.shim_of(&record.sandbox) else {
            return self.end_without_shim(&record.sandbox);
        };
        if timeout > 0 {
            let grace = Duration::from_secs(timeout.unsigned_abs());
            if !self.told_to_stop(id) {
                shim.kill(id, record.stop_signal, false)
                    .await
                    .map_err(Error::shim("failed to stop container"))?;
                if let Some(entry) = self.0.state.lock().containers.get_mut(id) {
                    entry.told_to_stop = true;
                }
            }
            if tokio::time::timeout(grace, ended.wait_for(|ended| *ended))
                .await
                .is_ok()
            {
                return Ok(());
            }
        }
        shim.kill(id, libc::SIGKILL, false)
            .await
            .map_err(Error::shim("failed to kill container"))?;
        match tokio::time::timeout(PATIENCE, ended.wait_for(|ended| *ended)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Deadline(format!("container {id:?} does not end"))),
        }
    }

    fn told_to_stop(&self, id: &str) -> bool {
        let state = self.0.state.lock();
        let entry = state.containers.get(id);
        entry.is_some_and(|entry| entry.told_to_stop)
    }

    /// Ends it if need be and removes every trace but its log. An unknown one is fine.
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> {
        let Ok(lock) = self.lock_container(id) else {
            return Ok(());
        };
        let _guard = lock.lock_owned().await;
        let Ok(record) = self.container_record(id) else {
            return Ok(());
        };
        self.stop_container(id, 0).await?;
        match self.shim_of(&record.sandbox) {
            Some(shim) if record.started_at != 0 => {
                shim.delete(id)
                    .await
                    .map_err(Error::shim("failed to delete container"))?;
            }
            _ => {}
        }
        let runtime = self.clone();
        let (bundle, owned) = (self.bundle(&record.sandbox, id), record.clone());
        blocking(move || {
            // After a lost shim the cgroup is still there, and its processes may not be gone.
            if let Err(error) = runtime.0.hierarchies.end_and_remove(&owned.cgroup) {
                tracing::debug!(%error, container = owned.id, "a cgroup stays");
            }
            runtime.remove_mapped(&owned.id)?;
            runtime.snapshot(&owned.id).remove()?;
            let _ = fs::remove_dir_all(bundle);
            let path = runtime.0.container_records.of(&owned.id);
            runtime
                .0
                .container_records
                .remove(&owned.id)
                .map_err(Error::file(path))
        })
        .await?;
        self.0.state.lock().containers.remove(id);
        self.announce(
            id,
            &record.sandbox,
            ContainerEventType::ContainerDeletedEvent,
        );
        if self.0.images.find(&record.image_id)?.is_none() {
            self.collect_images().await;
        }
        Ok(())
    }

    /// Removes what no image and no container needs; a busy store is left for the next time.
    pub async fn collect_images(&self) {
        let (images, used) = (self.0.images.clone(), self.layers_in_use());
        match tokio::task::spawn_blocking(move || images.collect(&used)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "collecting unused layers"),
            Err(error) => tracing::warn!(%error, "collecting unused layers"),
        }
    }

    pub(super) fn shim_for(&self, record: &ContainerRecord) -> Result<Shim, Error> {
        self.shim_of(&record.sandbox).ok_or_else(|| {
            Error::Precondition(format!("sandbox {:?} is not running", record.sandbox))
        })
    }

    fn lock_container(&self, id: &str) -> Result<super::state::Lock, Error> {
        let state = self.0.state.lock();
        let entry = state.containers.get(id).ok_or_else(|| Error::NotFound {
            kind: "container",
            id: id.into(),
        })?;
        Ok(entry.lock.clone())
    }

    pub(super) fn container_end(&self, id: &str) -> Result<watch::Receiver<bool>, Error> {
        let state = self.0.state.lock();
        let entry = state.containers.get(id).ok_or_else(|| Error::NotFound {
            kind: "container",
            id: id.into(),
        })?;
        Ok(entry.ended.subscribe())
    }
}

impl ContainerEntry {
    pub fn new(record: ContainerRecord) -> ContainerEntry {
        let ended = record.exit.is_some();
        ContainerEntry {
            record,
            lock: Arc::default(),
            told_to_stop: false,
            ended: watch::Sender::new(ended),
        }
    }
}

/// The pod's wish, else the image's, else SIGTERM.
fn stop_signal(config: &ContainerConfig, image: &ImageRecord) -> i32 {
    let wished = config.stop_signal();
    let name = match wished {
        Signal::RuntimeDefault => image.process.stop_signal.clone(),
        other => other.as_str_name().to_owned(),
    };
    signal_number(&name).unwrap_or(libc::SIGTERM)
}

/// From `SIGTERM`, `TERM`, `15` or CRI's `SIGRTMINPLUS3`.
fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number @ 1..=64) = name.parse() {
        return Some(number);
    }
    let upper = name
        .to_ascii_uppercase()
        .replace('+', "PLUS")
        .replace('-', "MINUS");
    let full = if upper.starts_with("SIG") {
        upper
    } else {
        format!("SIG{upper}")
    };
    let real_time = |prefix: &str, base: i32, sign: i32| {
        let rest = full.strip_prefix(prefix)?;
        let offset = if rest.is_empty() {
            0
        } else {
            rest.parse::<i32>().ok()?
        };
        Some(base + sign * offset)
    };
    real_time("SIGRTMINPLUS", 34, 1)
        .or_else(|| real_time("SIGRTMAXMINUS", 64, -1))
        .or_else(|| (full == "SIGRTMIN").then_some(34))
        .or_else(|| (full == "SIGRTMAX").then_some(64))
        .or_else(|| {
            full.parse::<nix::sys::signal::Signal>()
                .ok()
                .map(|signal| signal as i32)
        })
}

/// People know images by name. Who asks by id is told the name that stands in the pod, or any.
fn name_image(asked: &mut cri::v1::ImageSpec, image: &ImageRecord) {
    let by_id = asked.image == image.id || image.id.strip_prefix("sha256:") == Some(&asked.image);
    if !by_id {
        return;
    }
    let wanted = reference::normalise(&asked.user_specified_image).ok();
    let named = wanted.as_ref().and_then(|name| image.tags.get(name));
    if let Some(name) = named.or_else(|| image.tags.first()) {
        asked.image.clone_from(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_every_name() {
        for (name, number) in [
            ("SIGTERM", 15),
            ("QUIT", 3),
            ("9", 9),
            ("SIGRTMIN+3", 37),
            ("SIGRTMAXMINUS1", 63),
        ] {
            assert_eq!(signal_number(name), Some(number), "{name}");
        }
        assert_eq!(signal_number(""), None);
    }
}
