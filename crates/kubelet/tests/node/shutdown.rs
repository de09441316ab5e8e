//! The machine goes down: a real message bus, and on it somebody who speaks as logind does.

use std::{
    io::{ErrorKind, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use dbus::{Connection, Kind, Message, Value};
use k8s_openapi::api::core::v1::{Event, Node as NodeObject, Pod};
use kube::{Api, api::ListParams};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::harness::{ATTEMPTS, NODE, Node, ready};

const LOGIND_PATH: &str = "/org/freedesktop/login1";
const LOGIND: &str = "org.freedesktop.login1.Manager";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_end_in_order_before_the_machine_does() {
    let node = Node::start_with(kubelet::Configuration {
        shutdown_grace_period: "60s".to_owned(),
        shutdown_grace_period_critical_pods: "20s".to_owned(),
        ..kubelet::Configuration::default()
    })
    .await;
    let bus = Bus::start(&node.bus_socket()).await;
    let logind = Logind::start(&node).await;
    node.create(
        "vital",
        json!({"priorityClassName": "system-node-critical",
            "containers": [{"name": "vital", "image": "busybox"}]}),
    )
    .await;
    node.create(
        "plain",
        json!({"containers": [{"name": "plain", "image": "busybox"}]}),
    )
    .await;
    node.wait("vital", ready).await;
    node.wait("plain", ready).await;
    logind.wait_for_locks(1).await;
    let settings = node.directory.path().join("logind.conf.d/99-kubelet.conf");
    let settings = std::fs::read_to_string(settings).expect("logind was asked for more time");
    assert!(
        settings.contains("[Login]\nInhibitDelayMaxSec=60\n"),
        "{settings}"
    );

    logind.say_shutdown(true).await;
    logind.wait_for_locks(0).await;
    let stops: Vec<String> = node
        .runtime
        .calls()
        .into_iter()
        .filter(|call| call.starts_with("StopContainer"))
        .collect();
    assert_eq!(stops, ["StopContainer plain 30", "StopContainer vital 20"]);
    for name in ["plain", "vital"] {
        let pod = node.wait(name, |pod| phase(pod) == "Failed").await;
        let status = pod.status.expect("a status");
        assert_eq!(status.reason.as_deref(), Some("Terminated"));
        let message = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(status.message.as_deref(), Some(message));
        let target = status
            .conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "DisruptionTarget")
            .expect("a condition");
        assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
        assert_eq!(target.message.as_deref(), Some(message));
    }
    node_says(
        &node,
        "False",
        "KubeletNotReady",
        Some("node is shutting down"),
    )
    .await;
    event(&node, "Shutdown manager detected shutdown event").await;
    let state = node
        .directory
        .path()
        .join("kubelet/graceful_node_shutdown_state");
    let ended = async || {
        let kept = std::fs::read_to_string(&state).unwrap_or_default();
        kept.contains("\"endTime\":\"")
    };
    node.until("kept the state", ended).await;

    node.create(
        "late",
        json!({"containers": [{"name": "late", "image": "busybox"}]}),
    )
    .await;
    let late = node.wait("late", |pod| phase(pod) == "Failed").await;
    let status = late.status.expect("a status");
    assert_eq!(status.reason.as_deref(), Some("NodeShutdown"));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was rejected: Pod was rejected as the node is shutting down.")
    );

    // Somebody called it off.
    logind.say_shutdown(false).await;
    logind.wait_for_locks(1).await;
    node_says(&node, "True", "KubeletReady", None).await;
    event(&node, "Shutdown manager detected shutdown cancellation").await;
    node.create(
        "after",
        json!({"containers": [{"name": "after", "image": "busybox"}]}),
    )
    .await;
    node.wait("after", ready).await;

    // A bus that goes and comes is found again.
    drop(bus);
    logind.wait_for_locks(0).await;
    drop(logind);
    let _ = std::fs::remove_file(node.bus_socket());
    let _bus = Bus::start(&node.bus_socket()).await;
    let logind = Logind::start(&node).await;
    logind.wait_for_locks(1).await;
    node.close().await;
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("")
}

async fn node_says(node: &Node, status: &str, reason: &str, message: Option<&str>) {
    let nodes: Api<NodeObject> = Api::all(node.admin.clone());
    let mut last = None;
    for _ in 0..ATTEMPTS {
        // A busy machine answers later.
        let found = nodes.get_opt(NODE).await.ok().flatten();
        let conditions = found.and_then(|node| node.status?.conditions);
        let condition = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "Ready");
        let as_wanted = condition.as_ref().is_some_and(|condition| {
            condition.status == status
                && condition.reason.as_deref() == Some(reason)
                && message.is_none_or(|message| condition.message.as_deref() == Some(message))
        });
        if as_wanted {
            return;
        }
        last = condition;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the node says {last:?}");
}

async fn event(node: &Node, message: &str) {
    let events: Api<Event> = Api::all(node.admin.clone());
    for _ in 0..ATTEMPTS {
        let list = events.list(&ListParams::default()).await;
        let mut found = list.into_iter().flat_map(|list| list.items);
        if found.any(|event| {
            event.reason.as_deref() == Some("NodeShutdown")
                && event.message.as_deref() == Some(message)
                && event.involved_object.name.as_deref() == Some(NODE)
        }) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no event says: {message}");
}

/// A message bus of its own, ended with the test.
struct Bus(Child);

impl Bus {
    async fn start(socket: &Path) -> Bus {
        let file = socket.with_extension("conf");
        let text = format!(
            "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\" \
             \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n<busconfig>\
             <type>session</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/>\
             <allow eavesdrop=\"true\"/><allow own=\"*\"/>\
             </policy></busconfig>",
            socket.display()
        );
        std::fs::write(&file, text).expect("written");
        #[allow(clippy::disallowed_methods)] // A helper process of the test.
        let child = Command::new("dbus-daemon")
            .arg("--nofork")
            .arg(format!("--config-file={}", file.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("dbus-daemon starts (scripts/setup test installs it)");
        let bus = Bus(child);
        for _ in 0..ATTEMPTS {
            if UnixStream::connect(socket).is_ok() {
                return bus;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the bus does not listen");
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Speaks as logind and, for its settings, as systemd.
struct Logind {
    commands: mpsc::Sender<bool>,
    locks: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

impl Logind {
    async fn start(node: &Node) -> Logind {
        let mut bus = Connection::open(&node.bus_socket()).await.expect("let in");
        bus.own("org.freedesktop.login1").await.expect("the name");
        bus.own("org.freedesktop.systemd1").await.expect("the name");
        let (commands, orders) = mpsc::channel(4);
        let (counter, locks) = watch::channel(0);
        let settings = node.directory.path().join("logind.conf.d/99-kubelet.conf");
        let task = tokio::spawn(serve(bus, orders, counter, settings));
        Logind {
            commands,
            locks,
            task,
        }
    }

    async fn say_shutdown(&self, down: bool) {
        self.commands.send(down).await.expect("said");
    }

    async fn wait_for_locks(&self, count: usize) {
        let mut locks = self.locks.clone();
        let limit = Duration::from_secs(120);
        let reached = tokio::time::timeout(limit, locks.wait_for(|held| *held == count)).await;
        assert!(
            reached.is_ok(),
            "{count} locks, not {}",
            *self.locks.borrow()
        );
    }
}

impl Drop for Logind {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut bus: Connection,
    mut orders: mpsc::Receiver<bool>,
    counter: watch::Sender<usize>,
    settings: PathBuf,
) {
    let mut delay = 5_000_000_u64;
    let mut held: Vec<UnixStream> = Vec::new();
    let mut connected = true;
    loop {
        // A lock is free when nobody has its other end any more.
        held.retain_mut(
            |end| matches!(end.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock),
        );
        counter.send_replace(held.len());
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
            Some(down) = orders.recv() => {
                let signal = Message {
                    path: Some(LOGIND_PATH.to_owned()),
                    interface: Some(LOGIND.to_owned()),
                    member: Some("PrepareForShutdown".to_owned()),
                    body: vec![Value::Bool(down)],
                    ..Message::new(Kind::Signal)
                };
                bus.send(signal).await.expect("sent");
            }
            message = bus.next(), if connected => {
                let Ok(message) = message else {
                    connected = false;
                    continue;
                };
                if message.kind != Kind::Call {
                    continue;
                }
                let mut reply = Message {
                    reply_serial: Some(message.serial),
                    destination: message.sender.clone(),
                    ..Message::new(Kind::Return)
                };
                match message.member.as_deref() {
                    Some("Get") => {
                        reply.body = vec![Value::Variant(Box::new(Value::UInt64(delay)))];
                    }
                    Some("KillUnit") => {
                        let text = std::fs::read_to_string(&settings).expect("settings");
                        let line = text.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec="));
                        let seconds: u64 = line.expect("a line").parse().expect("a number");
                        delay = seconds * 1_000_000;
                    }
                    Some("Inhibit") => {
                        assert_eq!(message.body[0], Value::Text("shutdown".to_owned()));
                        assert_eq!(message.body[3], Value::Text("delay".to_owned()));
                        let (ours, theirs) = UnixStream::pair().expect("a pair");
                        ours.set_nonblocking(true).expect("set");
                        held.push(ours);
                        reply.body = vec![Value::Descriptor(0)];
                        reply.descriptors = vec![theirs.into()];
                    }
                    other => panic!("{other:?} is not logind's"),
                }
                bus.send(reply).await.expect("answered");
            }
        }
    }
}
