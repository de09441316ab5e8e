//! Containers: created (root file system and bundle on disk), started, stopped and removed.

use std::{path::PathBuf, sync::Arc, time::Duration};

use cri::v1::{ContainerConfig, ContainerEventType, ImageSpec, PodSandboxConfig};

use super::{
    Error,
    bundles::{Bundles, VolumeImage, target_container},
    container_table::ContainerTable,
    events::Events,
    exits::Exits,
    host::Host,
    images::Images,
    sandbox_table::SandboxTable,
    stop_signal::stop_signal,
    tasks::run_blocking,
    views::container_state,
};
use crate::{
    images::{ImageRecord, reference},
    records::{ContainerRecord, ExitRecord, SandboxPhase, SandboxRecord},
    shim::client::{ContainerStreams, Start},
};

/// How long a killed container may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Containers {
    host: Arc<Host>,
    sandboxes: Arc<SandboxTable>,
    table: Arc<ContainerTable>,
    images: Arc<Images>,
    bundles: Arc<Bundles>,
    events: Arc<Events>,
    exits: Arc<Exits>,
}

impl Containers {
    pub fn new(
        host: Arc<Host>,
        sandboxes: Arc<SandboxTable>,
        table: Arc<ContainerTable>,
        images: Arc<Images>,
        bundles: Arc<Bundles>,
        events: Arc<Events>,
        exits: Arc<Exits>,
    ) -> Containers {
        Containers {
            host,
            sandboxes,
            table,
            images,
            bundles,
            events,
            exits,
        }
    }

    /// 1. The image is found and its layers are checked. 2. The container is recorded. 3. Its root file
    ///    system and its bundle are made. A failure removes everything again.
    pub async fn create(
        &self,
        sandbox: &str,
        config: ContainerConfig,
        sandbox_config: Option<PodSandboxConfig>,
    ) -> Result<String, Error> {
        self.host.prepare_cgroup_moves();
        let sandbox = self.sandboxes.record(&self.sandboxes.id(sandbox)?)?;
        if sandbox.phase != SandboxPhase::Ready {
            return Err(Error::sandbox_not_running(&sandbox.id));
        }
        let name = config.image.as_ref().map(|image| image.image.clone());
        let name = name.unwrap_or_default();
        let found = self.images.find_sound(name.clone()).await?;
        let image = found.ok_or_else(|| Error::not_found("image", &name))?;
        self.check_target(&sandbox, &config)?;
        let volumes = match config.mounts.iter().any(|mount| mount.image.is_some()) {
            true => {
                let (bundles, config) = (self.bundles.clone(), config.clone());
                run_blocking(move || bundles.volume_images(&config)).await?
            }
            false => Vec::new(),
        };
        let record = self.new_record(&sandbox, config, sandbox_config, &image, &volumes)?;
        self.table.reserve(record.clone())?;
        let (id, sandbox_id) = (record.id.clone(), sandbox.id.clone());
        let bundles = self.bundles.clone();
        let made = run_blocking(move || bundles.make(&record, &sandbox, &image, &volumes)).await;
        match made {
            Ok(identity) => {
                self.table.update(&id, |record| {
                    (record.uid, record.gid, record.groups) =
                        (identity.uid, identity.gid, identity.groups);
                })?;
                self.events
                    .announce(&id, &sandbox_id, ContainerEventType::ContainerCreatedEvent);
                Ok(id)
            }
            Err(error) => {
                if let Err(error) = self.remove(&id).await {
                    let error = environment::chain(&error);
                    tracing::warn!(%error, container = id, "undoing a failed container");
                }
                Err(error)
            }
        }
    }

    /// A container whose processes are to be seen must be of the same pod, and run.
    fn check_target(&self, sandbox: &SandboxRecord, config: &ContainerConfig) -> Result<(), Error> {
        let Some(target) = target_container(config) else {
            return Ok(());
        };
        let target = self.table.record(target)?;
        if target.sandbox != sandbox.id {
            return Err(Error::Invalid(format!(
                "invalid target container: {:?} is in another sandbox",
                target.id
            )));
        }
        if !target.is_running() {
            return Err(Error::Invalid(format!(
                "invalid target container: {:?} is not running",
                target.id
            )));
        }
        Ok(())
    }

    fn new_record(
        &self,
        sandbox: &SandboxRecord,
        mut config: ContainerConfig,
        sandbox_config: Option<PodSandboxConfig>,
        image: &ImageRecord,
        volumes: &[VolumeImage],
    ) -> Result<ContainerRecord, Error> {
        if let Some(asked) = &mut config.image {
            name_image(asked, image);
        }
        let metadata = config.metadata.as_ref();
        if metadata.is_none_or(|metadata| metadata.name.is_empty()) {
            return Err(Error::Invalid(
                "container config must include metadata".into(),
            ));
        }
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
        let id = self.host.new_id();
        Ok(ContainerRecord {
            sandbox: sandbox.id.clone(),
            image_id: image.id.clone(),
            image_ref: image.digests.first().unwrap_or(&image.id).clone(),
            layers: std::iter::once(image)
                .chain(volumes.iter().map(|(_, volume)| volume))
                .flat_map(|image| image.layers.clone())
                .collect(),
            created_at: self.host.now_nanos(),
            started_at: 0,
            pid: 0,
            exit: None,
            cgroup: self.host.config().cgroup_below(parent, &id),
            id,
            log,
            stop_signal: stop_signal(&config, image),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            config,
        })
    }

    pub async fn start(&self, id: &str) -> Result<(), Error> {
        self.host.prepare_cgroup_moves();
        let _guard = self.table.lock(id).await?;
        let record = self.table.record(id)?;
        if record.started_at != 0 || record.exit.is_some() {
            return Err(Error::Precondition(format!(
                "container {id:?} is in {:?} state",
                container_state(&record)
            )));
        }
        if self.sandboxes.record(&record.sandbox)?.users.is_some() {
            // A server that was started since has closed the passage.
            self.host.open_passage()?;
        }
        let shim = self.sandboxes.running_shim(&record.sandbox)?;
        let bundle = self.host.bundle(&record.sandbox, id);
        let streams = ContainerStreams {
            stdin: record.config.stdin,
            terminal: record.config.tty,
            attachable: true,
        };
        let started = shim.run(Start {
            container: id,
            bundle: &bundle,
            log: record.log.clone(),
            streams,
            cgroup: &record.cgroup,
            pause: false,
        });
        match started.await {
            Ok(started) => {
                self.table.update(id, |record| {
                    record.started_at = started.started_at;
                    if record.exit.is_none() {
                        record.pid = started.pid;
                    }
                })?;
                self.events.announce(
                    id,
                    &record.sandbox,
                    ContainerEventType::ContainerStartedEvent,
                );
                Ok(())
            }
            Err(source) => {
                let error = Error::shim("failed to start container")(source);
                self.table.record_exit(
                    id,
                    ExitRecord {
                        code: 128,
                        finished_at: self.host.now_nanos(),
                        reason: "StartError".into(),
                        message: environment::chain(&error).to_string(),
                    },
                )?;
                self.events.announce(
                    id,
                    &record.sandbox,
                    ContainerEventType::ContainerStoppedEvent,
                );
                Err(error)
            }
        }
    }

    /// Sends the stop signal, and SIGKILL after a grace period of `timeout` seconds. A container that
    /// does not run is already stopped.
    pub async fn stop(&self, id: &str, timeout: i64) -> Result<(), Error> {
        let record = self.table.record(id)?;
        if !record.is_running() {
            return Ok(());
        }
        let mut ended = self.table.end(id)?;
        let Some(shim) = self.sandboxes.shim(&record.sandbox) else {
            return self.exits.end_without_shim(&record.sandbox);
        };
        if timeout > 0 {
            let grace_period = Duration::from_secs(timeout.unsigned_abs());
            if !self.table.stop_signal_was_sent(id) {
                shim.kill(id, record.stop_signal, false)
                    .await
                    .map_err(Error::shim("failed to stop container"))?;
                self.table.note_stop_signal(id);
            }
            if tokio::time::timeout(grace_period, ended.wait_for(|ended| *ended))
                .await
                .is_ok()
            {
                return Ok(());
            }
        }
        shim.kill(id, libc::SIGKILL, false)
            .await
            .map_err(Error::shim("failed to kill container"))?;
        match tokio::time::timeout(KILL_TIMEOUT, ended.wait_for(|ended| *ended)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Deadline(format!("container {id:?} does not end"))),
        }
    }

    /// Stops every container of a sandbox at once, without a grace period.
    pub async fn kill_all(&self, sandbox: &str) -> Result<(), Error> {
        let containers = self.table.of_sandbox(sandbox);
        let stops = containers
            .iter()
            .map(|container| self.stop(&container.id, 0));
        for stopped in futures::future::join_all(stops).await {
            match stopped {
                Err(Error::NotFound { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Kills the container if it runs and removes all its files but its log. An unknown container is
    /// fine.
    pub async fn remove(&self, id: &str) -> Result<(), Error> {
        let Ok(_guard) = self.table.lock(id).await else {
            return Ok(());
        };
        let Ok(record) = self.table.record(id) else {
            return Ok(());
        };
        self.stop(id, 0).await?;
        match self.sandboxes.shim(&record.sandbox) {
            Some(shim) if record.started_at != 0 => {
                shim.delete(id)
                    .await
                    .map_err(Error::shim("failed to delete container"))?;
            }
            _ => {}
        }
        let (sandbox, image_id) = (record.sandbox.clone(), record.image_id.clone());
        let (host, table, bundles) = (self.host.clone(), self.table.clone(), self.bundles.clone());
        run_blocking(move || {
            // After a lost shim the cgroup still exists, and its processes may not have ended.
            if let Err(error) = host.hierarchies().end_and_remove(&record.cgroup) {
                tracing::debug!(%error, container = record.id, "a cgroup could not be removed");
            }
            bundles.remove(&record)?;
            table.remove_record(&record.id)
        })
        .await?;
        self.table.forget(id);
        self.events
            .announce(id, &sandbox, ContainerEventType::ContainerDeletedEvent);
        self.images.container_removed(&image_id).await
    }

    /// Removes every container of a sandbox.
    pub async fn remove_all(&self, sandbox: &str) -> Result<(), Error> {
        for container in self.table.of_sandbox(sandbox) {
            self.remove(&container.id).await?;
        }
        Ok(())
    }
}

/// People know images by name. A container that asks for its image by id is shown with the name that
/// its pod uses, or with any name of the image.
fn name_image(asked: &mut ImageSpec, image: &ImageRecord) {
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
