//! The records of sandboxes and containers that survive a restart of the server: one file each, with
//! a line of JSON per change that is written before the change takes effect. The last whole line is the
//! record: adding a line costs no new file, and a torn line leaves the line before it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
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
    /// `None` means the host's network.
    pub netns: Option<PathBuf>,
    pub addresses: Vec<IpAddr>,
    /// The network has been detached.
    pub network_released: bool,
    /// The pause process.
    pub pid: i32,
    pub cgroup: String,
    pub boot_id: String,
    /// The mapping of the pod's user namespace; `None` means the host's users.
    #[serde(default)]
    pub users: Option<Mapping>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerRecord {
    pub id: String,
    pub sandbox: String,
    #[serde(with = "encoded")]
    pub config: ContainerConfig,
    /// The image's id, and the digest by which it is reported.
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

impl ContainerRecord {
    pub fn is_running(&self) -> bool {
        self.started_at != 0 && self.exit.is_none()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub code: i32,
    pub finished_at: i64,
    pub reason: String,
    #[serde(default)]
    pub message: String,
}

/// A record of many changes is written anew, by rename, when it has grown to this many bytes.
const LONGEST: u64 = 256 * 1024;

/// One kind of record: `<root>/<kind>/<id>/record.json` where there are more files next to it, else
/// `<root>/<kind>/<id>`.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    alone: bool,
}

impl Directory {
    /// One file per sandbox.
    pub fn of_sandboxes(root: &Path) -> Directory {
        Directory {
            path: root.join("sandboxes"),
            alone: true,
        }
    }

    /// One directory per container, which also holds what the container writes.
    pub fn of_containers(root: &Path) -> Directory {
        Directory {
            path: root.join("containers"),
            alone: false,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn of(&self, id: &str) -> PathBuf {
        self.path.join(id)
    }

    fn record(&self, id: &str) -> PathBuf {
        match self.alone {
            true => self.of(id),
            false => self.of(id).join("record.json"),
        }
    }

    pub fn write(&self, id: &str, record: &impl Serialize) -> io::Result<()> {
        let path = self.record(id);
        // What a torn line left before it is ended first.
        let mut line = b"\n".to_vec();
        serde_json::to_writer(&mut line, record)?;
        line.push(b'\n');
        failpoint::reach("before a record is written");
        // It holds the container's environment.
        let append = || {
            OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&path)
        };
        let mut file = match append() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(path.parent().unwrap_or(&self.path))?;
                append()
            }
            opened => opened,
        }?;
        failpoint::reach("a directory for a record is made");
        match file.metadata()?.len() + line.len() as u64 > LONGEST {
            true => crate::sys::write_atomically(&path, &line)?,
            false => file.write_all(&line)?,
        }
        failpoint::reach("a record is written");
        Ok(())
    }

    /// Every readable record, and the directories that hold none (torn by a crash).
    pub fn load<T: DeserializeOwned>(&self) -> io::Result<(Vec<T>, Vec<PathBuf>)> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((Vec::new(), Vec::new()));
            }
            Err(error) => return Err(error),
        };
        let (mut records, mut torn) = (Vec::new(), Vec::new());
        for entry in entries.flatten() {
            let id = entry.file_name();
            let bytes = fs::read(self.record(&id.to_string_lossy())).unwrap_or_default();
            match newest(&bytes) {
                Some(record) => records.push(record),
                None => torn.push(entry.path()),
            }
        }
        Ok((records, torn))
    }

    pub fn remove(&self, id: &str) -> io::Result<()> {
        failpoint::reach("before a record is removed");
        // The record goes first: what is left without one is swept up at the next start.
        let removed = fs::remove_file(self.record(id));
        failpoint::reach("a record is removed, its directory is not");
        let removed = match self.alone {
            true => removed,
            false => fs::remove_dir_all(self.of(id)),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        failpoint::reach("a record's directory is removed");
        Ok(())
    }
}

/// The last line that is whole.
fn newest<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    bytes
        .rsplit(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .find_map(|line| serde_json::from_slice(line).ok())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn load(records: &Directory) -> Vec<String> {
        records.load().unwrap().0
    }

    #[test]
    fn the_last_whole_line_is_the_record() {
        let root = tempfile::tempdir().unwrap();
        let records = Directory::of_containers(root.path());
        records.write("a", &"first").unwrap();
        records.write("a", &"second").unwrap();
        assert_eq!(load(&records), ["second"]);
        let path = records.of("a").join("record.json");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"\n\"thi").unwrap();
        assert_eq!(load(&records), ["second"], "a torn line is nothing");
        records.write("a", &"fourth").unwrap();
        assert_eq!(load(&records), ["fourth"]);
        fs::write(&path, b"\"of an older server\"").unwrap();
        assert_eq!(load(&records), ["of an older server"]);
    }

    #[test]
    fn a_record_of_many_changes_stays_small() {
        let root = tempfile::tempdir().unwrap();
        let records = Directory::of_containers(root.path());
        let long = "x".repeat(100_000);
        for _ in 0..7 {
            records.write("a", &long).unwrap();
        }
        let size = fs::metadata(records.of("a").join("record.json")).unwrap();
        assert!(size.len() <= LONGEST);
        assert_eq!(load(&records), [long]);
        records.remove("a").unwrap();
        assert!(load(&records).is_empty());
    }

    #[test]
    fn a_sandbox_record_is_one_file() {
        let root = tempfile::tempdir().unwrap();
        let records = Directory::of_sandboxes(root.path());
        records.write("a", &"first").unwrap();
        records.write("a", &"second").unwrap();
        assert!(records.of("a").is_file());
        assert_eq!(load(&records), ["second"]);
        records.remove("a").unwrap();
        records.remove("a").unwrap();
        assert!(load(&records).is_empty());
        assert_eq!(fs::read_dir(records.path()).unwrap().count(), 0);
    }
}
