//! The whole protocol against plugins that are shell scripts: they write down what they were called with.

use super::*;

struct Stage {
    directory: tempfile::TempDir,
    annotations: std::collections::HashMap<String, String>,
}

impl Stage {
    fn new(version: &str) -> Stage {
        let stage = Stage {
            directory: tempfile::tempdir().unwrap(),
            annotations: [(
                "kubernetes.io/egress-bandwidth".to_owned(),
                "10M".to_owned(),
            )]
            .into(),
        };
        for part in ["conf", "bin", "calls"] {
            std::fs::create_dir(stage.path(part)).unwrap();
        }
        let list = json!({"cniVersion": version, "name": "net", "plugins": [
            {"type": "first", "capabilities": {"bandwidth": true}},
            {"type": "second", "capabilities": {"portMappings": true, "dns": true}},
        ]});
        std::fs::write(stage.path("conf/10-net.conflist"), list.to_string()).unwrap();
        stage.plugin("first", ANSWERS);
        stage.plugin("second", ANSWERS);
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `body` runs after the call is written down as `<number>-<command>-<plugin>`.
    fn plugin(&self, name: &str, body: &str) {
        let text = format!(
            "#!/bin/sh\ncalls={}\nnumber=$(ls $calls | wc -l)\n\
             file=$calls/$number-$CNI_COMMAND-{name}\nINPUT=$(cat)\nprintf %s \"$INPUT\" > $file\n{body}\n",
            self.path("calls").display()
        );
        // A file that is open for writing cannot be run, and what this process has open, others that
        // it starts meanwhile have too. So another one writes it.
        let mut writer = std::process::Command::new("sh")
            .args([
                "-c",
                "cat > \"$0.new\" && chmod 755 \"$0.new\" && mv \"$0.new\" \"$0\"",
            ])
            .arg(self.path("bin").join(name))
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = writer.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, text.as_bytes()).unwrap();
        drop(input);
        assert!(writer.wait().unwrap().success());
    }

    fn network(&self) -> Network {
        Network::load(&self.path("conf"), &[self.path("bin")], &self.path("cache")).unwrap()
    }

    fn attachment(&self) -> Attachment<'_> {
        Attachment {
            sandbox: "sandbox",
            netns: Some(Path::new("/run/netns/x")),
            pod_name: "web",
            pod_namespace: "default",
            pod_uid: "uid",
            port_mappings: &[],
            annotations: &self.annotations,
            dns: None,
            cgroup_parent: "",
        }
    }

    /// The calls since the last time, as `COMMAND-plugin`.
    fn calls(&self) -> Vec<String> {
        let mut names: Vec<(u32, String)> = std::fs::read_dir(self.path("calls"))
            .unwrap()
            .flatten()
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                let (number, call) = name.split_once('-').unwrap();
                (number.parse().unwrap(), call.to_owned())
            })
            .collect();
        names.sort();
        names.into_iter().map(|(_, name)| name).collect()
    }

    fn request(&self, number: u32, call: &str) -> Value {
        let path = self.path("calls").join(format!("{number}-{call}"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn forget_calls(&self) {
        for entry in std::fs::read_dir(self.path("calls")).unwrap().flatten() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

const ANSWERS: &str = r#"[ $CNI_COMMAND = ADD ] && echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}'
exit 0"#;
const FAILS: &str = r#"echo '{"code":11,"msg":"out of addresses","details":"try later"}'; exit 1"#;

#[tokio::test]
async fn a_chain_is_added_checked_and_deleted() {
    let stage = Stage::new("1.0.0");
    let (network, attachment) = (stage.network(), stage.attachment());
    let addresses = network.add(&attachment).await.unwrap();
    assert_eq!(addresses, ["10.1.2.3".parse::<IpAddr>().unwrap()]);
    network.check(&attachment).await.unwrap();
    network.del(&attachment).await.unwrap();
    assert_eq!(
        stage.calls(),
        [
            "ADD-first",
            "ADD-second",
            "CHECK-first",
            "CHECK-second",
            "DEL-second",
            "DEL-first"
        ]
    );
    let first = stage.request(0, "ADD-first");
    assert_eq!(
        first["runtimeConfig"]["bandwidth"]["egressRate"],
        10_000_000
    );
    assert_eq!(first["prevResult"], Value::Null);
    let second = stage.request(1, "ADD-second");
    assert_eq!(second["runtimeConfig"], Value::Null, "nothing it can do");
    assert_eq!(second["prevResult"]["ips"][0]["address"], "10.1.2.3/24");
    assert_eq!(
        stage.request(4, "DEL-second")["prevResult"],
        second["prevResult"]
    );
    // Forgotten: a second DEL has no result to give, and is fine.
    network.del(&attachment).await.unwrap();
    assert_eq!(stage.request(6, "DEL-second")["prevResult"], Value::Null);
}

#[tokio::test]
async fn a_failing_plugin_is_undone_and_recovers() {
    let stage = Stage::new("0.3.1");
    stage.plugin("second", FAILS);
    let (network, attachment) = (stage.network(), stage.attachment());
    let error = network.add(&attachment).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "plugin type=\"second\" failed (ADD): out of addresses; try later"
    );
    assert_eq!(
        stage.calls(),
        ["ADD-first", "ADD-second", "DEL-second", "DEL-first"]
    );
    assert_eq!(
        stage.request(3, "DEL-first")["prevResult"],
        Value::Null,
        "0.3.1 has none"
    );
    stage.plugin("second", ANSWERS);
    assert!(network.add(&attachment).await.is_ok());
    network.check(&attachment).await.unwrap();
    assert!(
        !stage.calls().iter().any(|call| call.starts_with("CHECK")),
        "0.3.1 has no CHECK"
    );
}

#[tokio::test]
async fn a_hanging_plugin_is_ended() {
    let stage = Stage::new("1.0.0");
    stage.plugin("first", "exec sleep 1000");
    let network = stage.network().with_timeout(Duration::from_millis(200));
    let error = network.add(&stage.attachment()).await.unwrap_err();
    assert!(error.to_string().contains("no answer in"), "{error}");
    stage.plugin("first", ANSWERS);
    assert!(stage.network().add(&stage.attachment()).await.is_ok());
}

#[tokio::test]
async fn silence_and_noise_are_errors() {
    let stage = Stage::new("1.0.0");
    let network = stage.network();
    for (body, expected) in [
        ("exit 0", "no result"),
        ("echo no json; exit 0", "no result"),
        ("echo broken >&2; exit 3", "exit status: 3: broken"),
    ] {
        stage.plugin("first", body);
        let error = network.add(&stage.attachment()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{body}: {error}");
    }
    std::fs::remove_file(stage.path("bin/first")).unwrap();
    let error = network.add(&stage.attachment()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("failed to find plugin \"first\"")
    );
}

#[tokio::test]
async fn status_and_gc_since_1_1() {
    let stage = Stage::new("1.1.0");
    let (network, attachment) = (stage.network(), stage.attachment());
    network.status().await.unwrap();
    network.add(&attachment).await.unwrap();
    stage.forget_calls();
    let living = BTreeSet::from(["sandbox".to_owned(), "other".to_owned()]);
    network.collect(&living).await.unwrap();
    assert_eq!(stage.calls(), ["GC-first", "GC-second"]);
    assert_eq!(
        stage.request(0, "GC-first")["cni.dev/valid-attachments"],
        json!([{"containerID": "other", "ifname": "eth0"}, {"containerID": "sandbox", "ifname": "eth0"}])
    );
    stage.forget_calls();
    network.collect(&BTreeSet::new()).await.unwrap();
    assert_eq!(
        stage.calls(),
        ["DEL-second", "DEL-first", "GC-first", "GC-second"],
        "what we remember is deleted by name"
    );
    stage.plugin("second", FAILS);
    let error = network.status().await.unwrap_err().to_string();
    assert!(
        error.contains("failed (STATUS): out of addresses"),
        "{error}"
    );
}

#[tokio::test]
async fn an_old_network_is_ready_when_it_is_there() {
    let stage = Stage::new("1.0.0");
    stage.network().status().await.unwrap();
    assert!(stage.calls().is_empty());
}

#[test]
fn results_of_all_versions_are_read() {
    for result in [
        json!({"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.2.3/24", "interface": 1}]}),
        json!({"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}, {"address": "fd00::1/64"}]}),
    ] {
        assert_eq!(addresses(&result)[0], "10.1.2.3".parse::<IpAddr>().unwrap());
    }
    assert!(addresses(&Value::Null).is_empty());
}

#[test]
fn bandwidths_are_quantities() {
    for (text, expected) in [
        ("10M", Some(10_000_000)),
        ("1Ki", Some(1024)),
        ("1.5k", Some(1500)),
        ("1e3", Some(1000)),
        ("7", Some(7)),
        ("0", None),
        ("fast", None),
        ("1X", None),
    ] {
        assert_eq!(bits_per_second(text), expected, "{text}");
    }
}
