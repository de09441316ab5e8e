//! A first start that fails leaves nothing behind: everything that it created is removed again, and
//! what was there before stays.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::layout::Layout;
use crate::removal;

/// The directories that do not exist yet on the way to a data directory, the deepest first.
pub fn missing_directories(data_dir: &Path) -> Result<Vec<PathBuf>> {
    let path = std::path::absolute(data_dir)
        .with_context(|| format!("data directory {}", data_dir.display()))?;
    let missing = path.ancestors().take_while(|ancestor| !ancestor.exists());
    Ok(missing.map(Path::to_path_buf).collect())
}

/// A data directory as it was before its first start.
pub struct FirstStart {
    layout: Layout,
    /// Directories that were created for it, the deepest first.
    created: Vec<PathBuf>,
    /// Names of what was in it before: imported images, configuration files.
    kept: BTreeSet<OsString>,
}

impl FirstStart {
    /// `None` where there is a cluster already. The directory must be locked, so that nothing that
    /// another process creates is removed.
    pub fn of(layout: &Layout, created: Vec<PathBuf>) -> Result<Option<FirstStart>> {
        if layout.settings()?.is_some() {
            return Ok(None);
        }
        let mut kept = BTreeSet::new();
        for entry in fs::read_dir(&layout.data_dir)? {
            kept.insert(entry?.file_name());
        }
        for ours in [layout.lock_file(), layout.keeper_file()] {
            kept.remove(ours.file_name().unwrap_or_default());
        }
        Ok(Some(FirstStart {
            layout: layout.clone(),
            created,
            kept,
        }))
    }

    /// Removes everything that was created since. All processes of the cluster must have ended.
    pub fn undo(self) -> Result<()> {
        if let Some(settings) = self.layout.settings()? {
            removal::from_machine(&self.layout, &settings)?;
        }
        removal::data(&self.layout, &self.kept)?;
        for directory in self.created {
            // This fails where the directory holds something else. It stays.
            let _ = fs::remove_dir(directory);
        }
        Ok(())
    }
}

/// Passes on the result of a start, and undoes a first start that failed.
pub fn undo_failed<T>(first: Option<FirstStart>, result: Result<T>) -> Result<T> {
    if let (Some(first), Err(_)) = (first, &result)
        && let Err(problem) = first.undo()
    {
        return result.with_context(|| {
            format!(
                "the start failed, and not everything that it created could be removed \
                 ({}); `coracle down --delete` tries again",
                environment::chain(problem.as_ref())
            )
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_first_start_removes_what_it_created_and_keeps_what_was_there_before() {
        let directory = tempfile::tempdir().unwrap();
        let fresh = directory.path().join("a/b");
        let created = missing_directories(&fresh).unwrap();
        assert_eq!(created, [fresh.clone(), directory.path().join("a")]);
        let layout = Layout::create(&fresh).unwrap();
        let first = FirstStart::of(&layout, created).unwrap();
        fs::create_dir(layout.pki()).unwrap();
        fs::write(layout.server_log(), "text").unwrap();
        assert!(undo_failed(first, Err::<(), _>(anyhow::anyhow!("no"))).is_err());
        assert!(!directory.path().join("a").exists());

        let layout = Layout::create(&fresh).unwrap();
        fs::create_dir(layout.runtime()).unwrap();
        fs::write(fresh.join("kubelet.yaml"), "text").unwrap();
        let first = FirstStart::of(&layout, Vec::new()).unwrap();
        fs::create_dir(layout.pki()).unwrap();
        assert!(undo_failed(first, Err::<(), _>(anyhow::anyhow!("no"))).is_err());
        assert!(layout.runtime().exists() && fresh.join("kubelet.yaml").exists());
        assert!(!layout.pki().exists());

        let first = FirstStart::of(&layout, Vec::new()).unwrap();
        fs::create_dir(layout.pki()).unwrap();
        undo_failed(first, Ok(())).unwrap();
        assert!(layout.pki().exists());
    }
}
