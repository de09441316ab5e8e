//! Changes a user's file atomically under kubectl's lock. Links to the file and its owner stay.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use files::atomic_file::{self, Options};

/// How long to wait for another program to release the lock.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// The file to which a path leads through links. The path itself, if it does not exist.
pub fn followed(path: &Path) -> Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(path) => Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            std::path::absolute(path).with_context(|| format!("opening {}", path.display()))
        }
        Err(error) => Err(error).with_context(|| format!("opening {}", path.display())),
    }
}

pub fn read(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => bail!("{} is not text and was not changed", path.display()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("opening {}", path.display())),
    }
}

/// Replaces the content of the file by the result of `edit`; `None` removes the file.
pub fn change(
    path: &Path,
    edit: impl FnOnce(Option<&str>) -> Result<Option<String>>,
) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)
            .with_context(|| format!("creating {}", directory.display()))?;
    }
    let _lock = Lock::acquire(path)?;
    let old = read(path)?;
    let new = edit(old.as_deref())?;
    if new == old {
        return Ok(());
    }
    match new {
        Some(new) => replace(path, new.as_bytes()),
        None => fs::remove_file(path).with_context(|| format!("removing {}", path.display())),
    }
}

fn replace(path: &Path, content: &[u8]) -> Result<()> {
    // A file that root changes keeps its owner.
    let owner = fs::metadata(path).map(|before| (before.uid(), before.gid()));
    let options = Options::private()
        .synced()
        .several_writers()
        .owner(owner.ok());
    atomic_file::write(path, content, options)
        .with_context(|| format!("writing {}", path.display()))
}

/// kubectl's lock: a file that must not exist yet.
struct Lock(PathBuf);

impl Lock {
    fn acquire(path: &Path) -> Result<Lock> {
        let lock = suffixed(path, ".lock");
        let mut waited = Duration::ZERO;
        loop {
            let made = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&lock);
            match made {
                Ok(_) => return Ok(Lock(lock)),
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(error).with_context(|| format!("creating {}", lock.display()));
                }
                Err(_) if waited >= LOCK_LIMIT => bail!(
                    "{} exists: another program changes the kubeconfig; if none does, remove it",
                    lock.display()
                ),
                Err(_) => {
                    // It is another program's file, and no event says when it is removed.
                    #[allow(clippy::disallowed_methods)]
                    std::thread::sleep(PAUSE);
                    waited += PAUSE;
                }
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
