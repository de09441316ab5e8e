//! The image store: lists images, adds them from blobs, removes them, and collects layers and blobs
//! that no image uses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use environment::chain;
use files::disk_usage::usage;
use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Error, ImageRecord,
    content::{self, Content},
    index::{IndexFile, NameRemoval},
    layer::Limits,
    manifest::{ConfigFile, Manifest},
    seal::{LayerCondition, Seal},
    unpack,
};

/// A layer that was looked at this recently is not looked at again.
const LOOKED_AT: Duration = Duration::from_secs(600);
/// Parts of downloads are kept this long for the next attempt.
const PARTIAL_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The images under `<root>/images`. Several processes may open the same root.
#[derive(Debug)]
pub struct ImageStore {
    directory: PathBuf,
    pub(super) content: Content,
    index: IndexFile,
    limits: Limits,
    /// When each layer was found sound.
    looked_at: Mutex<BTreeMap<String, Instant>>,
}

/// What a collection has removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub layers: usize,
    /// As far as it could be measured.
    pub bytes: u64,
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
        for part in ["layers", "ingest", "seals", "recipes"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).map_err(Error::file(&path))?;
        }
        Ok(ImageStore {
            content: Content::open(directory.join("blobs/sha256"))?,
            index: IndexFile::new(directory.clone()),
            directory,
            limits: Limits::default(),
            looked_at: Mutex::default(),
        })
    }

    /// The same store with other bounds for what is unpacked.
    pub fn with_limits(mut self, limits: Limits) -> ImageStore {
        self.limits = limits;
        self
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
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

    pub(super) fn seal_path(&self, chain_id: &str) -> Result<PathBuf, Error> {
        Ok(self
            .directory
            .join("seals")
            .join(content::hex_of(chain_id)?))
    }

    pub(super) fn recipe_path(&self, chain_id: &str) -> Result<PathBuf, Error> {
        let recipes = self.directory.join("recipes");
        Ok(recipes.join(content::hex_of(chain_id)?))
    }

    /// Where the bytes of an unfinished download are.
    pub(super) fn partial_path(&self, digest: &str) -> Result<PathBuf, Error> {
        let name = format!("partial-{}", content::hex_of(digest)?);
        Ok(self.directory.join("ingest").join(name))
    }

    /// The image, if there is one and all of its layers are sound. A damaged layer is thrown away,
    /// so that the next pull or import brings it again.
    pub fn find_sound(&self, name: &str) -> Result<Option<ImageRecord>, Error> {
        let Some(record) = self.find(name)? else {
            return Ok(None);
        };
        match self.check(&record, false) {
            Ok(()) => Ok(Some(record)),
            Err(error @ Error::Damaged { .. }) => {
                tracing::warn!(error = %chain(&error), "an image cannot be used");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Fails if a layer of the image is missing or damaged; `deep` reads every byte.
    pub fn check(&self, record: &ImageRecord, deep: bool) -> Result<(), Error> {
        let mut damage = None;
        for layer in &record.layers {
            if let Some(found) = self.damage(layer, deep)? {
                self.condemn(layer)?;
                damage.get_or_insert(found);
            }
        }
        match damage {
            None => Ok(()),
            Some(damage) => Err(Error::Damaged {
                name: record.tags.first().unwrap_or(&record.id).clone(),
                damage,
            }),
        }
    }

    /// True if the layer is here and right; a wrong one is thrown away.
    pub(super) fn layer_is_sound(&self, chain_id: &str) -> Result<bool, Error> {
        if !self.layer_directory(chain_id)?.exists() {
            return Ok(false);
        }
        match self.damage(chain_id, false)? {
            None => Ok(true),
            Some(damage) => {
                tracing::warn!(layer = chain_id, damage, "a layer is damaged");
                self.condemn(chain_id)?;
                Ok(false)
            }
        }
    }

    /// The damage of a layer, if it has any.
    fn damage(&self, chain_id: &str, deep: bool) -> Result<Option<String>, Error> {
        let looked_at = self.looked_at.lock().get(chain_id).copied();
        if !deep && looked_at.is_some_and(|when| when.elapsed() < LOOKED_AT) {
            return Ok(None);
        }
        let (directory, seal_path) = (self.layer_directory(chain_id)?, self.seal_path(chain_id)?);
        if !directory.exists() {
            return Ok(Some(format!("layer {chain_id} is missing")));
        }
        // A layer without a seal (of a version that made none) counts as sound.
        if let Some(seal) = Seal::read(&seal_path) {
            match seal
                .check(&directory, deep)
                .map_err(Error::file(&directory))?
            {
                LayerCondition::Sound => {}
                LayerCondition::Moved => {
                    Seal::of(&directory, &BTreeMap::new())?.write(&seal_path)?
                }
                LayerCondition::Damaged(what) => {
                    return Ok(Some(format!("layer {chain_id}: {what}")));
                }
            }
        }
        self.looked_at
            .lock()
            .insert(chain_id.to_owned(), Instant::now());
        Ok(None)
    }

    /// Removes a damaged layer. Containers that are mounted on it keep the files that they have open.
    fn condemn(&self, chain_id: &str) -> Result<(), Error> {
        self.looked_at.lock().remove(chain_id);
        let (directory, aside) = (self.layer_directory(chain_id)?, self.ingest_path());
        match fs::rename(&directory, &aside) {
            Ok(()) => {
                let _ = fs::remove_dir_all(&aside);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::file(directory)(error)),
        }
        let _ = fs::remove_file(self.seal_path(chain_id)?);
        let _ = fs::remove_file(self.recipe_path(chain_id)?);
        Ok(())
    }

    /// Disk space and inodes of blobs and layers, from what was noted when they were made. `None` if
    /// they could not be measured.
    pub fn usage(&self) -> Option<(u64, u64)> {
        let (mut bytes, mut inodes) = self.content.usage()?;
        let entries = fs::read_dir(self.directory.join("layers"));
        for entry in entries.into_iter().flatten().flatten() {
            let seal = self.directory.join("seals").join(entry.file_name());
            let (more, most) = match Seal::read(&seal) {
                Some(seal) => (seal.bytes, seal.inodes),
                None => usage(&entry.path())?,
            };
            (bytes, inodes) = (bytes + more, inodes + most);
        }
        let (more, most) = usage(&self.directory.join("ingest"))?;
        Some((bytes + more, inodes + most))
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

    /// Takes a name from its image. With its last name the image goes, unless `in_use` has its id: then
    /// nothing is done. An id means all names of its image.
    pub fn remove_name(&self, name: &str, in_use: &BTreeSet<String>) -> Result<NameRemoval, Error> {
        self.index.update(|images| images.remove_name(name, in_use))
    }

    /// Removes blobs and layers that no image refers to and that are not in `used` (the layers of
    /// existing containers). Returns false, having done nothing, while an image is being added.
    pub fn collect(&self, used: &BTreeSet<String>) -> Result<bool, Error> {
        Ok(self.collect_counting(used)?.is_some())
    }

    /// As [`ImageStore::collect`], and returns what was removed.
    pub fn collect_counting(&self, used: &BTreeSet<String>) -> Result<Option<Removed>, Error> {
        let path = self.directory.join("adding.lock");
        let file = File::create(&path).map_err(Error::file(&path))?;
        let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
            return Ok(None);
        };
        let before = self.usage();
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
        let removed = self.remove_children("layers", |name| !layers.contains(name))?;
        for part in ["seals", "recipes"] {
            self.remove_children(part, |name| !layers.contains(name))?;
        }
        self.looked_at
            .lock()
            .retain(|layer, _| layers.contains(layer.trim_start_matches("sha256:")));
        // The time of a file that was just written is the file system's own clock.
        lock.set_len(1).map_err(Error::file(&path))?;
        let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
        let now = modified(&path);
        let ingest = self.directory.join("ingest");
        self.remove_children("ingest", |name| {
            let age = now.and_then(|now| now.duration_since(modified(&ingest.join(name))?).ok());
            !name.starts_with("partial-") || age.is_some_and(|age| age > PARTIAL_KEPT)
        })?;
        Ok(Some(Removed {
            layers: removed,
            bytes: before
                .zip(self.usage())
                .map_or(0, |((before, _), (after, _))| before.saturating_sub(after)),
        }))
    }

    fn remove_children(&self, part: &str, unwanted: impl Fn(&str) -> bool) -> Result<usize, Error> {
        let mut count = 0;
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
            count += 1;
        }
        Ok(count)
    }

    /// Announces that something is being added, until the guard is dropped.
    pub(super) fn begin_adding(&self) -> Result<Adding, Error> {
        let path = self.directory.join("adding.lock");
        let file = File::create(&path).map_err(Error::file(&path))?;
        Flock::lock(file, FlockArg::LockShared)
            .map(Adding)
            .map_err(|(_, errno)| Error::file(path)(errno.into()))
    }

    /// The directory of everything unfinished.
    pub(super) fn ingest_directory(&self) -> PathBuf {
        self.directory.join("ingest")
    }

    /// A private path for something unfinished.
    pub(super) fn ingest_path(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.ingest_directory().join(format!(
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
            if !self.layer_is_sound(&chain[number])? {
                let digest = (!layer.digest.is_empty()).then_some(layer.digest.as_str());
                unpack::unpack(
                    open_layer(number)?,
                    digest,
                    &config.rootfs.diff_ids[number],
                    &parents,
                    self.limits,
                    &unpack::Places {
                        ingest: &self.ingest_path(),
                        target: &target,
                        seal: &self.seal_path(&chain[number])?,
                        recipe: &self.recipe_path(&chain[number])?,
                    },
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
