//! The locked registry of the address ranges, ports and sysctls that the clusters of this machine
//! use. The first cluster gets upstream's defaults unless they conflict with the machine's own
//! networks; later clusters get the next free ranges and ports.

mod ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, umount2};
use serde::{Deserialize, Serialize};

use crate::layout::{RUN_ROOT, Settings, run_root};
use network::host_ranges::{self, HostNetwork, IpRange};
use ranges::{Occupied, Purpose};

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
    /// The store that it shares with other servers of the same cluster.
    #[serde(default)]
    store: Option<String>,
    /// This is a node that joined a server on another machine, or another claim of this machine.
    #[serde(default)]
    joined: bool,
}

impl Claim {
    /// Whether it belongs to the cluster whose servers share `store`.
    fn shares(&self, store: Option<&str>) -> bool {
        store.is_some() && self.store.as_deref() == store
    }

    /// Its address ranges.
    fn occupied(&self) -> impl Iterator<Item = Occupied> {
        let ranges = [
            (Purpose::Pods, &self.pod_range),
            (Purpose::Services, &self.service_range),
        ];
        let place = self.data_dir.display().to_string();
        ranges.into_iter().filter_map(move |(purpose, range)| {
            let holder = format!("the {} {range} of the cluster in {place}", purpose.words());
            Occupied::new(range, holder)
        })
    }
}

/// A sysctl that clusters need: its original value, and the clusters that still need it.
#[derive(Serialize, Deserialize)]
struct SharedSysctl {
    original: String,
    holders: BTreeSet<String>,
}

/// The user's choices. Everything else is chosen automatically.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub api_port: Option<u16>,
    pub pod_range: Option<String>,
    pub service_range: Option<String>,
    pub node_address: Option<IpAddr>,
    pub runtime_endpoint: Option<PathBuf>,
    /// The store that is shared with other servers, which then share the ranges.
    pub store: Option<String>,
}

/// The registry while it is locked.
pub struct Claims {
    /// Its directory, which also contains the run directories of the clusters.
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
        run_root(root)?;
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

    /// Chooses ranges and ports for a new cluster and claims them. Also returns sentences for the user
    /// about the choice. `host` are the machine's own networks.
    pub fn choose(
        &mut self,
        cluster_id: &str,
        node_name: &str,
        data_dir: &Path,
        wishes: &Wishes,
        host: &[HostNetwork],
    ) -> Result<(Settings, Vec<String>)> {
        self.forget_vanished();
        let others: Vec<&Claim> = self.registry.clusters.values().collect();
        let by_host: Vec<Occupied> = Occupied::by_host(host).collect();
        // Servers with a shared store get different ranges, unless the user chooses the same.
        let occupied = |wish: &Option<String>| {
            let claims = others
                .iter()
                .filter(|claim| wish.is_none() || !claim.shares(wishes.store.as_deref()));
            let mut occupied: Vec<Occupied> = claims.flat_map(|claim| claim.occupied()).collect();
            occupied.extend(by_host.iter().cloned());
            occupied
        };
        let mut for_pods = occupied(&wishes.pod_range);
        if let Some(services) = &wishes.service_range {
            let holder = format!("the service range {services}");
            for_pods.extend(Occupied::new(services, holder));
        }
        let pods = ranges::choose(Purpose::Pods, wishes.pod_range.as_deref(), &for_pods)?;
        let mut for_services = occupied(&wishes.service_range);
        let holder = format!("the pod range {}", pods.range);
        for_services.extend(Occupied::new(&pods.range, holder));
        let services = ranges::choose(
            Purpose::Services,
            wishes.service_range.as_deref(),
            &for_services,
        )?;
        let notes: Vec<String> = pods.note.into_iter().chain(services.note).collect();
        let (pod_range, service_range) = (pods.range, services.range);
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
            several_pod_ranges: wishes.store.is_some(),
            runtime_endpoint: wishes.runtime_endpoint.clone(),
        };
        self.claim(&settings, data_dir, wishes.store.as_deref())?;
        Ok((settings, notes))
    }

    /// Claims the ranges and ports of an existing data directory. Rejects those of another cluster.
    /// Servers with the same `store` are one cluster and share its ranges.
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
            let related = other.shares(store);
            // A node that joined may belong to this cluster.
            let ranges_are_shared = related || other.joined;
            let occupied: Vec<Occupied> = match ranges_are_shared {
                true => Vec::new(),
                false => other.occupied().collect(),
            };
            let meets = |range: &str| -> Result<bool> {
                Ok(ranges::holder(&range.parse::<IpRange>()?, &occupied).is_some())
            };
            let clash = if meets(&settings.pod_range)? {
                format!("pod range {}", settings.pod_range)
            } else if meets(&settings.service_range)? {
                format!("service range {}", settings.service_range)
            } else if !other.joined && other.api_port == settings.api_port {
                format!("API port {}", settings.api_port)
            } else if !other.joined && other.kubelet_port == settings.kubelet_port {
                format!("kubelet port {}", settings.kubelet_port)
            } else {
                continue;
            };
            bail!(
                "{clash} is in use by the cluster in {}: delete one of the two clusters with `coracle \
                 down --delete`",
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
                joined: false,
            },
        );
        self.save()
    }

    /// Claims the ranges and ports of an existing data directory, unless its server has done so.
    pub fn claim_alongside_server(&mut self, settings: &Settings, data_dir: &Path) -> Result<()> {
        match self.registry.clusters.contains_key(&settings.cluster_id) {
            true => Ok(()),
            false => self.claim(settings, data_dir, None),
        }
    }

    /// Claims the ranges of a node whose server is on another machine, so that new clusters of this
    /// machine choose others.
    pub fn claim_joined(&mut self, settings: &Settings, data_dir: &Path) -> Result<()> {
        self.forget_vanished();
        self.registry.clusters.insert(
            settings.cluster_id.clone(),
            Claim {
                data_dir: data_dir.to_path_buf(),
                pod_range: settings.pod_range.clone(),
                service_range: settings.service_range.clone(),
                api_port: 0,
                kubelet_port: 0,
                store: None,
                joined: true,
            },
        );
        self.save()
    }

    /// Sets a shared sysctl, and records its original value and that `cluster_id` needs it.
    pub fn set_sysctl(&mut self, cluster_id: &str, name: &str, value: &str) -> Result<()> {
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
        // Recorded before the change, so that it can be restored after a crash in between.
        self.save()?;
        if original != value {
            fs::write(&path, value).with_context(|| format!("setting sysctl {name}={value}"))?;
        }
        Ok(())
    }

    /// Releases everything that `cluster_id` has claimed. A sysctl that no cluster needs is restored.
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

    /// Releases claims whose data directory was removed by hand; the last cluster restores the
    /// sysctls. Empty run directories without a claim are removed. In others, processes of a cluster
    /// may still run.
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
        .with_context(|| format!("no free port between {start} and {}", start + 199))
}

fn ephemeral_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A range without host bits, as the registry contains it. A text that is no range is unchanged.
pub fn canonical(range: &str) -> String {
    let parsed = range.parse::<IpRange>();
    parsed.map_or_else(|_| range.to_owned(), |range| range.to_string())
}

/// The conflicts of the ranges of `settings` with the networks of this machine, as sentences.
pub fn host_conflicts(settings: &Settings) -> Result<Vec<String>> {
    let host = host_networks()?;
    let ranges = [
        (Purpose::Pods, &settings.pod_range),
        (Purpose::Services, &settings.service_range),
    ];
    let mut conflicts = Vec::new();
    for (purpose, range) in ranges {
        if let Some(network) = host_ranges::conflict(&range.parse()?, &host) {
            let (words, description) = (purpose.words(), &network.description);
            conflicts.push(format!("the {words} {range} overlaps {description}"));
        }
    }
    Ok(conflicts)
}

/// Rejects a cluster whose ranges conflict with the networks of this machine.
pub fn reject_host_conflicts(settings: &Settings) -> Result<()> {
    match host_conflicts(settings)?.as_slice() {
        [] => Ok(()),
        conflicts => bail!(
            "this machine cannot join the cluster: {}",
            conflicts.join(", and ")
        ),
    }
}

/// The machine's own networks.
pub fn host_networks() -> Result<Vec<HostNetwork>> {
    host_ranges::host_networks().context("reading the networks of this machine")
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
            .choose("aaaaaa", "n", &root.join("a"), &wishes, &[])
            .unwrap()
            .0;
        assert_eq!(first.pod_range, "10.244.0.0/16");
        assert_eq!(first.service_range, "10.96.0.0/12");
        let second = claims
            .choose("bbbbbb", "n", &root.join("b"), &wishes, &[])
            .unwrap()
            .0;
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
            .choose("dddddd", "n", &root.join("a"), &wishes, &[])
            .unwrap()
            .0;
        assert_eq!(third.pod_range, "10.244.0.0/16");
    }

    #[test]
    fn ranges_of_other_clusters_and_of_the_machine_are_compared_as_ranges() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_path_buf();
        let mut claims = Claims::lock_at(&root).unwrap();
        let mut choose = |id: &str, wishes: &Wishes, host: &[HostNetwork]| {
            let data_dir = root.join(format!("data-{id}"));
            fs::create_dir_all(&data_dir).unwrap();
            let chosen = claims.choose(id, "n", &data_dir, wishes, host);
            chosen.map(|(settings, notes)| (settings.pod_range, settings.service_range, notes))
        };
        let ranges = |pods: Option<&str>, services: Option<&str>| Wishes {
            pod_range: pods.map(str::to_owned),
            service_range: services.map(str::to_owned),
            ..Wishes::default()
        };
        let wide = ranges(Some("10.240.0.0/12"), None);
        choose("aaaaaa", &wide, &[]).unwrap();
        // 10.244.0.0/16 is another text, but inside of what the first cluster has.
        let (pods, services, notes) = choose("bbbbbb", &Wishes::default(), &[]).unwrap();
        assert_eq!(
            (pods.as_str(), services.as_str()),
            ("10.239.0.0/16", "10.112.0.0/12")
        );
        assert!(
            notes[0].contains("overlaps the pod range 10.240.0.0/12 of the cluster in"),
            "{notes:?}"
        );
        for (pods, services) in [
            (Some("10.96.0.0/24"), None),
            (None, Some("10.244.8.0/21")),
            (Some("198.18.0.0/16"), Some("198.18.7.0/24")),
        ] {
            let refused = choose("cccccc", &ranges(pods, services), &[]);
            assert!(refused.is_err(), "{pods:?} {services:?}");
        }
        let network = HostNetwork {
            range: "198.18.0.0/24".parse().unwrap(),
            description: "the route 198.18.0.0/24 dev eth1".to_owned(),
        };
        let wish = ranges(Some("198.18.0.0/16"), None);
        let refused = choose("cccccc", &wish, std::slice::from_ref(&network)).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("overlaps the route 198.18.0.0/24 dev eth1"),
            "{refused}"
        );
        choose("cccccc", &wish, &[]).unwrap();
        assert_eq!(canonical("198.18.7.7/16"), canonical("198.18.0.0/16"));
        assert_eq!(canonical("banana"), "banana");
    }

    #[test]
    fn new_clusters_avoid_the_ranges_of_a_joined_node() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_path_buf();
        let data_dir = |id: &str| {
            let data_dir = root.join(format!("data-{id}"));
            fs::create_dir_all(&data_dir).unwrap();
            data_dir
        };
        let mut claims = Claims::lock_at(&root).unwrap();
        let choose = |claims: &mut Claims, id: &str| {
            let chosen = claims.choose(id, "n", &data_dir(id), &Wishes::default(), &[]);
            chosen.unwrap().0
        };
        let server = choose(&mut claims, "aaaaaa");
        claims.release("aaaaaa").unwrap();
        let node = Settings {
            cluster_id: "bbbbbb".into(),
            joined: true,
            ..server.clone()
        };
        claims.claim_joined(&node, &data_dir("bbbbbb")).unwrap();
        assert_eq!(choose(&mut claims, "cccccc").pod_range, "10.243.0.0/16");
        // Its own server may be on the same machine, and starts again as before.
        claims.release("cccccc").unwrap();
        claims.claim(&server, &data_dir("aaaaaa"), None).unwrap();
    }
}
