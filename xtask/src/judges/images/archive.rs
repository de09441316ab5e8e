//! OCI archives: one layer, one configuration, as many names as wanted.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::judges::command::{command, output, sh, text};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Writes a root file system as an image. `config` is JSON.
pub fn archive(
    work: &Path,
    file: &Path,
    root: &Path,
    config: &str,
    names: &[String],
) -> Result<()> {
    let layout = work.join("layout");
    if layout.exists() {
        std::fs::remove_dir_all(&layout)?;
    }
    let blobs = layout.join("blobs/sha256");
    std::fs::create_dir_all(&blobs)?;
    let layer = work.join("layer.tar");
    sh(&[
        "tar",
        "--sort=name",
        "--mtime=@0",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "-C",
        text(root)?,
        "-cf",
        text(&layer)?,
        ".",
    ])?;
    let diff_id = format!("sha256:{}", digest(&layer)?);
    sh(&["gzip", "-n", "-1", "-f", text(&layer)?])?;
    let layer = blob(&work.join("layer.tar.gz"), &blobs, LAYER)?;
    let config: Value = serde_json::from_str(config).with_context(|| config.to_string())?;
    let architecture = output(&mut command(&["dpkg", "--print-architecture"]))?;
    let config = json!({
        "architecture": architecture, "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    });
    let config = document(&config, work, &blobs, CONFIG)?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
    });
    let manifest = document(&manifest, work, &blobs, MANIFEST)?;
    let index = json!({
        "schemaVersion": 2,
        "manifests": names.iter().map(|name| named(&manifest, name)).collect::<Vec<_>>(),
    });
    std::fs::write(layout.join("index.json"), index.to_string())?;
    std::fs::write(
        layout.join("oci-layout"),
        json!({"imageLayoutVersion": "1.0.0"}).to_string(),
    )?;
    let new = file.with_extension("tar.new");
    sh(&[
        "tar",
        "-C",
        text(&layout)?,
        "-cf",
        text(&new)?,
        "oci-layout",
        "index.json",
        "blobs",
    ])?;
    std::fs::rename(new, file)?;
    Ok(())
}

/// The descriptor of an image under one of its names.
fn named(manifest: &Value, name: &str) -> Value {
    let tag = name.rsplit(':').next().unwrap_or_default();
    let mut descriptor = manifest.clone();
    descriptor["annotations"] = json!({
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": tag,
    });
    descriptor
}

fn document(document: &Value, work: &Path, blobs: &Path, kind: &str) -> Result<Value> {
    let file = work.join("document");
    std::fs::write(&file, document.to_string())?;
    blob(&file, blobs, kind)
}

/// Moves a file among the blobs; returns its descriptor.
fn blob(file: &Path, blobs: &Path, kind: &str) -> Result<Value> {
    let digest = digest(file)?;
    let size = file.metadata()?.len();
    std::fs::rename(file, blobs.join(&digest))?;
    Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size}))
}

fn digest(file: &Path) -> Result<String> {
    let line = output(&mut command(&["sha256sum", text(file)?]))?;
    let digest = line.split_whitespace().next().context("a digest")?;
    Ok(digest.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_holds_its_layer_configuration_and_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("hello"), "hello").unwrap();
        let file = folder.path().join("image.tar");
        let names = ["a/b:1".to_string(), "a/b:2".to_string()];
        archive(folder.path(), &file, &root, r#"{"Cmd":["sh"]}"#, &names).unwrap();
        let index = output(&mut command(&[
            "tar",
            "-xOf",
            file.to_str().unwrap(),
            "index.json",
        ]));
        let index: Value = serde_json::from_str(&index.unwrap()).unwrap();
        let manifests = index["manifests"].as_array().unwrap();
        assert_eq!(manifests.len(), 2);
        assert_eq!(
            manifests[1]["annotations"]["org.opencontainers.image.ref.name"],
            "2"
        );
        let digest = manifests[0]["digest"].as_str().unwrap();
        let blob = digest.replace("sha256:", "blobs/sha256/");
        let manifest = output(&mut command(&[
            "tar",
            "-xOf",
            file.to_str().unwrap(),
            &blob,
        ]));
        assert!(manifest.unwrap().contains(LAYER));
    }
}
