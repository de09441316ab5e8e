//! The settings of the embedded runtime. Nothing here is read from flags or the environment.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc};

use dbus::slice;

use crate::own_executable::is_own_executable;

/// The directories of the runtime, and the programs that it runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Persistent: images, snapshots, container and sandbox records.
    pub root: PathBuf,
    /// Volatile: shim sockets, bundles, network namespaces.
    pub state: PathBuf,
    /// Directories of ours above `state`, all of them closed to others. While there are pods with
    /// users of their own, those users may pass through them and see nothing.
    pub passage: Vec<PathBuf>,
    /// The CRI socket to listen on.
    pub socket: PathBuf,
    /// Six hexadecimal characters carried by every kernel-visible name.
    pub cluster_id: String,
    /// The cluster's data directory, carried in the arguments of every shim.
    pub data_dir: PathBuf,
    /// The first `.conflist` or `.conf` in here is the pod network.
    pub cni_conf_dir: PathBuf,
    pub cni_bin_dirs: Vec<PathBuf>,
    /// The CNI plugin that is part of this binary, if there is one.
    pub own_plugin: Option<OwnPlugin>,
    /// A command with runc's interface, e.g. `coracle oci` or `runc`.
    pub oci_command: Vec<OsString>,
    /// Other commands with runc's interface, by the RuntimeClass handler that asks for them.
    pub oci_handlers: BTreeMap<String, Vec<OsString>>,
    /// The command that becomes a shim, e.g. `coracle shim`.
    pub shim_command: Vec<OsString>,
    pub cgroup_driver: CgroupDriver,
    /// Registries (`host` or `host:port`) spoken to over plain http. Loopback ones always are.
    pub insecure_registries: Vec<String>,
    /// Directories with `<registry>/hosts.toml`.
    pub registry_directories: Vec<PathBuf>,
    /// A file whose content differs between two boots of the machine.
    pub boot_id_file: PathBuf,
    /// Records the progress of image pulls on the timelines of pods.
    pub recorder: trace::Recorder,
}

/// How cgroups are made: as directories by whoever needs one, or by systemd as slices and scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupDriver {
    #[default]
    Cgroupfs,
    Systemd,
}

impl std::str::FromStr for CgroupDriver {
    type Err = UnknownCgroupDriver;

    fn from_str(name: &str) -> Result<CgroupDriver, UnknownCgroupDriver> {
        match name {
            "cgroupfs" => Ok(CgroupDriver::Cgroupfs),
            "systemd" => Ok(CgroupDriver::Systemd),
            other => Err(UnknownCgroupDriver(other.to_owned())),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no cgroup driver {0:?}: cgroupfs or systemd")]
pub struct UnknownCgroupDriver(String);

/// A CNI plugin that is part of this binary. Where the plugin of this name is a link to the running
/// file, it is called on a thread instead of as a process, with the same variables and input.
#[derive(Clone)]
pub struct OwnPlugin {
    pub name: &'static str,
    pub call: Arc<PluginCall>,
}

/// Its arguments are the environment and the standard input of the process; it returns what the
/// process would write, or an error with the message that it would write.
pub type PluginCall = dyn Fn(&BTreeMap<&str, String>, &[u8]) -> Result<String, Box<dyn std::error::Error + Send + Sync>>
    + Send
    + Sync;

impl std::fmt::Debug for OwnPlugin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

/// The cgroups that contain everything of a cluster: with the cgroupfs driver, and with systemd.
pub fn cgroup_roots(cluster_id: &str) -> [String; 2] {
    let name = format!("coracle-{cluster_id}");
    [format!("/{name}"), format!("/{}", slice::name(&[&name]))]
}

/// The kernel's file with an id of this boot.
pub const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// The handlers that need no configuration: runtimes found where packages install them.
pub fn installed_handlers() -> BTreeMap<String, Vec<OsString>> {
    let places = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    let find = |name: &str| {
        places
            .iter()
            .map(|place| PathBuf::from(place).join(name))
            .find(|path| path.is_file())
    };
    [
        ("runc", "runc"),
        ("crun", "crun"),
        ("runsc", "runsc"),
        ("kata", "kata-runtime"),
    ]
    .into_iter()
    .filter_map(|(handler, program)| Some((handler.to_owned(), vec![find(program)?.into()])))
    .collect()
}

impl Config {
    /// Changes with every boot.
    pub fn boot_id(&self) -> String {
        std::fs::read_to_string(&self.boot_id_file)
            .map(|id| id.trim().to_owned())
            .unwrap_or_default()
    }

    /// The OCI command behind a handler; the empty one is ours.
    pub fn oci_command_of(&self, handler: &str) -> Option<&[OsString]> {
        match handler {
            "" => Some(&self.oci_command),
            other => self.oci_handlers.get(other).map(Vec::as_slice),
        }
    }

    /// Whether a handler's OCI command is part of this binary.
    pub fn is_own_oci(&self, handler: &str) -> bool {
        self.oci_command_of(handler)
            .and_then(|command| command.first())
            .is_some_and(|program| is_own_executable(program.as_ref()))
    }

    /// The cgroup of this cluster for pods (`pods`) or shims (`shims`).
    pub fn cgroup_of(&self, kind: &str) -> String {
        match self.cgroup_driver {
            CgroupDriver::Cgroupfs => format!("{}/{kind}", cgroup_roots(&self.cluster_id)[0]),
            CgroupDriver::Systemd => {
                let root = format!("coracle-{}", self.cluster_id);
                slice::path(&slice::name(&[&root, kind])).unwrap_or_default()
            }
        }
    }

    /// The cgroup of a sandbox or a container (`name` is its id) or of a shim below `parent`. With
    /// systemd that is a scope, whose name is unique on the machine.
    pub fn cgroup_below(&self, parent: &str, name: &str) -> String {
        let parent = parent.trim_end_matches('/');
        match slice::is_slice(parent) {
            true => format!("{parent}/coracle-{}-{name}.scope", self.cluster_id),
            false => format!("{parent}/{name}"),
        }
    }
}
