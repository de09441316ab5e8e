//! Pulling from a registry: manifest, configuration, then the layers that are not here yet, several
//! at once, each unpacked as soon as the ones below it are. Pulls of the same name with the same
//! credentials share one download.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::{
    Error, ImageRecord, ImageStore, content,
    download::{self, run_blocking},
    manifest::{ConfigFile, Descriptor, Manifest},
    progress::{LayerProgress, Progress, Stage},
    reference::Name,
    registry::{Credentials, LARGEST_DOCUMENT, Registry, Settings},
    store::Description,
    unpack,
};

const LAYERS_AT_ONCE: usize = 3;

type Done = Shared<BoxFuture<'static, Result<Arc<ImageRecord>, Arc<Error>>>>;

/// A pull under way. Dropping it does not stop the pull.
#[derive(Clone)]
pub struct Pull {
    pub done: Done,
    pub progress: watch::Receiver<Vec<LayerProgress>>,
}

/// Pulls into one store. Cheap to clone.
#[derive(Clone)]
pub struct Puller {
    store: Arc<ImageStore>,
    settings: Arc<Settings>,
    running: Arc<Mutex<HashMap<String, Vec<(Credentials, Pull)>>>>,
}

impl Puller {
    pub fn new(store: Arc<ImageStore>, settings: Settings) -> Puller {
        Puller {
            store,
            settings: Arc::new(settings),
            running: Arc::default(),
        }
    }

    /// Pulls `name`, or joins a pull of it that is under way. The download continues when the caller
    /// gives up, so that its retry finds the work done.
    pub fn begin(&self, name: &str, credentials: Credentials) -> Result<Pull, Error> {
        let parsed = Name::parse(name)?;
        let key = parsed.to_string();
        let mut running = self.running.lock();
        let pulls = running.entry(key.clone()).or_default();
        if let Some((_, pull)) = pulls.iter().find(|(known, _)| *known == credentials) {
            return Ok(pull.clone());
        }
        let pull = self.start(parsed, key, credentials.clone());
        pulls.push((credentials, pull.clone()));
        Ok(pull)
    }

    fn start(&self, name: Name, key: String, credentials: Credentials) -> Pull {
        let puller = self.clone();
        let (sender, progress) = Progress::new();
        let task = tokio::spawn(async move {
            let result = puller.download(&name, &credentials, &sender).await;
            let mut running = puller.running.lock();
            if let Some(pulls) = running.get_mut(&key) {
                pulls.retain(|(known, _)| *known != credentials);
                if pulls.is_empty() {
                    running.remove(&key);
                }
            }
            result.map(Arc::new).map_err(Arc::new)
        });
        let done = async move {
            task.await
                .unwrap_or_else(|error| Err(Arc::new(Error::Interrupted(error))))
        }
        .boxed()
        .shared();
        Pull { done, progress }
    }

    async fn download(
        &self,
        name: &Name,
        credentials: &Credentials,
        progress: &Progress,
    ) -> Result<ImageRecord, Error> {
        let registry =
            Registry::new(name, credentials, &self.settings).map_err(|source| Error::Registry {
                reference: name.to_string(),
                source: Box::new(source),
            })?;
        let wanted = name.digest.as_deref().or(name.tag.as_deref());
        let (mut manifest_bytes, listed_digest) =
            registry.manifest(wanted.unwrap_or("latest")).await?;
        let mut manifest_digest = listed_digest.clone();
        let mut manifest = Manifest::parse(&manifest_bytes)?;
        if manifest.config.is_none() && !manifest.manifests.is_empty() {
            let chosen = manifest
                .for_this_platform(&name.to_string())?
                .digest
                .clone();
            content::hex_of(&chosen)?;
            (manifest_bytes, manifest_digest) = registry.manifest(&chosen).await?;
            manifest = Manifest::parse(&manifest_bytes)?;
        }
        let config = manifest
            .config
            .clone()
            .ok_or_else(|| Error::MediaType(manifest.media_type.clone()))?;
        let store = self.store.clone();
        let _adding = run_blocking(move || store.begin_adding()).await?;
        let config_bytes = self.configuration(&registry, &config).await?;
        progress.begin(&manifest.layers);
        let missing = self
            .missing_layers(&manifest, &config_bytes, progress)
            .await?;
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
        self.layers(&registry, description, missing, progress).await
    }

    /// Downloads what is missing and unpacks it, lowest first, while the rest arrives.
    async fn layers(
        &self,
        registry: &Registry,
        description: Description,
        missing: BTreeMap<String, Descriptor>,
        progress: &Progress,
    ) -> Result<ImageRecord, Error> {
        let (mut arrivals, mut senders) = (HashMap::new(), Vec::new());
        for (digest, layer) in missing {
            let (sender, receiver) = oneshot::channel::<()>();
            arrivals.insert(digest, receiver);
            senders.push((layer, sender));
        }
        // In the order of the image, since they are unpacked in it.
        let place = |wanted: &Descriptor| {
            let layers = &description.manifest.layers;
            layers
                .iter()
                .position(|layer| layer.digest == wanted.digest)
        };
        senders.sort_by_key(|(layer, _)| place(layer));
        let (store, watched) = (self.store.clone(), progress.clone());
        let unpacking = run_blocking(move || {
            let blobs: Vec<String> = description
                .manifest
                .layers
                .iter()
                .map(|layer| layer.digest.clone())
                .collect();
            let mut last: Option<usize> = None;
            let result = store.add(description, |number| {
                if let Some(last) = last.replace(number) {
                    watched.stage(&blobs[last], Stage::Done);
                }
                if let Some(arrival) = arrivals.remove(&blobs[number]) {
                    // An error means that the download failed, which is reported there.
                    let gone = |_| Error::LayerLost;
                    arrival.blocking_recv().map_err(gone)?;
                }
                watched.stage(&blobs[number], Stage::Unpacking);
                let path = store.content.path(&blobs[number])?;
                std::fs::File::open(&path).map_err(Error::file(path))
            });
            // Once unpacked, the compressed form has served its purpose; one that could not be
            // unpacked is not worth keeping either.
            if matches!(result, Ok(_) | Err(Error::Digest { .. } | Error::Layer(_))) {
                for digest in &blobs {
                    store.content.remove(digest)?;
                    watched.stage(digest, Stage::Done);
                }
            }
            result
        });
        // A failed download drops all senders, which ends the unpacking too.
        let downloading = async move {
            let mut downloads = futures::stream::iter(senders)
                .map(|(layer, sender)| async move {
                    download::blob(&self.store, registry, &layer, progress).await?;
                    let _ = sender.send(());
                    Ok::<_, Error>(())
                })
                .buffer_unordered(LAYERS_AT_ONCE);
            while let Some(result) = downloads.next().await {
                result?;
            }
            Ok::<_, Error>(())
        };
        let (downloaded, unpacked) = tokio::join!(downloading, unpacking);
        downloaded?;
        unpacked
    }

    async fn configuration(
        &self,
        registry: &Registry,
        config: &Descriptor,
    ) -> Result<Vec<u8>, Error> {
        if config.size > LARGEST_DOCUMENT {
            return Err(Error::Layer("the image configuration is too large".into()));
        }
        let (store, digest) = (self.store.clone(), config.digest.clone());
        // One that is here but wrong is fetched again.
        if let Ok(bytes) = run_blocking(move || store.content.read(&digest)).await {
            return Ok(bytes);
        }
        registry.document(&config.digest).await
    }

    /// By digest, what must come from the registry.
    async fn missing_layers(
        &self,
        manifest: &Manifest,
        config_bytes: &[u8],
        progress: &Progress,
    ) -> Result<BTreeMap<String, Descriptor>, Error> {
        let chain = unpack::chain_ids(&ConfigFile::parse(config_bytes)?.rootfs.diff_ids)?;
        let (store, layers) = (self.store.clone(), manifest.layers.clone());
        let progress = progress.clone();
        run_blocking(move || {
            let mut missing = BTreeMap::new();
            for (layer, chain_id) in layers.into_iter().zip(&chain) {
                content::hex_of(&layer.digest)?;
                if store.layer_is_sound(chain_id)? {
                    progress.stage(&layer.digest, Stage::Present);
                } else if !store.content.contains(&layer.digest)? {
                    missing.insert(layer.digest.clone(), layer);
                }
            }
            Ok(missing)
        })
        .await
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
