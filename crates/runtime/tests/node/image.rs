//! Images made on the spot: OCI layout archives around busybox-static.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::json;

pub const BUSYBOX: &str = "docker.io/library/busybox:test";

/// A layer tar under construction.
pub struct Layer {
    tar: tar::Builder<Vec<u8>>,
}

impl Layer {
    pub fn new() -> Layer {
        Layer {
            tar: tar::Builder::new(Vec::new()),
        }
    }

    pub fn add(
        mut self,
        kind: tar::EntryType,
        path: &str,
        mode: u32,
        owner: u64,
        data: &[u8],
        link: &str,
    ) -> Layer {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(owner);
        header.set_gid(owner);
        header.set_size(data.len() as u64);
        header.set_mtime(1_700_000_000);
        // Written raw, so that a test can say what no honest builder would.
        let name = &mut header.as_old_mut().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        if !link.is_empty() {
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_cksum();
        self.tar.append(&header, data).expect("tar in memory");
        self
    }

    pub fn directory(self, path: &str) -> Layer {
        self.add(tar::EntryType::Directory, path, 0o755, 0, b"", "")
    }

    pub fn file(self, path: &str, mode: u32, data: &[u8]) -> Layer {
        self.add(tar::EntryType::Regular, path, mode, 0, data, "")
    }

    pub fn symlink(self, path: &str, target: &str) -> Layer {
        self.add(tar::EntryType::Symlink, path, 0o777, 0, b"", target)
    }

    pub fn finish(self) -> Vec<u8> {
        self.tar.into_inner().expect("tar in memory")
    }
}

/// A small system: busybox with its usual commands, users, and `/tmp`.
pub fn busybox_layer() -> Vec<u8> {
    let busybox = std::fs::read("/usr/bin/busybox")
        .or_else(|_| std::fs::read("/bin/busybox"))
        .expect("busybox-static");
    let mut layer = Layer::new()
        .directory("bin/")
        .directory("etc/")
        .directory("proc/")
        .directory("sys/");
    layer = layer.directory("dev/").file("bin/busybox", 0o755, &busybox);
    for name in [
        "sh", "echo", "cat", "sleep", "true", "false", "id", "ls", "stat", "ip", "hostname",
        "head", "dd", "mount", "grep", "kill", "wget", "httpd", "touch", "env", "ps", "unshare",
        "chroot", "yes", "seq", "od", "pwd",
    ] {
        layer = layer.symlink(&format!("bin/{name}"), "busybox");
    }
    layer
        .file(
            "etc/passwd",
            0o644,
            b"root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1001:Web:/home/web:/bin/sh\n",
        )
        .file(
            "etc/group",
            0o644,
            b"root:x:0:\nwebs:x:1001:\nextra:x:50000:web\n",
        )
        .add(tar::EntryType::Directory, "tmp/", 0o1777, 0, b"", "")
        .finish()
}

/// What an archive says about its image.
pub struct Archive<'a> {
    pub layers: Vec<Vec<u8>>,
    pub name: &'a str,
    pub config: serde_json::Value,
    /// Replaces blobs by others of the same name.
    pub tampered: BTreeMap<String, Vec<u8>>,
}

impl Default for Archive<'_> {
    fn default() -> Self {
        Archive {
            layers: vec![busybox_layer()],
            name: BUSYBOX,
            config: json!({"Env": ["PATH=/bin", "FROM_IMAGE=yes"], "Cmd": ["sh"]}),
            tampered: BTreeMap::new(),
        }
    }
}

impl Archive<'_> {
    pub fn write(&self, directory: &Path) -> PathBuf {
        let mut blobs: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut put = |bytes: Vec<u8>| {
            let digest = sha256(&bytes);
            let size = bytes.len();
            blobs.insert(digest.clone(), bytes);
            (digest, size)
        };
        let diff_ids: Vec<String> = self.layers.iter().map(|layer| sha256(layer)).collect();
        let mut layers = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            // One of each compression.
            let (bytes, kind) = match number % 3 {
                0 => (gzip(layer), "+gzip"),
                1 => (
                    zstd::encode_all(layer.as_slice(), 1).expect("zstd in memory"),
                    "+zstd",
                ),
                _ => (layer.clone(), ""),
            };
            let (digest, size) = put(bytes);
            let media = format!("application/vnd.oci.image.layer.v1.tar{kind}");
            layers.push(json!({"mediaType": media, "digest": digest, "size": size}));
        }
        let config = json!({
            "architecture": if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }, "os": "linux",
            "config": self.config, "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let (config_digest, config_size) = put(config.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config_digest, "size": config_size},
            "layers": layers,
        });
        let (manifest_digest, manifest_size) = put(manifest.to_string().into_bytes());
        let index = json!({
            "schemaVersion": 2,
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest_digest,
                "size": manifest_size, "annotations": {"io.containerd.image.name": self.name},
            }],
        });
        for (digest, bytes) in &self.tampered {
            blobs.insert(digest.clone(), bytes.clone());
        }
        let path = directory.join(format!("{}.tar", manifest_digest.replace(':', "-")));
        let mut tar = tar::Builder::new(std::fs::File::create(&path).expect("a file"));
        let mut append = |name: &str, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, bytes).expect("append");
        };
        append("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
        append("index.json", index.to_string().as_bytes());
        for (digest, bytes) in &blobs {
            append(
                &format!("blobs/sha256/{}", digest.trim_start_matches("sha256:")),
                bytes,
            );
        }
        tar.into_inner()
            .and_then(|mut file| file.flush())
            .expect("flush");
        path
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("gzip in memory");
    encoder.finish().expect("gzip in memory")
}

pub fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}
