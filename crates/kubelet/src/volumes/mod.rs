//! A pod's volumes on this node: set up before its containers, kept current while it runs,
//! removed at its end. One file per type; this file has what they share.
//!
//! A volume lives in `<root>/pods/<uid>/volumes/<plugin>/<name>`, upstream's layout. Setting up is
//! idempotent: asked again it brings contents up to date, so a refresh is a set-up.

mod atomic_writer;
mod claim;
mod claims;
mod config_map;
pub mod devices;
mod downward_api;
mod empty_dir;
mod error;
mod held_objects;
mod host_path;
mod mount_table;
pub mod mounts;
mod ownership;
mod projected;
mod secret;
mod shares;
mod sub_path;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use environment::Environment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeSpec, Pod, Secret, Volume};
use semantics::node_selector::matches_labels;

use crate::{
    container::{fields::NodeFacts, security},
    node_object::NodeObject,
    tokens::Tokens,
};
pub use atomic_writer::{File, Payload};
pub use claims::Claim;
use claims::Claims;
pub use error::{Error, VolumeFailure};
pub use held_objects::HeldObjects;
use shares::{Place, Shares, Wanted};
pub use sub_path::read as read_inside;

/// Set-up volumes.
#[derive(Clone, Debug, Default)]
pub struct Mounted {
    /// Host path by volume name.
    pub paths: BTreeMap<String, PathBuf>,
    /// Links to the devices of block volumes, by volume name. They are in no other list.
    pub devices: BTreeMap<String, PathBuf>,
    /// Volumes that may only be read, no matter what the mount says.
    pub read_only: BTreeSet<String>,
    /// Images mounted as volumes, by volume name, as the runtime knows them.
    pub images: BTreeMap<String, String>,
    /// When a token inside must be renewed, in microseconds.
    pub refresh_at: Option<i64>,
}

impl Mounted {
    fn has(&self, volume: &str) -> bool {
        self.paths.contains_key(volume) || self.devices.contains_key(volume)
    }
}

/// Sets up and tears down volumes. Cheap to clone.
#[derive(Clone)]
pub struct Volumes {
    pods_root: PathBuf,
    /// In memory: `<secret_root>/<uid>/<plugin>/<volume>`, where there is such a file system.
    secret_root: Option<PathBuf>,
    /// The share of `secret_root` that each pod has.
    shares: Arc<Shares>,
    tokens: Tokens,
    client: kube::Client,
    environment: Environment,
    node_object: NodeObject,
    claims: Claims,
}

/// The directories below which volumes are set up.
pub struct Roots {
    /// Every pod has a directory in it.
    pub pods: PathBuf,
    /// A file system in memory for volumes that must not reach a disk.
    pub secrets: Option<PathBuf>,
}

/// The share of the memory of all pods that one pod's volumes may take which lie in memory.
const POD_PART: u64 = 10;
/// However small the machine, a pod may have this much.
const POD_LEAST: u64 = 16 << 20;

/// The input for setting up one volume.
struct Context<'a> {
    pod: &'a Pod,
    facts: &'a NodeFacts,
    objects: &'a HeldObjects,
    volumes: &'a Volumes,
}

impl Volumes {
    /// `most_pods`: how many pods share the memory of volumes.
    pub fn new(
        roots: Roots,
        most_pods: i64,
        tokens: Tokens,
        client: kube::Client,
        environment: Environment,
        node_object: NodeObject,
    ) -> Volumes {
        Volumes {
            shares: Arc::new(Shares::of(roots.secrets.as_deref(), most_pods)),
            pods_root: roots.pods,
            secret_root: roots.secrets,
            tokens,
            client,
            environment,
            node_object,
            claims: Claims::default(),
        }
    }

    /// The claims that pods of this node have mounted, and where.
    pub fn claims(&self) -> BTreeMap<Claim, PathBuf> {
        self.claims.list()
    }

    /// Where the pod's volumes in memory are, if such a file system is there.
    pub fn in_memory_dir(&self, uid: &str) -> Option<PathBuf> {
        self.secret_root.as_ref().map(|root| root.join(uid))
    }

    /// The directory in which every pod has its own.
    pub fn pods_root(&self) -> &Path {
        &self.pods_root
    }

    /// Whether the volume may be used on this node.
    fn reaches(&self, volume: &PersistentVolumeSpec) -> bool {
        let required = volume.node_affinity.as_ref();
        let Some(required) = required.and_then(|affinity| affinity.required.as_ref()) else {
            return true;
        };
        let node = self.node_object.registered();
        // Until it is known, the scheduler's word counts.
        node.is_none_or(|node| matches_labels(required, node.metadata.labels.as_ref()))
    }

    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.pods_root.join(uid)
    }

    /// Sets up the pod's volumes that are not in `mounted` and brings those up to date that show
    /// something of the API, side by side. One that fails does not keep the others from it: it stays as
    /// it was and is returned as a failure.
    pub async fn set_up(
        &self,
        pod: &Pod,
        facts: &NodeFacts,
        objects: &HeldObjects,
        mut mounted: Mounted,
    ) -> (Mounted, Vec<VolumeFailure>) {
        let context = Context {
            pod,
            facts,
            objects,
            volumes: self,
        };
        let volumes = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.volumes.as_deref())
            .unwrap_or_default();
        let due: Vec<&Volume> = volumes
            .iter()
            .filter(|volume| shows_api(volume) || !mounted.has(&volume.name))
            .collect();
        let each = due.into_iter().map(|volume| {
            let context = &context;
            async move { (volume, set_up_one(context, volume).await) }
        });
        mounted.refresh_at = None;
        let mut failures = Vec::new();
        for (volume, ready) in futures::future::join_all(each).await {
            let name = volume.name.clone();
            let ready = match ready {
                Ok(Some(ready)) => ready,
                Ok(None) => continue,
                Err(error) => {
                    let volume = name;
                    failures.push(VolumeFailure { volume, error });
                    continue;
                }
            };
            if ready.read_only {
                mounted.read_only.insert(name.clone());
            }
            let places = match ready.device {
                true => &mut mounted.devices,
                false => &mut mounted.paths,
            };
            places.insert(name, ready.path);
            mounted.refresh_at = earlier(mounted.refresh_at, ready.refresh_at);
        }
        (mounted, failures)
    }

    /// Removes everything of the pod from disk. Nothing mounted below is ever followed.
    pub async fn tear_down(&self, uid: &str) -> Result<(), Error> {
        self.tokens.forget(uid);
        self.claims.forget(uid);
        self.shares.forget(uid);
        let directory = self.pod_dir(uid);
        let in_memory = self.secret_root.as_ref().map(|root| root.join(uid));
        blocking(move || {
            if let Some(directory) = in_memory
                && let Err(error) = std::fs::remove_dir_all(&directory)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(at("removing", &directory)(error));
            }
            if !directory.exists() {
                return Ok(());
            }
            mount_table::unmount_below(&directory)?;
            std::fs::remove_dir_all(&directory).map_err(at("removing", &directory))
        })
        .await
    }

    /// Removes the volumes of a pod that has ended; what tells of its end stays as long as its
    /// object does.
    pub async fn release(&self, uid: &str) -> Result<(), Error> {
        self.tokens.forget(uid);
        self.claims.forget(uid);
        self.shares.forget(uid);
        let directory = self.pod_dir(uid);
        let mut parts: Vec<PathBuf> = ["volume-subpaths", "volumes", "volumeDevices"]
            .map(|part| directory.join(part))
            .into();
        parts.extend(self.secret_root.as_ref().map(|root| root.join(uid)));
        blocking(move || {
            for directory in parts {
                if !directory.exists() {
                    continue;
                }
                mount_table::unmount_below(&directory)?;
                std::fs::remove_dir_all(&directory).map_err(at("removing", &directory))?;
            }
            Ok(())
        })
        .await
    }

    /// UIDs that have a directory here, to find what a crash left behind.
    pub async fn known_uids(&self) -> Vec<String> {
        let mut uids = BTreeSet::new();
        for root in [Some(&self.pods_root), self.secret_root.as_ref()] {
            let Some(root) = root else { continue };
            let Ok(mut entries) = tokio::fs::read_dir(root).await else {
                continue;
            };
            while let Ok(Some(entry)) = entries.next_entry().await {
                uids.insert(entry.file_name().to_string_lossy().into_owned());
            }
        }
        uids.into_iter().collect()
    }
}

/// The earlier of two times, where there are any.
pub fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Whether the content of the volume changes with objects of the API.
fn shows_api(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

struct Ready {
    path: PathBuf,
    /// It is a device, not a directory or file.
    device: bool,
    read_only: bool,
    refresh_at: Option<i64>,
}

/// `None` for a volume that is nothing on the node itself.
async fn set_up_one(context: &Context<'_>, volume: &Volume) -> Result<Option<Ready>, Error> {
    if volume.image.is_some() {
        // The runtime mounts it; it is fetched with the container that wants it.
        return Ok(None);
    }
    set_up_on_node(context, volume).await.map(Some)
}

async fn set_up_on_node(context: &Context<'_>, volume: &Volume) -> Result<Ready, Error> {
    let name = &volume.name;
    if let Some(source) = &volume.empty_dir {
        let path = context.directory("kubernetes.io~empty-dir", name);
        empty_dir::set_up(context, source, path.clone()).await?;
        return Ok(Ready::at(path));
    }
    if let Some(source) = &volume.host_path {
        let path = host_path::set_up(source).await?;
        return Ok(Ready::at(path));
    }
    if let Some(source) = &volume.config_map {
        let payload = config_map::payload(context, source).await?;
        let path = context.directory("kubernetes.io~configmap", name);
        return context.write(path, payload, None, None).await;
    }
    if let Some(source) = &volume.secret {
        let payload = secret::payload(context, source).await?;
        return context
            .write_in_memory("kubernetes.io~secret", name, payload, None)
            .await;
    }
    if let Some(source) = &volume.downward_api {
        let payload = downward_api::payload(
            context,
            source.items.as_deref().unwrap_or_default(),
            source.default_mode.unwrap_or(0o644),
        )?;
        return context
            .write_in_memory("kubernetes.io~downward-api", name, payload, None)
            .await;
    }
    if let Some(source) = &volume.projected {
        let (payload, refresh_at) = projected::payload(context, source).await?;
        return context
            .write_in_memory("kubernetes.io~projected", name, payload, refresh_at)
            .await;
    }
    let claim = volume.persistent_volume_claim.as_ref();
    let bound = if let Some(source) = claim {
        claim::set_up(context, name, &source.claim_name, false).await?
    } else if volume.ephemeral.is_some() {
        let pod = context.pod.metadata.name.as_deref().unwrap_or_default();
        claim::set_up(context, name, &format!("{pod}-{name}"), true).await?
    } else {
        return Err(Error::Unsupported);
    };
    Ok(Ready {
        device: bound.device,
        read_only: bound.read_only || claim.is_some_and(|claim| claim.read_only == Some(true)),
        ..Ready::at(bound.path)
    })
}

impl Ready {
    fn at(path: PathBuf) -> Ready {
        Ready {
            path,
            device: false,
            read_only: false,
            refresh_at: None,
        }
    }
}

impl Context<'_> {
    fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    fn directory(&self, plugin: &str, name: &str) -> PathBuf {
        let pod = self.volumes.pod_dir(self.uid());
        pod.join("volumes").join(plugin).join(name)
    }

    /// Puts the payload of a volume in place that must not reach a disk.
    async fn write_in_memory(
        &self,
        plugin: &str,
        name: &str,
        payload: Payload,
        refresh_at: Option<i64>,
    ) -> Result<Ready, Error> {
        let own = self.directory(plugin, name);
        let root = self.volumes.secret_root.as_ref();
        let shared = root.map(|root| root.join(self.uid()).join(plugin).join(name));
        let present = if own.exists() {
            Some(Place::OwnTmpfs)
        } else if shared.as_ref().is_some_and(|path| path.exists()) {
            Some(Place::Shared)
        } else {
            None
        };
        let memory = u64::try_from(self.facts.allocatable_memory).unwrap_or(0);
        let most = (memory / POD_PART).max(POD_LEAST);
        let place = self.volumes.shares.place(&Wanted {
            uid: self.uid(),
            volume: &format!("{plugin}/{name}"),
            bytes: shares::size(&payload),
            present,
            most,
        })?;
        let path = shared.filter(|_| place == Place::Shared).unwrap_or(own);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.write(path, payload, Some(most), refresh_at).await
    }

    /// Where the link to a block volume's device is.
    fn device_link(&self, plugin: &str, volume: &str) -> PathBuf {
        let pod = self.volumes.pod_dir(self.uid());
        pod.join("volumeDevices").join(plugin).join(volume)
    }

    fn fs_group(&self) -> Option<i64> {
        security::fs_group(self.pod)
    }

    /// fsGroupChangePolicy, which volumes that outlive the pod honour.
    fn changes_owner_on_mismatch_only(&self) -> bool {
        let spec = self.pod.spec.as_ref();
        let context = spec.and_then(|spec| spec.security_context.as_ref());
        let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
        policy == Some("OnRootMismatch")
    }

    async fn config_map(&self, name: &str) -> Result<Option<Arc<ConfigMap>>, Error> {
        match self.objects.config_maps.get(name) {
            None => Ok(None),
            Some(held) => held.get().await.ok_or(Error::NotSynced("configmap")),
        }
    }

    async fn secret(&self, name: &str) -> Result<Option<Arc<Secret>>, Error> {
        match self.objects.secrets.get(name) {
            None => Ok(None),
            Some(held) => held.get().await.ok_or(Error::NotSynced("secret")),
        }
    }

    /// Puts a payload in place, on a tmpfs of its own when it must not reach a disk and would.
    /// `in_memory`: it must not, and how large that tmpfs may become.
    async fn write(
        &self,
        path: PathBuf,
        payload: Payload,
        in_memory: Option<i64>,
        refresh_at: Option<i64>,
    ) -> Result<Ready, Error> {
        let fs_group = self.fs_group();
        let generation = format!(
            "{}_{}",
            self.volumes.environment.now().strftime("%Y_%m_%d_%H_%M_%S"),
            self.volumes.environment.name_suffix(9)
        );
        let directory = path.clone();
        let on_disk = path.starts_with(&self.volumes.pods_root);
        blocking(move || {
            let new = !directory.exists();
            std::fs::create_dir_all(&directory).map_err(at("creating", &directory))?;
            if let Some(size) = in_memory.filter(|_| on_disk) {
                mount_table::mount_secret_tmpfs(&directory, size)?;
            } else if new {
                // As open as the root of a tmpfs, regardless of our umask; what is in it has modes of
                // its own.
                std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777))
                    .map_err(at("changing", &directory))?;
            }
            let changed = atomic_writer::write(&directory, &payload, &generation)?;
            if changed {
                ownership::apply(&directory, fs_group, true, false)?;
            }
            Ok(())
        })
        .await?;
        Ok(Ready {
            refresh_at,
            ..Ready::at(path)
        })
    }
}

/// The files of an object that does not exist: none, if the pod can do without it.
fn missing(kind: &'static str, name: &str, optional: bool) -> Result<Payload, Error> {
    match optional {
        true => Ok(Payload::new()),
        false => Err(Error::Missing {
            kind,
            name: name.to_owned(),
        }),
    }
}

/// Chooses the keys of a source: all, or those listed with their own paths and modes.
fn project<T: AsRef<[u8]>>(
    data: &BTreeMap<String, T>,
    items: &[k8s_openapi::api::core::v1::KeyToPath],
    default_mode: i32,
    optional: bool,
    missing_key: impl Fn(&str) -> Error,
) -> Result<Payload, Error> {
    let mut payload = Payload::new();
    if items.is_empty() {
        for (key, value) in data {
            payload.insert(key.clone(), File::new(value.as_ref(), default_mode));
        }
        return Ok(payload);
    }
    for item in items {
        match data.get(&item.key) {
            Some(value) => {
                let mode = item.mode.unwrap_or(default_mode);
                payload.insert(item.path.clone(), File::new(value.as_ref(), mode));
            }
            None if optional => {}
            None => return Err(missing_key(&item.key)),
        }
    }
    Ok(payload)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(failure) => Err(Error::Io {
            what: "the task that works on a volume ended early".to_owned(),
            source: std::io::Error::other(failure),
        }),
    }
}

fn at<'a>(doing: &'a str, path: &'a Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |source| Error::Io {
        what: format!("{doing} {}", path.display()),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_failures_name_the_step_that_failed() {
        let failure = |error: Error| {
            let volume = "v".to_owned();
            VolumeFailure { volume, error }.to_string()
        };
        let missing = Error::Missing {
            kind: "configmap",
            name: "c".to_owned(),
        };
        assert_eq!(
            failure(missing),
            "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found"
        );
        assert_eq!(
            failure(Error::Claim(
                "error processing PVC n/c: PVC is not bound".to_owned()
            )),
            "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: error processing PVC n/c: PVC is not bound"
        );
        assert_eq!(
            failure(Error::Device(
                "path \"/x\" is not a block device".to_owned()
            )),
            "MapVolume.MapBlockVolume failed for volume \"v\" : path \"/x\" is not a block device"
        );
    }
}
