//! `coracle snapshot save` asks the server for its whole store, while it runs, and keeps it as one
//! verified file. `coracle snapshot restore` makes a new store of such a file, with the server down.
//!
//! A server on etcd hands out etcd's own snapshot, which etcd's own tools restore.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
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

use super::connection::{Connection, request};
use super::{ConnectionArguments, DEFAULT_DATA_DIR};
use crate::keeper;
use crate::layout::{Layout, private_dir};

/// Pages and checksum of an etcd snapshot: its length is a number of sectors and one SHA-256.
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
            // Half a snapshot must not be mistaken for one.
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
    };
    fs::rename(&temporary, file).with_context(|| file.display().to_string())?;
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
        // A server in the foreground has it.
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
    let named = || file.display().to_string();
    let mut open = OpenOptions::new();
    open.create(true).truncate(true).write(true).mode(0o600);
    let mut output = open.open(file).with_context(named)?;
    let mut parts = std::pin::pin!(parts);
    while let Some(part) = parts.next().await {
        output.write_all(&part?).with_context(named)?;
    }
    output.sync_all().with_context(named)
}

/// Checks a snapshot and describes it.
fn describe(file: &Path) -> Result<String> {
    if !is_ours(file)? {
        check_etcd(file)?;
        let length = fs::metadata(file)?.len();
        return Ok(format!("a snapshot of etcd, {length} bytes"));
    }
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let contents = embedded::verify(&file.display().to_string(), &bytes)?;
    Ok(format!(
        "{} keys at revision {}",
        contents.keys, contents.revision
    ))
}

fn is_ours(file: &Path) -> Result<bool> {
    let named = || file.display().to_string();
    let mut start = Vec::new();
    let input = File::open(file).with_context(named)?;
    let length = Embedded::MAGIC.len() as u64;
    input
        .take(length)
        .read_to_end(&mut start)
        .with_context(named)?;
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
    let bytes = fs::read(file).with_context(|| named.clone())?;
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
        // Left by a restore that was interrupted.
        fs::remove_dir_all(&fresh).with_context(|| fresh.display().to_string())?;
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
            true => fs::remove_dir_all(&place),
            false => fs::rename(&place, &old),
        }
        .with_context(|| place.display().to_string())?;
        aside = (!is_empty).then_some(old);
    }
    fs::rename(&fresh, &place).with_context(|| place.display().to_string())?;
    File::open(&layout.data_dir)?.sync_all()?;
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
