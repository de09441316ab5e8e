//! `coracle snapshot save` writes the whole store of a running or stopped cluster to one verified
//! file. `coracle snapshot restore` creates a new store from such a file while the cluster is stopped.
//!
//! The snapshot of a server on etcd is etcd's own, which etcd's tools restore.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::{Args, Subcommand};
use environment::Environment;
use futures::{Stream, StreamExt};
use http::Method;
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use store::Store;
use store::disk::RealDisk;
use store::embedded::{self, Embedded};
use tokio::io::AsyncWriteExt;

use super::connection::{Connection, request};
use super::{ConnectionArguments, DEFAULT_DATA_DIR};
use crate::keeper;
use crate::layout::{Layout, private_dir};

/// The length of an etcd snapshot is a multiple of sectors plus one SHA-256.
const SECTOR: u64 = 512;
const CHECKSUM: usize = 32;

#[derive(Args)]
pub struct SnapshotArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Save all objects of a running or stopped cluster to a file
    Save(SaveArguments),
    /// Create the store of a stopped cluster from a saved file
    Restore(RestoreArguments),
}

#[derive(Args)]
struct SaveArguments {
    /// File to write; it contains every Secret of the cluster
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Args)]
struct RestoreArguments {
    /// File that `snapshot save` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Data directory of a new or stopped cluster
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Replace the objects of an existing cluster; its old store is kept under another name
    #[arg(long)]
    force: bool,
    /// Number by which resource versions increase, so that clients of the lost cluster list all objects again
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000_000)]
    bump_revision: u64,
}

pub async fn run(arguments: SnapshotArguments) -> Result<ExitCode> {
    match arguments.action {
        Action::Save(arguments) => save(arguments).await?,
        Action::Restore(arguments) => restore(arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn save(arguments: SaveArguments) -> Result<()> {
    let file = &arguments.file;
    let temporary = suffixed(file, "part");
    let kept = match stopped(&arguments.connection)? {
        Some(disk) => save_stopped(disk, &temporary).await,
        None => save_running(&arguments.connection, &temporary).await,
    };
    let described = kept.and_then(|()| describe(&temporary));
    let described = match described {
        Ok(described) => described,
        Err(error) => {
            // An incomplete snapshot must not be mistaken for a complete one.
            let _ = tokio::fs::remove_file(&temporary).await;
            return Err(error);
        }
    };
    let renamed = tokio::fs::rename(&temporary, file).await;
    renamed.with_context(|| format!("writing {}", file.display()))?;
    print_line!("Saved {described} to {}.", file.display());
    Ok(())
}

/// The store of the data directory, if there is one and no server uses it.
fn stopped(connection: &ConnectionArguments) -> Result<Option<RealDisk>> {
    if connection.kubeconfig.is_some() || !connection.data_dir.exists() {
        return Ok(None);
    }
    let layout = Layout::existing(&connection.data_dir)?;
    if !layout.store().exists() || keeper::running(&layout)?.is_some() {
        return Ok(None);
    }
    match RealDisk::new(layout.store()) {
        Ok(disk) => Ok(Some(disk)),
        // A server in the foreground uses it.
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => Ok(None),
        Err(error) => Err(error).context("opening the store"),
    }
}

async fn save_stopped(disk: RealDisk, file: &Path) -> Result<()> {
    let options = embedded::Options::default();
    let store = Embedded::open(Arc::new(disk), Environment::system(), options).await;
    let store = store.context("opening the store")?;
    let parts = store.snapshot().await?.map(|part| Ok(part?));
    keep(parts, file).await?;
    store.close().await.context("closing the store")
}

async fn save_running(connection: &ConnectionArguments, file: &Path) -> Result<()> {
    let connection = Connection::open(connection).await?;
    let asked = request(Method::GET, "/coracle/v1/snapshot", "*/*", None)?;
    let body = connection.send(asked).await?.into_body();
    let parts = body.into_data_stream().map(|part| {
        part.map_err(|error| anyhow::anyhow!("the connection to the server broke: {error}"))
    });
    keep(parts, file).await
}

/// Writes all parts to a file that only its owner can read, and syncs it to disk.
async fn keep(parts: impl Stream<Item = Result<Bytes>>, file: &Path) -> Result<()> {
    let writing = || format!("writing {}", file.display());
    let mut open = tokio::fs::OpenOptions::new();
    open.create(true).truncate(true).write(true).mode(0o600);
    let mut output = open.open(file).await.with_context(writing)?;
    let mut parts = std::pin::pin!(parts);
    while let Some(part) = parts.next().await {
        output.write_all(&part?).await.with_context(writing)?;
    }
    // The error of the last write is reported by the flush.
    output.flush().await.with_context(writing)?;
    output.sync_all().await.with_context(writing)
}

/// Checks a snapshot and describes it.
fn describe(file: &Path) -> Result<String> {
    if !is_ours(file)? {
        check_etcd(file)?;
        let length = fs::metadata(file)?.len();
        return Ok(format!("a snapshot of etcd, {length} bytes"));
    }
    let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let contents = embedded::verify(&file.display().to_string(), &bytes)?;
    Ok(format!(
        "{} keys at revision {}",
        contents.keys, contents.revision
    ))
}

fn is_ours(file: &Path) -> Result<bool> {
    let reading = || format!("reading {}", file.display());
    let mut start = Vec::new();
    let input = File::open(file).with_context(reading)?;
    let length = Embedded::MAGIC.len() as u64;
    input
        .take(length)
        .read_to_end(&mut start)
        .with_context(reading)?;
    Ok(start == Embedded::MAGIC)
}

/// An etcd snapshot ends with the SHA-256 of everything before it.
fn check_etcd(file: &Path) -> Result<()> {
    let mut input = File::open(file)?;
    let length = input.metadata()?.len();
    let body = length.saturating_sub(CHECKSUM as u64);
    ensure!(
        body > 0 && body % SECTOR == 0,
        "{} is neither a snapshot of Coracle nor one of etcd",
        file.display()
    );
    let mut hasher = Sha256::new();
    std::io::copy(&mut (&mut input).take(body), &mut hasher)?;
    let mut expected = [0; CHECKSUM];
    input.read_exact(&mut expected)?;
    ensure!(
        hasher.finalize()[..] == expected,
        "{} is damaged",
        file.display()
    );
    Ok(())
}

/// 1. Checks the file, and that no server uses the data directory.
/// 2. Creates the store under a temporary name.
/// 3. Renames an existing store, and then the new one.
async fn restore(arguments: RestoreArguments) -> Result<()> {
    let file = &arguments.file;
    let named = file.display().to_string();
    if !is_ours(file)? {
        check_etcd(file)?;
        bail!(
            "{named} is a snapshot of etcd: restore it with `etcdutl snapshot restore` (before \
             etcd 3.5 `etcdctl snapshot restore`) and start the servers on that etcd"
        );
    }
    let bytes = tokio::fs::read(file).await;
    let bytes = bytes.with_context(|| format!("reading {named}"))?;
    embedded::verify(&named, &bytes)?;

    let layout = Layout::create(&arguments.data_dir)?;
    let _lock = layout.lock()?;
    if keeper::running(&layout)?.is_some() {
        bail!("the cluster is running: stop it first with `coracle down`");
    }
    let place = layout.store();
    let held = match place.exists() {
        true => Some(RealDisk::new(&place).context("the store cannot be replaced")?),
        false => None,
    };
    let is_empty = held.is_none() || has_no_files(&place)?;
    if !is_empty && !arguments.force {
        bail!(
            "{} holds objects already: use --force to replace them (the old store is kept)",
            place.display()
        );
    }
    let fresh = suffixed(&place, "restoring");
    if fresh.exists() {
        // An interrupted restore has left it.
        let removed = tokio::fs::remove_dir_all(&fresh).await;
        removed.with_context(|| format!("removing {}", fresh.display()))?;
    }
    private_dir(&fresh)?;
    let environment = Environment::system();
    let disk = Arc::new(RealDisk::new(&fresh)?);
    let bump = arguments.bump_revision;
    let contents = embedded::restore(disk, &environment, &named, &bytes, bump).await?;

    let mut aside = None;
    if held.is_some() {
        let old = suffixed(
            &place,
            &format!("replaced-{}", environment.now().as_second()),
        );
        match is_empty {
            true => tokio::fs::remove_dir_all(&place).await,
            false => tokio::fs::rename(&place, &old).await,
        }
        .with_context(|| format!("replacing {}", place.display()))?;
        aside = (!is_empty).then_some(old);
    }
    let renamed = tokio::fs::rename(&fresh, &place).await;
    renamed.with_context(|| format!("creating {}", place.display()))?;
    let directory = tokio::fs::File::open(&layout.data_dir).await?;
    directory.sync_all().await?;
    print_line!(
        "Restored {} keys to {}; resource versions continue after {}.",
        contents.keys,
        place.display(),
        contents.revision
    );
    if let Some(old) = aside {
        print_line!("The old store is now {}.", old.display());
    }
    Ok(())
}

/// Whether the directory contains nothing except its lock.
fn has_no_files(directory: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(directory)?;
    Ok(entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == "LOCK")))
}

/// The path with `.suffix` appended to its name.
fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    name.into()
}
