//! The file layer below the embedded engine: named files in one flat directory, appended to and
//! made durable explicitly. [`RealDisk`] is the kernel's; [`SimulatedDisk`] lives in memory and
//! loses what was not synced, as a power failure does.

mod real;
mod simulated;

use std::io;

use async_trait::async_trait;

pub use real::RealDisk;
pub use simulated::SimulatedDisk;

/// A flat directory of files.
///
/// Bytes are durable after [`DiskFile::sync`]; names (created, renamed, removed) after
/// [`Disk::sync_directory`]. Before that both may or may not survive a crash.
#[async_trait]
pub trait Disk: Send + Sync {
    /// A name for messages to people.
    fn describe(&self, name: &str) -> String;

    /// The names of all files, sorted.
    async fn list(&self) -> io::Result<Vec<String>>;

    /// A whole file.
    async fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// An empty file to append to, replacing one of that name.
    async fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// An existing file, cut to its first `length` bytes, to append to.
    async fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Renames atomically, replacing what bore the new name.
    async fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    async fn remove(&self, name: &str) -> io::Result<()>;

    async fn sync_directory(&self) -> io::Result<()>;
}

/// A file open for appending.
#[async_trait]
pub trait DiskFile: Send {
    async fn append(&mut self, bytes: Vec<u8>) -> io::Result<()>;

    /// Makes everything appended so far durable. After a failure nothing is known about the
    /// unsynced bytes, and a second try proves nothing.
    async fn sync(&mut self) -> io::Result<()>;

    /// Both in one step, where that saves a change of threads.
    async fn append_and_sync(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.append(bytes).await?;
        self.sync().await
    }
}
