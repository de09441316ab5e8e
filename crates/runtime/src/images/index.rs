//! `index.json`: the images that exist, and their names. Written under an exclusive lock by
//! rename, so that readers in any process see a whole file and no lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::Arc,
};

use environment::chain;
use files::atomic_file::{self, Options};
use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{Error, content, manifest::ProcessDefaults};
use crate::failpoint;

/// One image: its identity is the digest of its configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageRecord {
    pub id: String,
    pub manifest: String,
    /// Full names with a tag.
    pub tags: BTreeSet<String>,
    /// Full names with a digest.
    pub digests: BTreeSet<String>,
    /// Chain ids of the unpacked layers, lowest first.
    pub layers: Vec<String>,
    /// Compressed size of layers, configuration and manifest.
    pub size: u64,
    pub process: ProcessDefaults,
    /// The image was imported from a file. No registry has it, so garbage collection must not remove it.
    #[serde(default)]
    pub pinned: bool,
}

impl ImageRecord {
    /// Removes the digests of repositories without a tag: they were only added together with a tag.
    fn forget_digests(&mut self, tag: &str) {
        let repository = |name: &str| {
            let parsed = super::reference::Name::parse(name).ok()?;
            Some((parsed.registry, parsed.repository))
        };
        let gone = repository(tag);
        if !self.tags.iter().any(|tag| repository(tag) == gone) {
            self.digests.retain(|digest| repository(digest) != gone);
        }
    }
}

/// The result of removing a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRemoval {
    /// There is no such image.
    Unknown,
    /// The image has other names, and stays.
    Name,
    /// It was its last name; the image is gone.
    Image,
    /// It is the last name of an image that containers use; nothing was removed.
    InUse,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Images {
    version: u32,
    pub images: BTreeMap<String, ImageRecord>,
}

impl Images {
    /// Finds by id (with or without `sha256:`, or a unique prefix of it), tag or digest name.
    pub fn find(&self, name: &str) -> Option<&ImageRecord> {
        if let Some(record) = self.images.get(name) {
            return Some(record);
        }
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        if hex.len() >= 12 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let prefix = format!("sha256:{hex}");
            let mut found = self
                .images
                .range(prefix.clone()..)
                .take_while(|(id, _)| id.starts_with(&prefix));
            if let (Some((_, record)), None) = (found.next(), found.next()) {
                return Some(record);
            }
        }
        let full = super::reference::normalise(name).ok()?;
        self.images
            .values()
            .find(|record| record.tags.contains(&full) || record.digests.contains(&full))
    }

    /// See [`super::ImageStore::remove_name`].
    pub fn remove_name(&mut self, name: &str, in_use: &BTreeSet<String>) -> NameRemoval {
        let Some(found) = self.find(name) else {
            return NameRemoval::Unknown;
        };
        let (id, mut left) = (found.id.clone(), found.clone());
        match super::reference::normalise(name).ok() {
            Some(full) if left.tags.remove(&full) => left.forget_digests(&full),
            Some(full) if left.digests.remove(&full) => {}
            _ => {
                left.tags.clear();
                left.digests.clear();
            }
        }
        if !left.tags.is_empty() || !left.digests.is_empty() {
            self.images.insert(id, left);
            return NameRemoval::Name;
        }
        if in_use.contains(&id) {
            return NameRemoval::InUse;
        }
        self.images.remove(&id);
        NameRemoval::Image
    }

    /// Adds an image; its names leave whichever image had them before.
    pub fn insert(&mut self, mut new: ImageRecord) {
        for record in self.images.values_mut() {
            for tag in &new.tags {
                record.tags.remove(tag);
            }
        }
        if let Some(old) = self.images.remove(&new.id) {
            new.tags.extend(old.tags);
            new.digests.extend(old.digests);
            new.pinned |= old.pinned;
        }
        self.images.insert(new.id.clone(), new);
    }
}

/// The file, with the last version read kept until the file changes.
#[derive(Debug)]
pub struct IndexFile {
    directory: PathBuf,
    cached: Mutex<Option<(Version, Arc<Images>)>>,
}

/// What distinguishes one version of the file from the next: a rename gives a new inode.
type Version = (u64, i64, i64, u64);

impl IndexFile {
    pub fn new(directory: PathBuf) -> IndexFile {
        IndexFile {
            directory,
            cached: Mutex::new(None),
        }
    }

    pub fn read(&self) -> Result<Arc<Images>, Error> {
        let path = self.directory.join("index.json");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(error) => return Err(Error::file(path)(error)),
        };
        let metadata = file.metadata().map_err(Error::file(&path))?;
        let version = (
            metadata.ino(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.len(),
        );
        let mut cached = self.cached.lock();
        if let Some((known, images)) = cached.as_ref()
            && *known == version
        {
            return Ok(images.clone());
        }
        let images: Arc<Images> = match serde_json::from_reader(io::BufReader::new(file)) {
            Ok(images) => Arc::new(images),
            // Images can be pulled again; a store that refuses everything for good cannot be used.
            Err(error) => {
                tracing::error!(error = %chain(&error), "the image index is damaged; it is set aside");
                let aside = path.with_extension("damaged");
                fs::rename(&path, &aside).map_err(Error::file(&aside))?;
                return Ok(Arc::default());
            }
        };
        *cached = Some((version, images.clone()));
        Ok(images)
    }

    /// Changes the index under the lock and returns what `change` returns.
    pub fn update<T>(&self, change: impl FnOnce(&mut Images) -> T) -> Result<T, Error> {
        let lock_path = self.directory.join("index.lock");
        let lock = File::create(&lock_path).map_err(Error::file(&lock_path))?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive)
            .map_err(|(_, errno)| Error::file(&lock_path)(errno.into()))?;
        let mut images = Images::clone(&*self.read()?);
        images.version = 1;
        let result = change(&mut images);
        let path = self.directory.join("index.json");
        let bytes = serde_json::to_vec(&images).map_err(|source| Error::Json {
            what: "image index",
            source,
        })?;
        let staged = atomic_file::stage(&path, &bytes, Options::plain().synced());
        let staged = staged.map_err(Error::file(&path))?;
        failpoint::reach("before the image index is replaced");
        staged.commit().map_err(Error::file(&path))?;
        failpoint::reach("the image index is replaced");
        content::sync_directory(&self.directory)?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn one(tags: &[&str], digests: &[&str]) -> Images {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut images = Images::default();
        images.insert(ImageRecord {
            id: ID.into(),
            manifest: String::new(),
            tags: names(tags),
            digests: names(digests),
            layers: Vec::new(),
            size: 0,
            process: ProcessDefaults::default(),
            pinned: false,
        });
        images
    }

    #[test]
    fn removing_a_name_leaves_the_others() {
        let mut images = one(&["docker.io/library/web:1", "example.com/web:1"], &[]);
        let nobody = BTreeSet::new();
        assert_eq!(images.remove_name("web:1", &nobody), NameRemoval::Name);
        assert!(images.find("web:1").is_none());
        assert!(images.find("example.com/web:1").is_some());
        let last = images.remove_name("example.com/web:1", &nobody);
        assert_eq!(last, NameRemoval::Image);
        assert!(images.images.is_empty());
        assert_eq!(images.remove_name("web:1", &nobody), NameRemoval::Unknown);
    }

    #[test]
    fn the_last_name_of_an_image_in_use_stays() {
        let used = BTreeSet::from([ID.to_owned()]);
        let tags = ["example.com/web:1", "example.com/web:2"];
        let mut images = one(&tags, &[]);
        let refused = images.remove_name(ID, &used);
        assert_eq!(refused, NameRemoval::InUse, "an id means all names");
        assert_eq!(images.find(ID).expect("there").tags.len(), 2);
        assert_eq!(images.remove_name(tags[0], &used), NameRemoval::Name);
        assert_eq!(images.remove_name(tags[1], &used), NameRemoval::InUse);
        assert!(images.find(tags[1]).is_some());
    }

    #[test]
    fn a_digest_goes_with_the_last_tag_of_its_repository() {
        let nobody = BTreeSet::new();
        let digest = |name: &str| format!("example.com/{name}@{ID}");
        let (web, other) = (digest("web"), digest("other"));
        let tags = ["example.com/web:1", "example.com/web:2"];
        let mut images = one(&tags, &[&web, &other]);
        assert_eq!(images.remove_name(tags[0], &nobody), NameRemoval::Name);
        assert!(images.find(&web).is_some());
        assert_eq!(images.remove_name(tags[1], &nobody), NameRemoval::Name);
        assert!(images.find(&web).is_none() && images.find(&other).is_some());
        assert_eq!(images.remove_name(&other, &nobody), NameRemoval::Image);
        let mut images = one(&tags, &[&web]);
        assert_eq!(
            images.remove_name("aaaaaaaaaaaa", &nobody),
            NameRemoval::Image
        );
    }
}
