//! What is known of sandboxes and containers across restarts of the server: one JSON file each,
//! written by rename before the effects it announces.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use base64::Engine;
use cri::v1::{ContainerConfig, PodSandboxConfig};
use prost::Message;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{failpoint, sandbox::userns::Mapping};

/// A sandbox's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxPhase {
    /// Being made; found at start, it is torn down.
    Creating,
    Ready,
    /// Its pause process has ended, or it was stopped.
    Stopped,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxRecord {
    pub id: String,
    #[serde(with = "encoded")]
    pub config: PodSandboxConfig,
    pub runtime_handler: String,
    /// Unix nanoseconds.
    pub created_at: i64,
    pub phase: SandboxPhase,
    /// None: the host's network.
    pub netns: Option<PathBuf>,
    pub addresses: Vec<IpAddr>,
    /// The network has been detached.
    pub network_released: bool,
    /// The pause process.
    pub pid: i32,
    pub cgroup: String,
    pub boot_id: String,
    /// The pod's own users; None: the host's.
    #[serde(default)]
    pub users: Option<Mapping>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerRecord {
    pub id: String,
    pub sandbox: String,
    #[serde(with = "encoded")]
    pub config: ContainerConfig,
    /// What the image was asked for as, and which one it was.
    pub image_id: String,
    pub image_ref: String,
    pub layers: Vec<String>,
    pub created_at: i64,
    pub started_at: i64,
    pub pid: i32,
    pub exit: Option<ExitRecord>,
    pub cgroup: String,
    pub log: Option<PathBuf>,
    pub stop_signal: i32,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub code: i32,
    pub finished_at: i64,
    pub reason: String,
    #[serde(default)]
    pub message: String,
}

/// One kind of record under `<root>/<kind>/<id>/record.json`.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(root: &Path, kind: &str) -> Directory {
        Directory(root.join(kind))
    }

    pub fn of(&self, id: &str) -> PathBuf {
        self.0.join(id)
    }

    pub fn write(&self, id: &str, record: &impl Serialize) -> io::Result<()> {
        let directory = self.of(id);
        failpoint::reach("before a record is written");
        fs::create_dir_all(&directory)?;
        failpoint::reach("a directory for a record is made");
        crate::sys::write_atomically(&directory.join("record.json"), &serde_json::to_vec(record)?)?;
        failpoint::reach("a record is written");
        Ok(())
    }

    /// Every readable record, and the directories that hold none (torn by a crash).
    pub fn load<T: DeserializeOwned>(&self) -> io::Result<(Vec<T>, Vec<PathBuf>)> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((Vec::new(), Vec::new()));
            }
            Err(error) => return Err(error),
        };
        let (mut records, mut torn) = (Vec::new(), Vec::new());
        for entry in entries.flatten() {
            let record = fs::read(entry.path().join("record.json"))
                .ok()
                .and_then(|bytes| serde_json::from_slice(&bytes).ok());
            match record {
                Some(record) => records.push(record),
                None => torn.push(entry.path()),
            }
        }
        Ok((records, torn))
    }

    pub fn remove(&self, id: &str) -> io::Result<()> {
        failpoint::reach("before a record is removed");
        // The record goes first: what is left without one is swept up at the next start.
        let _ = fs::remove_file(self.of(id).join("record.json"));
        failpoint::reach("a record is removed, its directory is not");
        match fs::remove_dir_all(self.of(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        failpoint::reach("a record's directory is removed");
        Ok(())
    }
}

/// CRI messages inside JSON, as base64 of their wire form: unknown fields apart, nothing is lost.
mod encoded {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer, M: Message>(
        message: &M,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(
            &base64::engine::general_purpose::STANDARD.encode(message.encode_to_vec()),
        )
    }

    pub fn deserialize<'de, D: Deserializer<'de>, M: Message + Default>(
        deserializer: D,
    ) -> Result<M, D::Error> {
        use serde::de::Error;
        let text = String::deserialize(deserializer)?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(D::Error::custom)?;
        M::decode(bytes.as_slice()).map_err(D::Error::custom)
    }
}
