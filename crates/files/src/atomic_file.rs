//! Replaces a file by writing a new one next to it and renaming that over the old one: a reader, and
//! whoever comes after a crash, finds the old content or the new, never a part.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

/// How the new file is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `None` leaves it to the process's mask.
    mode: Option<u32>,
    sync: bool,
    owner: Option<(u32, u32)>,
    has_several_writers: bool,
}

impl Options {
    /// A file with the mode that the process gives to new files.
    pub fn plain() -> Options {
        Options {
            mode: None,
            sync: false,
            owner: None,
            has_several_writers: false,
        }
    }

    /// A file that only we may read.
    pub fn private() -> Options {
        Options::plain().mode(0o600)
    }

    /// A file of exactly this mode.
    pub fn mode(self, mode: u32) -> Options {
        Options {
            mode: Some(mode),
            ..self
        }
    }

    /// The content is on the disk before the name points to it.
    pub fn synced(self) -> Options {
        Options { sync: true, ..self }
    }

    /// The new file belongs to this user and group.
    pub fn owner(self, owner: Option<(u32, u32)>) -> Options {
        Options { owner, ..self }
    }

    /// Several processes may replace the file at the same time: each has a temporary file of its
    /// own, and the last one to finish wins.
    pub fn several_writers(self) -> Options {
        Options {
            has_several_writers: true,
            ..self
        }
    }
}

/// Replaces the file at `path`.
pub fn write(path: &Path, content: &[u8], options: Options) -> io::Result<()> {
    stage(path, content, options)?.commit().map(drop)
}

/// Writes the new file without putting it in its place.
pub fn stage(path: &Path, content: &[u8], options: Options) -> io::Result<StagedFile> {
    let temporary = temporary(path, options.has_several_writers);
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(options.mode.unwrap_or(0o666))
        .open(&temporary)?;
    let mut staged = StagedFile {
        file: Some(file),
        temporary,
        path: path.to_owned(),
    };
    let file = staged.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
    if let Some(mode) = options.mode
        && file.metadata()?.permissions().mode() & 0o7777 != mode
    {
        // A leftover of another mode was there, or the process has a mask.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    if let Some((user, group)) = options.owner {
        fchown(&*file, Some(user), Some(group))?;
    }
    file.write_all(content)?;
    if options.sync {
        file.sync_all()?;
    }
    Ok(staged)
}

/// A new file that is not in its place yet. It is removed unless it is committed.
#[derive(Debug)]
pub struct StagedFile {
    /// `None` once it is in its place.
    file: Option<File>,
    temporary: PathBuf,
    path: PathBuf,
}

impl StagedFile {
    /// Puts the file in its place and returns it, open at its end.
    pub fn commit(mut self) -> io::Result<File> {
        fs::rename(&self.temporary, &self.path)?;
        self.file.take().ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

fn temporary(path: &Path, has_several_writers: bool) -> PathBuf {
    let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    if has_several_writers {
        name.push(format!("-{}", std::process::id()));
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_new_content_replaces_the_old_and_nothing_else_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        fs::write(directory.path().join("state.json.new"), "left over").unwrap();
        for content in ["one", "two"] {
            write(&path, content.as_bytes(), Options::private().synced()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            assert_eq!(names(directory.path()), ["state.json"]);
        }
        let options = Options::plain().mode(0o555).several_writers();
        write(&path, b"three", options).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o555);
    }

    #[test]
    fn a_staged_file_is_removed_unless_it_is_committed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        drop(stage(&path, b"never", Options::plain()).unwrap());
        assert!(names(directory.path()).is_empty());
        let staged = stage(&path, b"begin ", Options::plain()).unwrap();
        assert_eq!(names(directory.path()), ["log.new"]);
        let mut file = staged.commit().unwrap();
        file.write_all(b"and go on").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "begin and go on");
    }

    #[test]
    fn a_file_that_cannot_be_placed_leaves_no_temporary_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("taken");
        fs::create_dir_all(path.join("below")).unwrap();
        assert!(write(&path, b"", Options::plain()).is_err());
        assert_eq!(names(directory.path()), ["taken"]);
    }
}
