//! Static pods: manifests in a file or directory of this machine (`staticPodPath`) or behind a URL
//! (`staticPodURL`), run without an object in the API. `manifest` turns one into a pod, `url` fetches
//! them, `roster` knows which pods there are and which wait for a predecessor to end, `mirror` shows
//! them in the API.

mod manifest;
pub mod mirror;
mod roster;
mod url;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use environment::chain;
use k8s_openapi::api::core::v1::Pod;
use nix::sys::inotify::AddWatchFlags;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{configuration::Configuration, notices::Notices};

pub use roster::Roster;

/// On a static pod: what its manifest hashes to. Also its UID.
pub const HASH: &str = "kubernetes.io/config.hash";
/// A pod's namespace and name.
pub type Key = (String, String);

pub fn key(pod: &Pod) -> Key {
    (
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
    )
}

/// The manifests of this node.
pub struct Manifests {
    /// A file or a directory; empty for none.
    path: PathBuf,
    /// How often it is looked at without a notice.
    look_again: Duration,
    url: Option<url::Source>,
    fetch_again: Duration,
    node_name: String,
    /// The pods of the URL's last valid answer.
    fetched: Vec<Arc<Pod>>,
    /// The last good content of each file: one that is just being written does not end its pod.
    read: BTreeMap<PathBuf, Arc<Pod>>,
}

impl Manifests {
    pub fn new(configuration: &Configuration, node_name: String) -> Manifests {
        Manifests {
            path: configuration.static_pod_path.clone(),
            look_again: configuration.file_check_frequency(),
            url: url::Source::new(configuration),
            fetch_again: configuration.http_check_frequency(),
            node_name,
            fetched: Vec::new(),
            read: BTreeMap::new(),
        }
    }

    /// Whether there is anywhere to look.
    pub fn has_source(&self) -> bool {
        !self.path.as_os_str().is_empty() || self.url.is_some()
    }

    /// Asks the URL, if there is one. After a wrong answer the pods stay as they were.
    pub async fn fetch(&mut self) {
        let Some(source) = &self.url else { return };
        match source.fetch(&self.node_name).await {
            Ok(pods) => self.fetched = pods.into_iter().map(Arc::new).collect(),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "static pods were not read from their URL")
            }
        }
    }

    /// Reads all files again. Of several pods of one name the first file's counts.
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
                    tracing::warn!(path = %path.display(), error = %chain(&error), "a static pod's manifest is not used");
                }
            }
        }
        let mut pods: BTreeMap<Key, Arc<Pod>> = BTreeMap::new();
        for pod in self.read.values().chain(&self.fetched) {
            pods.entry(key(pod)).or_insert_with(|| pod.clone());
        }
        pods.into_values().collect()
    }

    /// Sends the present pods whenever they change, until `shutdown`.
    pub async fn run(mut self, pods: watch::Sender<Vec<Arc<Pod>>>, shutdown: CancellationToken) {
        let mut fetches = tokio::time::interval(self.fetch_again);
        fetches.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The first was before.
        fetches.reset();
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
                () = tokio::time::sleep(self.look_again) => {}
                _ = fetches.tick(), if self.url.is_some() => self.fetch().await,
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

    fn at(path: &Path) -> Configuration {
        Configuration {
            static_pod_path: path.to_owned(),
            ..Configuration::default()
        }
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
        let mut manifests = Manifests::new(&at(directory.path()), "n1".to_owned());
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
    async fn a_changed_manifest_is_noticed_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let manifests = Manifests::new(&at(directory.path()), "n1".to_owned());
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
