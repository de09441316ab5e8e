//! What pods and the node use: read over CRI, from the machine's own files and from disk. The caller
//! decides how deep disks are searched.

mod disk;
mod file_systems;
mod machine;
mod pressure;
mod process;
mod rates;
pub mod summary;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use cri::v1;
use environment::Environment;
use files::disk_space::{Space, space};
use k8s_openapi::api::core::v1::Pod;

pub use disk::Usage;
use file_systems::RuntimePlaces;
pub use file_systems::{FileSystems, Layout, RuntimeDisk};
pub use machine::{Machine, has_swap, read as read_machine};
pub use pressure::Stall;
pub use process::{Process, read as read_process};
use rates::Rates;

use crate::{
    node_settings::NodeSettings,
    runtime::label,
    volumes::{Claim, Volumes},
};

/// How much of the disks is looked at: walking directories takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only what the runtime reports.
    Shallow,
    /// Also logs and volumes.
    Deep,
}

/// A figure that is not reported is `None`.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub working_set: Option<u64>,
    pub usage: Option<u64>,
    pub rss: Option<u64>,
    pub available: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    pub stall: Option<Stall>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Swap {
    pub usage: u64,
    pub available: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Cpu {
    /// Nanoseconds of CPU time since the beginning.
    pub total: u64,
    /// Nanoseconds of CPU time per second, once there are two samples.
    pub rate: Option<u64>,
    pub stall: Option<Stall>,
}

#[derive(Clone, Debug, Default)]
pub struct ContainerSample {
    pub name: String,
    pub id: String,
    pub image: String,
    pub started_at: i64,
    pub cpu: Option<Cpu>,
    pub memory: Option<Memory>,
    pub swap: Option<Swap>,
    pub io_stall: Option<Stall>,
    /// `None` if they could not be measured.
    pub rootfs: Option<Usage>,
    pub logs: Option<Usage>,
}

#[derive(Clone, Debug, Default)]
pub struct NetworkSample {
    pub interface: String,
    pub received: Option<u64>,
    pub receive_errors: Option<u64>,
    pub sent: Option<u64>,
    pub send_errors: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct PodSample {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// Its path in the hierarchy, where it is known.
    pub cgroup: String,
    pub started_at: i64,
    pub cpu: Option<Cpu>,
    pub memory: Option<Memory>,
    pub io_stall: Option<Stall>,
    pub network: Vec<NetworkSample>,
    pub processes: Option<u64>,
    pub containers: Vec<ContainerSample>,
    /// Volumes that the pod brings along, by name; those that are not the pod's storage are marked.
    pub volumes: BTreeMap<String, VolumeSample>,
}

#[derive(Clone, Debug, Default)]
pub struct VolumeSample {
    /// The name of the persistent volume claim, if it is one.
    pub claim: Option<String>,
    /// `None` if it could not be measured.
    pub usage: Option<Usage>,
    /// The room on its file system.
    pub space: Option<Space>,
    /// It takes nothing of what the pod may have of the node's disk.
    pub in_memory: bool,
}

impl PodSample {
    /// The swap of its containers together; CRI reports none for pods.
    pub fn swap(&self) -> Option<Swap> {
        let reported = || self.containers.iter().filter_map(|one| one.swap);
        reported().next()?;
        Some(Swap {
            usage: reported().map(|swap| swap.usage).sum(),
            available: Some(reported().filter_map(|swap| swap.available).sum()),
        })
    }

    /// The pod's use of the node's disks, part by part.
    pub fn disk(&self) -> impl Iterator<Item = Option<Usage>> {
        self.layers().chain(self.logs_and_volumes())
    }

    /// How much its containers have written into their file systems.
    pub fn layers(&self) -> impl Iterator<Item = Option<Usage>> {
        self.containers.iter().map(|container| container.rootfs)
    }

    /// The use of its logs and volumes, which are not where the runtime keeps containers.
    pub fn logs_and_volumes(&self) -> impl Iterator<Item = Option<Usage>> {
        let logs = self.containers.iter().map(|container| container.logs);
        let volumes = self.volumes.values().filter(|volume| !volume.in_memory);
        logs.chain(volumes.map(|volume| volume.usage))
    }
}

/// Reads what pods and the node use, and keeps what rates are computed from.
pub struct Sampler {
    cri: cri::Client,
    environment: Environment,
    settings: Arc<NodeSettings>,
    volumes: Volumes,
    rates: Rates,
    places: RuntimePlaces,
}

impl Sampler {
    pub fn new(
        cri: cri::Client,
        environment: Environment,
        settings: Arc<NodeSettings>,
        volumes: Volumes,
    ) -> Sampler {
        Sampler {
            cri,
            environment,
            settings,
            volumes,
            rates: Rates::default(),
            places: RuntimePlaces::default(),
        }
    }

    /// Asks the runtime where it keeps images and layers and how much they take.
    pub async fn ask_runtime(&self) -> RuntimeDisk {
        self.places.ask(&self.cri).await
    }

    /// Nanoseconds of CPU time per second of what `key` names, once there are two samples.
    pub fn cpu_rate(&self, key: &str, total: u64, now: i64) -> Option<u64> {
        self.rates.sample(key, total, now)
    }

    /// The room on the file systems of this node, as far as the runtime is known to use them.
    pub async fn file_systems(&self) -> FileSystems {
        let disk = self.places.get(&self.cri).await;
        let root = self.volumes.pods_root().to_owned();
        let measured = tokio::task::spawn_blocking(move || file_systems::measure(&root, &disk));
        measured.await.unwrap_or_default()
    }

    /// Samples of all pods that have a sandbox. `deep`: which of them are searched on disk.
    pub async fn collect(
        &self,
        pods: &[Arc<Pod>],
        deep: impl Fn(&Pod) -> Depth,
    ) -> Result<Vec<PodSample>, tonic::Status> {
        let request = v1::ListPodSandboxStatsRequest { filter: None };
        let response = self
            .cri
            .runtime
            .clone()
            .list_pod_sandbox_stats(request)
            .await?;
        let now = self.environment.now_micros();
        let mut samples: Vec<PodSample> = response
            .into_inner()
            .stats
            .into_iter()
            .filter_map(|stats| sample(&self.rates, stats, now))
            .collect();
        samples.sort_by(|a, b| a.uid.cmp(&b.uid));
        let searched: Vec<(usize, Places)> = samples
            .iter()
            .enumerate()
            .filter_map(|(index, sample)| {
                let pod = pods
                    .iter()
                    .find(|pod| pod.metadata.uid.as_deref() == Some(&sample.uid))?;
                (deep(pod) == Depth::Deep)
                    .then(|| (index, Places::of(&self.settings, &self.volumes, pod)))
            })
            .collect();
        let found = tokio::task::spawn_blocking(move || {
            let measured = searched
                .into_iter()
                .map(|(index, places)| (index, places.measure()));
            measured.collect::<Vec<_>>()
        });
        for (index, (logs, volumes)) in found.await.unwrap_or_default() {
            for container in &mut samples[index].containers {
                // A container that has not written anything has no log.
                container.logs = match &logs {
                    Some(logs) => logs
                        .get(&container.name)
                        .copied()
                        .unwrap_or(Some(Usage::ZERO)),
                    None => None,
                };
            }
            samples[index].volumes = volumes;
        }
        Ok(samples)
    }
}

/// The disk that each container's logs use, by its name.
type Logs = BTreeMap<String, Option<Usage>>;

/// The paths of one pod's files.
struct Places {
    logs: PathBuf,
    volumes: Vec<Place>,
}

/// The path of one volume.
struct Place {
    name: String,
    path: PathBuf,
    claim: Option<String>,
    /// It is none of the pod's own disk.
    apart: bool,
}

impl Places {
    fn of(settings: &NodeSettings, volumes: &Volumes, pod: &Pod) -> Places {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let directory = volumes.pod_dir(uid).join("volumes");
        let in_memory_root = volumes.in_memory_dir(uid);
        let claims = volumes.claims();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let pod_name = pod.metadata.name.clone().unwrap_or_default();
        let of_pod = pod
            .spec
            .iter()
            .flat_map(|spec| spec.volumes.iter().flatten());
        Places {
            logs: settings.pod_log_dir(pod),
            volumes: of_pod
                .filter_map(|volume| {
                    let medium = volume.empty_dir.as_ref().map(|source| &source.medium);
                    let in_memory = medium.is_some_and(|medium| {
                        medium.as_ref().is_some_and(|medium| !medium.is_empty())
                    });
                    let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                        (Some(source), _) => Some(source.claim_name.clone()),
                        (None, Some(_)) => Some(format!("{pod_name}-{}", volume.name)),
                        _ => None,
                    };
                    if let Some(name) = claim {
                        let namespace = namespace.clone();
                        let key = Claim { namespace, name };
                        return Some(Place {
                            name: volume.name.clone(),
                            path: claims.get(&key)?.clone(),
                            claim: Some(key.name),
                            apart: true,
                        });
                    }
                    let plugin = if medium.is_some() {
                        "empty-dir"
                    } else if volume.config_map.is_some() {
                        "configmap"
                    } else if volume.secret.is_some() {
                        "secret"
                    } else if volume.projected.is_some() {
                        "projected"
                    } else if volume.downward_api.is_some() {
                        "downward-api"
                    } else {
                        return None;
                    };
                    // Of these upstream counts emptyDir and configMap as the pod's storage.
                    let apart = in_memory || !matches!(plugin, "empty-dir" | "configmap");
                    let below = PathBuf::from(format!("kubernetes.io~{plugin}")).join(&volume.name);
                    let in_memory = in_memory_root.as_ref().map(|root| root.join(&below));
                    Some(Place {
                        name: volume.name.clone(),
                        path: in_memory
                            .filter(|path| path.exists())
                            .unwrap_or_else(|| directory.join(&below)),
                        claim: None,
                        apart,
                    })
                })
                .collect(),
        }
    }

    fn measure(&self) -> (Option<Logs>, BTreeMap<String, VolumeSample>) {
        let logs = std::fs::read_dir(&self.logs).and_then(|entries| {
            let of = |entry: std::fs::DirEntry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (name, disk::usage(&entry.path()))
            };
            entries.map(|entry| entry.map(of)).collect()
        });
        let logs = match logs {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Logs::new()),
            logs => logs.ok(),
        };
        let volumes = self
            .volumes
            .iter()
            .map(|place| {
                let space = space(&place.path);
                let usage = match place.claim {
                    None => disk::usage(&place.path),
                    // Upstream asks the file system, too: a claim may hold very much.
                    Some(_) => space.map(|space| Usage {
                        bytes: space.used,
                        inodes: Some(space.inodes_used()),
                    }),
                };
                let sample = VolumeSample {
                    claim: place.claim.clone(),
                    usage,
                    space,
                    in_memory: place.apart,
                };
                (place.name.clone(), sample)
            })
            .collect();
        (logs, volumes)
    }
}

fn sample(rates: &Rates, stats: v1::PodSandboxStats, now: i64) -> Option<PodSample> {
    let attributes = stats.attributes?;
    let uid = attributes.labels.get(label::POD_UID)?.clone();
    let metadata = attributes.metadata.unwrap_or_default();
    let linux = stats.linux.unwrap_or_default();
    let containers = linux
        .containers
        .into_iter()
        .filter_map(|stats| {
            let attributes = stats.attributes?;
            Some(ContainerSample {
                name: attributes.labels.get(label::CONTAINER_NAME)?.clone(),
                cpu: cpu(rates, &attributes.id, stats.cpu, now),
                id: attributes.id,
                memory: stats.memory.map(memory),
                // A runtime that does not report swap counts as having swapped nothing, as upstream.
                swap: match stats.swap {
                    None => Some(Swap {
                        usage: 0,
                        available: Some(0),
                    }),
                    Some(swap) => number(swap.swap_usage_bytes).map(|usage| Swap {
                        usage,
                        available: number(swap.swap_available_bytes),
                    }),
                },
                io_stall: stats.io.and_then(|io| io.psi).map(Stall::from),
                rootfs: stats.writable_layer.and_then(|layer| {
                    Some(Usage {
                        bytes: number(layer.used_bytes)?,
                        inodes: number(layer.inodes_used),
                    })
                }),
                ..ContainerSample::default()
            })
        })
        .collect();
    let interfaces = linux.network.map(|network| {
        network
            .default_interface
            .into_iter()
            .chain(network.interfaces)
            .map(|interface| NetworkSample {
                interface: interface.name,
                received: number(interface.rx_bytes),
                receive_errors: number(interface.rx_errors),
                sent: number(interface.tx_bytes),
                send_errors: number(interface.tx_errors),
            })
            .collect()
    });
    Some(PodSample {
        cpu: cpu(rates, &uid, linux.cpu, now),
        uid,
        namespace: metadata.namespace,
        name: metadata.name,
        cgroup: String::new(),
        started_at: 0,
        memory: linux.memory.map(memory),
        io_stall: linux.io.and_then(|io| io.psi).map(Stall::from),
        network: interfaces.unwrap_or_default(),
        processes: linux
            .process
            .and_then(|process| process.process_count)
            .map(|count| count.value),
        containers,
        volumes: BTreeMap::new(),
    })
}

fn cpu(rates: &Rates, key: &str, usage: Option<v1::CpuUsage>, now: i64) -> Option<Cpu> {
    let usage = usage?;
    let total = usage.usage_core_nano_seconds?.value;
    let reported = usage.usage_nano_cores.map(|rate| rate.value);
    Some(Cpu {
        total,
        rate: reported.or_else(|| rates.sample(key, total, now)),
        stall: usage.psi.map(Stall::from),
    })
}

fn memory(usage: v1::MemoryUsage) -> Memory {
    Memory {
        working_set: number(usage.working_set_bytes),
        usage: number(usage.usage_bytes),
        rss: number(usage.rss_bytes),
        available: number(usage.available_bytes),
        page_faults: number(usage.page_faults),
        major_page_faults: number(usage.major_page_faults),
        stall: usage.psi.map(Stall::from),
    }
}

fn number(value: Option<v1::UInt64Value>) -> Option<u64> {
    value.map(|value| value.value)
}
