//! The images of this node: looked up, listed, pulled, removed, and collected when neither a name nor
//! a container needs them.

use std::{path::PathBuf, sync::Arc};

use super::{Error, container_table::ContainerTable, host::Host, pull_trace, tasks::run_blocking};
use crate::{
    config::Config,
    images::{Credentials, ImageRecord, ImageStore, Puller, Settings},
};

pub struct Images {
    host: Arc<Host>,
    containers: Arc<ContainerTable>,
    store: Arc<ImageStore>,
    puller: Puller,
}

impl Images {
    pub fn open(host: Arc<Host>, containers: Arc<ContainerTable>) -> Result<Images, Error> {
        let store = Arc::new(ImageStore::open(&host.config().root)?);
        Ok(Images {
            puller: Puller::new(store.clone(), registry_settings(host.config())),
            host,
            containers,
            store,
        })
    }

    /// The image, if there is one and all of its layers are sound. It blocks.
    pub fn require(&self, name: &str) -> Result<ImageRecord, Error> {
        let found = self.store.find_sound(name)?;
        found.ok_or_else(|| Error::not_found("image", name))
    }

    pub async fn find_sound(&self, name: String) -> Result<Option<ImageRecord>, Error> {
        let store = self.store.clone();
        run_blocking(move || Ok(store.find_sound(&name)?)).await
    }

    /// The image of this name, or all images.
    pub async fn list(&self, name: Option<String>) -> Result<Vec<ImageRecord>, Error> {
        let store = self.store.clone();
        run_blocking(move || match name {
            Some(name) => Ok(store.find(&name)?.into_iter().collect()),
            None => Ok(store.list()?),
        })
        .await
    }

    /// Pulls an image; its progress is shown on the timeline of the pod with this uid.
    pub async fn pull(
        &self,
        name: &str,
        credentials: Credentials,
        pod_uid: Option<String>,
    ) -> Result<Arc<ImageRecord>, Error> {
        let pull = self.puller.begin(name, credentials)?;
        if let Some(uid) = pod_uid {
            let recorder = self.host.config().recorder.clone();
            pull_trace::follow(recorder, self.host.environment().clone(), uid, &pull);
        }
        pull.done.await.map_err(Error::Pull)
    }

    pub async fn remove(&self, name: String) -> Result<(), Error> {
        let store = self.store.clone();
        if run_blocking(move || Ok(store.remove(&name)?)).await? {
            self.collect().await;
        }
        Ok(())
    }

    /// A container of this image has been removed: if the image has been removed before, its layers
    /// go now.
    pub async fn container_removed(&self, image_id: &str) -> Result<(), Error> {
        let (store, image_id) = (self.store.clone(), image_id.to_owned());
        if run_blocking(move || Ok(store.find(&image_id)?.is_none())).await? {
            self.collect().await;
        }
        Ok(())
    }

    /// Removes the layers and blobs that no image and no container needs. While an image is being
    /// added nothing is removed; the next call does it.
    pub async fn collect(&self) {
        let (store, used) = (self.store.clone(), self.containers.layers_in_use());
        let collected = run_blocking(move || Ok(store.collect(&used)?)).await;
        if let Err(error) = collected {
            let error = environment::chain(&error);
            tracing::warn!(%error, "collecting unused layers");
        }
    }

    /// The directories of an image's layers, the lowest first.
    pub fn layer_directories(&self, image: &ImageRecord) -> Result<Vec<PathBuf>, Error> {
        let layers = image.layers.iter();
        let directories: Result<_, _> = layers
            .map(|layer| self.store.layer_directory(layer))
            .collect();
        Ok(directories?)
    }

    pub fn store(&self) -> &Arc<ImageStore> {
        &self.store
    }
}

fn registry_settings(config: &Config) -> Settings {
    Settings {
        directories: config.registry_directories.clone(),
        insecure: config.insecure_registries.clone(),
        ..Settings::default()
    }
}
