//! Volumes that an image declares.

use anyhow::{Result, ensure};
use cri::v1::*;
use runtime::images::ImageStore;
use tar::EntryType;

use super::{
    image::{Archive, Layer, busybox_layer},
    isolation::{mapping, maps_users, with_users},
    server::{Server, container, with_server},
};

const IMAGE: &str = "example.com/volumes:1";

#[test]
fn the_volumes_of_an_image_are_writable_and_go_with_the_container() {
    with_server(&[], async |server| volumes(server, false).await);
}

#[test]
fn the_volumes_of_an_image_are_writable_and_go_with_the_container_with_runc() {
    with_server(&["/usr/sbin/runc"], async |server| {
        volumes(server, false).await
    });
}

#[test]
fn the_volumes_of_an_image_belong_to_users_of_a_pods_own() {
    with_server(&[], async |server| {
        if !maps_users() {
            return Ok(());
        }
        let bridge = server.configure_bridge()?;
        let result = volumes(server, true).await;
        let mut command = std::process::Command::new("ip");
        command.args(["link", "delete", &bridge]).status()?;
        result
    });
}

fn import(server: &Server) -> Result<()> {
    let layer = Layer::new()
        .add(EntryType::Directory, "data/", 0o750, 1000, b"", "")
        .add(EntryType::Regular, "data/seed", 0o640, 1000, b"seed", "")
        .symlink("linked", "/data-of-link")
        .directory("data-of-link/");
    let archive = Archive {
        layers: vec![busybox_layer(), layer.finish()],
        name: IMAGE,
        config: serde_json::json!({
            "Env": ["PATH=/bin"], "Cmd": ["sleep", "1000"], "WorkingDir": "/data/work",
            "Volumes": {"/data": {}, "/linked": {}, "/mine": {}, "/proc": {}, "/": {}},
        }),
        ..Archive::default()
    };
    let archive = archive.write(&server.directory.join("archives"));
    ImageStore::open(&server.root())?.import(&archive, None)?;
    Ok(())
}

async fn volumes(server: &mut Server, own_users: bool) -> Result<()> {
    import(server)?;
    let mut pod = server.sandbox_config("volumes", !own_users);
    if own_users {
        with_users(&mut pod, NamespaceMode::Pod, &mapping());
    }
    let sandbox = server.run_sandbox(&pod).await?;
    let host = server.directory.join("mine");
    std::fs::create_dir_all(&host)?;
    std::fs::write(host.join("of-the-pod"), "")?;
    let config = |attempt| {
        let mut config = container("volumes", &[]);
        config.metadata.get_or_insert_default().attempt = attempt;
        config.image.get_or_insert_default().image = IMAGE.into();
        config.mounts = vec![Mount {
            container_path: "/mine/".into(),
            host_path: host.to_string_lossy().into_owned(),
            ..Default::default()
        }];
        let linux = config.linux.get_or_insert_default();
        let security = linux.security_context.get_or_insert_default();
        security.readonly_rootfs = true;
        security.run_as_user = Some(Int64Value { value: 1000 });
        config
    };
    let first = server.run(&sandbox, &pod, config(0)).await?;
    ensure!(server.output(&first, &["pwd"]).await? == "/data/work");
    ensure!(server.output(&first, &["cat", "/data/seed"]).await? == "seed");
    let owners = ["stat", "-c", "%u %a", "/data", "/data/seed"];
    let owners = server.output(&first, &owners).await?;
    ensure!(owners == "1000 750\n1000 640", "{owners}");
    let write = ["sh", "-c", "echo x > /data/new && ls /data /data/new"];
    server.output(&first, &write).await?;
    let forbidden = server.exec(&first, &["touch", "/bin/new"], 120).await?;
    ensure!(forbidden.exit_code != 0, "the root is read-only");
    server.output(&first, &["ls", "/mine/of-the-pod"]).await?;
    server.output(&first, &["cat", "/proc/self/status"]).await?;
    let places = "grep -c -e ' /data ' -e ' /data-of-link ' /proc/self/mountinfo";
    ensure!(server.output(&first, &["sh", "-c", places]).await? == "2");
    let told = server.status(&first).await?.mounts;
    ensure!(
        told.len() == 1,
        "the kubelet did not ask for them: {told:?}"
    );
    // The next container begins with what the image has.
    server
        .runtime
        .stop_container(StopContainerRequest {
            container_id: first.clone(),
            timeout: 0,
        })
        .await?;
    let second = server.run(&sandbox, &pod, config(1)).await?;
    let listed = server.output(&second, &["ls", "/data"]).await?;
    ensure!(listed == "seed\nwork", "{listed}");
    let directory = |id: &str| server.root().join("containers").join(id).join("volumes");
    ensure!(directory(&first).join("..").exists() && directory(&second).exists());
    let gone = directory(&first);
    server
        .runtime
        .remove_container(RemoveContainerRequest {
            container_id: first.clone(),
        })
        .await?;
    ensure!(!gone.exists());
    server.remove_sandbox(&sandbox).await
}
