//! Import, registry, removal, and archives that mean harm.

use std::{collections::BTreeMap, os::unix::fs::MetadataExt, process::Command};

use anyhow::{Context, Result, ensure};
use cri::v1::*;
use runtime::images::ImageStore;
use tar::EntryType;

use super::{
    image::{Archive, BUSYBOX, Layer, busybox_layer, sha256},
    registry::{Demands, Registry},
    server::{container, with_server},
};

#[test]
fn an_image_with_layers_is_mounted_as_an_overlay() {
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
fn imported_images_are_pinned() {
    let directory = tempfile::tempdir().unwrap();
    let archive = Archive {
        layers: vec![busybox_layer()],
        ..Default::default()
    };
    let store = ImageStore::open(directory.path()).unwrap();
    store
        .import(&archive.write(directory.path()), None)
        .unwrap();
    assert!(store.find(BUSYBOX).unwrap().unwrap().pinned);
}

#[test]
fn docker_archives_are_imported() {
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

#[test]
fn images_come_from_a_registry() {
    with_server(&[], async |server| {
        let registry = Registry::start(&server.directory, Demands::default()).await?;
        let name = registry.name("team/box:v1");
        // An image that only the registry has.
        let extra = Layer::new().file("from-registry", 0o644, b"yes").finish();
        let archive = Archive {
            layers: vec![busybox_layer(), extra],
            config: serde_json::json!({"Cmd": ["sleep", "100"], "User": "web"}),
            ..Default::default()
        };
        let path = archive.write(&server.directory.join("archives"));
        registry.push(&path, "team/box:v1")?;
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
        let told = server.status(&running).await?;
        ensure!(told.image_ref == image.repo_digests[0], "{told:?}");
        let mut by_id = container("by-id", &[]);
        by_id.image = Some(ImageSpec {
            image: id.clone(),
            user_specified_image: name.clone(),
            ..Default::default()
        });
        let by_id = server.run(&sandbox, &pod, by_id).await?;
        let told = server.status(&by_id).await?.image.unwrap_or_default();
        ensure!(told.image == name, "{told:?}");
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
            (registry.name("team/box:v2"), tonic::Code::NotFound),
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

#[test]
fn damage_is_noticed_at_use_and_mended_by_pulling_again() {
    with_server(&[], async |server| {
        let registry = Registry::start(&server.directory, Demands::default()).await?;
        let path = Archive::default().write(&server.directory.join("archives"));
        registry.push(&path, "team/box:v1")?;
        let name = registry.name("team/box:v1");
        // The imported one shares its layer, so it goes first.
        let spec = |image: &str| {
            Some(ImageSpec {
                image: image.into(),
                ..Default::default()
            })
        };
        server
            .images
            .remove_image(RemoveImageRequest {
                image: spec(BUSYBOX),
            })
            .await?;
        let pull = PullImageRequest {
            image: spec(&name),
            ..Default::default()
        };
        server.images.pull_image(pull.clone()).await?;
        let pod = server.sandbox_config("mended", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let config = |number: usize| {
            let mut config = container(&format!("main{number}"), &["sleep", "1000"]);
            config.image = spec(&name);
            config
        };
        server.run(&sandbox, &pod, config(0)).await?;
        let status = ImageStatusRequest {
            image: spec(&name),
            verbose: false,
        };
        type Harm = fn(&std::path::Path) -> std::io::Result<()>;
        let harms: [Harm; 4] = [
            |layer| std::fs::write(layer.join("etc/passwd"), "root::0:0::/:/bin/sh\n"),
            |layer| std::fs::remove_file(layer.join("bin/busybox")),
            |layer| std::fs::write(layer.join("bin/intruder"), "#!/bin/sh\n"),
            |layer| std::fs::remove_dir_all(layer),
        ];
        for (number, harm) in harms.into_iter().enumerate() {
            let layers = server.root().join("images/layers");
            let layer = std::fs::read_dir(&layers)?
                .flatten()
                .next()
                .context("no layer")?;
            harm(&layer.path())?;
            // A server that has just looked at it would look again after a while; a new one at once.
            server.kill()?;
            server.launch().await?;
            let refused = server.create(&sandbox, &pod, config(number + 1)).await;
            ensure!(
                refused.is_err(),
                "a container was made from a damaged image"
            );
            let found = server
                .images
                .image_status(status.clone())
                .await?
                .into_inner();
            ensure!(found.image.is_none(), "{found:?}");
            server.images.pull_image(pull.clone()).await?;
            let found = server
                .images
                .image_status(status.clone())
                .await?
                .into_inner();
            ensure!(found.image.is_some());
            let id = server.run(&sandbox, &pod, config(number + 1)).await?;
            ensure!(server.output(&id, &["id", "-u"]).await? == "0");
        }
        // Damaged blobs and a damaged index are mended the same way.
        for entry in std::fs::read_dir(server.root().join("images/blobs/sha256"))?.flatten() {
            std::fs::write(entry.path(), "damaged")?;
        }
        std::fs::write(
            server.root().join("images/index.json"),
            "{\"version\":1,\"ima",
        )?;
        let found = server
            .images
            .image_status(status.clone())
            .await?
            .into_inner();
        ensure!(found.image.is_none(), "{found:?}");
        server.images.pull_image(pull).await?;
        ensure!(
            server
                .images
                .image_status(status)
                .await?
                .into_inner()
                .image
                .is_some()
        );
        server.remove_sandbox(&sandbox).await
    });
}

#[test]
fn an_exported_image_is_imported_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let second = Layer::new()
        .file("bin/.wh.false", 0o644, b"")
        .file("tmp/deep/file", 0o4755, b"new")
        .add(
            EntryType::Link,
            "tmp/linked",
            0o644,
            0,
            b"",
            "tmp/deep/file",
        )
        .symlink("tmp/link", "deep/file")
        .finish();
    let archive = Archive {
        layers: vec![busybox_layer(), second, Layer::new().finish()],
        ..Default::default()
    };
    let store = ImageStore::open(&directory.path().join("one")).unwrap();
    store
        .import(&archive.write(directory.path()), None)
        .unwrap();
    let id = store.find(BUSYBOX).unwrap().unwrap().id;
    let exported = directory.path().join("exported.tar");
    store
        .export(&["busybox:test".to_owned()], &exported)
        .unwrap();
    let other = ImageStore::open(&directory.path().join("two")).unwrap();
    assert_eq!(other.import(&exported, None).unwrap(), [BUSYBOX]);
    let record = other.find(BUSYBOX).unwrap().unwrap();
    assert_eq!(record.id, id, "the same identity");
    other.check(&record, true).unwrap();
    // Others understand it too.
    let copied = Command::new("skopeo")
        .args(["copy", "--quiet", "--insecure-policy"])
        .arg(format!("oci-archive:{}", exported.display()))
        .arg(format!("dir:{}", directory.path().join("copied").display()))
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?}");
    // A layer that is not what it was cannot be exported as if it were.
    let layer = store.layer_directory(&record.layers[0]).unwrap();
    std::fs::write(layer.join("etc/group"), "root:x:1:\n").unwrap();
    assert!(store.export(&[BUSYBOX.to_owned()], &exported).is_err());
    assert!(
        store
            .export(&["no/such:image".to_owned()], &exported)
            .is_err()
    );
}

#[test]
fn attributes_survive_and_space_is_accounted() {
    let directory = tempfile::tempdir().unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let pax = [
        ("SCHILY.xattr.user.note", &b"kept"[..]),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
    ];
    tar.append_pax_extensions(pax).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(5);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    tar.append_data(&mut header, "program", &b"bytes"[..])
        .unwrap();
    let upper = Layer::new()
        .add(EntryType::Link, "other", 0o755, 0, b"", "program")
        .finish();
    let archive = Archive {
        layers: vec![tar.into_inner().unwrap(), upper],
        ..Default::default()
    };
    let store = ImageStore::open(directory.path()).unwrap();
    let before = store.usage().expect("measured");
    store
        .import(&archive.write(directory.path()), None)
        .unwrap();
    let record = store.find(BUSYBOX).unwrap().unwrap();
    for (number, name) in [(0, "program"), (1, "other")] {
        let path = store
            .layer_directory(&record.layers[number])
            .unwrap()
            .join(name);
        assert_eq!(
            xattr(&path, c"user.note").as_deref(),
            Some(&b"kept"[..]),
            "{name}"
        );
        assert_eq!(xattr(&path, c"trusted.overlay.opaque"), None, "{name}");
    }
    let (bytes, inodes) = store.usage().expect("measured");
    assert!(
        bytes > before.0 && inodes >= before.1 + 4,
        "{bytes} {inodes}"
    );
    assert!(store.remove(BUSYBOX).unwrap());
    let removed = store
        .collect_counting(&Default::default())
        .unwrap()
        .unwrap();
    assert_eq!(removed.layers, 2);
    assert_eq!(store.usage(), Some(before));
    for part in ["layers", "seals", "recipes", "ingest", "blobs/sha256"] {
        let left = std::fs::read_dir(store.directory().join(part))
            .unwrap()
            .count();
        assert_eq!(left, 0, "{part}");
    }
}

#[allow(unsafe_code)]
fn xattr(path: &std::path::Path, name: &std::ffi::CStr) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut value = vec![0_u8; 100];
    // SAFETY: both strings end with a zero and the buffer is as long as said.
    let length = unsafe {
        libc::lgetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

#[test]
fn many_layers_can_be_mounted() {
    with_server(&[], async |server| {
        let mut layers = vec![busybox_layer()];
        layers.extend((0..100).map(|number| {
            Layer::new()
                .file(&format!("layer{number}"), 0o644, b"here")
                .finish()
        }));
        let archive = Archive {
            layers,
            name: "example.com/many:1",
            ..Default::default()
        };
        let path = archive.write(&server.directory.join("archives"));
        ImageStore::open(&server.root())?.import(&path, None)?;
        let pod = server.sandbox_config("many", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let mut config = container("main", &["sleep", "1000"]);
        config.image = Some(ImageSpec {
            image: "example.com/many:1".into(),
            ..Default::default()
        });
        let id = server.run(&sandbox, &pod, config).await?;
        for number in [0, 50, 99] {
            ensure!(
                server
                    .output(&id, &["cat", &format!("/layer{number}")])
                    .await?
                    == "here"
            );
        }
        server.remove_sandbox(&sandbox).await
    });
}
