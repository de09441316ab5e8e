//! The kernel's file system. Every call runs on tokio's blocking threads, and the directory is
//! locked against a second process for as long as the [`RealDisk`] lives.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::{Disk, DiskFile};

const LOCK: &str = "LOCK";

/// A directory on the machine.
pub struct RealDisk {
    directory: PathBuf,
    /// Held, never read: the kernel releases the lock when it is closed, also by a crash.
    _lock: File,
}

impl RealDisk {
    /// Creates the directory if need be and locks it. Blocks briefly; fails with
    /// [`io::ErrorKind::ResourceBusy`] when another process has it.
    pub fn new(directory: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let directory = directory.into();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(directory.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(RealDisk {
                directory,
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{} is in use by another process", directory.display()),
            )),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

#[async_trait]
impl Disk for RealDisk {
    fn describe(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        let directory = self.directory.clone();
        run_blocking(move || {
            let mut names = Vec::new();
            for entry in fs::read_dir(directory)? {
                if let Ok(name) = entry?.file_name().into_string()
                    && name != LOCK
                {
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        })
        .await
    }

    async fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.path(name);
        run_blocking(move || fs::read(path)).await
    }

    async fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path(name);
        open_file(move || {
            OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(path)
        })
        .await
    }

    async fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path(name);
        open_file(move || {
            let file = OpenOptions::new().append(true).open(path)?;
            file.set_len(length)?;
            Ok(file)
        })
        .await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        run_blocking(move || fs::rename(from, to)).await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        run_blocking(move || fs::remove_file(path)).await
    }

    async fn sync_directory(&self) -> io::Result<()> {
        let directory = self.directory.clone();
        run_blocking(move || sync_directory(&directory)).await
    }
}

struct RealFile {
    file: Arc<File>,
}

#[async_trait]
impl DiskFile for RealFile {
    async fn append(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let file = self.file.clone();
        run_blocking(move || (&*file).write_all(&bytes)).await
    }

    async fn sync(&mut self) -> io::Result<()> {
        let file = self.file.clone();
        run_blocking(move || file.sync_data()).await
    }

    async fn append_and_sync(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let file = self.file.clone();
        run_blocking(move || {
            (&*file).write_all(&bytes)?;
            file.sync_data()
        })
        .await
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

async fn open_file(
    open: impl FnOnce() -> io::Result<File> + Send + 'static,
) -> io::Result<Box<dyn DiskFile>> {
    let file = run_blocking(open).await?;
    Ok(Box::new(RealFile {
        file: Arc::new(file),
    }))
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}
