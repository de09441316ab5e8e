//! A first start that fails leaves nothing behind: what was there before it is remembered, and
//! everything else is removed again.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::down;
use crate::layout::Layout;

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
    /// Directories that were made for it, the deepest first.
    made: Vec<PathBuf>,
    /// What else lay in it: imported images, configuration files.
    kept: BTreeSet<OsString>,
}

impl FirstStart {
    /// `None` where there is a cluster already. The directory must be locked: what another
    /// process makes meanwhile is not ours to remove.
    pub fn of(layout: &Layout, made: Vec<PathBuf>) -> Result<Option<FirstStart>> {
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
            made,
            kept,
        }))
    }

    /// Removes everything that was made since. Nothing of the cluster may run any more.
    pub fn take_back(self) -> Result<()> {
        if let Some(settings) = self.layout.settings()? {
            down::remove_from_machine(&self.layout, &settings)?;
        }
        down::remove_data(&self.layout, &self.kept)?;
        for directory in self.made {
            // Fails where something lies in it that is not ours.
            let _ = fs::remove_dir(directory);
        }
        Ok(())
    }
}

/// The result of a start; where it is a failure of the first, all of it is taken back.
pub fn settle<T>(first: Option<FirstStart>, result: Result<T>) -> Result<T> {
    if let (Some(first), Err(_)) = (first, &result)
        && let Err(problem) = first.take_back()
    {
        return result.with_context(|| {
            format!("the start failed, and not all that it made could be removed ({problem:#})")
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_a_failed_first_start_stays_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let fresh = directory.path().join("a/b");
        let made = missing_directories(&fresh).unwrap();
        assert_eq!(made, [fresh.clone(), directory.path().join("a")]);
        let layout = Layout::create(&fresh).unwrap();
        let first = FirstStart::of(&layout, made).unwrap();
        fs::create_dir(layout.pki()).unwrap();
        fs::write(layout.server_log(), "text").unwrap();
        assert!(settle(first, Err::<(), _>(anyhow::anyhow!("no"))).is_err());
        assert!(!directory.path().join("a").exists());

        let layout = Layout::create(&fresh).unwrap();
        fs::create_dir(layout.runtime()).unwrap();
        fs::write(fresh.join("kubelet.yaml"), "text").unwrap();
        let first = FirstStart::of(&layout, Vec::new()).unwrap();
        fs::create_dir(layout.pki()).unwrap();
        assert!(settle(first, Err::<(), _>(anyhow::anyhow!("no"))).is_err());
        assert!(layout.runtime().exists() && fresh.join("kubelet.yaml").exists());
        assert!(!layout.pki().exists());

        let first = FirstStart::of(&layout, Vec::new()).unwrap();
        fs::create_dir(layout.pki()).unwrap();
        settle(first, Ok(())).unwrap();
        assert!(layout.pki().exists());
    }
}
