//! Records which pods may use an image that this kubelet pulled: those with the credentials it was pulled
//! with, or all of them when it took none. Kept on disk in upstream's form, so that a restart
//! forgets nothing; an image whose pull was begun and never seen to end counts as pulled by no pod
//! known. Images that came otherwise (imported, there before) are everybody's by default.

use std::{collections::BTreeMap, path::PathBuf};

use files::atomic_file::{self, Options};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    credentials::{Credential, Origin, ServiceAccountOrigin, Source},
    names,
};
use crate::configuration::Configuration;

/// Credentials one image remembers.
const MOST_ORIGINS: usize = 100;
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";

pub struct PullRecords {
    directory: PathBuf,
    policy: Policy,
    state: Mutex<State>,
}

/// When credentials are asked for, though the image is there.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Policy {
    Never,
    /// For what this kubelet pulled.
    Pulled,
    /// For all but these repositories; `*` at the end matches all below.
    Allowlist(Vec<String>),
    Always,
}

#[derive(Default)]
struct State {
    /// By image id.
    pulled: BTreeMap<String, Record>,
    /// Image names whose pull was begun, and how many such pulls there are.
    pulling: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    kind: String,
    api_version: String,
    last_updated_time: Time,
    image_ref: String,
    /// By repository.
    #[serde(default)]
    credential_mapping: BTreeMap<String, Access>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Access {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<Origin>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_service_accounts: Vec<ServiceAccountOrigin>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    kind: String,
    api_version: String,
    image: String,
}

/// A pull under way. Dropped, it is over: recorded, failed or called off.
pub struct Begun<'a> {
    records: &'a PullRecords,
    name: String,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut state = self.records.state.lock();
        let left = state.pulling.get_mut(&self.name).map(|count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == Some(0) {
            state.pulling.remove(&self.name);
            // Under the lock: another pull may be about to begin.
            let _ = std::fs::remove_file(self.records.file("pulling", &self.name));
        }
    }
}

impl PullRecords {
    /// Reads what an earlier kubelet left. Blocking.
    pub fn open(directory: PathBuf, configuration: &Configuration) -> PullRecords {
        let mut state = State::default();
        for bytes in files(&directory.join("pulled")) {
            match serde_json::from_slice::<Record>(&bytes) {
                Ok(record) => {
                    state.pulled.insert(record.image_ref.clone(), record);
                }
                Err(error) => tracing::warn!(%error, "a record of a pull could not be read"),
            }
        }
        for bytes in files(&directory.join("pulling")) {
            if let Ok(intent) = serde_json::from_slice::<Intent>(&bytes) {
                // It is of a kubelet that was killed, so that its pull will not end.
                state.pulling.insert(intent.image, 0);
            }
        }
        let policy = match configuration
            .image_pull_credentials_verification_policy
            .as_str()
        {
            "NeverVerify" => Policy::Never,
            "NeverVerifyAllowlistedImages" => Policy::Allowlist(
                configuration
                    .preloaded_images_verification_allowlist
                    .clone(),
            ),
            "AlwaysVerify" => Policy::Always,
            _ => Policy::Pulled,
        };
        PullRecords {
            directory,
            policy,
            state: Mutex::new(state),
        }
    }

    /// Whether a pod with these credentials may use the image `id`, which it calls `name`, without
    /// the registry being asked.
    pub fn may_use(&self, name: &str, id: &str, credentials: &[Credential]) -> bool {
        let state = self.state.lock();
        let record = state.pulled.get(id);
        let repository = names::repository(name);
        let asked = match &self.policy {
            Policy::Never => false,
            Policy::Pulled => record.is_some() || state.pulling.contains_key(name),
            Policy::Allowlist(list) => !list.iter().any(|one| allows(one, &repository)),
            Policy::Always => true,
        };
        if !asked {
            return true;
        }
        let access = record.and_then(|record| record.credential_mapping.get(&repository));
        access.is_some_and(|access| {
            access.node_pods_accessible || credentials.iter().any(|one| access.knows(&one.source))
        })
    }

    /// Whether a ServiceAccount may open what is there: only then are accounts asked for.
    pub fn knows_accounts(&self, name: &str, id: &str) -> bool {
        let state = self.state.lock();
        let record = state.pulled.get(id);
        let access = record.and_then(|one| one.credential_mapping.get(&names::repository(name)));
        access.is_some_and(|access| !access.kubernetes_service_accounts.is_empty())
    }

    /// A pull begins.
    pub async fn intend(&self, name: &str) -> Begun<'_> {
        *self
            .state
            .lock()
            .pulling
            .entry(name.to_owned())
            .or_insert(0) += 1;
        let begun = Begun {
            records: self,
            name: name.to_owned(),
        };
        let intent = Intent {
            kind: "ImagePullIntent".to_owned(),
            api_version: API_VERSION.to_owned(),
            image: name.to_owned(),
        };
        self.write("pulling", name, &intent).await;
        begun
    }

    /// The image `id`, asked for as `name`, has arrived, with a credential or without any.
    pub async fn pulled(&self, name: &str, id: &str, used: Option<&Credential>, now: Timestamp) {
        let changed = {
            let mut state = self.state.lock();
            let record = state.pulled.entry(id.to_owned()).or_insert_with(|| Record {
                kind: "ImagePulledRecord".to_owned(),
                api_version: API_VERSION.to_owned(),
                last_updated_time: Time(now),
                image_ref: id.to_owned(),
                credential_mapping: BTreeMap::new(),
            });
            let access = record
                .credential_mapping
                .entry(names::repository(name))
                .or_default();
            let before = access.clone();
            access.add(used.map_or(&Source::Node, |credential| &credential.source));
            let changed = *access != before;
            record.last_updated_time = Time(now);
            changed.then(|| record.clone())
        };
        if let Some(record) = changed {
            self.write("pulled", id, &record).await;
        }
    }

    /// The image is no longer on the node.
    pub async fn forget(&self, id: &str) {
        if self.state.lock().pulled.remove(id).is_some() {
            let _ = tokio::fs::remove_file(self.file("pulled", id)).await;
        }
    }

    fn file(&self, kind: &str, key: &str) -> PathBuf {
        let hash = Sha256::digest(key);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(kind).join(format!("sha256-{hex}"))
    }

    async fn write(&self, kind: &str, key: &str, content: &impl Serialize) {
        let file = self.file(kind, key);
        let bytes = serde_json::to_vec(content).unwrap_or_default();
        let result = tokio::task::spawn_blocking(move || {
            if let Some(parent) = file.parent() {
                std::fs::create_dir_all(parent)?;
            }
            atomic_file::write(&file, &bytes, Options::plain())
        });
        if let Ok(Err(error)) = result.await {
            tracing::warn!(%error, "a record of a pull could not be written");
        }
    }
}

impl Access {
    /// The same Secret, or the same credential in another one; the same ServiceAccount.
    fn knows(&self, source: &Source) -> bool {
        let origin = match source {
            Source::Secret(origin) => origin,
            Source::ServiceAccount(origin) => {
                return self.kubernetes_service_accounts.contains(origin);
            }
            Source::Node => return false,
        };
        self.kubernetes_secrets.iter().any(|known| {
            let place = |one: &Origin| (one.uid.clone(), one.namespace.clone(), one.name.clone());
            known.credential_hash == origin.credential_hash || place(known) == place(origin)
        })
    }

    fn add(&mut self, source: &Source) {
        match source {
            Source::Node => {
                *self = Access {
                    node_pods_accessible: true,
                    ..Access::default()
                };
            }
            _ if self.node_pods_accessible => {}
            Source::ServiceAccount(origin) => {
                let known = &mut self.kubernetes_service_accounts;
                if !known.contains(origin) {
                    known.truncate(MOST_ORIGINS - 1);
                    known.push(origin.clone());
                }
            }
            Source::Secret(origin) if self.kubernetes_secrets.contains(origin) => {}
            Source::Secret(origin) => {
                self.kubernetes_secrets.retain(|known| {
                    (&known.uid, &known.namespace, &known.name)
                        != (&origin.uid, &origin.namespace, &origin.name)
                });
                self.kubernetes_secrets.truncate(MOST_ORIGINS - 1);
                self.kubernetes_secrets.push(origin.clone());
            }
        }
    }
}

fn allows(pattern: &str, repository: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => repository.starts_with(prefix),
        None => names::repository(pattern) == repository,
    }
}

fn files(directory: &std::path::Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| std::fs::read(entry.path()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(name: &str, hash: &str) -> Credential {
        Credential {
            auth: Default::default(),
            source: Source::Secret(Origin {
                uid: format!("uid-{name}"),
                namespace: "n".to_owned(),
                name: name.to_owned(),
                credential_hash: hash.to_owned(),
            }),
        }
    }

    #[tokio::test]
    async fn an_image_pulled_for_a_service_account_needs_that_account() {
        let directory = tempfile::tempdir().expect("a directory");
        let account = |uid: &str| Credential {
            auth: Default::default(),
            source: Source::ServiceAccount(ServiceAccountOrigin {
                uid: uid.to_owned(),
                namespace: "n".to_owned(),
                name: "builder".to_owned(),
            }),
        };
        let records = open(directory.path());
        let now = Timestamp::UNIX_EPOCH;
        assert!(!records.knows_accounts("reg/x:1", "id"));
        let mine = account("1");
        records.pulled("reg/x:1", "id", Some(&mine), now).await;
        for records in [records, open(directory.path())] {
            assert!(records.knows_accounts("reg/x:2", "id"));
            assert!(!records.may_use("reg/x:1", "id", &[]));
            assert!(records.may_use("reg/x:1", "id", std::slice::from_ref(&mine)));
            let again = account("2");
            assert!(
                !records.may_use("reg/x:1", "id", &[again]),
                "another of that name"
            );
            let node = Credential {
                auth: Default::default(),
                source: Source::Node,
            };
            assert!(!records.may_use("reg/x:1", "id", std::slice::from_ref(&node)));
            records.pulled("reg/x:1", "id", Some(&node), now).await;
            assert!(records.may_use("reg/x:1", "id", &[]), "now the node's");
            // As it was, for the second turn.
            records.forget("id").await;
            records.pulled("reg/x:1", "id", Some(&mine), now).await;
        }
    }

    fn open(directory: &std::path::Path) -> PullRecords {
        PullRecords::open(directory.to_owned(), &Configuration::default())
    }

    #[tokio::test]
    async fn an_image_pulled_with_a_secret_needs_the_secret_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let records = open(directory.path());
        let (mine, theirs) = (credential("mine", "1"), credential("theirs", "2"));
        assert!(records.may_use("reg/x:1", "id", &[]), "not pulled by us");
        let begun = records.intend("reg/x:1").await;
        assert!(!records.may_use("reg/x:1", "id", &[]), "nobody knows how");
        let now = Timestamp::UNIX_EPOCH;
        records.pulled("reg/x:1", "id", Some(&mine), now).await;
        drop(begun);
        for records in [records, open(directory.path())] {
            assert!(!records.may_use("reg/x:1", "id", &[]));
            assert!(!records.may_use("reg/x:1", "id", std::slice::from_ref(&theirs)));
            assert!(records.may_use("reg/x:2", "id", std::slice::from_ref(&mine)));
            assert!(records.may_use("reg/x:1", "id", &[credential("copy", "1")]));
            assert!(!records.may_use("other/x:1", "id", std::slice::from_ref(&mine)));
        }
        let records = open(directory.path());
        records.pulled("reg/x:1", "id", None, now).await;
        assert!(records.may_use("reg/x:1", "id", &[]), "free for all");
        records.forget("id").await;
        assert!(open(directory.path()).may_use("reg/x:1", "id", &[]));
    }

    #[tokio::test]
    async fn verification_policies_decide_when_credentials_are_needed() {
        let directory = tempfile::tempdir().expect("a directory");
        let with = |policy: &str| {
            let configuration = Configuration {
                image_pull_credentials_verification_policy: policy.to_owned(),
                preloaded_images_verification_allowlist: vec!["reg.example/free/*".to_owned()],
                ..Configuration::default()
            };
            PullRecords::open(directory.path().to_owned(), &configuration)
        };
        assert!(!with("AlwaysVerify").may_use("reg.example/x", "id", &[]));
        let listed = with("NeverVerifyAllowlistedImages");
        assert!(listed.may_use("reg.example/free/x:1", "id", &[]));
        assert!(!listed.may_use("reg.example/x", "id", &[]));
        let never = with("NeverVerify");
        let begun = never.intend("reg.example/x").await;
        assert!(never.may_use("reg.example/x", "id", &[]));
        // As a crash would leave it: begun and never ended.
        let after_a_crash = with("NeverVerifyPreloadedImages");
        assert!(!after_a_crash.may_use("reg.example/x", "id", &[]));
        drop(begun);
        let later = with("NeverVerifyPreloadedImages");
        assert!(later.may_use("reg.example/x", "id", &[]), "called off");
    }
}
