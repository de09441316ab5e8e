//! Static pods: manifests in a file or directory of this machine (`staticPodPath`), run without
//! anybody asking through the API. `manifest` turns a file into a pod, `roster` knows which pods
//! there are and which wait for a predecessor to end, `mirror` shows them in the API.

mod manifest;
pub mod mirror;
mod roster;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use nix::sys::inotify::AddWatchFlags;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::notices::Notices;

pub use roster::Roster;

/// Upstream's `fileCheckFrequency`: a look without a notice.
const LOOK_AGAIN: Duration = Duration::from_secs(20);

/// On a static pod: what its manifest hashes to. Also its UID.
pub const HASH: &str = "kubernetes.io/config.hash";
/// On a static pod: where it came from. Other pods of a kubelet do not have it.
pub const SOURCE: &str = "kubernetes.io/config.source";

pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE).is_some_and(|source| source != "api")
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

/// A pod's namespace and name.
pub type Key = (String, String);

pub fn key(pod: &Pod) -> Key {
    (
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
    )
}

/// The manifests of one place.
pub struct Manifests {
    path: PathBuf,
    node_name: String,
    /// The last good content of each file: one that is just being written does not end its pod.
    read: BTreeMap<PathBuf, Arc<Pod>>,
}

impl Manifests {
    pub fn new(path: PathBuf, node_name: String) -> Manifests {
        Manifests {
            path,
            node_name,
            read: BTreeMap::new(),
        }
    }

    /// Reads everything again. Of several pods of one name the first file's counts.
    pub fn read(&mut self) -> Vec<Arc<Pod>> {
        let files = files(&self.path);
        self.read.retain(|path, _| files.contains(path));
        for path in files {
            match manifest::read(&path, &self.node_name) {
                Ok(pod) if self.read.get(&path).is_none_or(|known| **known != pod) => {
                    self.read.insert(path, Arc::new(pod));
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a static pod's manifest is not used");
                }
            }
        }
        let mut pods: BTreeMap<Key, Arc<Pod>> = BTreeMap::new();
        for pod in self.read.values() {
            pods.entry(key(pod)).or_insert_with(|| pod.clone());
        }
        pods.into_values().collect()
    }

    /// Tells what is there whenever it changes, until `shutdown`.
    pub async fn run(mut self, pods: watch::Sender<Vec<Arc<Pod>>>, shutdown: CancellationToken) {
        loop {
            // Watched before it is read: what changes in between is noticed.
            let notices = Notices::watch(
                &self.path,
                AddWatchFlags::IN_CLOSE_WRITE
                    | AddWatchFlags::IN_MOVE
                    | AddWatchFlags::IN_DELETE
                    | AddWatchFlags::IN_DELETE_SELF
                    | AddWatchFlags::IN_MOVE_SELF,
            );
            let found = self.read();
            pods.send_if_modified(|known| {
                let differs = *known != found;
                *known = found;
                differs
            });
            let noticed = async {
                match &notices {
                    Ok(notices) => drop(notices.wait().await),
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = noticed => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }
}

/// The manifest itself, or the visible files of a directory in order of their names.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, image: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: main\n    image: {image}\n"
        )
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<String> {
        pods.iter().map(|pod| key(pod).1).collect()
    }

    #[test]
    fn visible_files_are_read_and_bad_ones_keep_what_they_were() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).expect("written");
        };
        let mut manifests = Manifests::new(directory.path().to_owned(), "n1".to_owned());
        assert!(manifests.read().is_empty());
        write("b.yaml", &pod("b", "b:1"));
        write("a.json", &pod("a", "a:1"));
        write(".hidden.yaml", &pod("hidden", "h:1"));
        write("again.yaml", &pod("b", "b:2"));
        let before = manifests.read();
        assert_eq!(names(&before), ["a-n1", "b-n1"]);
        write("again.yaml", "half: [a");
        write("a.json", "{");
        assert_eq!(manifests.read(), before);
        std::fs::remove_file(directory.path().join("a.json")).expect("removed");
        assert_eq!(names(&manifests.read()), ["b-n1"]);
    }

    #[tokio::test]
    async fn a_change_is_told_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let manifests = Manifests::new(directory.path().to_owned(), "n1".to_owned());
        let (sender, mut pods) = watch::channel(Vec::new());
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(manifests.run(sender, shutdown.clone()));
        std::fs::write(directory.path().join("a.yaml"), pod("a", "a:1")).expect("written");
        pods.wait_for(|pods| !pods.is_empty()).await.expect("a pod");
        std::fs::remove_file(directory.path().join("a.yaml")).expect("removed");
        pods.wait_for(Vec::is_empty).await.expect("no pod");
        shutdown.cancel();
        running.await.expect("ended");
    }
}
