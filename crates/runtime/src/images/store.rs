//! The store itself: what is there, adding from an archive or a registry's blobs, removing, and
//! collecting what nothing refers to.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use nix::fcntl::{Flock, FlockArg};

use super::{
    Error, ImageRecord, archive,
    content::{self, Content},
    index::IndexFile,
    manifest::{ConfigFile, Manifest},
    unpack,
};

/// The images under `<root>/images`. Several processes may open the same root.
#[derive(Debug)]
pub struct ImageStore {
    directory: PathBuf,
    pub(super) content: Content,
    index: IndexFile,
}

/// Everything about one image but its layers' bytes.
pub(super) struct Description {
    /// It did not come from a registry.
    pub pinned: bool,
    pub manifest_digest: String,
    pub manifest_bytes: Vec<u8>,
    pub manifest: Manifest,
    pub config_bytes: Vec<u8>,
    pub tags: BTreeSet<String>,
    pub digests: BTreeSet<String>,
}

/// Held while adding: what is unpacked but not yet named must not be collected.
pub struct Adding(#[allow(dead_code)] Flock<File>);

impl ImageStore {
    pub fn open(root: &Path) -> Result<ImageStore, Error> {
        let directory = root.join("images");
        for part in ["layers", "ingest"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).map_err(Error::file(&path))?;
        }
        Ok(ImageStore {
            content: Content::open(directory.join("blobs/sha256"))?,
            index: IndexFile::new(directory.clone()),
            directory,
        })
    }

    /// Imports every image of an OCI layout or `docker save` archive and returns their names.
    /// `name` is given to an image that the archive leaves nameless.
    pub fn import(&self, archive: &Path, name: Option<&str>) -> Result<Vec<String>, Error> {
        archive::import(self, archive, name)
    }

    /// All images, by id.
    pub fn list(&self) -> Result<Vec<ImageRecord>, Error> {
        Ok(self.index.read()?.images.values().cloned().collect())
    }

    pub fn find(&self, name: &str) -> Result<Option<ImageRecord>, Error> {
        Ok(self.index.read()?.find(name).cloned())
    }

    pub fn layer_directory(&self, chain_id: &str) -> Result<PathBuf, Error> {
        Ok(self
            .directory
            .join("layers")
            .join(content::hex_of(chain_id)?))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes the image (all its names). Returns false if there was none. Its layers go with
    /// [`ImageStore::collect`].
    pub fn remove(&self, name: &str) -> Result<bool, Error> {
        self.index.update(|images| {
            let Some(id) = images.find(name).map(|record| record.id.clone()) else {
                return false;
            };
            images.images.remove(&id).is_some()
        })
    }

    /// Removes blobs and layers that no image refers to and that are not in `used` (the layers of
    /// existing containers). Returns false, having done nothing, while an image is being added.
    pub fn collect(&self, used: &BTreeSet<String>) -> Result<bool, Error> {
        let path = self.directory.join("adding.lock");
        let file = File::create(&path).map_err(Error::file(&path))?;
        let Ok(_lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
            return Ok(false);
        };
        let images = self.index.read()?;
        let mut layers: BTreeSet<&str> = used
            .iter()
            .filter_map(|id| id.strip_prefix("sha256:"))
            .collect();
        let mut blobs = BTreeSet::new();
        for record in images.images.values() {
            layers.extend(
                record
                    .layers
                    .iter()
                    .filter_map(|id| id.strip_prefix("sha256:")),
            );
            blobs.insert(record.id.as_str());
            blobs.insert(record.manifest.as_str());
        }
        for digest in self.content.list()? {
            if !blobs.contains(digest.as_str()) {
                self.content.remove(&digest)?;
            }
        }
        self.remove_children("layers", |name| !layers.contains(name))?;
        self.remove_children("ingest", |_| true)?;
        Ok(true)
    }

    fn remove_children(&self, part: &str, unwanted: impl Fn(&str) -> bool) -> Result<(), Error> {
        let directory = self.directory.join(part);
        for entry in fs::read_dir(&directory)
            .map_err(Error::file(&directory))?
            .flatten()
        {
            if !unwanted(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let path = entry.path();
            let removed = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.map_err(Error::file(path))?;
        }
        Ok(())
    }

    /// Announces that something is being added, until the guard is dropped.
    pub(super) fn begin_adding(&self) -> Result<Adding, Error> {
        let path = self.directory.join("adding.lock");
        let file = File::create(&path).map_err(Error::file(&path))?;
        Flock::lock(file, FlockArg::LockShared)
            .map(Adding)
            .map_err(|(_, errno)| Error::file(path)(errno.into()))
    }

    /// A private path for something unfinished.
    pub(super) fn ingest_path(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.directory.join("ingest").join(format!(
            "{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ))
    }

    /// Unpacks what is missing of the image's layers and gives the image its names. `open_layer`
    /// returns the compressed bytes of the nth layer. Expects an [`Adding`] guard to be held.
    pub(super) fn add<R: Read>(
        &self,
        description: Description,
        mut open_layer: impl FnMut(usize) -> Result<R, Error>,
    ) -> Result<ImageRecord, Error> {
        let config_digest = description
            .manifest
            .config
            .as_ref()
            .map(|config| config.digest.clone())
            .ok_or_else(|| Error::MediaType(description.manifest.media_type.clone()))?;
        let config = ConfigFile::parse(&description.config_bytes)?;
        let layers = &description.manifest.layers;
        if config.rootfs.diff_ids.len() != layers.len() {
            return Err(Error::Layer(format!(
                "{} layers but {} diff ids",
                layers.len(),
                config.rootfs.diff_ids.len()
            )));
        }
        let chain = unpack::chain_ids(&config.rootfs.diff_ids)?;
        let mut parents: Vec<PathBuf> = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            let target = self.layer_directory(&chain[number])?;
            if !target.exists() {
                let digest = (!layer.digest.is_empty()).then_some(layer.digest.as_str());
                unpack::unpack(
                    open_layer(number)?,
                    digest,
                    &config.rootfs.diff_ids[number],
                    &parents,
                    &self.ingest_path(),
                    &target,
                )?;
            }
            parents.insert(0, target);
        }
        content::sync_directory(&self.directory.join("layers"))?;
        self.content.put(
            &config_digest,
            &description.config_bytes,
            &self.ingest_path(),
        )?;
        self.content.put(
            &description.manifest_digest,
            &description.manifest_bytes,
            &self.ingest_path(),
        )?;
        let record = ImageRecord {
            id: config_digest,
            manifest: description.manifest_digest,
            tags: description.tags,
            digests: description.digests,
            layers: chain,
            size: layers.iter().map(|layer| layer.size).sum::<u64>()
                + description.config_bytes.len() as u64
                + description.manifest_bytes.len() as u64,
            process: config.config.unwrap_or_default(),
            pinned: description.pinned,
        };
        self.index.update(|images| images.insert(record.clone()))?;
        Ok(record)
    }
}
