//! Sandboxes with a network of their own, by Debian's CNI plugins.

use anyhow::{Context, Result, ensure};
use cri::v1::*;

use super::server::{Server, container, with_server};

fn delete_bridge(bridge: &str) {
    let _ = std::process::Command::new("ip")
        .args(["link", "delete", bridge])
        .status();
}

#[test]
fn pods_get_addresses_and_names_and_reach_each_other() {
    with_server(&[], async |server| {
        let bridge = server.configure_bridge()?;
        let result = pods_on_a_bridge(server).await;
        delete_bridge(&bridge);
        result
    });
}

async fn pods_on_a_bridge(server: &mut Server) -> Result<()> {
    let mut pod = server.sandbox_config("netpod", false);
    pod.dns_config = Some(DnsConfig {
        servers: vec!["10.96.0.10".into()],
        searches: vec!["default.svc.cluster.local".into()],
        options: vec!["ndots:5".into()],
    });
    pod.linux.get_or_insert_default().sysctls =
        [("kernel.shm_rmid_forced".to_owned(), "1".to_owned())].into();
    let begun = tokio::time::Instant::now();
    let sandbox = server.run_sandbox(&pod).await?;
    println!("sandbox with bridge {:?}", begun.elapsed());
    let request = PodSandboxStatusRequest {
        pod_sandbox_id: sandbox.clone(),
        verbose: false,
    };
    let status = server
        .runtime
        .pod_sandbox_status(request)
        .await?
        .into_inner()
        .status
        .context("no status")?;
    let address = status.network.context("no network")?.ip;
    ensure!(address.starts_with(&server.addresses()), "{address}");
    let one = server
        .run(
            &sandbox,
            &pod,
            container(
                "one",
                &[
                    "sh",
                    "-c",
                    "echo hi > /tmp/index.html; httpd -f -p 80 -h /tmp",
                ],
            ),
        )
        .await?;
    let two = server
        .run(&sandbox, &pod, container("two", &["sleep", "100"]))
        .await?;
    ensure!(server.output(&one, &["hostname"]).await? == "netpod");
    ensure!(server.output(&one, &["cat", "/etc/hostname"]).await? == "netpod");
    ensure!(
        server
            .output(&two, &["cat", "/etc/resolv.conf"])
            .await?
            .contains("nameserver 10.96.0.10")
    );
    ensure!(
        server
            .output(&two, &["ip", "-4", "addr", "show", "eth0"])
            .await?
            .contains(&address)
    );
    ensure!(
        server
            .output(&two, &["ip", "link", "show", "lo"])
            .await?
            .contains("UP")
    );
    ensure!(
        server
            .output(&two, &["cat", "/proc/sys/kernel/shm_rmid_forced"])
            .await?
            == "1"
    );
    // Two containers share the network and /dev/shm, not the processes.
    let fetch = "until wget -q -O - http://127.0.0.1/; do sleep 0.1; done";
    ensure!(server.output(&two, &["sh", "-c", fetch]).await? == "hi");
    server.output(&one, &["touch", "/dev/shm/shared"]).await?;
    server.output(&two, &["stat", "/dev/shm/shared"]).await?;
    ensure!(server.output(&two, &["cat", "/proc/1/comm"]).await? == "sleep");
    let fetched = tokio::net::TcpStream::connect((address.as_str(), 80)).await;
    ensure!(fetched.is_ok(), "the host reaches the pod");
    server.remove_sandbox(&sandbox).await?;
    let leased = std::fs::read_dir(
        server
            .directory
            .join("ipam")
            .join(format!("test-{}", server.cluster_id)),
    )?
    .flatten()
    .filter(|entry| entry.file_name().to_string_lossy().starts_with("10."))
    .count();
    ensure!(leased == 0, "the address is given back");
    ensure!(
        std::fs::read_dir(server.state().join("netns"))?
            .next()
            .is_none()
    );
    Ok(())
}

#[test]
fn a_failing_network_leaves_nothing() {
    with_server(&[], async |server| {
        let pod = server.sandbox_config("nonet", false);
        let status = server
            .runtime
            .status(StatusRequest::default())
            .await?
            .into_inner()
            .status
            .context("no status")?;
        let network = status
            .conditions
            .iter()
            .find(|condition| condition.r#type == "NetworkReady");
        ensure!(network.is_some_and(|condition| !condition.status));
        let error = server
            .run_sandbox(&pod)
            .await
            .err()
            .context("no network configured")?;
        ensure!(
            error.to_string().contains("cni plugin not initialized"),
            "{error}"
        );
        let broken = r#"{"cniVersion":"0.4.0","name":"x","plugins":[{"type":"no-such-plugin"}]}"#;
        std::fs::write(server.directory.join("cni/10-broken.conflist"), broken)?;
        let error = server
            .run_sandbox(&pod)
            .await
            .err()
            .context("no such plugin")?;
        ensure!(
            error.to_string().contains("failed to find plugin"),
            "{error}"
        );
        for part in ["shims", "netns"] {
            let left = std::fs::read_dir(server.state().join(part))?.count();
            ensure!(left == 0, "{part}: {left}");
        }
        let left = server
            .runtime
            .list_pod_sandbox(ListPodSandboxRequest::default())
            .await?
            .into_inner()
            .items;
        ensure!(left.is_empty());
        Ok(())
    });
}

#[test]
fn a_chain_of_plugins_is_called_and_recovers() {
    with_server(&[], async |server| {
        let bridge = server.configure_bridge()?;
        let result = chain(server).await;
        delete_bridge(&bridge);
        result
    });
}

/// Written by another process: a file that this one has open for writing is also open in what other
/// tests are starting at that moment, and cannot be run until they have begun.
fn write_program(path: &std::path::Path, text: &str) -> Result<()> {
    use std::io::Write;
    let mut child = std::process::Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(std::process::Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    ensure!(child.wait()?.success(), "{} is not written", path.display());
    Ok(())
}

/// Debian's bridge and tuning with a plugin of the test's own at the end, which fails until told
/// otherwise.
async fn chain(server: &mut Server) -> Result<()> {
    let file = server.directory.join("cni/10-test.conflist");
    let mut list: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    list["cniVersion"] = "1.0.0".into();
    let plugins = list["plugins"].as_array_mut().context("no plugins")?;
    plugins.push(serde_json::json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "333"}}));
    plugins.push(serde_json::json!({"type": "moody", "capabilities": {"portMappings": true}}));
    std::fs::write(&file, list.to_string())?;
    let bin = server.directory.join("cni/bin");
    std::fs::create_dir_all(&bin)?;
    let calls = server.directory.join("calls");
    let script = format!(
        "#!/bin/sh\ncat > {0}.input\necho $CNI_COMMAND >> {0}\n\
         [ $CNI_COMMAND != ADD ] && exit 0\n\
         if [ ! -e {0}.good ]; then echo '{{\"code\": 7, \"msg\": \"in a bad mood\"}}'; exit 1; fi\n\
         sed 's/.*\"prevResult\"://; s/,\"runtimeConfig\".*//' {0}.input\n",
        calls.display()
    );
    write_program(&bin.join("moody"), &script)?;
    let mut pod = server.sandbox_config("chained", false);
    pod.port_mappings = vec![PortMapping {
        host_port: 18_080,
        container_port: 80,
        ..Default::default()
    }];
    let error = server.run_sandbox(&pod).await.err().context("it fails")?;
    let text = error.to_string();
    ensure!(
        text.contains("moody") && text.contains("failed (ADD): in a bad mood"),
        "{text}"
    );
    ensure!(std::fs::read_to_string(&calls)? == "ADD\nDEL\n");
    let leases = server
        .directory
        .join("ipam")
        .join(format!("test-{}", server.cluster_id));
    let leased = |directory: &std::path::Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("10."))
            .count()
    };
    ensure!(leased(&leases) == 0, "the address is given back");
    std::fs::write(format!("{}.good", calls.display()), "")?;
    let sandbox = server.run_sandbox(&pod).await?;
    let input = std::fs::read_to_string(format!("{}.input", calls.display()))?;
    let input: serde_json::Value = serde_json::from_str(&input)?;
    ensure!(
        input["runtimeConfig"]["portMappings"][0]["hostPort"] == 18_080,
        "{input}"
    );
    ensure!(
        input["prevResult"]["ips"][0]["address"].is_string(),
        "{input}"
    );
    let id = server
        .run(&sandbox, &pod, container("c", &["sleep", "1000"]))
        .await?;
    let tuned = server
        .output(&id, &["cat", "/proc/sys/net/core/somaxconn"])
        .await?;
    ensure!(tuned == "333", "{tuned}");
    // A new server asks the network whether all is as it was.
    server.kill()?;
    server.launch().await?;
    let begun = tokio::time::Instant::now();
    while !std::fs::read_to_string(&calls)?.contains("CHECK") {
        ensure!(begun.elapsed().as_secs() < 120, "never checked");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    server.remove_sandbox(&sandbox).await?;
    ensure!(leased(&leases) == 0, "the address is given back");
    Ok(())
}
