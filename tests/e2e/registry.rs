//! Images from a registry: Debian's docker-registry on loopback, the three pull policies, backoff,
//! and credentials from a credential provider.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::cluster::{Background, Cluster, eventually, image_archive, succeed};

#[test]
fn images_are_pulled_by_policy() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (_registry, port) = start_registry(directory.path(), "");
    let image = format!("127.0.0.1:{port}/boats/coracle:2");
    succeed(Command::new("skopeo").args([
        "copy",
        "--insecure-policy",
        "--dest-tls-verify=false",
        &format!("oci-archive:{}", image_archive().display()),
        &format!("docker://{image}"),
    ]));
    let cluster = Cluster::start();
    for (name, policy) in [
        ("never", "Never"),
        ("missing", "IfNotPresent"),
        ("always", "Always"),
    ] {
        cluster.apply(&pod(name, &image, policy));
    }
    for name in ["missing", "always"] {
        cluster.wait_for_phase(name, "Succeeded");
    }
    let never = waiting_reason(&cluster, "never", &["ErrImageNeverPull"]);
    assert_eq!(never, "ErrImageNeverPull");
    let pod_object = cluster.object("pod", "missing");
    let id = pod_object["status"]["containerStatuses"][0]["imageID"].to_string();
    assert!(id.contains("sha256:"), "{id}");

    cluster.apply(&pod(
        "absent",
        &format!("127.0.0.1:{port}/boats/nothing:1"),
        "IfNotPresent",
    ));
    waiting_reason(&cluster, "absent", &["ImagePullBackOff"]);
    eventually("the events of a failed pull", || {
        let events = cluster.kubectl(&["get", "events"]);
        let told =
            events.contains("Failed to pull image") && events.contains("Back-off pulling image");
        told.then_some(())
    });
}

/// The user `boat` with the password `pw`, in the registry's format.
const USERS: &str = "boat:$2b$05$GAlLuxD3qheBEUyejOSh5O7g0GZVUJEBMCo6Wa4d0P8DE7Z8tnyum\n";

#[test]
fn a_credential_provider_gives_access_to_a_private_registry() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let users = directory.path().join("users");
    std::fs::write(&users, USERS).expect("users");
    let auth = format!(
        "auth: {{htpasswd: {{realm: boats, path: {}}}}}\n",
        users.display()
    );
    let (_registry, port) = start_registry(directory.path(), &auth);
    let place = format!("127.0.0.1:{port}");
    let image = format!("{place}/boats/private:1");
    succeed(Command::new("skopeo").args([
        "copy",
        "--insecure-policy",
        "--dest-tls-verify=false",
        "--dest-creds=boat:pw",
        &format!("oci-archive:{}", image_archive().display()),
        &format!("docker://{image}"),
    ]));
    let programs = directory.path().join("programs");
    std::fs::create_dir(&programs).expect("a directory");
    let (program, config) = (
        programs.join("opener"),
        directory.path().join("opener.yaml"),
    );
    let answer = serde_json::json!({"kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "cacheKeyType": "Registry",
        "auth": {&place: {"username": "boat", "password": "pw"}}});
    std::fs::write(
        &program,
        format!("#!/bin/sh\ncat > /dev/null\necho '{answer}'\n"),
    )
    .expect("a program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("set");
    let provider = serde_json::json!({"kind": "CredentialProviderConfig",
        "apiVersion": "kubelet.config.k8s.io/v1", "providers": [{"name": "opener",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "matchImages": [place],
            "defaultCacheDuration": "1h"}]});
    std::fs::write(&config, provider.to_string()).expect("a configuration");

    let cluster = Cluster::prepared();
    let settings = serde_json::json!({"imageCredentialProviderConfig": config,
        "imageCredentialProviderBinDir": programs});
    std::fs::write(
        cluster.data_dir().join("kubelet.yaml"),
        settings.to_string(),
    )
    .expect("kubelet.yaml");
    cluster.up(&[]);
    cluster.apply(&pod("opened", &image, "Always"));
    cluster.wait_for_phase("opened", "Succeeded");
    let node = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let path = format!("/api/v1/nodes/{}/proxy/metrics", node.trim());
    let page = cluster.kubectl(&["get", "--raw", &path]);
    let asked = "kubelet_credential_provider_plugin_duration_count{plugin_name=\"opener\"} 1";
    assert!(page.lines().any(|line| line == asked), "{page}");
    // `down --delete` does not remove files of the user.
    std::fs::remove_file(cluster.data_dir().join("kubelet.yaml")).expect("removed");
}

fn pod(name: &str, image: &str, policy: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  containers:\n  - {{name: c, image: \"{image}\", imagePullPolicy: {policy}, command: [\"true\"]}}\n"
    )
}

fn waiting_reason(cluster: &Cluster, name: &str, reasons: &[&str]) -> String {
    eventually(&format!("{name} to wait because of {reasons:?}"), || {
        let pod = cluster.object("pod", name);
        let reason = pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
        reason
            .as_str()
            .filter(|reason| reasons.contains(reason))
            .map(String::from)
    })
}

/// `more` are further lines of its configuration.
fn start_registry(directory: &std::path::Path, more: &str) -> (Background, u16) {
    // Another process may have taken the port since it was chosen.
    let mut attempts = (0..5).map(|_| serve(directory, more));
    let served = attempts.find_map(|(registry, port)| Some((registry?, port)));
    served.expect("docker-registry does not start")
}

/// `None` when the registry has ended, as it does when the port is in use.
fn serve(directory: &std::path::Path, more: &str) -> (Option<Background>, u16) {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port();
    let config = directory.join("registry.yml");
    std::fs::write(
        &config,
        format!(
            "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\nhttp: {{addr: \"127.0.0.1:{port}\"}}\n{more}",
            directory.join("data").display()
        ),
    )
    .expect("configuration");
    let child = Command::new("docker-registry")
        .arg("serve")
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("docker-registry is installed by scripts/setup");
    let mut registry = Background(child);
    let serves = eventually("the registry", || {
        // Another process with the port would answer too, so that the order of these checks matters.
        let answered = TcpStream::connect(("127.0.0.1", port)).is_ok();
        let ended = registry.0.try_wait().expect("docker-registry").is_some();
        (answered || ended).then_some(!ended)
    });
    (serves.then_some(registry), port)
}
