//! The parts of OCI (and Docker schema 2) manifests and configurations that a runtime reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Error;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Descriptor {
    pub media_type: String,
    pub digest: String,
    pub size: u64,
    pub annotations: BTreeMap<String, String>,
    pub platform: Option<Platform>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Platform {
    pub architecture: String,
    pub os: String,
    pub variant: String,
}

/// A manifest or an index: whichever it is, the other's fields are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Manifest {
    pub media_type: String,
    pub config: Option<Descriptor>,
    pub layers: Vec<Descriptor>,
    pub manifests: Vec<Descriptor>,
}

impl Manifest {
    pub fn parse(bytes: &[u8]) -> Result<Manifest, Error> {
        serde_json::from_slice(bytes).map_err(|source| Error::Json {
            what: "manifest",
            source,
        })
    }

    /// The entry of an index for this machine.
    pub fn for_this_platform(&self, name: &str) -> Result<&Descriptor, Error> {
        let matching = |descriptor: &&Descriptor| match &descriptor.platform {
            Some(platform) => platform.os == "linux" && platform.architecture == ARCHITECTURE,
            None => true,
        };
        self.manifests
            .iter()
            .filter(|descriptor| is_manifest(&descriptor.media_type))
            .find(matching)
            .ok_or_else(|| Error::Platform(ARCHITECTURE, name.into()))
    }
}

/// Go's name for this machine's architecture, as images use it.
pub const ARCHITECTURE: &str = if cfg!(target_arch = "x86_64") {
    "amd64"
} else if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    std::env::consts::ARCH
};

pub const MANIFEST_TYPES: [&str; 4] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

fn is_manifest(media_type: &str) -> bool {
    media_type.is_empty() || MANIFEST_TYPES.contains(&media_type)
}

/// The image configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConfigFile {
    pub architecture: String,
    pub os: String,
    pub config: Option<ProcessDefaults>,
    pub rootfs: RootFs,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RootFs {
    pub diff_ids: Vec<String>,
}

/// The process that an image describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ProcessDefaults {
    #[serde(deserialize_with = "null_is_empty")]
    pub user: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub cmd: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub working_dir: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub stop_signal: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub volumes: BTreeMap<String, serde_json::Value>,
}

impl ConfigFile {
    pub fn parse(bytes: &[u8]) -> Result<ConfigFile, Error> {
        serde_json::from_slice(bytes).map_err(|source| Error::Json {
            what: "image configuration",
            source,
        })
    }
}

/// Builders write `null` where they mean nothing.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
