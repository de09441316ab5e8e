//! Users, capabilities, seccomp, read-only roots, mounts: what a container may and may not.

use anyhow::{Result, ensure};
use cri::v1::*;

use super::server::{Server, container, with_server};

#[test]
fn privileges_with_our_oci_command() {
    with_server(&[], privileges);
}

#[test]
fn privileges_with_runc() {
    with_server(&["/usr/sbin/runc"], privileges);
}

/// Where the kernel has AppArmor; `make test-vm` boots one that has.
#[test]
fn the_default_apparmor_profile_confines() {
    let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    if !enabled.is_ok_and(|text| text.trim() == "Y") {
        environment::skip_test("it needs a kernel with AppArmor enabled");
        return;
    }
    with_server(&[], confinement);
}

async fn confinement(server: &mut Server) -> Result<()> {
    let pod = server.sandbox_config("confined", true);
    let sandbox = server.run_sandbox(&pod).await?;
    // Everything else that would keep it from mounting is off.
    let open = |name: &str, kind: security_profile::ProfileType| {
        with_security(name, |security| {
            security
                .capabilities
                .get_or_insert_default()
                .add_capabilities = vec!["ALL".into()];
            security.seccomp = Some(SecurityProfile {
                profile_type: security_profile::ProfileType::Unconfined.into(),
                ..Default::default()
            });
            security.apparmor = Some(SecurityProfile {
                profile_type: kind.into(),
                ..Default::default()
            });
        })
    };
    let confined = open("confined", security_profile::ProfileType::RuntimeDefault);
    let confined = server.run(&sandbox, &pod, confined).await?;
    for process in ["1", "self"] {
        let path = format!("/proc/{process}/attr/current");
        let profile = server.output(&confined, &["cat", &path]).await?;
        ensure!(
            profile.trim() == "coracle-default (enforce)",
            "{process}: {profile}"
        );
    }
    let mount = ["mount", "-t", "tmpfs", "x", "/tmp"];
    ensure!(server.exec(&confined, &mount, 120).await?.exit_code != 0);
    // Root in a container, but the machine's settings are not its own.
    let write = [
        "sh",
        "-c",
        "mount -o remount,rw /proc/sys; echo x > /proc/sys/kernel/core_pattern",
    ];
    ensure!(server.exec(&confined, &write, 120).await?.exit_code != 0);
    let name = profile(server, "--replace")?;
    let local = with_security("local", |security| {
        security.apparmor = Some(SecurityProfile {
            profile_type: security_profile::ProfileType::Localhost.into(),
            localhost_ref: name.clone(),
        });
    });
    let local = server.run(&sandbox, &pod, local).await?;
    for process in ["1", "self"] {
        let path = format!("/proc/{process}/attr/current");
        let profile = server.output(&local, &["cat", &path]).await?;
        ensure!(
            profile.trim() == format!("{name} (enforce)"),
            "{process}: {profile}"
        );
    }
    server.output(&local, &["touch", "/tmp/allowed"]).await?;
    let touch = ["touch", "/tmp/forbidden"];
    ensure!(server.exec(&local, &touch, 120).await?.exit_code != 0);
    let missing = with_security("missing", |security| {
        security.apparmor = Some(SecurityProfile {
            profile_type: security_profile::ProfileType::Localhost.into(),
            localhost_ref: format!("{name}-that-nobody-loaded"),
        });
    });
    ensure!(server.run(&sandbox, &pod, missing).await.is_err());
    let free = open("free", security_profile::ProfileType::Unconfined);
    let free = server.run(&sandbox, &pod, free).await?;
    server.output(&free, &mount).await?;
    server.remove_sandbox(&sandbox).await?;
    profile(server, "--remove").map(drop)
}

/// A profile of the machine's own, which lets everything be done but one thing: loaded or removed.
fn profile(server: &Server, action: &str) -> Result<String> {
    let name = format!("coracle-test-{}", server.cluster_id);
    let text = format!(
        "profile {name} flags=(attach_disconnected) {{\n\
         file,\ncapability,\nnetwork,\nsignal,\nptrace,\nunix,\nmount,\numount,\npivot_root,\n\
         deny /tmp/forbidden w,\n}}\n"
    );
    let file = server.directory.join("profile");
    std::fs::write(&file, text)?;
    let status = std::process::Command::new("apparmor_parser")
        .args([action, "--skip-cache"])
        .arg(&file)
        .status()?;
    ensure!(status.success(), "{action} {name}");
    Ok(name)
}

fn with_security(
    name: &str,
    change: impl FnOnce(&mut LinuxContainerSecurityContext),
) -> ContainerConfig {
    let mut config = container(name, &["sleep", "100"]);
    change(
        config
            .linux
            .get_or_insert_default()
            .security_context
            .get_or_insert_default(),
    );
    config
}

async fn privileges(server: &mut Server) -> Result<()> {
    let pod = server.sandbox_config("secure", true);
    let sandbox = server.run_sandbox(&pod).await?;
    let plain = server
        .run(&sandbox, &pod, with_security("plain", |_| {}))
        .await?;
    let field =
        async |server: &mut Server, id: &str, process: &str, name: &str| -> Result<String> {
            let path = format!("/proc/{process}/status");
            let line = server.output(id, &["grep", name, &path]).await?;
            Ok(line
                .split_whitespace()
                .last()
                .unwrap_or_default()
                .to_owned())
        };
    // Both the first process and an exec have the filter and the usual capabilities.
    for process in ["1", "self"] {
        ensure!(
            field(server, &plain, process, "Seccomp:").await? == "2",
            "{process}"
        );
        ensure!(
            field(server, &plain, process, "CapEff").await? == "00000000a80425fb",
            "{process}"
        );
        ensure!(
            field(server, &plain, process, "CapBnd").await? == "00000000a80425fb",
            "{process}"
        );
    }
    ensure!(
        server
            .exec(&plain, &["unshare", "-n", "true"], 120)
            .await?
            .exit_code
            != 0
    );
    ensure!(
        server
            .exec(&plain, &["mount", "-t", "tmpfs", "x", "/tmp"], 120)
            .await?
            .exit_code
            != 0
    );
    ensure!(
        server
            .exec(
                &plain,
                &["sh", "-c", "echo 1 > /proc/sys/kernel/domainname"],
                120
            )
            .await?
            .exit_code
            != 0
    );
    let user = with_security("user", |security| {
        security.run_as_username = "web".into();
        security.no_new_privs = true;
        security.readonly_rootfs = true;
        security.supplemental_groups = vec![7];
        security.capabilities = Some(Capability {
            drop_capabilities: vec!["ALL".into()],
            ..Default::default()
        });
    });
    let user = server.run(&sandbox, &pod, user).await?;
    for process in ["1", "self"] {
        ensure!(field(server, &user, process, "NoNewPrivs").await? == "1");
        ensure!(field(server, &user, process, "CapBnd").await? == "0000000000000000");
        ensure!(field(server, &user, process, "Seccomp:").await? == "2");
    }
    let id = server.output(&user, &["id"]).await?;
    ensure!(
        id.starts_with("uid=1000(web) gid=1001(webs)")
            && id.contains("50000(extra)")
            && id.contains('7'),
        "{id}"
    );
    ensure!(
        server
            .exec(&user, &["touch", "/tmp/x"], 120)
            .await?
            .exit_code
            != 0,
        "the root is read-only"
    );
    for shared in ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"] {
        let options = "awk '$5 == \"'$1'\" { print $6 }' /proc/self/mountinfo";
        let options = ["sh", "-c", options, "sh", shared];
        let options = server.output(&user, &options).await?;
        ensure!(options.starts_with("ro"), "{shared} is mounted {options}");
    }
    let status = server
        .status(&user)
        .await?
        .user
        .and_then(|user| user.linux)
        .unwrap_or_default();
    ensure!(
        status.uid == 1000 && status.gid == 1001 && status.supplemental_groups.contains(&50000),
        "{status:?}"
    );
    let unknown = with_security("unknown", |security| {
        security.run_as_username = "nobody-here".into()
    });
    ensure!(server.create(&sandbox, &pod, unknown).await.is_err());
    // The kernel would take the first for "leave it as it is", which is root.
    for (name, uid, group) in [
        ("last", u32::MAX.into(), 0),
        ("minus", -1, 0),
        ("group", 1, -1),
    ] {
        let refused = with_security(name, |security| {
            security.run_as_user = Some(Int64Value { value: uid });
            security.run_as_group = Some(Int64Value { value: group });
        });
        ensure!(
            server.create(&sandbox, &pod, refused).await.is_err(),
            "{name}"
        );
    }
    let wide = with_security("wide", |security| {
        security.supplemental_groups = vec![u32::MAX.into()];
    });
    ensure!(server.create(&sandbox, &pod, wide).await.is_err());
    sockets(server, &sandbox, &pod).await?;
    let free = with_security("free", |security| security.privileged = true);
    let free = server.run(&sandbox, &pod, free).await?;
    ensure!(field(server, &free, "1", "Seccomp:").await? == "0");
    server
        .output(&free, &["mount", "-t", "tmpfs", "x", "/tmp"])
        .await?;
    server.output(&free, &["stat", "/dev/kmsg"]).await?;
    mounts(server, &sandbox, &pod).await?;
    server.remove_sandbox(&sandbox).await
}

/// With a program of the host, since busybox makes no such sockets.
async fn sockets(server: &mut Server, sandbox: &str, pod: &PodSandboxConfig) -> Result<()> {
    let mut config = container("sockets", &["sleep", "100"]);
    config.mounts = vec![Mount {
        container_path: "/host".into(),
        host_path: "/".into(),
        readonly: true,
        ..Default::default()
    }];
    let id = server.run(sandbox, pod, config).await?;
    for (family, expected) in [(1, "made"), (2, "made"), (38, "1"), (40, "1")] {
        let program = format!(
            "print socket(my $socket, {family}, {}, 0) ? 'made' : $! + 0",
            if family == 38 { 5 } else { 1 }
        );
        let command = ["chroot", "/host", "/usr/bin/perl", "-e", &program];
        let found = server.output(&id, &command).await?;
        ensure!(found == expected, "address family {family}: {found}");
    }
    Ok(())
}

async fn mounts(server: &mut Server, sandbox: &str, pod: &PodSandboxConfig) -> Result<()> {
    let host = server.directory.join("volume");
    std::fs::create_dir_all(host.join("sub"))?;
    std::fs::write(host.join("file"), "content")?;
    let mount = |path: &str, readonly: bool, source: &str| Mount {
        container_path: path.into(),
        host_path: host.join(source).to_string_lossy().into_owned(),
        readonly,
        ..Default::default()
    };
    let mut config = container("mounts", &["sleep", "100"]);
    config.mounts = vec![
        mount("/data/ro", true, "."),
        mount("/data", false, "sub"),
        mount("/etc/hosts", true, "file"),
    ];
    config.working_dir = "/made/here".into();
    let id = server.run(sandbox, pod, config).await?;
    ensure!(server.output(&id, &["cat", "/data/ro/file"]).await? == "content");
    ensure!(server.output(&id, &["cat", "/etc/hosts"]).await? == "content");
    ensure!(
        server
            .exec(&id, &["touch", "/data/ro/x"], 120)
            .await?
            .exit_code
            != 0
    );
    server.output(&id, &["touch", "/data/written"]).await?;
    ensure!(host.join("sub/written").exists());
    ensure!(server.output(&id, &["pwd"]).await? == "/made/here");
    Ok(())
}
