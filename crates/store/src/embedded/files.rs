//! The engine's files by name, and the steps that make a new one durable: written under a
//! temporary name, synced, renamed, directory synced. Counts what it costs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::{FrameWriter, Kind};
use crate::Error;
use crate::disk::{Disk, DiskFile};

const TEMPORARY: &str = ".new";

/// What the store has cost since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Syncs of files; those of the directory are not counted.
    pub fsyncs: u64,
    pub bytes_written: u64,
    /// Transactions that were made durable.
    pub transactions: u64,
    /// Groups of transactions that shared one sync.
    pub batches: u64,
    pub checkpoints: u64,
}

#[derive(Default)]
pub struct LiveCounters {
    pub fsyncs: AtomicU64,
    pub bytes_written: AtomicU64,
    pub transactions: AtomicU64,
    pub batches: AtomicU64,
    pub checkpoints: AtomicU64,
}

impl LiveCounters {
    pub fn read(&self) -> Counters {
        Counters {
            fsyncs: self.fsyncs.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            transactions: self.transactions.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
        }
    }
}

pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// A file's place in the order: log `n` continues checkpoint `n`, or log `n - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Log(u64),
    Checkpoint(u64),
}

impl Name {
    pub fn parse(name: &str) -> Option<Name> {
        let (kind, number) = name.split_once('-')?;
        let number = u64::from_str_radix(number, 16).ok()?;
        match kind {
            "log" => Some(Name::Log(number)),
            "checkpoint" => Some(Name::Checkpoint(number)),
            _ => None,
        }
    }

    pub fn text(self) -> String {
        match self {
            Name::Log(number) => format!("log-{number:016x}"),
            Name::Checkpoint(number) => format!("checkpoint-{number:016x}"),
        }
    }

    fn kind(self) -> Kind {
        match self {
            Name::Log(_) => Kind::Log,
            Name::Checkpoint(_) => Kind::Checkpoint,
        }
    }
}

/// What a file of an older format is kept as when it has been brought to this one.
pub fn backup(format: u32, name: Name) -> String {
    format!("backup-format-{format}-{}", name.text())
}

/// Whether a file is an unfinished one, to be removed.
pub fn is_temporary(name: &str) -> bool {
    name.ends_with(TEMPORARY)
}

/// The disk with errors that name the file, and with counters.
#[derive(Clone)]
pub struct Files {
    pub disk: Arc<dyn Disk>,
    pub counters: Arc<LiveCounters>,
}

impl Files {
    pub fn new(disk: Arc<dyn Disk>) -> Files {
        Files {
            disk,
            counters: Arc::default(),
        }
    }

    pub fn failed(&self, name: &str) -> impl Fn(io::Error) -> Error + use<> {
        let path = self.disk.describe(name);
        move |source| Error::Io {
            path: path.clone(),
            source,
        }
    }

    /// Begins a file under a temporary name.
    pub async fn begin(&self, name: Name, salt: u64) -> Result<FramedFile, Error> {
        let temporary = format!("{}{TEMPORARY}", name.text());
        let file = self
            .disk
            .create(&temporary)
            .await
            .map_err(self.failed(&temporary))?;
        let writer = FrameWriter::new(salt);
        let header = writer.header(name.kind());
        let mut framed = FramedFile {
            file,
            writer,
            length: 0,
            name: temporary,
            files: self.clone(),
        };
        framed.append(header).await?;
        Ok(framed)
    }

    /// Syncs a file and gives it its name, durably.
    pub async fn finish(&self, framed: &mut FramedFile, name: Name) -> Result<(), Error> {
        framed.sync().await?;
        let text = name.text();
        self.disk
            .rename(&framed.name, &text)
            .await
            .map_err(self.failed(&text))?;
        framed.name = text;
        self.sync_directory().await
    }

    /// Creates an empty log, durably.
    pub async fn create_log(&self, number: u64, salt: u64) -> Result<FramedFile, Error> {
        let mut log = self.begin(Name::Log(number), salt).await?;
        self.finish(&mut log, Name::Log(number)).await?;
        Ok(log)
    }

    /// Opens a log whose last whole frame ends at `length`, and makes that state durable.
    pub async fn resume_log(
        &self,
        number: u64,
        writer: FrameWriter,
        length: usize,
    ) -> Result<FramedFile, Error> {
        let name = Name::Log(number).text();
        let file = self
            .disk
            .open(&name, length as u64)
            .await
            .map_err(self.failed(&name))?;
        let mut framed = FramedFile {
            file,
            writer,
            length: length as u64,
            name,
            files: self.clone(),
        };
        framed.sync().await?;
        Ok(framed)
    }

    pub async fn read(&self, name: Name) -> Result<Vec<u8>, Error> {
        let name = name.text();
        self.disk.read(&name).await.map_err(self.failed(&name))
    }

    /// Writes a copy, durably, over a file that had its name before.
    pub async fn copy(&self, from: Name, to: &str) -> Result<(), Error> {
        let bytes = self.read(from).await?;
        let temporary = format!("{to}{TEMPORARY}");
        let failed = self.failed(&temporary);
        let mut file = self.disk.create(&temporary).await.map_err(&failed)?;
        file.append_and_sync(bytes).await.map_err(&failed)?;
        let renamed = self.disk.rename(&temporary, to).await;
        renamed.map_err(self.failed(to))?;
        self.sync_directory().await
    }

    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.disk.remove(name).await.map_err(self.failed(name))
    }

    pub async fn sync_directory(&self) -> Result<(), Error> {
        self.disk.sync_directory().await.map_err(self.failed(""))
    }
}

/// A file of frames open for appending.
pub struct FramedFile {
    file: Box<dyn DiskFile>,
    writer: FrameWriter,
    pub length: u64,
    name: String,
    files: Files,
}

impl FramedFile {
    /// Seals a frame and makes it durable.
    pub async fn commit(&mut self, mut frame: Vec<u8>) -> Result<(), Error> {
        self.writer.seal(&mut frame);
        self.count(frame.len());
        let result = self.file.append_and_sync(frame).await;
        add(&self.files.counters.fsyncs, 1);
        result.map_err(self.files.failed(&self.name))
    }

    /// Seals a frame and writes it without making it durable.
    pub async fn append_frame(&mut self, mut frame: Vec<u8>) -> Result<(), Error> {
        self.writer.seal(&mut frame);
        self.append(frame).await
    }

    async fn append(&mut self, bytes: Vec<u8>) -> Result<(), Error> {
        self.count(bytes.len());
        let result = self.file.append(bytes).await;
        result.map_err(self.files.failed(&self.name))
    }

    async fn sync(&mut self) -> Result<(), Error> {
        let result = self.file.sync().await;
        add(&self.files.counters.fsyncs, 1);
        result.map_err(self.files.failed(&self.name))
    }

    fn count(&mut self, bytes: usize) {
        self.length += bytes as u64;
        add(&self.files.counters.bytes_written, bytes as u64);
    }
}
