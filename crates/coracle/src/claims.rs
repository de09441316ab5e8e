//! The locked registry of what the clusters of this machine share: address ranges, ports and
//! sysctls. The first cluster gets upstream's defaults, later ones the next free places.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, umount2};
use serde::{Deserialize, Serialize};

use crate::layout::{RUN_ROOT, Settings, private_dir};

/// The first of the pod ranges; each further cluster takes the next lower /16.
const FIRST_POD_NETWORK: u8 = 244;
/// Service ranges are /12: 10.96, 10.112, … up to 10.224.
const SERVICE_NETWORKS: std::ops::RangeInclusive<u8> = 6..=14;

#[derive(Default, Serialize, Deserialize)]
struct Registry {
    clusters: BTreeMap<String, Claim>,
    sysctls: BTreeMap<String, SharedSysctl>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Claim {
    data_dir: PathBuf,
    pod_range: String,
    service_range: String,
    api_port: u16,
    kubelet_port: u16,
    /// The store it shares with other servers of the same cluster.
    #[serde(default)]
    store: Option<String>,
}

/// A sysctl some cluster needed: what it was before, and who still needs it.
#[derive(Serialize, Deserialize)]
struct SharedSysctl {
    original: String,
    holders: BTreeSet<String>,
}

/// What a user asked for; the rest is chosen.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub api_port: Option<u16>,
    pub pod_range: Option<String>,
    pub service_range: Option<String>,
    pub node_address: Option<IpAddr>,
    pub runtime_endpoint: Option<PathBuf>,
    /// The store that is shared with other servers; ranges are then theirs too.
    pub store: Option<String>,
}

/// The registry, held under its lock.
pub struct Claims {
    /// Where it lies, beside the run directories of the clusters.
    root: PathBuf,
    file: File,
    registry: Registry,
}

impl Claims {
    /// Opens the machine's registry and waits for its lock.
    pub fn lock() -> Result<Claims> {
        Claims::lock_at(Path::new(RUN_ROOT))
    }

    fn lock_at(root: &Path) -> Result<Claims> {
        private_dir(root)?;
        let path = root.join("claims.json");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        file.lock()
            .with_context(|| format!("locking {}", path.display()))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let registry = match text.trim() {
            "" => Registry::default(),
            text => serde_json::from_str(text)
                .with_context(|| format!("{} is damaged", path.display()))?,
        };
        Ok(Claims {
            root: root.to_path_buf(),
            file,
            registry,
        })
    }

    /// Chooses ranges and ports for a new cluster and claims them.
    pub fn choose(
        &mut self,
        cluster_id: &str,
        node_name: &str,
        data_dir: &Path,
        wishes: &Wishes,
    ) -> Result<Settings> {
        self.forget_vanished();
        let others: Vec<&Claim> = self.registry.clusters.values().collect();
        let pod_range = match &wishes.pod_range {
            Some(range) => range.clone(),
            None => (0..=FIRST_POD_NETWORK)
                .rev()
                .map(|network| format!("10.{network}.0.0/16"))
                .take(64)
                .find(|range| others.iter().all(|claim| claim.pod_range != *range))
                .context("no free pod range: too many clusters on this machine")?,
        };
        let service_range = match &wishes.service_range {
            Some(range) => range.clone(),
            None => SERVICE_NETWORKS
                .map(|network| format!("10.{}.0.0/12", u32::from(network) * 16))
                .find(|range| {
                    others.iter().all(|claim| claim.service_range != *range)
                        && !range_covers(range, &pod_range)
                })
                .context("no free service range: too many clusters on this machine")?,
        };
        let mut taken: BTreeSet<u16> = others
            .iter()
            .flat_map(|claim| [claim.api_port, claim.kubelet_port])
            .collect();
        let api_port = match wishes.api_port {
            Some(0) => ephemeral_port()?,
            Some(port) => port,
            None => free_port(6443, &taken)?,
        };
        taken.insert(api_port);
        let settings = Settings {
            cluster_id: cluster_id.to_string(),
            node_name: node_name.to_string(),
            pod_range,
            service_range,
            api_port,
            kubelet_port: free_port(10250, &taken)?,
            node_index: 0,
            node_address: wishes.node_address,
            joined: false,
            runtime_endpoint: wishes.runtime_endpoint.clone(),
        };
        self.claim(&settings, data_dir, wishes.store.as_deref())?;
        Ok(settings)
    }

    /// Claims what an existing data directory already uses; refuses what another cluster holds.
    /// Servers on one `store` are one cluster and share its ranges.
    pub fn claim(
        &mut self,
        settings: &Settings,
        data_dir: &Path,
        store: Option<&str>,
    ) -> Result<()> {
        self.forget_vanished();
        for (id, other) in &self.registry.clusters {
            if *id == settings.cluster_id {
                continue;
            }
            let related = store.is_some() && other.store.as_deref() == store;
            let clash = if !related && other.pod_range == settings.pod_range {
                format!("pod range {}", settings.pod_range)
            } else if !related && other.service_range == settings.service_range {
                format!("service range {}", settings.service_range)
            } else if other.api_port == settings.api_port {
                format!("API port {}", settings.api_port)
            } else if other.kubelet_port == settings.kubelet_port {
                format!("kubelet port {}", settings.kubelet_port)
            } else {
                continue;
            };
            bail!(
                "{clash} is in use by the cluster in {}",
                other.data_dir.display()
            );
        }
        self.registry.clusters.insert(
            settings.cluster_id.clone(),
            Claim {
                data_dir: data_dir.to_path_buf(),
                pod_range: settings.pod_range.clone(),
                service_range: settings.service_range.clone(),
                api_port: settings.api_port,
                kubelet_port: settings.kubelet_port,
                store: store.map(str::to_owned),
            },
        );
        self.save()
    }

    /// Claims what an existing data directory uses, unless its server has done so already.
    pub fn claim_beside_server(&mut self, settings: &Settings, data_dir: &Path) -> Result<()> {
        match self.registry.clusters.contains_key(&settings.cluster_id) {
            true => Ok(()),
            false => self.claim(settings, data_dir, None),
        }
    }

    /// Registers a node of a cluster whose server runs elsewhere: its ranges are claimed there.
    pub fn claim_joined(&mut self, settings: &Settings, data_dir: &Path) -> Result<()> {
        self.forget_vanished();
        self.registry.clusters.insert(
            settings.cluster_id.clone(),
            Claim {
                data_dir: data_dir.to_path_buf(),
                pod_range: String::new(),
                service_range: String::new(),
                api_port: 0,
                kubelet_port: 0,
                store: None,
            },
        );
        self.save()
    }

    /// Sets a shared sysctl, remembering what it was and that `cluster_id` needs it.
    pub fn hold_sysctl(&mut self, cluster_id: &str, name: &str, value: &str) -> Result<()> {
        let path = sysctl_path(name);
        let original = fs::read_to_string(&path)
            .with_context(|| format!("reading sysctl {name}"))?
            .trim()
            .to_string();
        self.registry
            .sysctls
            .entry(name.to_string())
            .or_insert(SharedSysctl {
                original: original.clone(),
                holders: BTreeSet::new(),
            })
            .holders
            .insert(cluster_id.to_string());
        // Remembered before it is changed, so that it can be restored whatever happens in between.
        self.save()?;
        if original != value {
            fs::write(&path, value).with_context(|| format!("setting sysctl {name}={value}"))?;
        }
        Ok(())
    }

    /// Gives up everything `cluster_id` holds; a sysctl that nobody needs any more is restored.
    pub fn release(&mut self, cluster_id: &str) -> Result<()> {
        self.registry.clusters.remove(cluster_id);
        self.forget_vanished();
        let mut restore = Vec::new();
        self.registry.sysctls.retain(|name, sysctl| {
            if sysctl.holders.is_empty() {
                restore.push((name.clone(), sysctl.original.clone()));
                return false;
            }
            true
        });
        for (name, original) in restore {
            fs::write(sysctl_path(&name), original)
                .with_context(|| format!("restoring sysctl {name}"))?;
        }
        self.save()
    }

    /// Drops claims whose data directory was removed by hand, and what they held: the last
    /// cluster to go restores the sysctls. Run directories without a claim go where they are empty:
    /// in others something of a cluster may still run.
    fn forget_vanished(&mut self) {
        let clusters = &mut self.registry.clusters;
        clusters.retain(|_, claim| claim.data_dir.exists());
        for sysctl in self.registry.sysctls.values_mut() {
            sysctl
                .holders
                .retain(|holder| clusters.contains_key(holder));
        }
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let id = name.to_string_lossy();
            let is_id = id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_id && !clusters.contains_key(id.as_ref()) {
                let path = entry.path();
                let empty = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
                if empty {
                    // It may be a file system of its own.
                    let _ = umount2(&path, MntFlags::MNT_DETACH);
                }
                let _ = fs::remove_dir(path);
            }
        }
    }

    fn save(&mut self) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(&self.registry)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&bytes)?;
        self.file.set_len(bytes.len() as u64)?;
        Ok(())
    }
}

fn sysctl_path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

/// The first port from `start` on that no cluster claims and nothing listens on.
fn free_port(start: u16, taken: &BTreeSet<u16>) -> Result<u16> {
    (start..start + 200)
        .filter(|port| !taken.contains(port))
        .find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok())
        .with_context(|| format!("no free port from {start} on"))
}

fn ephemeral_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Whether the /12 `range` contains the /16 `network`, both in 10.0.0.0/8.
fn range_covers(range: &str, network: &str) -> bool {
    let second = |text: &str| {
        text.split('.')
            .nth(1)
            .and_then(|part| part.parse::<u8>().ok())
    };
    match (second(range), second(network)) {
        (Some(range), Some(network)) => range / 16 == network / 16,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cluster_gets_the_defaults_and_the_next_one_others() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_path_buf();
        fs::create_dir_all(root.join("a")).unwrap();
        fs::create_dir_all(root.join("b")).unwrap();
        let mut claims = Claims::lock_at(&root).unwrap();
        let wishes = Wishes::default();
        let first = claims
            .choose("aaaaaa", "n", &root.join("a"), &wishes)
            .unwrap();
        assert_eq!(first.pod_range, "10.244.0.0/16");
        assert_eq!(first.service_range, "10.96.0.0/12");
        let second = claims
            .choose("bbbbbb", "n", &root.join("b"), &wishes)
            .unwrap();
        assert_eq!(second.pod_range, "10.243.0.0/16");
        assert_eq!(second.service_range, "10.112.0.0/12");
        assert_ne!(first.api_port, second.api_port);
        let clash = claims
            .claim(
                &Settings {
                    cluster_id: "cccccc".into(),
                    ..first.clone()
                },
                &root,
                None,
            )
            .unwrap_err();
        assert!(
            clash
                .to_string()
                .contains("pod range 10.244.0.0/16 is in use")
        );
        // What a cluster left whose data directory is gone: empty, or with something in it.
        for place in ["bbbbbb", "eeeeee", "ffffff/runtime", "not-an-id"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        claims.release("aaaaaa").unwrap();
        assert!(root.join("bbbbbb").exists(), "it has a claim");
        assert!(!root.join("eeeeee").exists());
        assert!(root.join("ffffff/runtime").exists());
        assert!(root.join("not-an-id").exists());
        drop(claims);
        let mut claims = Claims::lock_at(&root).unwrap();
        let third = claims
            .choose("dddddd", "n", &root.join("a"), &wishes)
            .unwrap();
        assert_eq!(third.pod_range, "10.244.0.0/16");
    }
}
