//! Import of an OCI layout tar, or of `docker save`'s older form, read in place: one pass finds
//! where each file lies, then layers are unpacked straight from the archive.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use serde::Deserialize;

use super::{
    Error, content,
    manifest::{Descriptor, Manifest},
    reference, spool,
    store::{Description, ImageStore},
};

/// Manifests and configurations are small; anything bigger is not one.
const LARGEST_DOCUMENT: u64 = 8 << 20;

impl ImageStore {
    /// Imports every image of an OCI layout or `docker save` archive and returns their names.
    /// `name` is given to an image that the archive leaves nameless.
    pub fn import(&self, archive: &Path, name: Option<&str>) -> Result<Vec<String>, Error> {
        let _adding = self.begin_adding()?;
        add(self, spool::open(self, archive)?, name)
    }

    /// Imports an archive that arrives as a stream.
    pub fn import_stream(
        &self,
        archive: impl Read,
        name: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let _adding = self.begin_adding()?;
        add(self, spool::stream(self, archive)?, name)
    }
}

fn add(store: &ImageStore, file: File, name: Option<&str>) -> Result<Vec<String>, Error> {
    let archive = Archive::read(file)?;
    if archive.files.contains_key("index.json") {
        let index = Manifest::parse(&archive.document("index.json")?)?;
        let mut names = Vec::new();
        for descriptor in &index.manifests {
            names.extend(import_oci(store, &archive, descriptor, name)?);
        }
        return Ok(names);
    }
    if archive.files.contains_key("manifest.json") {
        return import_docker(store, &archive, name);
    }
    Err(Error::Archive(
        "neither index.json nor manifest.json found".into(),
    ))
}

/// One entry of the layout's index; an index inside it is narrowed to this platform.
fn import_oci(
    store: &ImageStore,
    archive: &Archive,
    descriptor: &Descriptor,
    name: Option<&str>,
) -> Result<Vec<String>, Error> {
    let tags = names_of(descriptor, name)?;
    let mut digest = descriptor.digest.clone();
    let mut bytes = archive.blob(&digest)?;
    let mut manifest = Manifest::parse(&bytes)?;
    if manifest.config.is_none() && !manifest.manifests.is_empty() {
        digest = manifest.for_this_platform(&digest)?.digest.clone();
        bytes = archive.blob(&digest)?;
        manifest = Manifest::parse(&bytes)?;
    }
    let config = manifest
        .config
        .as_ref()
        .ok_or_else(|| Error::MediaType(manifest.media_type.clone()))?;
    let config_bytes = archive.blob(&config.digest)?;
    let blobs: Vec<String> = manifest
        .layers
        .iter()
        .map(|layer| layer.digest.clone())
        .collect();
    let digests = tags
        .iter()
        .filter_map(|tag| reference::Name::parse(tag).ok())
        .map(|name| name.with_digest(&descriptor.digest))
        .collect();
    let record = store.add(
        Description {
            pinned: true,
            manifest_digest: digest,
            manifest_bytes: bytes,
            manifest,
            config_bytes,
            tags: tags.clone(),
            digests,
        },
        |number| archive.reader(&blob_path(&blobs[number])?),
    )?;
    Ok(if tags.is_empty() {
        vec![record.id]
    } else {
        tags.into_iter().collect()
    })
}

/// The names an index entry carries, containerd's annotation first, in full form.
fn names_of(descriptor: &Descriptor, given: Option<&str>) -> Result<BTreeSet<String>, Error> {
    let annotation = |key: &str| descriptor.annotations.get(key).map(String::as_str);
    let found = given
        .or_else(|| annotation("io.containerd.image.name"))
        .or_else(|| {
            // A bare tag ("latest", "v1") is no name, since it lacks the repository.
            annotation("org.opencontainers.image.ref.name").filter(|name| name.contains(['/', ':']))
        });
    found
        .map(reference::normalise)
        .transpose()
        .map(|name| name.into_iter().collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerEntry {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// `manifest.json` names files; we make the manifest that docker did not save.
fn import_docker(
    store: &ImageStore,
    archive: &Archive,
    name: Option<&str>,
) -> Result<Vec<String>, Error> {
    let entries: Vec<DockerEntry> = serde_json::from_slice(&archive.document("manifest.json")?)
        .map_err(|source| Error::Json {
            what: "manifest.json",
            source,
        })?;
    let mut names = Vec::new();
    for entry in entries {
        let config_bytes = archive.document(&entry.config)?;
        let config_digest = content::sha256(&config_bytes);
        let mut layers = Vec::new();
        for layer in &entry.layers {
            let digest = content::Hashing::new(archive.reader(layer)?)
                .finish()
                .map_err(|error| Error::Archive(error.to_string()))?;
            layers.push(serde_json::json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": digest,
                "size": archive.size(layer)?,
            }));
        }
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config_digest,
                "size": config_bytes.len(),
            },
            "layers": layers,
        });
        let manifest_bytes = manifest.to_string().into_bytes();
        let manifest_digest = content::sha256(&manifest_bytes);
        let mut tags = BTreeSet::new();
        for tag in name
            .map(|name| vec![name.to_owned()])
            .or(entry.repo_tags)
            .unwrap_or_default()
        {
            tags.insert(reference::normalise(&tag)?);
        }
        let digests = tags
            .iter()
            .filter_map(|tag| reference::Name::parse(tag).ok())
            .map(|name| name.with_digest(&manifest_digest))
            .collect();
        names.extend(tags.iter().cloned());
        store.add(
            Description {
                pinned: true,
                manifest: Manifest::parse(&manifest_bytes)?,
                manifest_digest,
                manifest_bytes,
                config_bytes,
                tags,
                digests,
            },
            |number| archive.reader(&entry.layers[number]),
        )?;
    }
    Ok(names)
}

fn blob_path(digest: &str) -> Result<String, Error> {
    Ok(format!("blobs/sha256/{}", content::hex_of(digest)?))
}

/// An open archive and where each of its files lies in it.
struct Archive {
    file: Arc<File>,
    files: BTreeMap<String, (u64, u64)>,
    links: BTreeMap<String, String>,
}

impl Archive {
    fn read(mut file: File) -> Result<Archive, Error> {
        let broken = |error: io::Error| Error::Archive(spool::printable(&error.to_string()));
        file.seek(SeekFrom::Start(0)).map_err(broken)?;
        let (mut files, mut links) = (BTreeMap::new(), BTreeMap::new());
        let mut tar = tar::Archive::new(&mut file);
        for entry in tar.entries_with_seek().map_err(broken)? {
            let entry = entry.map_err(broken)?;
            let name = entry
                .path()
                .map_err(broken)?
                .to_string_lossy()
                .trim_start_matches("./")
                .to_owned();
            match entry.header().entry_type() {
                tar::EntryType::Regular | tar::EntryType::Continuous => {
                    files.insert(name, (entry.raw_file_position(), entry.size()));
                }
                // Old `docker save` shares layers by links such as `../<id>/layer.tar`.
                tar::EntryType::Symlink => {
                    if let Ok(Some(target)) = entry.link_name() {
                        let target = target
                            .to_string_lossy()
                            .trim_start_matches("../")
                            .to_owned();
                        links.insert(name, target);
                    }
                }
                _ => {}
            }
        }
        Ok(Archive {
            file: Arc::new(file),
            files,
            links,
        })
    }

    fn locate(&self, name: &str) -> Result<(u64, u64), Error> {
        self.files
            .get(name)
            .or_else(|| {
                self.links
                    .get(name)
                    .and_then(|target| self.files.get(target))
            })
            .copied()
            .ok_or_else(|| Error::Archive(format!("{name} is missing")))
    }

    fn size(&self, name: &str) -> Result<u64, Error> {
        Ok(self.locate(name)?.1)
    }

    fn reader(&self, name: &str) -> Result<Section, Error> {
        let (position, length) = self.locate(name)?;
        Ok(Section {
            file: self.file.clone(),
            position,
            left: length,
        })
    }

    fn document(&self, name: &str) -> Result<Vec<u8>, Error> {
        if self.size(name)? > LARGEST_DOCUMENT {
            return Err(Error::Archive(format!("{name} is too large")));
        }
        let mut bytes = Vec::new();
        self.reader(name)?
            .read_to_end(&mut bytes)
            .map_err(|error| Error::Archive(error.to_string()))?;
        Ok(bytes)
    }

    fn blob(&self, digest: &str) -> Result<Vec<u8>, Error> {
        let bytes = self.document(&blob_path(digest)?)?;
        content::check(digest, &bytes)?;
        Ok(bytes)
    }
}

/// A part of the archive file, read without moving a shared position.
struct Section {
    file: Arc<File>,
    position: u64,
    left: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let length = self.file.read_at(&mut buffer[..wanted], self.position)?;
        self.position += length as u64;
        self.left -= length as u64;
        Ok(length)
    }
}
