//! The scheduler as a client of the real API server, in one process under simulated time: its own
//! identity with its own rights, real bindings, events and conditions.

use std::time::Duration;

use apiserver::{ApiServer, Config, Identity};
use client::Informers;
use environment::Environment;
use k8s_openapi::api::{
    core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount},
    storage::v1::StorageClass,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use store::{
    disk::SimulatedDisk,
    embedded::{Embedded, Options},
};
use tokio_util::sync::{CancellationToken, DropGuard};

struct Cluster {
    admin: kube::Client,
    timelines: trace::Timelines,
    _stop: DropGuard,
}

impl Cluster {
    async fn start() -> Cluster {
        let environment = Environment::simulated(1, 1_800_000_000_000_000);
        let disk = SimulatedDisk::new(1).mount();
        let store = Embedded::open(disk, environment.clone(), Options::default());
        let key = || rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
        let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = authority.self_signed(&key()).expect("a certificate");
        let timelines =
            trace::Timelines::open(None, environment.clone()).expect("timelines in memory");
        let server = ApiServer::start(Config {
            store: store.await.expect("a store"),
            environment: environment.clone(),
            timelines: timelines.clone(),
            client_ca_pem: authority.pem(),
            service_account_key_pem: key().serialize_pem(),
            issuer: "https://kubernetes.default.svc.cluster.local".to_owned(),
            service_range: "10.96.0.0/12".to_owned(),
            dns_service_ip: "10.96.0.10".to_owned(),
            advertise: "10.0.0.1:6443".parse().expect("an address"),
            kubelet_client: None,
            aggregation: Default::default(),
            cluster_domain: "cluster.local".to_owned(),
            shares_store: false,
            compaction: apiserver::COMPACTION,
            admission: apiserver::AdmissionConfig::default(),
            runtime_config: Default::default(),
            feature_gates: Default::default(),
        })
        .await
        .expect("an API server");
        let as_user = |identity| client::connect::from_service(server.in_process(identity));
        let scheduler = as_user(Identity::component("system:kube-scheduler", &[]));
        let stop = CancellationToken::new();
        tokio::spawn(scheduler::run(
            scheduler.clone(),
            Informers::new(scheduler, environment.clone()),
            environment,
            trace::Recorder::new(std::sync::Arc::new(timelines.clone())),
            stop.clone(),
        ));
        let cluster = Cluster {
            admin: as_user(Identity::administrator()),
            timelines,
            _stop: stop.drop_guard(),
        };
        // Nobody else makes it here, and pods are not admitted without.
        let account = object(json!({"metadata": {"name": "default"}}));
        cluster.create::<ServiceAccount>(account).await;
        cluster
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), "default")
    }

    async fn create<K>(&self, object: K)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        let created = self.api().create(&PostParams::default(), &object).await;
        created.expect("created");
    }

    async fn create_pod(&self, name: &str, cpu: &str) {
        let container =
            json!({"name": "c", "image": "web:1", "resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
        self.create::<Pod>(object(pod)).await;
    }

    async fn create_node(&self, name: &str, cpu: &str) {
        let api: Api<Node> = Api::all(self.admin.clone());
        let node = object(json!({"metadata": {"name": name}}));
        let created = api.create(&PostParams::default(), &node).await;
        created.expect("a node");
        let room = json!({"cpu": cpu, "memory": "1Gi", "pods": "10"});
        let status = json!({"status": {"capacity": room, "allocatable": room}});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(status));
        let patched = api.patch_status(name, &parameters, &patch).await;
        patched.expect("a node's status");
        // A new node is tainted as not ready; nobody else takes that away here.
        let ready = Patch::Merge(json!({"spec": {"taints": null}}));
        let patched = api.patch(name, &parameters, &ready).await;
        patched.expect("a node's spec");
    }

    /// A class whose claims wait for their first consumer, and a claim of it.
    async fn create_claim(&self, class: &str, provisioner: &str, claim: &str) {
        let api: Api<StorageClass> = Api::all(self.admin.clone());
        let class_object = object(json!({
            "metadata": {"name": class},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }));
        let created = api.create(&PostParams::default(), &class_object).await;
        created.expect("a class");
        let spec = json!({
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}},
        });
        let claim = json!({"metadata": {"name": claim}, "spec": spec});
        self.create::<PersistentVolumeClaim>(object(claim)).await;
    }

    async fn create_volume(&self, name: &str, class: &str) {
        let api: Api<PersistentVolume> = Api::all(self.admin.clone());
        let volume = object(json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/data"},
        }}));
        let created = api.create(&PostParams::default(), &volume).await;
        created.expect("a volume");
        let available = Patch::Merge(json!({"status": {"phase": "Available"}}));
        let parameters = PatchParams::default();
        let patched = api.patch_status(name, &parameters, &available).await;
        patched.expect("a volume's status");
    }

    /// What the binder of volumes does in a whole cluster.
    async fn complete_binding(&self, claim: &str, volume: &str) {
        let patch = Patch::Merge(json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume},
        }));
        let api = self.api::<PersistentVolumeClaim>();
        let patched = api.patch(claim, &PatchParams::default(), &patch).await;
        patched.expect("a claim");
    }

    async fn create_pod_with_claim(&self, name: &str, claim: &str) {
        let spec = json!({
            "containers": [{"name": "c", "image": "web:1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        });
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        self.create::<Pod>(object(pod)).await;
    }

    async fn pod(&self, name: &str) -> Pod {
        self.api().get(name).await.expect("a pod")
    }

    async fn node_of(&self, name: &str) -> Option<String> {
        self.pod(name).await.spec.and_then(|spec| spec.node_name)
    }

    /// Status, reason and message.
    async fn scheduled(&self, name: &str) -> Option<(String, String, String)> {
        let conditions = self.pod(name).await.status?.conditions?;
        let condition = conditions.into_iter().find(|c| c.type_ == "PodScheduled")?;
        Some((
            condition.status,
            condition.reason.unwrap_or_default(),
            condition.message.unwrap_or_default(),
        ))
    }

    async fn events(&self, name: &str) -> Vec<String> {
        let events = self.api::<Event>().list(&ListParams::default()).await;
        let mut about: Vec<Event> = events.expect("events").items;
        about.retain(|event| event.involved_object.name.as_deref() == Some(name));
        about
            .into_iter()
            .map(|event| {
                let text = |field: Option<String>| field.unwrap_or_default();
                format!("{}: {}", text(event.reason), text(event.message))
            })
            .collect()
    }
}

fn object<K: DeserializeOwned>(value: serde_json::Value) -> K {
    serde_json::from_value(value).expect("an object")
}

async fn after(duration: Duration) {
    tokio::time::sleep(duration).await;
}

const SOON: Duration = Duration::from_millis(500);

#[tokio::test(start_paused = true)]
async fn a_pod_passes_hops_six_to_eight() {
    let cluster = Cluster::start().await;
    cluster.create_node("n1", "2").await;
    cluster.create_pod("web", "1").await;
    after(SOON).await;
    assert_eq!(cluster.node_of("web").await.as_deref(), Some("n1"));
    let (status, _, _) = cluster.scheduled("web").await.expect("a condition");
    assert_eq!(status, "True");
    assert_eq!(
        cluster.events("web").await,
        ["Scheduled: Successfully assigned default/web to n1"]
    );
    let timeline = cluster.timelines.find("default", "web").expect("traced");
    let hops: Vec<u8> = timeline.spans.iter().map(|span| span.hop as u8).collect();
    for hop in [2, 3, 4, 5, 6, 7, 8] {
        assert!(hops.contains(&hop), "hop {hop} is missing in {hops:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_room_and_says_so() {
    let cluster = Cluster::start().await;
    cluster.create_node("n1", "1").await;
    cluster.create_pod("first", "1").await;
    after(SOON).await;
    cluster.create_pod("second", "1").await;
    after(SOON).await;
    let why = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    let expected = (
        "False".to_owned(),
        "Unschedulable".to_owned(),
        why.to_owned(),
    );
    assert_eq!(cluster.scheduled("second").await, Some(expected));
    assert_eq!(
        cluster.events("second").await,
        [format!("FailedScheduling: {why}")]
    );
    after(Duration::from_secs(2)).await;
    let now = DeleteParams::default().grace_period(0);
    let deleted = cluster.api::<Pod>().delete("first", &now).await;
    deleted.expect("deleted");
    after(SOON).await;
    assert_eq!(cluster.node_of("second").await.as_deref(), Some("n1"));
    let (status, _, _) = cluster.scheduled("second").await.expect("a condition");
    assert_eq!(status, "True");
}

#[tokio::test(start_paused = true)]
async fn an_important_pod_takes_the_place_of_a_lesser_one() {
    let cluster = Cluster::start().await;
    cluster.create_node("n1", "1").await;
    cluster.create_pod("lesser", "1").await;
    after(SOON).await;
    let container = json!({"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "1"}}});
    let important = json!({
        "metadata": {"name": "important"},
        "spec": {"priorityClassName": "system-node-critical", "containers": [container]},
    });
    cluster.create::<Pod>(object(important)).await;
    after(SOON).await;
    // Room is nominated, and the lesser pod is on its way out.
    let pod = cluster.api::<Pod>().get("important").await.expect("a pod");
    let status = pod.status.expect("a status");
    assert_eq!(status.nominated_node_name.as_deref(), Some("n1"));
    let lesser = cluster.api::<Pod>().get("lesser").await.expect("a pod");
    assert!(lesser.metadata.deletion_timestamp.is_some());
    let conditions = lesser.status.and_then(|s| s.conditions).unwrap_or_default();
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget");
    assert_eq!(
        target.and_then(|c| c.reason.as_deref()),
        Some("PreemptionByScheduler")
    );
    // Somebody else does not get the room in between.
    cluster.create_pod("late", "1").await;
    let now = DeleteParams::default().grace_period(0);
    let deleted = cluster.api::<Pod>().delete("lesser", &now).await;
    deleted.expect("deleted");
    after(Duration::from_secs(3)).await;
    assert_eq!(cluster.node_of("important").await.as_deref(), Some("n1"));
    assert_eq!(cluster.node_of("late").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_for_the_chosen_node_before_the_pod_is_bound() {
    let cluster = Cluster::start().await;
    cluster.create_node("n1", "2").await;
    cluster.create_pod_with_claim("web", "data").await;
    after(SOON).await;
    let why = "0/1 nodes are available: persistentvolumeclaim \"data\" not found. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let (_, _, message) = cluster.scheduled("web").await.expect("a condition");
    assert_eq!(message, why);
    after(Duration::from_secs(2)).await;
    cluster.create_claim("fast", "example.com/p", "data").await;
    after(Duration::from_secs(4)).await;
    let claims = cluster.api::<PersistentVolumeClaim>();
    let claim = claims.get("data").await.expect("a claim");
    let annotations = claim.metadata.annotations.unwrap_or_default();
    let selected = annotations.get("volume.kubernetes.io/selected-node");
    assert_eq!(selected.map(String::as_str), Some("n1"));
    after(Duration::from_secs(60)).await;
    assert_eq!(cluster.node_of("web").await, None);
    cluster.create_volume("v1", "fast").await;
    cluster.complete_binding("data", "v1").await;
    after(SOON).await;
    assert_eq!(cluster.node_of("web").await.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_exists_is_given_to_the_claim() {
    let cluster = Cluster::start().await;
    cluster.create_node("n1", "2").await;
    let by_hand = "kubernetes.io/no-provisioner";
    cluster.create_claim("manual", by_hand, "data").await;
    cluster.create_pod_with_claim("web", "data").await;
    after(SOON).await;
    let (_, _, message) = cluster.scheduled("web").await.expect("a condition");
    let why =
        "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.";
    assert!(message.starts_with(why), "{message}");
    after(Duration::from_secs(2)).await;
    cluster.create_volume("v1", "manual").await;
    after(Duration::from_secs(4)).await;
    let volumes: Api<PersistentVolume> = Api::all(cluster.admin.clone());
    let volume = volumes.get("v1").await.expect("a volume");
    let reference = volume.spec.and_then(|spec| spec.claim_ref);
    let name = reference.and_then(|reference| reference.name);
    assert_eq!(name.as_deref(), Some("data"));
    assert_eq!(cluster.node_of("web").await, None);
    cluster.complete_binding("data", "v1").await;
    after(SOON).await;
    assert_eq!(cluster.node_of("web").await.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_never_made_is_given_up_after_ten_minutes() {
    let cluster = Cluster::start().await;
    cluster.create_node("n1", "2").await;
    cluster.create_claim("fast", "example.com/p", "data").await;
    cluster.create_pod_with_claim("web", "data").await;
    after(Duration::from_secs(599)).await;
    assert!(cluster.events("web").await.is_empty());
    after(Duration::from_secs(2)).await;
    let why = "FailedScheduling: running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    assert_eq!(cluster.events("web").await, [why]);
    assert_eq!(cluster.node_of("web").await, None);
    // Deleted while it waits again: nothing stays behind.
    after(Duration::from_secs(10)).await;
    let now = DeleteParams::default().grace_period(0);
    let deleted = cluster.api::<Pod>().delete("web", &now).await;
    deleted.expect("deleted");
    after(SOON).await;
    cluster.create_pod("other", "2").await;
    after(SOON).await;
    assert_eq!(cluster.node_of("other").await.as_deref(), Some("n1"));
}
