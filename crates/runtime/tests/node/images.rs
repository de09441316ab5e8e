//! Import, registry, removal, and archives that mean harm.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cri::v1::*;
use runtime::images::ImageStore;
use tar::EntryType;

use super::{
    image::{Archive, BUSYBOX, Layer, busybox_layer, sha256},
    server::{container, with_server},
};

#[test]
fn layers_become_an_overlay() {
    let directory = tempfile::tempdir().unwrap();
    let second = Layer::new()
        .file("bin/.wh.false", 0o644, b"")
        .file("tmp/deep/file", 0o4755, b"new")
        .file("opaque/.wh..wh..opq", 0o644, b"")
        .finish();
    let third = Layer::new()
        .add(EntryType::Regular, "owned", 0o640, 1234, b"x", "")
        .add(EntryType::Link, "linked", 0o640, 1234, b"", "owned")
        .add(EntryType::Link, "busybox", 0o755, 0, b"", "bin/busybox")
        .add(EntryType::Fifo, "fifo", 0o600, 0, b"", "")
        .finish();
    let archive = Archive {
        layers: vec![busybox_layer(), second, third],
        ..Default::default()
    };
    let store = ImageStore::open(directory.path()).unwrap();
    let names = store
        .import(&archive.write(directory.path()), None)
        .unwrap();
    assert_eq!(names, [BUSYBOX]);
    let record = store.find("busybox:test").unwrap().unwrap();
    let layer = |number: usize| store.layer_directory(&record.layers[number]).unwrap();
    let whiteout = std::fs::symlink_metadata(layer(1).join("bin/false")).unwrap();
    assert_eq!(
        (whiteout.mode() & libc::S_IFMT, whiteout.rdev()),
        (libc::S_IFCHR, 0)
    );
    // The implied directory keeps what the layer below says of it.
    assert_eq!(
        std::fs::metadata(layer(1).join("tmp")).unwrap().mode() & 0o7777,
        0o1777
    );
    assert_eq!(
        std::fs::metadata(layer(1).join("tmp/deep/file"))
            .unwrap()
            .mode()
            & 0o7777,
        0o4755
    );
    let (owned, linked) = (
        std::fs::metadata(layer(2).join("owned")).unwrap(),
        std::fs::metadata(layer(2).join("linked")).unwrap(),
    );
    assert_eq!((owned.uid(), owned.ino()), (1234, linked.ino()));
    assert!(
        std::fs::metadata(layer(2).join("busybox")).unwrap().len() > 100_000,
        "a link into a lower layer"
    );
    // Everything again costs nothing and changes nothing; removal leaves nothing.
    store
        .import(&archive.write(directory.path()), Some("other/name:1"))
        .unwrap();
    assert_eq!(store.find("other/name:1").unwrap().unwrap().id, record.id);
    assert!(store.remove(&record.id).unwrap());
    assert!(store.collect(&Default::default()).unwrap());
    assert!(store.list().unwrap().is_empty() && !layer(0).exists());
}

#[test]
fn docker_archives_are_understood_too() {
    let directory = tempfile::tempdir().unwrap();
    let archive = Archive::default().write(directory.path());
    let saved = directory.path().join("saved.tar");
    let converted = Command::new("skopeo")
        .args(["copy", "--quiet", "--insecure-policy"])
        .arg(format!("oci-archive:{}", archive.display()))
        .arg(format!(
            "docker-archive:{}:example.com/saved:1",
            saved.display()
        ))
        .output()
        .unwrap();
    assert!(converted.status.success(), "{converted:?}");
    let store = ImageStore::open(directory.path()).unwrap();
    assert_eq!(store.import(&saved, None).unwrap(), ["example.com/saved:1"]);
    let record = store.find("example.com/saved:1").unwrap().unwrap();
    assert!(
        store
            .layer_directory(&record.layers[0])
            .unwrap()
            .join("bin/busybox")
            .exists()
    );
    assert_eq!(record.process.cmd, ["sh"]);
}

#[test]
fn archives_cannot_reach_outside() {
    let directory = tempfile::tempdir().unwrap();
    let victim = directory.path().join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    let outside = victim.to_string_lossy().into_owned();
    let store = ImageStore::open(directory.path()).unwrap();
    let layers = [
        (
            "dot-dot",
            Layer::new()
                .file("../../../../victim", 0o644, b"bad")
                .finish(),
            false,
        ),
        (
            "absolute",
            Layer::new().file("/victim", 0o644, b"inside").finish(),
            true,
        ),
        (
            "link-then-write",
            Layer::new()
                .symlink("out", &outside)
                .file("out", 0o644, b"bad")
                .finish(),
            true,
        ),
        (
            "directory-link",
            Layer::new()
                .symlink("dir", &directory.path().to_string_lossy())
                .file("dir/victim", 0o644, b"bad")
                .finish(),
            true,
        ),
        (
            "hard-link",
            Layer::new()
                .add(EntryType::Link, "hard", 0o644, 0, b"", &outside)
                .finish(),
            false,
        ),
        (
            "hard-dots",
            Layer::new()
                .add(EntryType::Link, "hard", 0o644, 0, b"", "../../victim")
                .finish(),
            false,
        ),
        (
            "whiteout",
            Layer::new().file(".wh...", 0o644, b"").finish(),
            false,
        ),
        (
            "device-zero",
            Layer::new()
                .add(EntryType::Char, "node", 0o644, 0, b"", "")
                .finish(),
            false,
        ),
    ];
    for (name, layer, accepted) in layers {
        let archive = Archive {
            layers: vec![layer],
            ..Default::default()
        };
        let result = store.import(&archive.write(directory.path()), None);
        assert_eq!(result.is_ok(), accepted, "{name}: {result:?}");
        assert_eq!(
            std::fs::read_to_string(&victim).unwrap(),
            "untouched",
            "{name}"
        );
    }
    // Wrong bytes under a right name, and things that are no archive.
    let good = Archive::default();
    let digest = sha256(&super::image::gzip(&good.layers[0]));
    let tampered = Archive {
        tampered: BTreeMap::from([(digest, super::image::gzip(b"not a tar"))]),
        ..Default::default()
    };
    assert!(
        store
            .import(&tampered.write(directory.path()), None)
            .is_err()
    );
    let junk = directory.path().join("junk.tar");
    std::fs::write(&junk, [7; 4096]).unwrap();
    assert!(store.import(&junk, None).is_err());
    let unfinished = std::fs::read_dir(directory.path().join("images/ingest"))
        .unwrap()
        .count();
    assert_eq!(unfinished, 0, "nothing half-done is left");
}

/// Debian's docker-registry on a loopback port.
struct Registry(Child, u16);

impl Registry {
    fn start(directory: &Path) -> Result<Registry> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n  delete: {{enabled: true}}\nhttp: {{addr: \"127.0.0.1:{port}\"}}\n",
            directory.join("registry").display()
        );
        std::fs::write(directory.join("registry.yml"), config)?;
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(directory.join("registry.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Registry(child, port))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn images_come_from_a_registry() {
    with_server(&[], async |server| {
        let registry = Registry::start(&server.directory)?;
        let name = format!("127.0.0.1:{}/team/box:v1", registry.1);
        for _ in 0..3_000 {
            if tokio::net::TcpStream::connect(("127.0.0.1", registry.1))
                .await
                .is_ok()
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // An image that only the registry has.
        let extra = Layer::new().file("from-registry", 0o644, b"yes").finish();
        let archive = Archive {
            layers: vec![busybox_layer(), extra],
            config: serde_json::json!({"Cmd": ["sleep", "100"], "User": "web"}),
            ..Default::default()
        };
        let path = archive.write(&server.directory.join("archives"));
        let pushed = Command::new("skopeo")
            .args([
                "copy",
                "--quiet",
                "--insecure-policy",
                "--dest-tls-verify=false",
            ])
            .arg(format!("oci-archive:{}", path.display()))
            .arg(format!("docker://{name}"))
            .output()?;
        ensure!(
            pushed.status.success(),
            "{}",
            String::from_utf8_lossy(&pushed.stderr)
        );
        let spec = ImageSpec {
            image: name.clone(),
            ..Default::default()
        };
        let status = ImageStatusRequest {
            image: Some(spec.clone()),
            verbose: false,
        };
        ensure!(
            server
                .images
                .image_status(status.clone())
                .await?
                .into_inner()
                .image
                .is_none()
        );
        // Several at once share one download.
        let pulls = (0..4).map(|_| {
            let mut images = server.images.clone();
            let request = PullImageRequest {
                image: Some(spec.clone()),
                ..Default::default()
            };
            async move { images.pull_image(request).await }
        });
        let pulled: Vec<_> = futures::future::join_all(pulls)
            .await
            .into_iter()
            .collect::<Result<_, _>>()?;
        let id = pulled[0].get_ref().image_ref.clone();
        ensure!(pulled.iter().all(|one| one.get_ref().image_ref == id));
        let image = server
            .images
            .image_status(status.clone())
            .await?
            .into_inner()
            .image
            .context("not pulled")?;
        ensure!(
            image.id == id && image.repo_tags == [name.clone()] && image.username == "web",
            "{image:?}"
        );
        ensure!(
            image.repo_digests.len() == 1 && image.size > 100_000,
            "{image:?}"
        );
        let pod = server.sandbox_config("pulled", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let mut config = container("main", &[]);
        config.image = Some(ImageSpec {
            image: image.repo_digests[0].clone(),
            ..Default::default()
        });
        let running = server.run(&sandbox, &pod, config).await?;
        ensure!(
            server
                .output(&running, &["/bin/cat", "/from-registry"])
                .await?
                == "yes"
        );
        // Removed while in use: gone from the list, but the container stands.
        server
            .images
            .remove_image(RemoveImageRequest {
                image: Some(spec.clone()),
            })
            .await?;
        ensure!(
            server
                .images
                .image_status(status)
                .await?
                .into_inner()
                .image
                .is_none()
        );
        ensure!(
            server
                .output(&running, &["/bin/cat", "/from-registry"])
                .await?
                == "yes"
        );
        let info = server
            .images
            .image_fs_info(ImageFsInfoRequest {})
            .await?
            .into_inner();
        ensure!(info.image_filesystems.len() == 1);
        server.remove_sandbox(&sandbox).await?;
        ensure!(
            std::fs::read_dir(server.root().join("images/layers"))?.count() == 1,
            "only busybox's layer is left"
        );
        for (missing, code) in [
            (
                format!("127.0.0.1:{}/team/box:v2", registry.1),
                tonic::Code::NotFound,
            ),
            (
                "127.0.0.1:1/team/box:v1".to_owned(),
                tonic::Code::Unavailable,
            ),
            ("Not A Name".to_owned(), tonic::Code::InvalidArgument),
        ] {
            let image = Some(ImageSpec {
                image: missing.clone(),
                ..Default::default()
            });
            let error = server
                .images
                .pull_image(PullImageRequest {
                    image,
                    ..Default::default()
                })
                .await;
            let error = error.err().context("pulled what is not there")?;
            ensure!(error.code() == code, "{missing}: {error:?}");
        }
        Ok(())
    });
}
