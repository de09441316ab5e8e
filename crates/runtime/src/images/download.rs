//! One layer blob from a registry to the content store, resumable: what has arrived is kept under
//! the blob's digest, also when the pull or the process ends, and the next attempt asks for the
//! rest only. The blob is used only after the digest of the whole has been checked.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use environment::chain;
use nix::fcntl::{Flock, FlockArg};
use ring::digest::{Context, SHA256};
use tokio::io::AsyncWriteExt;

use super::{
    Error, ImageStore, content,
    manifest::Descriptor,
    progress::{Progress, Stage},
    registry::{self, Endpoint, Registry, Want},
};

/// How often a host may fail in a row without a single new byte.
const FRUITLESS_ATTEMPTS: u32 = 5;
/// How often a blob may be cut in all.
const MOST_ATTEMPTS: u32 = 1000;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Downloads the blob unless it is stored already. Other downloads of the same blob, in this process or
/// another, wait for this one.
pub async fn blob(
    store: &std::sync::Arc<ImageStore>,
    registry: &Registry,
    layer: &Descriptor,
    progress: &Progress,
) -> Result<(), Error> {
    let path = store.partial_path(&layer.digest)?;
    let (owned, digest) = (store.clone(), layer.digest.clone());
    let opened = run_blocking(move || {
        let partial = Partial::open(&path)?;
        if owned.content.contains(&digest)? {
            let _ = std::fs::remove_file(&partial.path);
            return Ok(None);
        }
        Ok(Some(partial))
    })
    .await?;
    let Some(mut partial) = opened else {
        progress.stage(&layer.digest, Stage::Downloaded);
        return Ok(());
    };
    if partial.length > layer.size {
        partial.restart().await?;
    }
    let resumed = partial.length;
    progress.change(&layer.digest, |known| {
        known.stage = Stage::Downloading;
        (known.received, known.resumed) = (resumed, resumed);
    });
    let mut hosts: Vec<&Endpoint> = registry.serving().collect();
    let mut failure = registry.failed(registry::Error::NoHost(registry.name.registry.clone()));
    let (mut fruitless, mut attempts) = (0, 0);
    // True while everything in the file came from hosts that are asked now.
    let mut trusted = resumed == 0;
    while let Some(host) = hosts.first().copied() {
        attempts += 1;
        let before = partial.length;
        let error = if partial.length == layer.size {
            None
        } else {
            let path = format!("{}/blobs/{}", registry.name.repository, layer.digest);
            fetch(host, &path, layer, &mut partial, progress)
                .await
                .err()
        };
        match error {
            None => {
                let actual = partial.digest();
                if actual == layer.digest {
                    let (store, digest) = (store.clone(), layer.digest.clone());
                    run_blocking(move || partial.commit(&store, &digest)).await?;
                    progress.stage(&layer.digest, Stage::Downloaded);
                    return Ok(());
                }
                failure = Error::Digest {
                    expected: layer.digest.clone(),
                    actual,
                };
                partial.restart().await?;
                progress.change(&layer.digest, |known| {
                    (known.received, known.resumed) = (0, 0)
                });
                // An earlier attempt's bytes may have been at fault; this host's own may not.
                if trusted {
                    hosts.remove(0);
                }
                trusted = true;
            }
            Some(Fault::Disk(error)) => return Err(error),
            Some(Fault::Host(error)) => {
                tracing::debug!(error = %chain(&error), blob = layer.digest, "a download was cut");
                let passing = error.is_passing();
                failure = registry.failed(error);
                fruitless = if partial.length > before {
                    0
                } else {
                    fruitless + 1
                };
                if !passing || fruitless >= FRUITLESS_ATTEMPTS || attempts >= MOST_ATTEMPTS {
                    hosts.remove(0);
                    fruitless = 0;
                } else if fruitless > 0 {
                    let pause = FIRST_PAUSE * 2_u32.pow(fruitless - 1);
                    tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
                }
            }
        }
    }
    Err(failure)
}

enum Fault {
    Host(registry::Error),
    Disk(Error),
}

/// Appends what one host gives.
async fn fetch(
    host: &Endpoint,
    path: &str,
    layer: &Descriptor,
    partial: &mut Partial,
    progress: &Progress,
) -> Result<(), Fault> {
    let want = Want {
        accept: None,
        from: partial.length,
    };
    let mut response = match host.get(path, want).await {
        // The host has fewer bytes than are here already.
        Err(registry::Error::Status { status: 416, .. }) if partial.length > 0 => {
            partial.restart().await.map_err(Fault::Disk)?;
            host.get(path, Want::default()).await.map_err(Fault::Host)?
        }
        other => other.map_err(Fault::Host)?,
    };
    let begins = match response.status().as_u16() {
        206 => first_byte(&response),
        _ => Some(0),
    };
    if begins != Some(partial.length) {
        if begins != Some(0) {
            let why = format!(
                "a part that begins at {begins:?}, not at {}",
                partial.length
            );
            return Err(Fault::Host(host.nonsense(why)));
        }
        partial.restart().await.map_err(Fault::Disk)?;
        progress.change(&layer.digest, |known| {
            (known.received, known.resumed) = (0, 0)
        });
    }
    while let Some(chunk) = host.chunk(&mut response).await.map_err(Fault::Host)? {
        if partial.length + chunk.len() as u64 > layer.size {
            let why = format!("more than the {} bytes of {}", layer.size, layer.digest);
            partial.restart().await.map_err(Fault::Disk)?;
            return Err(Fault::Host(host.nonsense(why)));
        }
        partial.append(&chunk).await.map_err(Fault::Disk)?;
        let received = partial.length;
        progress.change(&layer.digest, |known| known.received = received);
    }
    partial.flush().await.map_err(Fault::Disk)?;
    match partial.length == layer.size {
        true => Ok(()),
        // The answer ended without an error but too early, which is the same as an interruption.
        false => Err(Fault::Host(registry::Error::Status {
            host: host.label.clone(),
            what: path.to_owned(),
            status: 503,
            detail: format!(": ended after {} of {} bytes", partial.length, layer.size),
        })),
    }
}

/// The start in `Content-Range: bytes 10-99/100`.
fn first_byte(response: &reqwest::Response) -> Option<u64> {
    let header = response.headers().get("content-range")?.to_str().ok()?;
    let (first, _) = header.strip_prefix("bytes ")?.split_once('-')?;
    first.parse().ok()
}

/// The bytes so far, locked against everybody else, with their running digest.
struct Partial {
    path: PathBuf,
    file: tokio::fs::File,
    /// Keeps the lock; the same open file as `file`.
    lock: Flock<File>,
    context: Context,
    length: u64,
}

impl Partial {
    /// Waits for the process that has it locked.
    fn open(path: &Path) -> Result<Partial, Error> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(Error::file(path))?;
            let lock = Flock::lock(file, FlockArg::LockExclusive)
                .map_err(|(_, errno)| Error::file(path)(errno.into()))?;
            // The one before us may have moved it into the store.
            let ours = lock.metadata().map_err(Error::file(path))?.ino();
            if std::fs::metadata(path).map(|found| found.ino()).ok() != Some(ours) {
                continue;
            }
            let mut context = Context::new(&SHA256);
            let (mut length, mut buffer) = (0, vec![0; 1 << 17]);
            let mut reader = &*lock;
            loop {
                let count = reader.read(&mut buffer).map_err(Error::file(path))?;
                if count == 0 {
                    break;
                }
                context.update(&buffer[..count]);
                length += count as u64;
            }
            let copy = lock.try_clone().map_err(Error::file(path))?;
            return Ok(Partial {
                path: path.to_owned(),
                file: tokio::fs::File::from_std(copy),
                lock,
                context,
                length,
            });
        }
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file
            .write_all(bytes)
            .await
            .map_err(Error::file(&self.path))?;
        self.context.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.file.flush().await.map_err(Error::file(&self.path))
    }

    async fn restart(&mut self) -> Result<(), Error> {
        self.flush().await?;
        self.lock.set_len(0).map_err(Error::file(&self.path))?;
        (&*self.lock)
            .seek(SeekFrom::Start(0))
            .map_err(Error::file(&self.path))?;
        self.context = Context::new(&SHA256);
        self.length = 0;
        Ok(())
    }

    fn digest(&self) -> String {
        content::finish(self.context.clone())
    }

    fn commit(self, store: &ImageStore, digest: &str) -> Result<(), Error> {
        store.content.commit(digest, &self.lock, &self.path)
    }
}

pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::Interrupted(error)))
}
