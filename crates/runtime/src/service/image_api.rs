//! CRI's image service.

use std::{path::Path, sync::Arc};

use cri::v1::{
    AuthConfig, FilesystemIdentifier, FilesystemUsage, Image, ImageFsInfoRequest,
    ImageFsInfoResponse, ImageSpec, ImageStatusRequest, ImageStatusResponse, Int64Value,
    ListImagesRequest, ListImagesResponse, PullImageRequest, PullImageResponse, RemoveImageRequest,
    RemoveImageResponse, StreamImagesRequest, StreamImagesResponse, UInt64Value,
    image_service_server::ImageService,
};
use futures::stream::{self, BoxStream, StreamExt};
use tonic::{Request, Response, Status, async_trait};

use super::{Error, host::Host, images::Images, stats::written_by, tasks::run_blocking};
use crate::{
    images::{Credentials, ImageRecord, ImageStore},
    snapshots::Snapshot,
    spec::id::{self, Id},
};

pub struct ImageApi {
    host: Arc<Host>,
    images: Arc<Images>,
}

impl ImageApi {
    pub fn new(host: Arc<Host>, images: Arc<Images>) -> ImageApi {
        ImageApi { host, images }
    }
}

#[async_trait]
impl ImageService for ImageApi {
    type StreamImagesStream = BoxStream<'static, Result<StreamImagesResponse, Status>>;

    async fn list_images(
        &self,
        request: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        let wanted = request.into_inner().filter.and_then(|filter| filter.image);
        Ok(Response::new(ListImagesResponse {
            images: self.list(wanted).await?,
        }))
    }

    async fn stream_images(
        &self,
        request: Request<StreamImagesRequest>,
    ) -> Result<Response<Self::StreamImagesStream>, Status> {
        let wanted = request.into_inner().filter.and_then(|filter| filter.image);
        let images = self.list(wanted).await?;
        Ok(Response::new(
            stream::iter([Ok(StreamImagesResponse { images })]).boxed(),
        ))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        let name = name_of(request.into_inner().image)?;
        let found = self.images.find_sound(name).await?;
        Ok(Response::new(ImageStatusResponse {
            image: found.as_ref().map(to_cri),
            ..Default::default()
        }))
    }

    async fn pull_image(
        &self,
        request: Request<PullImageRequest>,
    ) -> Result<Response<PullImageResponse>, Status> {
        let request = request.into_inner();
        let name = name_of(request.image)?;
        let credentials = request.auth.map(credentials).unwrap_or_default();
        let uid = request
            .sandbox_config
            .and_then(|config| config.metadata)
            .map(|metadata| metadata.uid)
            .filter(|uid| !uid.is_empty());
        let record = self.images.pull(&name, credentials, uid).await?;
        Ok(Response::new(PullImageResponse {
            image_ref: record.id.clone(),
        }))
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        let name = name_of(request.into_inner().image)?;
        self.images.remove(name).await?;
        Ok(Response::new(RemoveImageResponse::default()))
    }

    async fn image_fs_info(
        &self,
        _: Request<ImageFsInfoRequest>,
    ) -> Result<Response<ImageFsInfoResponse>, Status> {
        let (now, host, store) = (
            self.host.now_nanos(),
            self.host.clone(),
            self.images.store().clone(),
        );
        let response = run_blocking(move || Ok(usage(&host, &store, now)));
        Ok(Response::new(response.await?))
    }
}

/// The disk space of images, and of what containers have written.
fn usage(host: &Host, store: &ImageStore, now: i64) -> ImageFsInfoResponse {
    let usage = |path: &Path, used: Option<(u64, u64)>| FilesystemUsage {
        timestamp: now,
        fs_id: Some(FilesystemIdentifier {
            mountpoint: path.to_string_lossy().into_owned(),
        }),
        used_bytes: used.map(|(value, _)| UInt64Value { value }),
        inodes_used: used.map(|(_, value)| UInt64Value { value }),
    };
    let containers = std::fs::read_dir(host.container_directories());
    let written = containers
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| written_by(&Snapshot::new(entry.path(), entry.path())))
        .try_fold((0, 0), |(bytes, inodes), used| {
            let (more, most) = used?;
            Some((bytes + more, inodes + most))
        });
    ImageFsInfoResponse {
        image_filesystems: vec![usage(store.directory(), store.usage())],
        container_filesystems: vec![usage(&host.config().root, written)],
    }
}

impl ImageApi {
    async fn list(&self, wanted: Option<ImageSpec>) -> Result<Vec<Image>, Error> {
        let name = wanted.map(|wanted| wanted.image);
        let name = name.filter(|name| !name.is_empty());
        Ok(self.images.list(name).await?.iter().map(to_cri).collect())
    }
}

fn name_of(image: Option<ImageSpec>) -> Result<String, Error> {
    image
        .map(|image| image.image)
        .filter(|name| !name.is_empty())
        .ok_or_else(|| Error::Invalid("no image given".into()))
}

fn to_cri(record: &ImageRecord) -> Image {
    let (uid, username) = user_of(&record.process.user);
    Image {
        id: record.id.clone(),
        repo_tags: record.tags.iter().cloned().collect(),
        repo_digests: record.digests.iter().cloned().collect(),
        size: record.size,
        uid,
        username,
        spec: None,
        pinned: record.pinned,
    }
}

/// The user of an image, for the kubelet to check. A number that no user can have is reported
/// unchanged where that is possible: the kubelet refuses it, and so does a container of the image.
fn user_of(text: &str) -> (Option<Int64Value>, String) {
    let user = text.split(':').next().unwrap_or_default();
    let number = |value| (Some(Int64Value { value }), String::new());
    match id::read(user) {
        Id::Number(uid) => number(uid.into()),
        Id::OutOfRange(Some(value)) => number(value),
        Id::Name("") => number(0),
        Id::OutOfRange(None) | Id::Name(_) => (None, user.to_owned()),
    }
}

fn credentials(auth: AuthConfig) -> Credentials {
    if !auth.registry_token.is_empty() {
        return Credentials::Bearer(auth.registry_token);
    }
    if !auth.identity_token.is_empty() {
        return Credentials::Identity(auth.identity_token);
    }
    if !auth.username.is_empty() {
        return Credentials::Basic(auth.username, auth.password);
    }
    match auth.auth.as_str() {
        "" => Credentials::Anonymous,
        encoded => Credentials::from(encoded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reported_user_of_an_image_is_the_user_of_its_containers() {
        for (text, uid, name) in [
            ("", Some(0), ""),
            (":50", Some(0), ""),
            ("0:0", Some(0), ""),
            ("00", Some(0), ""),
            ("+0", Some(0), ""),
            ("-0", Some(0), ""),
            ("1000:web", Some(1000), ""),
            ("4294967295", Some(4_294_967_295), ""),
            ("4294967296", Some(4_294_967_296), ""),
            ("-1", Some(-1), ""),
            ("99999999999999999999", None, "99999999999999999999"),
            (" 0", None, " 0"),
            ("0x0", None, "0x0"),
            ("root", None, "root"),
        ] {
            let (found, username) = user_of(text);
            assert_eq!(
                (found.map(|uid| uid.value), username.as_str()),
                (uid, name),
                "{text:?}"
            );
        }
    }
}
