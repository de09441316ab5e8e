//! Export as an OCI layout tar: the image under its own identity, its layers uncompressed.
//!
//! A layer's tar is made twice from its recipe: once to check its digest, once to write it.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use ring::digest::{Context, SHA256};
use serde_json::json;

use super::{Error, ImageRecord, content, manifest::ConfigFile, recipe, store::ImageStore};

impl ImageStore {
    /// Writes the named images to `path` as an OCI layout tar that can be imported here or elsewhere.
    pub fn export(&self, names: &[String], path: &Path) -> Result<(), Error> {
        let file = File::create(path).map_err(Error::file(path))?;
        let mut tar = Writer {
            output: BufWriter::new(file),
            written: std::collections::BTreeSet::new(),
        };
        let failed = || Error::file(path);
        let mut manifests = Vec::new();
        for name in names {
            let record = self
                .find(name)?
                .ok_or_else(|| Error::NotFound(name.clone()))?;
            manifests.extend(
                add(self, &record, name, &mut tar).map_err(|error| match error {
                    Failure::Image(error) => error,
                    Failure::Output(source) => failed()(source),
                })?,
            );
        }
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        tar.file("index.json", index.to_string().as_bytes())
            .and_then(|()| tar.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#))
            .and_then(|()| tar.finish())
            .map_err(failed())
    }
}

enum Failure {
    Image(Error),
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Image(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

/// Adds one image's blobs and returns its entries in the index, one per name.
fn add(
    store: &ImageStore,
    record: &ImageRecord,
    name: &str,
    tar: &mut Writer,
) -> Result<Vec<serde_json::Value>, Failure> {
    let config_bytes = store.content.read(&record.id)?;
    let config = ConfigFile::parse(&config_bytes)?;
    let mut layers = Vec::new();
    for (chain_id, diff_id) in record.layers.iter().zip(&config.rootfs.diff_ids) {
        let (directory, recipe) = (
            store.layer_directory(chain_id)?,
            store.recipe_path(chain_id)?,
        );
        let mut measure = Measure::default();
        recipe::bake(&recipe, &directory, &mut measure)?;
        let (size, actual) = measure.finish();
        if actual != *diff_id {
            return Err(Failure::Image(Error::Digest {
                expected: diff_id.clone(),
                actual,
            }));
        }
        if tar.begin_blob(diff_id, size)? {
            recipe::bake(&recipe, &directory, &mut tar.output)?;
            tar.pad(size)?;
        }
        layers.push(json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": diff_id,
            "size": size,
        }));
    }
    tar.blob(&record.id, &config_bytes)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": record.id,
            "size": config_bytes.len(),
        },
        "layers": layers,
    })
    .to_string();
    let digest = content::sha256(manifest.as_bytes());
    tar.blob(&digest, manifest.as_bytes())?;
    let by_tag = super::reference::normalise(name)
        .ok()
        .filter(|name| record.tags.contains(name));
    let names: Vec<String> = match by_tag {
        Some(name) => vec![name],
        None => record.tags.iter().cloned().collect(),
    };
    let entry = |name: Option<&String>| {
        let mut entry = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest,
            "size": manifest.len(),
        });
        if let Some(name) = name {
            let tag = name.rsplit(':').next().unwrap_or_default();
            entry["annotations"] = json!({
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": tag,
            });
        }
        entry
    };
    Ok(match names.is_empty() {
        true => vec![entry(None)],
        false => names.iter().map(|name| entry(Some(name))).collect(),
    })
}

/// Counts and hashes instead of writing.
struct Measure {
    context: Context,
    size: u64,
}

impl Default for Measure {
    fn default() -> Measure {
        Measure {
            context: Context::new(&SHA256),
            size: 0,
        }
    }
}

impl Measure {
    fn finish(self) -> (u64, String) {
        (self.size, content::finish(self.context))
    }
}

impl Write for Measure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.context.update(bytes);
        self.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A tar of plain files, each blob once.
struct Writer {
    output: BufWriter<File>,
    written: std::collections::BTreeSet<String>,
}

impl Writer {
    fn header(&mut self, path: &str, size: u64) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_path(path)?;
        header.set_size(size);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        self.output.write_all(header.as_bytes())
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let rest = (512 - size % 512) % 512;
        self.output.write_all(&[0; 512][..rest as usize])
    }

    fn file(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.header(path, bytes.len() as u64)?;
        self.output.write_all(bytes)?;
        self.pad(bytes.len() as u64)
    }

    /// False if the archive has this blob already.
    fn begin_blob(&mut self, digest: &str, size: u64) -> Result<bool, Failure> {
        let path = format!("blobs/sha256/{}", content::hex_of(digest)?);
        if !self.written.insert(path.clone()) {
            return Ok(false);
        }
        self.header(&path, size)?;
        Ok(true)
    }

    fn blob(&mut self, digest: &str, bytes: &[u8]) -> Result<(), Failure> {
        if self.begin_blob(digest, bytes.len() as u64)? {
            self.output.write_all(bytes)?;
            self.pad(bytes.len() as u64)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.output.write_all(&[0; 1024])?;
        self.output.flush()?;
        self.output.get_ref().sync_all()
    }
}
