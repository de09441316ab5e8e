//! A disk in memory whose every accident comes from a seed: on [`SimulatedDisk::crash`] unsynced
//! bytes are dropped, torn or partly kept, and unsynced names undone. No threads: on a
//! single-threaded runtime with paused time everything is reproducible.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

use super::{Disk, DiskFile};

/// What a device keeps or loses as one piece.
const SECTOR: usize = 512;

/// A seeded in-memory disk. Clones are the same disk. A process reaches its files through
/// [`SimulatedDisk::mount`], and only until the next crash.
#[derive(Clone)]
pub struct SimulatedDisk {
    device: Arc<Mutex<Device>>,
}

struct Device {
    random: StdRng,
    /// Counts process lives: handles of an earlier life are dead.
    life: u64,
    /// The directory as processes see it.
    names: BTreeMap<String, usize>,
    /// The directory as of the last directory sync.
    durable_names: BTreeMap<String, usize>,
    /// Directory states after each change since that sync, oldest first.
    unsynced_names: Vec<BTreeMap<String, usize>>,
    files: Vec<Contents>,
    slowest_sync: Duration,
    syncs_until_failure: Option<u32>,
}

#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

impl SimulatedDisk {
    /// An empty disk whose accidents follow from `seed`.
    pub fn new(seed: u64) -> SimulatedDisk {
        SimulatedDisk {
            device: Arc::new(Mutex::new(Device {
                random: StdRng::seed_from_u64(seed),
                life: 0,
                names: BTreeMap::new(),
                durable_names: BTreeMap::new(),
                unsynced_names: Vec::new(),
                files: Vec::new(),
                slowest_sync: Duration::ZERO,
                syncs_until_failure: None,
            })),
        }
    }

    /// Makes each sync take up to `slowest` of tokio's time, so that other work gets in between.
    pub fn slow_syncs(self, slowest: Duration) -> SimulatedDisk {
        self.device.lock().slowest_sync = slowest;
        self
    }

    /// Power failure: ends every open handle and loses, wholly or in part, what was not synced.
    pub fn crash(&self) {
        let mut device = self.device.lock();
        let device = &mut *device;
        device.life += 1;
        device.syncs_until_failure = None;
        // A journalling file system keeps a prefix of the unsynced directory changes.
        let kept = device.random.random_range(0..=device.unsynced_names.len());
        if kept > 0 {
            device.durable_names = device.unsynced_names.swap_remove(kept - 1);
        }
        device.unsynced_names.clear();
        device.names = device.durable_names.clone();
        for (index, file) in device.files.iter_mut().enumerate() {
            file.lose_unsynced(&mut device.random);
            if !device.names.values().any(|named| *named == index) {
                *file = Contents::default();
            }
        }
    }

    /// The disk as one process sees it, until it dies by [`crash`](Self::crash) or
    /// [`kill`](Self::kill): from then on every call through this view fails, so that a task left
    /// over from that life changes nothing.
    pub fn mount(&self) -> Arc<dyn Disk> {
        Arc::new(Mount {
            life: self.device.lock().life,
            disk: self.clone(),
        })
    }

    /// The names of all files now.
    pub fn names(&self) -> Vec<String> {
        self.device.lock().names.keys().cloned().collect()
    }

    /// A file's bytes now.
    pub fn contents(&self, name: &str) -> io::Result<Vec<u8>> {
        let device = self.device.lock();
        let index = device.index(name)?;
        Ok(device.files[index].bytes.clone())
    }

    /// Process death (`kill -9`): ends every open handle; the page cache keeps all bytes.
    pub fn kill(&self) {
        let mut device = self.device.lock();
        device.life += 1;
        device.syncs_until_failure = None;
    }

    /// Lets the sync after the next `successes` ones fail, once.
    pub fn fail_sync_after(&self, successes: u32) {
        self.device.lock().syncs_until_failure = Some(successes);
    }

    /// Flips one bit, as a failing medium does.
    pub fn flip_bit(&self, name: &str, offset: usize) -> io::Result<()> {
        let mut device = self.device.lock();
        let index = device.index(name)?;
        let file = &mut device.files[index];
        for bytes in [&mut file.bytes, &mut file.durable] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= 1;
            }
        }
        Ok(())
    }

    /// Replaces a file's bytes durably, as an operator with an editor does.
    pub fn overwrite(&self, name: &str, bytes: Vec<u8>) {
        let mut device = self.device.lock();
        let index = device.files.len();
        device.files.push(Contents {
            durable: bytes.clone(),
            bytes,
        });
        device.names.insert(name.to_owned(), index);
        device.durable_names.insert(name.to_owned(), index);
    }
}

impl Device {
    fn index(&self, name: &str) -> io::Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name.to_owned()))
    }

    fn names_changed(&mut self) {
        self.unsynced_names.push(self.names.clone());
    }
}

impl Contents {
    /// Leaves what a power failure may leave between the synced bytes and the written ones.
    fn lose_unsynced(&mut self, random: &mut StdRng) {
        if self.bytes == self.durable {
            return;
        }
        let common = self
            .bytes
            .iter()
            .zip(&self.durable)
            .take_while(|(written, synced)| written == synced)
            .count();
        let written = std::mem::take(&mut self.bytes);
        self.bytes = match random.random_range(0..4) {
            // Nothing reached the medium.
            0 => self.durable.clone(),
            // All of it did.
            1 => written,
            // The write was torn.
            2 if written.len() > common => {
                let kept = random.random_range(common..=written.len());
                let mut bytes = self.durable.clone();
                bytes.truncate(common);
                bytes.extend_from_slice(&written[common..kept]);
                bytes
            }
            // Sectors arrived out of order: some are there, others hold zeros or noise.
            _ => {
                let mut bytes = written;
                let mut start = common;
                while start < bytes.len() {
                    let end = ((start / SECTOR + 1) * SECTOR).min(bytes.len());
                    match random.random_range(0..3) {
                        0 => bytes[start..end].fill(0),
                        1 => random.fill_bytes(&mut bytes[start..end]),
                        _ => {}
                    }
                    start = end;
                }
                bytes
            }
        };
        self.durable = self.bytes.clone();
    }
}

/// One process's view of the disk.
#[derive(Clone)]
struct Mount {
    disk: SimulatedDisk,
    life: u64,
}

impl Mount {
    /// Runs `work` on the device, unless the process has died.
    fn with<T>(&self, work: impl FnOnce(&mut Device) -> io::Result<T>) -> io::Result<T> {
        let mut device = self.disk.device.lock();
        if device.life != self.life {
            return Err(io::Error::other("the simulated process has died"));
        }
        work(&mut device)
    }

    /// Waits as long as the seed says a step takes.
    async fn take_time(&self) {
        let pause = {
            let mut device = self.disk.device.lock();
            let slowest = device.slowest_sync.as_micros() as u64;
            if slowest == 0 {
                return;
            }
            Duration::from_micros(device.random.random_range(0..=slowest))
        };
        tokio::time::sleep(pause).await;
    }

    fn handle(&self, file: usize) -> Box<dyn DiskFile> {
        Box::new(SimulatedFile {
            mount: self.clone(),
            file,
        })
    }
}

#[async_trait]
impl Disk for Mount {
    fn describe(&self, name: &str) -> String {
        format!("simulated:{name}")
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        self.with(|device| Ok(device.names.keys().cloned().collect()))
    }

    async fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.with(|device| {
            let index = device.index(name)?;
            Ok(device.files[index].bytes.clone())
        })
    }

    async fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let index = self.with(|device| {
            let index = device.files.len();
            device.files.push(Contents::default());
            device.names.insert(name.to_owned(), index);
            device.names_changed();
            Ok(index)
        })?;
        Ok(self.handle(index))
    }

    async fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn DiskFile>> {
        let index = self.with(|device| {
            let index = device.index(name)?;
            device.files[index].bytes.truncate(length as usize);
            Ok(index)
        })?;
        Ok(self.handle(index))
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.with(|device| {
            let index = device.index(from)?;
            device.names.remove(from);
            device.names.insert(to.to_owned(), index);
            device.names_changed();
            Ok(())
        })
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.with(|device| {
            device.index(name)?;
            device.names.remove(name);
            device.names_changed();
            Ok(())
        })
    }

    async fn sync_directory(&self) -> io::Result<()> {
        self.take_time().await;
        self.with(|device| {
            device.durable_names = device.names.clone();
            device.unsynced_names.clear();
            Ok(())
        })
    }
}

struct SimulatedFile {
    mount: Mount,
    file: usize,
}

#[async_trait]
impl DiskFile for SimulatedFile {
    async fn append(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.mount.with(|device| {
            device.files[self.file].bytes.extend_from_slice(&bytes);
            Ok(())
        })
    }

    async fn sync(&mut self) -> io::Result<()> {
        self.mount.take_time().await;
        self.mount.with(|device| {
            match &mut device.syncs_until_failure {
                Some(0) => {
                    device.syncs_until_failure = None;
                    return Err(io::Error::other("injected sync failure"));
                }
                Some(remaining) => *remaining -= 1,
                None => {}
            }
            let file = &mut device.files[self.file];
            // Appends are the rule, so only what was added is copied.
            if file.bytes.starts_with(&file.durable) {
                file.durable
                    .extend_from_slice(&file.bytes[file.durable.len()..]);
            } else {
                file.durable = file.bytes.clone();
            }
            Ok(())
        })?;
        // The crash may also come between the sync and its acknowledgement.
        self.mount.take_time().await;
        self.mount.with(|_| Ok(()))
    }
}
