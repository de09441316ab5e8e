//! Host-local addresses: one file per address in use, and one record per attachment, both under the
//! state directory and changed only while holding its lock.
//!
//! The record is written before anything exists in the kernel, so what an interrupted ADD left
//! behind can be found and removed by a later DEL or GC.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use files::atomic_file::{self, Options};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::request::{Attachment, PortMapping};
use crate::subnet::Subnet;

/// What an attachment holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub attachment: Attachment,
    pub address: Ipv4Addr,
    pub ports: Vec<PortMapping>,
}

/// The state directory, locked for as long as this lives. The kernel releases the lock when the process
/// dies.
pub struct Ipam {
    directory: PathBuf,
    _lock: Flock<File>,
}

impl Ipam {
    pub fn lock(directory: &Path) -> Result<Ipam, Error> {
        for part in ["addresses", "records"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).map_err(file("create the state directory", &path))?;
        }
        let path = directory.join("lock");
        let file_handle = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(file("open", &path))?;
        let lock = Flock::lock(file_handle, FlockArg::LockExclusive)
            .map_err(|(_, errno)| file("lock", &path)(errno.into()))?;
        Ok(Ipam {
            directory: directory.to_owned(),
            _lock: lock,
        })
    }

    /// Takes the lowest free address after the last one taken (so that an address rests before it is
    /// used again), wrapping around, and records it for the attachment. An attachment that has a
    /// record already keeps its address.
    pub fn allocate(
        &self,
        attachment: &Attachment,
        range: Subnet,
        gateway: Ipv4Addr,
        ports: &[PortMapping],
    ) -> Result<Record, Error> {
        if let Some(mut record) = self.record(attachment)?
            && range.contains(record.address)
        {
            record.ports = ports.to_vec();
            self.write_record(&record)?;
            return Ok(record);
        }
        let (first, last) = (u32::from(range.first()), u32::from(range.last()));
        let size = last - first + 1;
        let after = self.last_taken().map_or(first, u32::from);
        let start = if (first..=last).contains(&after) {
            after - first + 1
        } else {
            0
        };
        for offset in 0..size {
            let address = Ipv4Addr::from(first + (start + offset) % size);
            if address == gateway || !self.reserve_address(address, attachment)? {
                continue;
            }
            let record = Record {
                attachment: attachment.clone(),
                address,
                ports: ports.to_vec(),
            };
            self.write_record(&record)?;
            self.remember(address)?;
            return Ok(record);
        }
        Err(Error::Exhausted(range))
    }

    pub fn record(&self, attachment: &Attachment) -> Result<Option<Record>, Error> {
        read_record(&self.record_path(attachment))
    }

    pub fn records(&self) -> Result<Vec<Record>, Error> {
        let directory = self.directory.join("records");
        let mut records = Vec::new();
        for entry in fs::read_dir(&directory).map_err(file("list", &directory))? {
            let path = entry.map_err(file("list", &directory))?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                records.extend(read_record(&path)?);
            }
        }
        records.sort_by(|a, b| a.attachment.cmp(&b.attachment));
        Ok(records)
    }

    /// Gives back what the attachment has; it may have nothing.
    pub fn release(&self, attachment: &Attachment) -> Result<(), Error> {
        let directory = self.directory.join("addresses");
        match self.record(attachment)? {
            Some(record) => remove(&directory.join(record.address.to_string()))?,
            // An ADD that died between taking the address and writing its record.
            None => {
                let owner = owner_line(attachment);
                for entry in fs::read_dir(&directory).map_err(file("list", &directory))? {
                    let path = entry.map_err(file("list", &directory))?.path();
                    if fs::read_to_string(&path).is_ok_and(|content| content == owner) {
                        remove(&path)?;
                    }
                }
            }
        }
        remove(&self.record_path(attachment))
    }

    /// Gives back addresses taken without a record, which an interrupted ADD leaves. Those whose
    /// owner is still there (`valid`) stay: their record may only have become unreadable.
    pub fn release_orphans(&self, valid: &[Attachment]) -> Result<(), Error> {
        let mut held: HashSet<String> = HashSet::new();
        for record in self.records()? {
            held.insert(record.address.to_string());
        }
        let owners: HashSet<String> = valid.iter().map(owner_line).collect();
        let directory = self.directory.join("addresses");
        for entry in fs::read_dir(&directory).map_err(file("list", &directory))? {
            let path = entry.map_err(file("list", &directory))?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if held.contains(name) {
                continue;
            }
            let owner = fs::read_to_string(&path).map_err(file("read", &path))?;
            if !owners.contains(&owner) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    fn reserve_address(&self, address: Ipv4Addr, attachment: &Attachment) -> Result<bool, Error> {
        let path = self.directory.join("addresses").join(address.to_string());
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut taken) => {
                taken
                    .write_all(owner_line(attachment).as_bytes())
                    .map_err(file("write", &path))?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(file("create", &path)(error)),
        }
    }

    fn last_taken(&self) -> Option<Ipv4Addr> {
        fs::read_to_string(self.directory.join("last"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Overwritten in place: half an address is read as none, which only means that the search for
    /// the next one begins at the first.
    fn remember(&self, address: Ipv4Addr) -> Result<(), Error> {
        let path = self.directory.join("last");
        let mut options = OpenOptions::new();
        options
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .and_then(|mut last| last.write_all(format!("{address:<15}\n").as_bytes()))
            .map_err(file("write", &path))
    }

    fn record_path(&self, attachment: &Attachment) -> PathBuf {
        // A container id has no comma, so two attachments never share a name.
        let name = format!("{},{}.json", attachment.container, attachment.interface);
        self.directory.join("records").join(name)
    }

    fn write_record(&self, record: &Record) -> Result<(), Error> {
        let bytes = serde_json::to_vec(record).map_err(Error::Decode)?;
        replace(&self.record_path(&record.attachment), &bytes)
    }
}

fn owner_line(attachment: &Attachment) -> String {
    format!("{}\n{}\n", attachment.container, attachment.interface)
}

/// An unreadable record counts as none: its address is found by the owner line.
fn read_record(path: &Path) -> Result<Option<Record>, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file("read", path)(error)),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    atomic_file::write(path, bytes, Options::plain()).map_err(file("write", path))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(file("remove", path)(error)),
        _ => Ok(()),
    }
}

fn file(verb: &str, path: &Path) -> impl Fn(std::io::Error) -> Error {
    let what = format!("cannot {verb} {}", path.display());
    move |source| Error::File {
        what: what.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(container: &str) -> Attachment {
        Attachment {
            container: container.to_owned(),
            interface: "eth0".to_owned(),
        }
    }

    fn allocate(ipam: &Ipam, container: &str, range: &str) -> Result<Ipv4Addr, Error> {
        let range: Subnet = range.parse().unwrap();
        Ok(ipam
            .allocate(&attachment(container), range, range.first(), &[])?
            .address)
    }

    #[test]
    fn released_addresses_are_reused_last() {
        let directory = tempfile::tempdir().unwrap();
        let ipam = Ipam::lock(directory.path()).unwrap();
        let taken: Vec<String> = ["a", "b", "c"]
            .iter()
            .map(|name| allocate(&ipam, name, "10.1.0.0/29").unwrap().to_string())
            .collect();
        assert_eq!(taken, ["10.1.0.2", "10.1.0.3", "10.1.0.4"]);
        ipam.release(&attachment("a")).unwrap();
        assert_eq!(
            allocate(&ipam, "d", "10.1.0.0/29").unwrap().to_string(),
            "10.1.0.5"
        );
        assert_eq!(
            allocate(&ipam, "e", "10.1.0.0/29").unwrap().to_string(),
            "10.1.0.6"
        );
        assert_eq!(
            allocate(&ipam, "f", "10.1.0.0/29").unwrap().to_string(),
            "10.1.0.2"
        );
        assert!(matches!(
            allocate(&ipam, "g", "10.1.0.0/29"),
            Err(Error::Exhausted(_))
        ));
        assert_eq!(
            allocate(&ipam, "b", "10.1.0.0/29").unwrap().to_string(),
            "10.1.0.3",
            "kept when asked again"
        );
        assert_eq!(ipam.records().unwrap().len(), 5);
    }

    #[test]
    fn release_is_idempotent_and_finds_orphans() {
        let directory = tempfile::tempdir().unwrap();
        let ipam = Ipam::lock(directory.path()).unwrap();
        let address = allocate(&ipam, "a", "10.1.0.0/24").unwrap();
        fs::remove_file(ipam.record_path(&attachment("a"))).unwrap();
        ipam.release(&attachment("a")).unwrap();
        ipam.release(&attachment("a")).unwrap();
        assert!(
            !directory
                .path()
                .join("addresses")
                .join(address.to_string())
                .exists()
        );
        let address = allocate(&ipam, "b", "10.1.0.0/24").unwrap();
        fs::write(ipam.record_path(&attachment("b")), b"{half").unwrap();
        ipam.release_orphans(&[attachment("b")]).unwrap();
        let file = directory.path().join("addresses").join(address.to_string());
        assert!(file.exists(), "its pod is still there");
        ipam.release_orphans(&[attachment("c")]).unwrap();
        assert!(
            !directory
                .path()
                .join("addresses")
                .join(address.to_string())
                .exists()
        );
    }
}
