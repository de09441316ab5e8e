//! Files that change all at once: they live in a generation directory, a `..data` link points at
//! it, and the names users see are links through `..data`. A reader sees the old set or the new
//! one, never a mixture.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use super::{Error, at};

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub content: Vec<u8>,
    pub mode: u32,
    /// The owner, where it must not be root (tokens for a non-root user).
    pub owner: Option<u32>,
}

impl File {
    pub fn new(content: &[u8], mode: i32) -> File {
        File {
            content: content.to_vec(),
            mode: mode as u32 & 0o7777,
            owner: None,
        }
    }
}

/// Relative path → file.
pub type Payload = BTreeMap<String, File>;

/// Makes `directory` show `payload`. Returns whether anything had to change.
pub fn write(directory: &Path, payload: &Payload, generation: &str) -> Result<bool, Error> {
    for path in payload.keys() {
        check_path(path)?;
    }
    let data = directory.join(DATA);
    let old = fs::read_link(&data).ok();
    if let Some(old) = &old
        && read(&directory.join(old)).is_ok_and(|present| same(&present, payload))
    {
        link_names(directory, payload)?;
        return Ok(false);
    }
    let new = PathBuf::from(format!("..{generation}"));
    let new_path = directory.join(&new);
    fs::create_dir(&new_path).map_err(at("creating", &new_path))?;
    set_mode(&new_path, 0o755)?;
    for (path, file) in payload {
        let target = new_path.join(path);
        if let Some(parent) = Path::new(path).parent() {
            make_directories(&new_path, parent)?;
        }
        fs::write(&target, &file.content).map_err(at("writing", &target))?;
        set_mode(&target, file.mode)?;
        if let Some(owner) = file.owner {
            std::os::unix::fs::chown(&target, Some(owner), None)
                .map_err(at("changing the owner of", &target))?;
        }
    }
    let data_new = directory.join(DATA_NEW);
    match fs::remove_file(&data_new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(at("removing", &data_new)(error));
        }
        _ => {}
    }
    symlink(&new, &data_new).map_err(at("linking", &data_new))?;
    fs::rename(&data_new, &data).map_err(at("renaming", &data_new))?;
    link_names(directory, payload)?;
    remove_stale(directory, payload, &new)?;
    Ok(true)
}

/// Directories that every user of the volume may pass, regardless of our umask.
fn make_directories(root: &Path, relative: &Path) -> Result<(), Error> {
    let mut path = root.to_path_buf();
    for name in relative.components() {
        path.push(name);
        match fs::create_dir(&path) {
            Ok(()) => set_mode(&path, 0o755)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at("creating", &path)(error)),
        }
    }
    Ok(())
}

/// The links users see: one per first path element.
fn link_names(directory: &Path, payload: &Payload) -> Result<(), Error> {
    for name in first_elements(payload) {
        let link = directory.join(&name);
        match symlink(Path::new(DATA).join(&name), &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(at("linking", &link))?,
        }
    }
    Ok(())
}

/// Removes links that lead nowhere and older generations.
fn remove_stale(directory: &Path, payload: &Payload, current: &Path) -> Result<(), Error> {
    let names = first_elements(payload);
    for entry in fs::read_dir(directory).map_err(at("reading", directory))? {
        let entry = entry.map_err(at("reading", directory))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == DATA || Path::new(&name) == current {
            continue;
        }
        let path = entry.path();
        let is_directory = entry.file_type().map_err(at("reading", &path))?.is_dir();
        if name.starts_with("..") && is_directory {
            fs::remove_dir_all(&path).map_err(at("removing", &path))?;
        } else if !is_directory && !names.contains(&name) {
            fs::remove_file(&path).map_err(at("removing", &path))?;
        }
    }
    Ok(())
}

fn first_elements(payload: &Payload) -> BTreeSet<String> {
    payload
        .keys()
        .filter_map(|path| path.split('/').next().map(str::to_owned))
        .collect()
}

/// A path must stay inside the volume and out of the writer's own names.
fn check_path(path: &str) -> Result<(), Error> {
    let bad = |why: &str| Err(Error::Key(format!("invalid path {path:?}: {why}")));
    if path.is_empty() || path.starts_with('/') {
        return bad("must be relative and not empty");
    }
    let plain = Path::new(path)
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    if !plain {
        return bad("must not contain \"..\"");
    }
    if path.starts_with("..") {
        return bad("must not start with \"..\"");
    }
    Ok(())
}

fn read(generation: &Path) -> io::Result<BTreeMap<String, (Vec<u8>, u32)>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![generation.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(generation).unwrap_or(&path);
                let content = fs::read(&path)?;
                let mode = metadata.permissions().mode() & 0o7777;
                found.insert(name.to_string_lossy().into_owned(), (content, mode));
            }
        }
    }
    Ok(found)
}

/// Modes may have gained bits from fsGroup; losing wanted ones is a difference.
fn same(present: &BTreeMap<String, (Vec<u8>, u32)>, payload: &Payload) -> bool {
    present.len() == payload.len()
        && payload.iter().all(|(path, file)| {
            present.get(path).is_some_and(|(content, mode)| {
                *content == file.content && mode & file.mode == file.mode
            })
        })
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at("changing", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        files
            .iter()
            .map(|(path, content)| ((*path).to_owned(), File::new(content.as_bytes(), 0o640)))
            .collect()
    }

    fn content(directory: &Path, name: &str) -> Option<String> {
        fs::read_to_string(directory.join(name)).ok()
    }

    #[test]
    fn an_update_replaces_everything_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path();
        assert!(write(directory, &payload(&[("a", "1"), ("d/b", "2")]), "g1").expect("written"));
        assert_eq!(content(directory, "a").as_deref(), Some("1"));
        assert_eq!(content(directory, "d/b").as_deref(), Some("2"));
        let mode = fs::metadata(directory.join("a"))
            .expect("file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
        let below = fs::metadata(directory.join("d")).expect("directory");
        assert_eq!(below.permissions().mode() & 0o777, 0o755);

        // The same again changes nothing, not even the generation.
        assert!(!write(directory, &payload(&[("a", "1"), ("d/b", "2")]), "g2").expect("written"));
        assert_eq!(
            fs::read_link(directory.join(DATA)).expect("link"),
            Path::new("..g1")
        );

        assert!(write(directory, &payload(&[("a", "3"), ("c", "4")]), "g3").expect("written"));
        assert_eq!(content(directory, "a").as_deref(), Some("3"));
        assert_eq!(content(directory, "c").as_deref(), Some("4"));
        assert!(!directory.join("d").exists() && !directory.join("..g1").exists());
        assert_eq!(
            fs::read_link(directory.join("a")).expect("link"),
            Path::new("..data/a")
        );
    }

    #[test]
    fn paths_outside_of_the_volume_are_rejected() {
        let directory = tempfile::tempdir().expect("a directory");
        for path in ["../x", "/x", "", "a/../../x", "..x"] {
            assert!(
                write(directory.path(), &payload(&[(path, "")]), "g").is_err(),
                "{path}"
            );
        }
    }
}
