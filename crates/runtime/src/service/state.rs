//! The server's memory: sandboxes and containers, their records on disk, and who waits for what.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cri::v1::{ContainerEventResponse, RuntimeHandlerFeatures};
use environment::Environment;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{Error, streams::Tickets};
use crate::{
    cgroups::Hierarchies,
    config::{CgroupDriver, Config, cgroup_roots},
    images::{ImageStore, Puller},
    mount_points::MountPoints,
    pause,
    records::{ContainerRecord, Directory, SandboxPhase, SandboxRecord},
    sandbox::files::Files,
    shim::{Layout, client::Shim},
    snapshots::Snapshot,
    sys,
};

/// A subscriber this far behind must list anew.
const EVENTS_KEPT: usize = 1024;

/// Cheap to clone.
#[derive(Clone)]
pub struct Runtime(pub(super) Arc<Inner>);

pub struct Inner {
    pub config: Config,
    pub environment: Environment,
    pub shutdown: CancellationToken,
    pub images: Arc<ImageStore>,
    pub puller: Puller,
    pub hierarchies: Hierarchies,
    pub mount_points: MountPoints,
    pub sandbox_records: Directory,
    pub container_records: Directory,
    pub events: broadcast::Sender<ContainerEventResponse>,
    /// By handler; asked for once.
    pub handler_features: tokio::sync::OnceCell<BTreeMap<String, RuntimeHandlerFeatures>>,
    /// Sessions that have been asked for and not begun.
    pub tickets: Tickets,
    /// Somebody is making the kernel ready for moves into cgroups.
    pub expecting_moves: AtomicBool,
    /// Never held across an await. Per-object locks are taken before it, never inside.
    pub state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    pub sandboxes: BTreeMap<String, SandboxEntry>,
    pub containers: BTreeMap<String, ContainerEntry>,
}

/// Serialises what changes one object.
pub type Lock = Arc<tokio::sync::Mutex<()>>;

pub struct SandboxEntry {
    pub record: SandboxRecord,
    /// None once the shim is gone.
    pub shim: Option<Shim>,
    pub lock: Lock,
    /// True when the pause process has ended.
    pub ended: watch::Sender<bool>,
}

pub struct ContainerEntry {
    pub record: ContainerRecord,
    pub lock: Lock,
    /// It has been sent its stop signal; many programs take a second one for "at once".
    pub told_to_stop: bool,
    pub ended: watch::Sender<bool>,
}

impl Runtime {
    pub fn open(
        config: Config,
        environment: Environment,
        shutdown: CancellationToken,
    ) -> Result<Runtime, Error> {
        close_directories(&config)?;
        let pause_root = pause_root(&config);
        std::fs::create_dir_all(&pause_root).map_err(Error::file(&pause_root))?;
        pause::write_root(&pause_root).map_err(Error::file(&pause_root))?;
        let images = Arc::new(ImageStore::open(&config.root)?);
        let mount_points = config.root.join("mount-points");
        let mount_points =
            MountPoints::open(mount_points.clone()).map_err(Error::file(mount_points))?;
        let hierarchies = Hierarchies::detect().map_err(Error::file("/proc/self/mountinfo"))?;
        if config.cgroup_driver == CgroupDriver::Systemd
            && !(dbus::systemd::is_running() && hierarchies.legacy.is_empty())
        {
            return Err(Error::Precondition(
                "the systemd cgroup driver needs systemd and unified cgroups (v2)".into(),
            ));
        }
        Ok(Runtime(Arc::new(Inner {
            puller: Puller::new(images.clone(), config.registries()),
            images,
            hierarchies,
            mount_points,
            sandbox_records: Directory::alone(&config.root, "sandboxes"),
            container_records: Directory::new(&config.root, "containers"),
            events: broadcast::channel(EVENTS_KEPT).0,
            handler_features: tokio::sync::OnceCell::new(),
            tickets: Tickets::default(),
            expecting_moves: AtomicBool::new(false),
            state: Mutex::default(),
            config,
            environment,
            shutdown,
        })))
    }

    /// Processes are about to be put into cgroups: what the kernel needs for that is under way while
    /// the rest is prepared.
    pub fn expect_moves(&self) {
        if self.0.expecting_moves.swap(true, Ordering::AcqRel) {
            return;
        }
        let runtime = self.clone();
        tokio::task::spawn_blocking(move || {
            runtime.0.hierarchies.make_ready_for_moves();
            runtime.0.expecting_moves.store(false, Ordering::Release);
        });
    }

    /// Those that hold nobody go; pods that live keep theirs. Not for async threads.
    pub fn leave_cgroups(&self) {
        let config = &self.0.config;
        let [root, slice] = cgroup_roots(&config.cluster_id);
        for group in [config.cgroup_of("pods"), config.cgroup_of("shims"), root] {
            self.0.hierarchies.remove_if_empty(&group);
        }
        self.0.hierarchies.remove_if_empty(&slice);
    }

    pub fn now_nanos(&self) -> i64 {
        self.0.environment.now_micros() * 1000
    }

    /// 64 hexadecimal characters, as other runtimes make them.
    pub fn new_id(&self) -> String {
        let mut bytes = [0; 32];
        self.0.environment.fill(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn pause_root(&self) -> PathBuf {
        pause_root(&self.0.config)
    }

    /// Lets the users of pods with a user namespace pass through to what is [`Runtime::reachable`]:
    /// an OCI command takes on their rights before it has mounted everything.
    pub fn open_passage(&self) -> Result<(), Error> {
        let config = &self.0.config;
        let own = [config.state.clone(), config.state.join(REACHABLE)];
        for path in config.passage.iter().chain(&own) {
            let metadata = std::fs::metadata(path).map_err(Error::file(path))?;
            let mode = metadata.permissions().mode() & 0o7777;
            if mode & 0o11 != 0o11 {
                let permissions = std::fs::Permissions::from_mode(mode | 0o11);
                std::fs::set_permissions(path, permissions).map_err(Error::file(path))?;
            }
        }
        Ok(())
    }

    pub fn shim_directory(&self, sandbox: &str) -> PathBuf {
        self.0.config.state.join("shims").join(sandbox)
    }

    pub fn bundle(&self, sandbox: &str, container: &str) -> PathBuf {
        Layout(&self.shim_directory(sandbox)).bundle(container)
    }

    pub fn files(&self, sandbox: &str) -> Files {
        Files(self.shim_directory(sandbox).join("files"))
    }

    pub fn snapshot(&self, container: &str) -> Snapshot {
        let rootfs = self.0.config.state.join("rootfs").join(container);
        Snapshot::new(self.0.container_records.of(container), rootfs)
    }

    /// What a container of a pod with users of its own is made of, where they can reach it.
    pub fn reachable(&self, container: &str) -> PathBuf {
        self.0.config.state.join(REACHABLE).join(container)
    }

    pub fn shim_cgroup(&self, sandbox: &str) -> String {
        let config = &self.0.config;
        let name = match config.cgroup_driver {
            CgroupDriver::Cgroupfs => sandbox.to_owned(),
            CgroupDriver::Systemd => format!("shim-{sandbox}"),
        };
        config.cgroup_below(&config.cgroup_of("shims"), &name)
    }

    /// The full id of a sandbox given by id or a unique beginning of it.
    pub fn sandbox_id(&self, id: &str) -> Result<String, Error> {
        full_id(&self.0.state.lock().sandboxes, id).ok_or_else(|| Error::NotFound {
            kind: "sandbox",
            id: id.into(),
        })
    }

    pub fn container_id(&self, id: &str) -> Result<String, Error> {
        full_id(&self.0.state.lock().containers, id).ok_or_else(|| Error::NotFound {
            kind: "container",
            id: id.into(),
        })
    }

    pub fn sandbox_record(&self, id: &str) -> Result<SandboxRecord, Error> {
        let state = self.0.state.lock();
        let entry = state.sandboxes.get(id).ok_or_else(|| Error::NotFound {
            kind: "sandbox",
            id: id.into(),
        })?;
        Ok(entry.record.clone())
    }

    pub fn container_record(&self, id: &str) -> Result<ContainerRecord, Error> {
        let state = self.0.state.lock();
        let entry = state.containers.get(id).ok_or_else(|| Error::NotFound {
            kind: "container",
            id: id.into(),
        })?;
        Ok(entry.record.clone())
    }

    pub fn containers_of(&self, sandbox: &str) -> Vec<ContainerRecord> {
        let state = self.0.state.lock();
        state
            .containers
            .values()
            .filter(|entry| entry.record.sandbox == sandbox)
            .map(|entry| entry.record.clone())
            .collect()
    }

    pub fn shim_of(&self, sandbox: &str) -> Option<Shim> {
        self.0.state.lock().sandboxes.get(sandbox)?.shim.clone()
    }

    /// Changes a record in memory and on disk.
    pub fn update_sandbox(
        &self,
        id: &str,
        change: impl FnOnce(&mut SandboxRecord),
    ) -> Result<(), Error> {
        let mut state = self.0.state.lock();
        let Some(entry) = state.sandboxes.get_mut(id) else {
            return Ok(());
        };
        let born = entry.record.phase != SandboxPhase::Creating;
        change(&mut entry.record);
        match self.0.sandbox_records.write(id, &entry.record) {
            Err(error) if born && is_full(&error) => Ok(()),
            other => other.map_err(Error::file(self.0.sandbox_records.of(id))),
        }
    }

    pub fn update_container(
        &self,
        id: &str,
        change: impl FnOnce(&mut ContainerRecord),
    ) -> Result<(), Error> {
        let mut state = self.0.state.lock();
        let Some(entry) = state.containers.get_mut(id) else {
            return Ok(());
        };
        change(&mut entry.record);
        let born = entry.record.started_at != 0 || entry.record.exit.is_some();
        match self.0.container_records.write(id, &entry.record) {
            Err(error) if born && is_full(&error) => Ok(()),
            other => other.map_err(Error::file(self.0.container_records.of(id))),
        }
    }

    /// The layers that existing containers stand on.
    pub fn layers_in_use(&self) -> BTreeSet<String> {
        let state = self.0.state.lock();
        state
            .containers
            .values()
            .flat_map(|entry| entry.record.layers.iter().cloned())
            .collect()
    }
}

/// Below the state directory: what users of pods with a user namespace can reach.
pub const REACHABLE: &str = "mapped";

/// Below a directory that is closed, since its own root must be open to the pause process.
fn pause_root(config: &Config) -> PathBuf {
    config.state.join("pause").join("root")
}

/// Nothing of ours is open to others, neither below a closed directory nor where a passage is open
/// (see [`Runtime::open_passage`]). What an earlier version left open is closed.
fn close_directories(config: &Config) -> Result<(), Error> {
    let close = |path: &Path| sys::private_directory(path).map_err(Error::file(path));
    close(&config.root)?;
    close(&config.state)?;
    for name in [
        "pause", "shims", "rootfs", "netns", "userns", "consoles", "cni", REACHABLE,
    ] {
        close(&config.state.join(name))?;
    }
    let reachable = std::fs::read_dir(config.state.join(REACHABLE));
    for entry in reachable.into_iter().flatten().flatten() {
        let mode = entry.metadata().map(|found| found.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o7 != 0) {
            close(&entry.path())?;
        }
    }
    Ok(())
}

/// What becomes of something that is there must not wait for space: its end is what gives space
/// back. Memory knows of it, and after a restart the shim or its absence tells it again.
fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    )
}

fn full_id<T>(map: &BTreeMap<String, T>, id: &str) -> Option<String> {
    if map.contains_key(id) {
        return Some(id.to_owned());
    }
    if id.is_empty() {
        return None;
    }
    let mut found = map
        .range(id.to_owned()..)
        .take_while(|(known, _)| known.starts_with(id));
    match (found.next(), found.next()) {
        (Some((known, _)), None) => Some(known.clone()),
        _ => None,
    }
}

/// Work that waits for the disk or the kernel, off the async threads.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::Interrupted(error.to_string())))
}
