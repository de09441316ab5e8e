//! A pod's volumes on this node: set up before its containers, kept current while it runs,
//! removed at its end. One file per type; this one holds what they share and the order of things.
//!
//! A volume lives in `<root>/pods/<uid>/volumes/<plugin>/<name>`, upstream's layout. Setting up is
//! idempotent: asked again it brings contents up to date, so a refresh is a set-up.

mod atomic_writer;
mod claim;
mod config_map;
mod downward_api;
mod empty_dir;
mod host_path;
mod mount_table;
pub mod mounts;
mod ownership;
mod projected;
mod secret;
mod sub_path;
mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use environment::Environment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Volume};

use crate::{
    container::{fields::NodeFacts, security},
    referenced::{Held, Referenced},
};
pub use atomic_writer::{File, Payload};
pub use sub_path::read as read_inside;
pub use tokens::Tokens;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{kind} \"{name}\" not found")]
    Missing { kind: &'static str, name: String },
    #[error("{0}")]
    Key(String),
    #[error("failed to sync {0} cache: timed out waiting for the condition")]
    NotSynced(&'static str),
    #[error("{0}")]
    Field(#[from] crate::container::fields::Error),
    #[error("failed to fetch token: {0}")]
    Token(String),
    #[error("{0}")]
    HostPath(String),
    #[error("{0}")]
    Claim(String),
    #[error("{0}")]
    Medium(String),
    #[error("no volume plugin matched")]
    Unsupported,
    #[error("{what}: {source}")]
    Io {
        what: String,
        #[source]
        source: std::io::Error,
    },
}

/// An error with the volume it befell, worded as the FailedMount event.
#[derive(Debug)]
pub struct Failure {
    pub volume: String,
    pub error: Error,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Failure { volume, error } = self;
        match error {
            // A claim that leads to no volume never gets as far as being mounted.
            Error::Claim(_) => write!(
                formatter,
                "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: {error}"
            ),
            _ => write!(
                formatter,
                "MountVolume.SetUp failed for volume \"{volume}\" : {error}"
            ),
        }
    }
}

impl std::error::Error for Failure {}

/// Set-up volumes.
#[derive(Clone, Debug, Default)]
pub struct Mounted {
    /// Host path by volume name.
    pub paths: BTreeMap<String, PathBuf>,
    /// Volumes that may only be read, whatever the mount says.
    pub read_only: BTreeSet<String>,
    /// Images mounted as volumes, by volume name, as the runtime knows them.
    pub images: BTreeMap<String, String>,
    /// When a token inside must be renewed, in microseconds.
    pub refresh_at: Option<i64>,
}

/// The objects one pod's volumes and environment refer to; held, they are watched.
#[derive(Clone, Default)]
pub struct HeldObjects {
    pub config_maps: BTreeMap<String, Held<ConfigMap>>,
    pub secrets: BTreeMap<String, Held<Secret>>,
}

/// Sets up and tears down volumes. Cheap to clone.
#[derive(Clone)]
pub struct Volumes {
    pub pods_root: PathBuf,
    pub tokens: Tokens,
    pub client: kube::Client,
    pub environment: Environment,
}

/// What setting up one volume needs to know.
struct Context<'a> {
    pod: &'a Pod,
    facts: &'a NodeFacts,
    objects: &'a HeldObjects,
    volumes: &'a Volumes,
}

impl Volumes {
    /// Where every pod has a directory.
    pub fn pods_root(&self) -> &Path {
        &self.pods_root
    }

    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.pods_root.join(uid)
    }

    /// Brings all volumes of the pod up to date, side by side.
    pub async fn set_up(
        &self,
        pod: &Pod,
        facts: &NodeFacts,
        objects: &HeldObjects,
    ) -> Result<Mounted, Failure> {
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
        let each = volumes.iter().map(|volume| {
            let context = &context;
            async move {
                let ready = set_up_one(context, volume).await;
                ready
                    .map(|ready| (volume.name.clone(), ready))
                    .map_err(|error| Failure {
                        volume: volume.name.clone(),
                        error,
                    })
            }
        });
        let mut mounted = Mounted::default();
        for (name, ready) in futures::future::try_join_all(each).await? {
            let Some(ready) = ready else { continue };
            if ready.read_only {
                mounted.read_only.insert(name.clone());
            }
            mounted.paths.insert(name, ready.path);
            mounted.refresh_at = match (mounted.refresh_at, ready.refresh_at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        Ok(mounted)
    }

    /// Removes everything of the pod from disk. Nothing mounted below is ever followed.
    pub async fn tear_down(&self, uid: &str) -> Result<(), Error> {
        self.tokens.forget(uid);
        let directory = self.pod_dir(uid);
        blocking(move || {
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
        let directory = self.pod_dir(uid);
        blocking(move || {
            for part in ["volume-subpaths", "volumes"] {
                let directory = directory.join(part);
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
        let mut uids = Vec::new();
        let Ok(mut entries) = tokio::fs::read_dir(&self.pods_root).await else {
            return uids;
        };
        while let Ok(Some(entry)) = entries.next_entry().await {
            uids.push(entry.file_name().to_string_lossy().into_owned());
        }
        uids.sort();
        uids
    }
}

impl HeldObjects {
    /// Takes hold of everything the pod refers to; what is held already is kept.
    pub fn of(
        pod: &Pod,
        config_maps: &Referenced<ConfigMap>,
        secrets: &Referenced<Secret>,
    ) -> HeldObjects {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let (mut map_names, mut secret_names) = (Vec::new(), Vec::new());
        let Some(spec) = &pod.spec else {
            return HeldObjects::default();
        };
        let ephemeral = crate::pod::containers::ephemeral(pod);
        let containers = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .chain(&ephemeral);
        for container in containers {
            let (maps, secrets) = crate::container::env::references(container);
            map_names.extend(maps);
            secret_names.extend(secrets);
        }
        for volume in spec.volumes.iter().flatten() {
            map_names.extend(volume.config_map.iter().map(|source| source.name.clone()));
            let secret = volume.secret.as_ref();
            secret_names.extend(secret.and_then(|source| source.secret_name.clone()));
            let projected = volume.projected.as_ref();
            for source in projected.iter().flat_map(|p| p.sources.iter().flatten()) {
                map_names.extend(source.config_map.iter().map(|source| source.name.clone()));
                secret_names.extend(source.secret.iter().map(|source| source.name.clone()));
            }
        }
        let pull = spec.image_pull_secrets.iter().flatten();
        secret_names.extend(pull.map(|reference| reference.name.clone()));
        HeldObjects {
            config_maps: hold(config_maps, namespace, map_names),
            secrets: hold(secrets, namespace, secret_names),
        }
    }
}

fn hold<K: client::Object>(
    referenced: &Referenced<K>,
    namespace: &str,
    names: Vec<String>,
) -> BTreeMap<String, Held<K>> {
    names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| (name.clone(), referenced.hold(namespace, &name)))
        .collect()
}

struct Ready {
    path: PathBuf,
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
        return context.write(path, payload, false, None).await;
    }
    if let Some(source) = &volume.secret {
        let payload = secret::payload(context, source).await?;
        let path = context.directory("kubernetes.io~secret", name);
        return context.write(path, payload, true, None).await;
    }
    if let Some(source) = &volume.downward_api {
        let payload = downward_api::payload(
            context,
            source.items.as_deref().unwrap_or_default(),
            source.default_mode.unwrap_or(0o644),
        )?;
        let path = context.directory("kubernetes.io~downward-api", name);
        return context.write(path, payload, true, None).await;
    }
    if let Some(source) = &volume.projected {
        let (payload, refresh_at) = projected::payload(context, source).await?;
        let path = context.directory("kubernetes.io~projected", name);
        return context.write(path, payload, true, refresh_at).await;
    }
    let claim = volume.persistent_volume_claim.as_ref();
    let bound = if let Some(source) = claim {
        claim::set_up(context, &source.claim_name, false).await?
    } else if volume.ephemeral.is_some() {
        let pod = context.pod.metadata.name.as_deref().unwrap_or_default();
        claim::set_up(context, &format!("{pod}-{name}"), true).await?
    } else {
        return Err(Error::Unsupported);
    };
    Ok(Ready {
        read_only: bound.read_only || claim.is_some_and(|claim| claim.read_only == Some(true)),
        ..Ready::at(bound.path)
    })
}

impl Ready {
    fn at(path: PathBuf) -> Ready {
        Ready {
            path,
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

    /// Puts a payload in place, on a tmpfs when it must not reach a disk.
    async fn write(
        &self,
        path: PathBuf,
        payload: Payload,
        in_memory: bool,
        refresh_at: Option<i64>,
    ) -> Result<Ready, Error> {
        let fs_group = self.fs_group();
        let generation = format!(
            "{}_{}",
            self.volumes.environment.now().strftime("%Y_%m_%d_%H_%M_%S"),
            self.volumes.environment.name_suffix(9)
        );
        let directory = path.clone();
        blocking(move || {
            std::fs::create_dir_all(&directory).map_err(at("creating", &directory))?;
            if in_memory {
                mount_table::mount_tmpfs(&directory, None)?;
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
    fn failures_are_worded_by_where_they_happen() {
        let failure = |error: Error| {
            let volume = "v".to_owned();
            Failure { volume, error }.to_string()
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
    }
}
