//! Lists what this node has of any pod: sandboxes in the runtime, directories, logs and cgroups. The
//! caller decides which of them belong to no pod any more.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{cgroups::Cgroups, runtime::observe, volumes::Volumes};

/// A pod's namespace and name, empty where they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    pub namespace: String,
    pub name: String,
}

/// The places where this node has something of pods.
pub struct Places {
    pub cri: cri::Client,
    pub volumes: Volumes,
    pub cgroups: Cgroups,
    pub log_dir: PathBuf,
}

/// Everything found, by the pod's UID. After `pause`.
pub async fn list(
    places: Places,
    pause: Duration,
) -> Result<BTreeMap<String, Name>, tonic::Status> {
    tokio::time::sleep(pause).await;
    let mut found: BTreeMap<String, Name> = BTreeMap::new();
    for uid in places.volumes.known_uids().await {
        found.entry(uid).or_default();
    }
    let (cgroups, log_dir) = (places.cgroups, places.log_dir);
    let on_disk = tokio::task::spawn_blocking(move || (cgroups.known_uids(), logs(&log_dir)));
    if let Ok((uids, logs)) = on_disk.await {
        for uid in uids {
            found.entry(uid).or_default();
        }
        found.extend(logs);
    }
    for owner in observe::owners(&places.cri).await? {
        let (namespace, name) = (owner.namespace, owner.name);
        found.insert(owner.uid, Name { namespace, name });
    }
    Ok(found)
}

/// The pods that have a directory of logs.
fn logs(directory: &Path) -> Vec<(String, Name)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| named(&entry.file_name().to_string_lossy()))
        .collect()
}

/// `<namespace>_<name>_<uid>`; anything else is not ours.
fn named(directory: &str) -> Option<(String, Name)> {
    let mut parts = directory.split('_').map(str::to_owned);
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let ours = parts.next().is_none() && !uid.is_empty() && !name.is_empty();
    ours.then_some((uid, Name { namespace, name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_logs_names_its_pod() {
        let check = |directory: &str, expected: Option<(&str, &str, &str)>| {
            let found = named(directory);
            let found = found.as_ref().map(|(uid, name)| {
                let Name { namespace, name } = name;
                (namespace.as_str(), name.as_str(), uid.as_str())
            });
            assert_eq!(found, expected, "{directory}");
        };
        check("default_web-0_12-34", Some(("default", "web-0", "12-34")));
        for other in ["coracle", "a_b", "__12", "a_b_c_d", "a_b_"] {
            check(other, None);
        }
    }
}
