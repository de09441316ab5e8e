//! What other users of the machine can see of containers: nothing. And what root in a container makes
//! has no effect outside of it.

use std::{
    io::Write,
    os::unix::{ffi::OsStrExt, fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use cri::v1::*;
use runtime::images::ImageStore;

use super::{
    image::{Archive, Layer, busybox_layer},
    isolation::{mapping, maps_users, with_users},
    server::{Server, container, with_server},
};

const NOBODY: u32 = 65534;
const SETUID: &str = "example.com/setuid:1";

#[test]
fn other_users_of_the_machine_reach_nothing_of_a_pod() {
    with_server(&[], async |server| {
        let pod = server.sandbox_config("closed", true);
        exposure(server, pod, &[]).await
    });
}

/// Its users have to pass through directories of ours; nobody else does.
#[test]
fn other_users_reach_nothing_of_a_pod_with_users_of_its_own() {
    with_server(&[], async |server| {
        if !maps_users() {
            return Ok(());
        }
        let bridge = server.configure_bridge()?;
        let mut pod = server.sandbox_config("closed", false);
        with_users(&mut pod, NamespaceMode::Pod, &mapping());
        let passage = [server.state(), server.state().join("mapped")];
        let result = exposure(server, pod, &passage).await;
        let mut command = Command::new("ip");
        command.args(["link", "delete", &bridge]).status()?;
        result
    });
}

#[test]
fn directories_that_an_earlier_version_left_open_are_closed() {
    with_server(&[], async |server| {
        use std::os::unix::fs::PermissionsExt;
        server.kill()?;
        let mapped = server.state().join("mapped/of-a-container");
        std::fs::create_dir_all(&mapped)?;
        let open = [server.root(), server.state(), server.state().join("mapped")];
        for path in &open {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755))?;
        }
        server.launch().await?;
        for path in &open {
            let mode = std::fs::metadata(path)?.mode();
            ensure!(mode & 0o77 == 0, "{}: {mode:o}", path.display());
        }
        Ok(())
    });
}

async fn exposure(server: &mut Server, pod: PodSandboxConfig, passage: &[PathBuf]) -> Result<()> {
    let secrets = server.root().join("volumes/secret");
    std::fs::create_dir_all(&secrets)?;
    std::fs::write(secrets.join("password"), "hunter2")?;
    let sandbox = server.run_sandbox(&pod).await?;
    let mut config = container("closed", &["sleep", "1000"]);
    config.mounts = vec![Mount {
        container_path: "/secret".into(),
        host_path: secrets.to_string_lossy().into_owned(),
        ..Default::default()
    }];
    config.envs = vec![KeyValue {
        key: "TOKEN".into(),
        value: b"hunter2".to_vec(),
    }];
    let id = server.run(&sandbox, &pod, config).await?;
    let mut paths = Vec::new();
    for top in [server.root(), server.state()] {
        walk(&top, &mut paths)?;
    }
    ensure!(paths.len() > 100, "{} paths", paths.len());
    let with = |end: &str| paths.iter().any(|path| path.ends_with(end));
    ensure!(with("secret/password") && with("config.json") && with("socket"));
    let found = reachable_to_other_users(&paths)?;
    let passage: Vec<_> = passage
        .iter()
        .map(|path| format!("x {}", path.display()))
        .collect();
    ensure!(found == passage, "nobody reaches {found:#?}");
    ensure!(server.output(&id, &["cat", "/secret/password"]).await? == "hunter2");
    server.remove_sandbox(&sandbox).await
}

/// Everything below a directory, as root sees it, without following links.
fn walk(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    found.push(directory.to_owned());
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    for entry in entries.flatten() {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), found)?;
        } else if !kind.is_symlink() {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// What nobody may read, write (or connect to), or execute (or pass through).
fn reachable_to_other_users(paths: &[PathBuf]) -> Result<Vec<String>> {
    let script = "while IFS= read -r path; do for right in r w x; do \
                  test -$right \"$path\" && echo \"$right $path\"; done; done; true";
    let mut child = Command::new("/bin/sh")
        .args(["-c", script])
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("a pipe")?;
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(path.as_os_str().as_bytes());
        list.push(b'\n');
    }
    let writer = std::thread::spawn(move || stdin.write_all(&list));
    let output = child.wait_with_output()?;
    writer.join().expect("a thread")?;
    ensure!(output.status.success());
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[test]
fn setuid_programs_work_in_a_container_and_not_from_the_host() {
    with_server(&[], async |server| setuid(server, false).await);
}

#[test]
fn setuid_programs_work_in_a_container_and_not_from_the_host_with_runc() {
    with_server(&["/usr/sbin/runc"], async |server| {
        setuid(server, false).await
    });
}

#[test]
fn setuid_programs_work_for_users_of_a_pods_own_and_not_from_the_host() {
    with_server(&[], async |server| {
        if !maps_users() {
            return Ok(());
        }
        let bridge = server.configure_bridge()?;
        let result = setuid(server, true).await;
        let mut command = Command::new("ip");
        command.args(["link", "delete", &bridge]).status()?;
        result
    });
}

async fn setuid(server: &mut Server, own_users: bool) -> Result<()> {
    // Busybox gives up such rights by itself; this comes with the libraries of the host.
    let program = std::fs::read("/usr/bin/id")?;
    let layer = Layer::new()
        .directory("setuid/")
        .file("setuid/id", 0o4755, &program)
        .directory("usr/")
        .symlink("lib", "usr/lib")
        .symlink("lib64", "usr/lib64");
    let archive = Archive {
        layers: vec![busybox_layer(), layer.finish()],
        name: SETUID,
        ..Archive::default()
    };
    let archive = archive.write(&server.directory.join("archives"));
    ImageStore::open(&server.root())?.import(&archive, None)?;
    let mut pod = server.sandbox_config("setuid", !own_users);
    if own_users {
        with_users(&mut pod, NamespaceMode::Pod, &mapping());
    }
    let sandbox = server.run_sandbox(&pod).await?;
    // One of them is made by our own hand, the other by libcontainer.
    for terminal in [false, true] {
        let mut config = container(&format!("terminal-{terminal}"), &["sleep", "1000"]);
        config.tty = terminal;
        config.image = Some(ImageSpec {
            image: SETUID.into(),
            ..Default::default()
        });
        config.mounts = vec![Mount {
            container_path: "/usr".into(),
            host_path: "/usr".into(),
            readonly: true,
            ..Default::default()
        }];
        let linux = config.linux.get_or_insert_default();
        let security = linux.security_context.get_or_insert_default();
        security.run_as_user = Some(Int64Value { value: 1000 });
        let id = server.run(&sandbox, &pod, config).await?;
        let who = server.output(&id, &["/setuid/id", "-u"]).await?;
        ensure!(who == "0", "inside it runs as {who}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let of_container: Vec<&str> = mounts
            .lines()
            .filter(|line| line.contains(&id) && line.contains(" - overlay "))
            .collect();
        ensure!(!of_container.is_empty(), "{mounts}");
        for mount in of_container {
            ensure!(
                mount.contains("nosuid") && mount.contains("nodev"),
                "{mount}"
            );
        }
        // As if somebody had opened every directory above it.
        let directory = server.state().join("rootfs").join(&id).join("setuid");
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["./id", "-u"])
            .current_dir(directory)
            .output()?;
        let who = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(who == "65534", "from outside it runs as {who}: {output:?}");
    }
    server.remove_sandbox(&sandbox).await
}
