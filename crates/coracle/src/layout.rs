//! The files of a cluster: its data directory, its run directory, and the settings that stay the
//! same for the life of a data directory.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use environment::Environment;
use files::atomic_file::{self, Options};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use serde::{Deserialize, Serialize};

/// The data directory of a command that is given none.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/coracle";
/// The run directories of all clusters of this machine lie here; a reboot empties it.
pub const RUN_ROOT: &str = "/run/coracle";
/// The DNS domain of every cluster.
pub const CLUSTER_DOMAIN: &str = "cluster.local";

/// The choices that were made when the data directory was created. They cannot change afterwards,
/// because certificates, stored Services and running pods depend on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Six hexadecimal characters; part of every kernel-visible name.
    pub cluster_id: String,
    pub node_name: String,
    pub pod_range: String,
    pub service_range: String,
    pub api_port: u16,
    pub kubelet_port: u16,
    /// The index of this node's /24 in the pod range; 0 is the server's own node.
    #[serde(default)]
    pub node_index: u8,
    /// The address at which other machines reach this node, if the user chose one.
    #[serde(default)]
    pub node_address: Option<IpAddr>,
    /// The directory belongs to a node whose server is on another machine.
    #[serde(default)]
    pub joined: bool,
    /// The CRI socket of another container runtime than the embedded one.
    #[serde(default)]
    pub runtime_endpoint: Option<PathBuf>,
    /// Servers that share a store have a pod range each, so that nodes may have pod CIDRs outside of
    /// this server's range.
    #[serde(default)]
    pub several_pod_ranges: bool,
}

/// The paths of one data directory.
#[derive(Clone, Debug)]
pub struct Layout {
    pub data_dir: PathBuf,
}

impl Layout {
    /// Makes the directory absolute and creates it, readable by its owner only.
    pub fn create(data_dir: &Path) -> Result<Layout> {
        private_dir(data_dir)?;
        Layout::existing(data_dir)
    }

    /// The layout of an existing directory, for commands that must not create anything.
    pub fn existing(data_dir: &Path) -> Result<Layout> {
        let data_dir = fs::canonicalize(data_dir)
            .with_context(|| format!("data directory {}", data_dir.display()))?;
        Ok(Layout { data_dir })
    }

    /// Locks the directory during a start or stop, so that a `down` during an `up` waits for it and
    /// finds everything that it created. The lock ends with the returned file or the process.
    pub fn lock(&self) -> Result<fs::File> {
        let path = self.lock_file();
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("opening {}", path.display()))?;
        file.lock()
            .with_context(|| format!("locking {}", path.display()))?;
        Ok(file)
    }

    pub fn lock_file(&self) -> PathBuf {
        self.data_dir.join("lock")
    }

    /// The stored settings, or `None` in a fresh directory.
    pub fn settings(&self) -> Result<Option<Settings>> {
        let path = self.settings_file();
        match fs::read(&path) {
            Ok(bytes) => {
                Ok(Some(serde_json::from_slice(&bytes).with_context(|| {
                    format!("{} is damaged", path.display())
                })?))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    pub fn save_settings(&self, settings: &Settings) -> Result<()> {
        write_private(&self.settings_file(), &serde_json::to_vec_pretty(settings)?)
    }

    fn settings_file(&self) -> PathBuf {
        self.data_dir.join("cluster.json")
    }

    pub fn store(&self) -> PathBuf {
        self.data_dir.join("store")
    }

    pub fn timelines(&self) -> PathBuf {
        self.data_dir.join("timelines")
    }

    pub fn pki(&self) -> PathBuf {
        self.data_dir.join("pki")
    }

    pub fn kubelet(&self) -> PathBuf {
        self.data_dir.join("kubelet")
    }

    pub fn pod_logs(&self) -> PathBuf {
        self.data_dir.join("logs/pods")
    }

    pub fn runtime(&self) -> PathBuf {
        self.data_dir.join("runtime")
    }

    /// The directories with `<registry>/hosts.toml`, the first one first.
    pub fn registries(&self) -> Vec<PathBuf> {
        vec![
            self.data_dir.join("registries"),
            "/etc/coracle/registries".into(),
        ]
    }

    pub fn cni_conf(&self) -> PathBuf {
        self.data_dir.join("cni/net.d")
    }

    pub fn cni_bin(&self) -> PathBuf {
        self.data_dir.join("cni/bin")
    }

    pub fn server_log(&self) -> PathBuf {
        self.data_dir.join("server.log")
    }

    /// Contains the keeper's process id. The keeper locks it while it runs.
    pub fn keeper_file(&self) -> PathBuf {
        self.data_dir.join("keeper.pid")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir.join("kubeconfig")
    }

    /// The kubelet's kubeconfig.
    pub fn node_kubeconfig(&self) -> PathBuf {
        self.pki().join("node.kubeconfig")
    }

    /// The directory of the node's local-path volumes.
    pub fn local_path(&self) -> PathBuf {
        self.data_dir.join("local-path")
    }

    /// The kubeconfig of the node's side of local-path volumes.
    pub fn local_path_kubeconfig(&self) -> PathBuf {
        self.pki().join("local-path.kubeconfig")
    }

    /// The invited nodes and the indexes of their pod CIDRs.
    pub fn nodes_file(&self) -> PathBuf {
        self.data_dir.join("nodes.json")
    }

    /// The kubeconfig of the node's service proxy and resolver.
    pub fn proxy_kubeconfig(&self) -> PathBuf {
        self.pki().join("proxy.kubeconfig")
    }
}

impl Settings {
    /// Those of the first node of a cluster with the default ranges and ports.
    #[cfg(test)]
    pub fn example() -> Settings {
        Settings {
            cluster_id: "00c0de".into(),
            node_name: "n".into(),
            pod_range: "10.244.0.0/16".into(),
            service_range: "10.96.0.0/12".into(),
            api_port: 6443,
            kubelet_port: 10250,
            node_index: 0,
            node_address: None,
            joined: false,
            several_pod_ranges: false,
            runtime_endpoint: None,
        }
    }

    /// The directory for sockets, namespaces and bundles of this cluster. A reboot empties it.
    pub fn run_dir(&self) -> PathBuf {
        Path::new(RUN_ROOT).join(&self.cluster_id)
    }

    /// The addresses of pods and the other records of our CNI plugin. They describe kernel objects,
    /// which a reboot removes.
    pub fn cni_state(&self) -> PathBuf {
        self.run_dir().join("cni")
    }

    /// The directory for volumes in memory.
    pub fn secret_volumes(&self) -> PathBuf {
        self.run_dir().join("volumes")
    }

    pub fn cri_socket(&self) -> PathBuf {
        self.run_dir().join("cri.sock")
    }

    /// Exists while the server is ready. By it the keeper distinguishes a crash from a failed start.
    pub fn ready_file(&self) -> PathBuf {
        self.run_dir().join("ready")
    }

    /// Whether the directory belongs to a server, and not to a node that joined one.
    pub fn is_servers_own(&self) -> bool {
        self.node_index == 0 && !self.joined
    }

    pub fn cgroup_root(&self) -> String {
        format!("/coracle-{}", self.cluster_id)
    }

    /// The address at `offset` in the service range: 1 is the API server, 10 is DNS.
    pub fn service_address(&self, offset: u32) -> Result<Ipv4Addr> {
        address_in(&self.service_range, offset)
    }

    /// This node's pod CIDR: a /24 of the pod range, or all of a smaller range.
    pub fn node_pod_range(&self) -> Result<String> {
        let start = self.pod_address(0)?;
        let whole = self.pod_range.rsplit_once('/').map(|(_, prefix)| prefix);
        let prefix = whole.and_then(|prefix| prefix.parse::<u8>().ok());
        Ok(format!("{start}/{}", prefix.unwrap_or(24).max(24)))
    }

    pub fn gateway(&self) -> Result<Ipv4Addr> {
        self.pod_address(1)
    }

    /// The index of the pod CIDR `share` in the pod range.
    pub fn index_of(pod_range: &str, share: &str) -> Result<u8> {
        (0..=u8::MAX)
            .find(|index| {
                let start = address_in(pod_range, u32::from(*index) * 256);
                start.is_ok_and(|start| format!("{start}/24") == share)
            })
            .with_context(|| format!("{share} is not a /24 of the pod range {pod_range}"))
    }

    fn pod_address(&self, offset: u32) -> Result<Ipv4Addr> {
        address_in(&self.pod_range, u32::from(self.node_index) * 256 + offset)
    }
}

/// The address at `offset` in an IPv4 range.
fn address_in(range: &str, offset: u32) -> Result<Ipv4Addr> {
    let (address, prefix) = range
        .split_once('/')
        .with_context(|| format!("{range} is not a range such as 10.96.0.0/12"))?;
    let address: Ipv4Addr = address
        .parse()
        .with_context(|| format!("{range} is not an IPv4 range"))?;
    let prefix: u32 = prefix.parse().with_context(|| format!("{range}: prefix"))?;
    if !(8..=29).contains(&prefix) {
        bail!("{range}: the prefix length must be between 8 and 29");
    }
    if offset >= 1 << (32 - prefix) {
        bail!("the range {range} is too small for another node");
    }
    Ok(Ipv4Addr::from(u32::from(address) + offset))
}

/// Creates a cluster id.
pub fn new_cluster_id(environment: &Environment) -> String {
    format!("{:06x}", environment.random_u64() & 0xff_ffff)
}

/// Creates a directory and its parents with mode 0700. An existing directory that others can read
/// gets mode 0700 as well.
pub fn private_dir(path: &Path) -> Result<()> {
    closed_dir(path, 0o700)
}

/// Creates the directory of all clusters' run directories. Its search permission for others stays,
/// because the users of another cluster's pods may need it.
pub fn run_root(path: &Path) -> Result<()> {
    closed_dir(path, 0o711)
}

fn closed_dir(path: &Path, at_most: u32) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("creating {}", path.display()))?;
    let mode = fs::metadata(path)
        .with_context(|| path.display().to_string())?
        .mode();
    if mode & 0o1000 != 0 {
        bail!(
            "{} is shared by all users: choose a subdirectory of it",
            path.display()
        );
    }
    if mode & 0o777 & !at_most != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & at_most))
            .with_context(|| format!("removing the permissions of others on {}", path.display()))?;
    }
    Ok(())
}

/// Creates the run directory. Where `/run` is on a disk, a tmpfs is mounted on it: its files must not
/// survive a reboot, and a pod's small files should cost no disk access. A directory that is not empty
/// is left unchanged, because it contains pods of an older server.
pub fn volatile_dir(path: &Path) -> Result<()> {
    private_dir(path)?;
    let kind = statfs(path).with_context(|| format!("reading the type of {}", path.display()))?;
    let empty = fs::read_dir(path)?.next().is_none();
    if kind.filesystem_type() == TMPFS_MAGIC || !empty {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let options = Some("mode=700,size=20%");
    if let Err(error) = mount(Some("coracle"), path, Some("tmpfs"), flags, options) {
        tracing::debug!(%error, path = %path.display(), "the run directory stays on the disk");
    }
    Ok(())
}

/// Creates a file system in memory for data that must never reach a disk; from Linux 6.4 on it is not
/// swapped out either. Returns `None` where it cannot be mounted.
pub fn secret_dir(path: &Path) -> Option<PathBuf> {
    let made = private_dir(path).and_then(|()| {
        if is_mount_point(path)? {
            return Ok(());
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let on = |options| mount(Some("coracle"), path, Some("tmpfs"), flags, Some(options));
        on("mode=700,size=10%,noswap").or_else(|_| on("mode=700,size=10%"))?;
        Ok(())
    });
    match made {
        Ok(()) => Some(path.to_owned()),
        Err(error) => {
            tracing::warn!(
                %error,
                path = %path.display(),
                "Cannot mount a file system in memory for Secret volumes; they are on the disk instead"
            );
            None
        }
    }
}

fn is_mount_point(path: &Path) -> Result<bool> {
    let above = path.parent().unwrap_or(Path::new("/"));
    Ok(fs::metadata(path)?.dev() != fs::metadata(above)?.dev())
}

/// Replaces a file atomically by one of mode 0600: readers see the old or the new content.
pub fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    let options = Options::private().synced().several_writers();
    atomic_file::write(path, content, options)
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_inside_their_range() {
        let settings = Settings::example();
        assert_eq!(
            settings.service_address(10).unwrap().to_string(),
            "10.96.0.10"
        );
        assert_eq!(settings.node_pod_range().unwrap(), "10.244.0.0/24");
        assert_eq!(settings.gateway().unwrap().to_string(), "10.244.0.1");
        let small = Settings {
            pod_range: "198.18.77.0/29".into(),
            ..settings.clone()
        };
        assert_eq!(small.node_pod_range().unwrap(), "198.18.77.0/29");
        let second = Settings {
            node_index: 1,
            ..settings.clone()
        };
        assert_eq!(second.node_pod_range().unwrap(), "10.244.1.0/24");
        assert_eq!(second.gateway().unwrap().to_string(), "10.244.1.1");
        let full = Settings {
            pod_range: "10.244.0.0/24".into(),
            ..second
        };
        assert!(full.gateway().is_err());
        let index = |share| Settings::index_of("10.244.0.0/16", share);
        assert_eq!(index("10.244.3.0/24").unwrap(), 3);
        assert!(index("10.245.3.0/24").is_err());
        assert!(index("10.244.3.0/25").is_err());
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a directory").mode() & 0o7777
    }

    #[test]
    fn existing_directories_lose_the_permissions_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
        Layout::create(&data).unwrap();
        assert_eq!(mode(&data), 0o700);
        fs::set_permissions(&data, fs::Permissions::from_mode(0o711)).unwrap();
        volatile_dir(&data).unwrap();
        assert_eq!(mode(&data), 0o700);
        let _ = nix::mount::umount(&data);
    }

    #[test]
    fn the_run_root_keeps_its_search_permission() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("run");
        run_root(&root).unwrap();
        assert_eq!(mode(&root), 0o700);
        for (before, after) in [(0o755, 0o711), (0o711, 0o711), (0o777, 0o711)] {
            fs::set_permissions(&root, fs::Permissions::from_mode(before)).unwrap();
            run_root(&root).unwrap();
            assert_eq!(mode(&root), after);
        }
    }

    #[test]
    fn a_directory_with_the_sticky_bit_is_rejected_and_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let shared = directory.path().join("tmp");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(Layout::create(&shared).is_err());
        assert_eq!(mode(&shared), 0o1777);
    }
}
