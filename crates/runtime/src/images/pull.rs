//! Pulling from a registry: manifest, configuration, then the layers that are not here yet, in
//! parallel. Pulls of the same name with the same credentials share one download.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, Shared},
};
use oci_client::{
    Reference,
    client::{ClientConfig, ClientProtocol},
    errors::OciDistributionError,
    secrets::RegistryAuth,
};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;

use super::{
    Error, ImageRecord, ImageStore, content,
    manifest::{ConfigFile, MANIFEST_TYPES, Manifest},
    reference::{self, Name},
    store::Description,
    unpack,
};

const LAYERS_AT_ONCE: usize = 3;
const LARGEST_DOCUMENT: u64 = 8 << 20;

/// How to prove who we are to a registry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Credentials {
    #[default]
    Anonymous,
    Basic(String, String),
    Bearer(String),
}

type Pull = Shared<BoxFuture<'static, Result<Arc<ImageRecord>, Arc<Error>>>>;

/// Pulls into one store. Cheap to clone.
#[derive(Clone)]
pub struct Puller {
    store: Arc<ImageStore>,
    insecure: Arc<Vec<String>>,
    running: Arc<Mutex<HashMap<String, Vec<(Credentials, Pull)>>>>,
}

impl Puller {
    pub fn new(store: Arc<ImageStore>, insecure: Vec<String>) -> Puller {
        Puller {
            store,
            insecure: Arc::new(insecure),
            running: Arc::default(),
        }
    }

    /// Pulls `name`, or joins a pull of it that is under way. The download goes on when the caller
    /// gives up, so that its retry finds the work done.
    pub async fn pull(
        &self,
        name: &str,
        credentials: Credentials,
    ) -> Result<Arc<ImageRecord>, Arc<Error>> {
        let parsed = Name::parse(name)?;
        let key = parsed.to_string();
        let pull = {
            let mut running = self.running.lock();
            let pulls = running.entry(key.clone()).or_default();
            match pulls.iter().find(|(known, _)| *known == credentials) {
                Some((_, pull)) => pull.clone(),
                None => {
                    let pull = self.start(parsed, key.clone(), credentials.clone());
                    pulls.push((credentials, pull.clone()));
                    pull
                }
            }
        };
        pull.await
    }

    fn start(&self, name: Name, key: String, credentials: Credentials) -> Pull {
        let puller = self.clone();
        let task = tokio::spawn(async move {
            let result = puller.download(&name, &credentials).await;
            let mut running = puller.running.lock();
            if let Some(pulls) = running.get_mut(&key) {
                pulls.retain(|(known, _)| *known != credentials);
                if pulls.is_empty() {
                    running.remove(&key);
                }
            }
            result.map(Arc::new).map_err(Arc::new)
        });
        async move {
            task.await
                .unwrap_or_else(|error| Err(Arc::new(Error::Interrupted(error.to_string()))))
        }
        .boxed()
        .shared()
    }

    async fn download(&self, name: &Name, credentials: &Credentials) -> Result<ImageRecord, Error> {
        let image = &name.to_client();
        let failed = |source: OciDistributionError| Error::Registry {
            reference: image.whole(),
            source: Box::new(source),
        };
        let client = self.client(image.resolve_registry());
        let auth = match credentials {
            Credentials::Anonymous => RegistryAuth::Anonymous,
            Credentials::Basic(user, password) => {
                RegistryAuth::Basic(user.clone(), password.clone())
            }
            Credentials::Bearer(token) => RegistryAuth::Bearer(token.clone()),
        };
        let (bytes, listed_digest) = client
            .pull_manifest_raw(image, &auth, &MANIFEST_TYPES)
            .await
            .map_err(failed)?;
        let mut manifest_bytes = bytes.to_vec();
        let mut manifest_digest = content::sha256(&manifest_bytes);
        if manifest_digest != listed_digest {
            return Err(Error::Digest {
                expected: listed_digest,
                actual: manifest_digest,
            });
        }
        let mut manifest = Manifest::parse(&manifest_bytes)?;
        if manifest.config.is_none() && !manifest.manifests.is_empty() {
            let chosen = manifest.for_this_platform(&image.whole())?.digest.clone();
            let chosen_image = image.clone_with_digest(chosen.clone());
            let (bytes, _) = client
                .pull_manifest_raw(&chosen_image, &auth, &MANIFEST_TYPES)
                .await
                .map_err(failed)?;
            manifest_bytes = bytes.to_vec();
            content::check(&chosen, &manifest_bytes)?;
            manifest_digest = chosen;
            manifest = Manifest::parse(&manifest_bytes)?;
        }
        let config = manifest
            .config
            .clone()
            .ok_or_else(|| Error::MediaType(manifest.media_type.clone()))?;
        let store = self.store.clone();
        let _adding = blocking(move || store.begin_adding()).await?;
        let config_bytes = self
            .configuration(&client, image, &config.digest, config.size)
            .await?;
        let missing = self.missing_layers(&manifest, &config_bytes)?;
        let mut downloads = futures::stream::iter(missing)
            .map(|digest| self.layer(&client, image, digest))
            .buffer_unordered(LAYERS_AT_ONCE);
        while let Some(result) = downloads.next().await {
            result?;
        }
        drop(downloads);
        let mut tags = BTreeSet::new();
        if name.digest.is_none() {
            tags.insert(name.to_string());
        }
        let description = Description {
            pinned: false,
            digests: BTreeSet::from([name.with_digest(&listed_digest)]),
            manifest_digest,
            manifest_bytes,
            config_bytes,
            tags,
            manifest,
        };
        let store = self.store.clone();
        blocking(move || {
            let blobs: Vec<String> = description
                .manifest
                .layers
                .iter()
                .map(|layer| layer.digest.clone())
                .collect();
            let record = store.add(description, |number| {
                let path = store.content.path(&blobs[number])?;
                std::fs::File::open(&path).map_err(Error::file(path))
            })?;
            // Once unpacked, the compressed form has served its purpose.
            for digest in &blobs {
                store.content.remove(digest)?;
            }
            Ok(record)
        })
        .await
    }

    async fn configuration(
        &self,
        client: &oci_client::Client,
        image: &Reference,
        digest: &str,
        size: u64,
    ) -> Result<Vec<u8>, Error> {
        if size > LARGEST_DOCUMENT {
            return Err(Error::Layer("the image configuration is too large".into()));
        }
        if self.store.content.contains(digest)? {
            return self.store.content.read(digest);
        }
        let mut bytes = Vec::new();
        client
            .pull_blob(image, digest, &mut bytes)
            .await
            .map_err(|source| Error::Registry {
                reference: image.whole(),
                source: Box::new(source),
            })?;
        content::check(digest, &bytes)?;
        Ok(bytes)
    }

    fn missing_layers(
        &self,
        manifest: &Manifest,
        config_bytes: &[u8],
    ) -> Result<BTreeSet<String>, Error> {
        let chain = unpack::chain_ids(&ConfigFile::parse(config_bytes)?.rootfs.diff_ids)?;
        let mut missing = BTreeSet::new();
        for (layer, chain_id) in manifest.layers.iter().zip(&chain) {
            if !self.store.layer_directory(chain_id)?.exists()
                && !self.store.content.contains(&layer.digest)?
            {
                missing.insert(layer.digest.clone());
            }
        }
        Ok(missing)
    }

    async fn layer(
        &self,
        client: &oci_client::Client,
        image: &Reference,
        digest: String,
    ) -> Result<(), Error> {
        let path: PathBuf = self.store.ingest_path();
        let mut file = tokio::fs::File::create(&path)
            .await
            .map_err(Error::file(&path))?;
        let result = client.pull_blob(image, digest.as_str(), &mut file).await;
        if let Err(source) = result {
            let _ = tokio::fs::remove_file(&path).await;
            return Err(Error::Registry {
                reference: image.whole(),
                source: Box::new(source),
            });
        }
        file.flush().await.map_err(Error::file(&path))?;
        let file = file.into_std().await;
        let store = self.store.clone();
        blocking(move || store.content.commit(&digest, &file, &path)).await
    }

    fn client(&self, registry: &str) -> oci_client::Client {
        // The first caller decides the process's provider; an error means it is already decided.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let plain =
            reference::is_loopback(registry) || self.insecure.iter().any(|known| known == registry);
        oci_client::Client::new(ClientConfig {
            protocol: if plain {
                ClientProtocol::Http
            } else {
                ClientProtocol::Https
            },
            connect_timeout: Some(std::time::Duration::from_secs(30)),
            read_timeout: Some(std::time::Duration::from_secs(60)),
            user_agent: "coracle",
            ..ClientConfig::default()
        })
    }
}

impl From<&str> for Credentials {
    /// From the base64 of `user:password`, as docker configurations carry it.
    fn from(encoded: &str) -> Credentials {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD
            .decode(encoded)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .and_then(|text| {
                text.split_once(':').map(|(user, password)| {
                    Credentials::Basic(user.to_owned(), password.trim_matches('\0').to_owned())
                })
            })
            .unwrap_or_default()
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::Interrupted(error.to_string())))
}
