//! `application/vnd.kubernetes.protobuf`, as client-go speaks it, through the whole server.

use std::sync::Arc;

use api::Value;
use api::protobuf;
use environment::Environment;
use http_body_util::BodyExt;
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};

use crate::harness::{Answer, Authority, Client, Cluster, config_map, pod};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// What client-go accepts with its default content type.
const CLIENT_GO: &str = "application/vnd.kubernetes.protobuf,application/json";

fn accepting(client: Client, accept: &str) -> Client {
    client.with_header("accept", accept)
}

#[track_caller]
fn decoded(answer: &Answer, code: u16) -> Value {
    let text = String::from_utf8_lossy(&answer.bytes);
    assert_eq!(answer.code, code, "{text}");
    assert_eq!(answer.headers["content-type"], PROTOBUF);
    protobuf::decode(&answer.bytes).unwrap()
}

/// Times that nobody set are absent in our JSON and null after protobuf.
fn without_nulls(mut value: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.retain(|_, value| !value.is_null());
                object.iter_mut().for_each(|(_, value)| strip(value));
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    value
}

/// One object of every kind that is stored.
fn objects() -> Vec<(String, Value)> {
    let meta = || api::document!({"name": "one", "labels": {"a": "b"}});
    let template = || {
        api::document!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "main", "image": "busybox",
                "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}]},
        })
    };
    let once = || {
        let mut template = template();
        template.set(&["spec", "restartPolicy"], "Never");
        template
    };
    let rules = || api::document!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let named = |kind: &str| api::document!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "one"});
    let selector = || api::document!({"matchLabels": {"a": "b"}});
    let mut objects = vec![
        ("/api/v1/namespaces", "Namespace", "v1", api::document!({})),
        (
            "/api/v1/nodes",
            "Node",
            "v1",
            api::document!({"spec": {"podCIDR": "10.244.0.0/24"}}),
        ),
        (
            MAPS,
            "ConfigMap",
            "v1",
            api::document!({"data": {"k": "v"}, "binaryData": {"b": "AAEC"}}),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            "Secret",
            "v1",
            api::document!({"data": {"k": "dg=="}}),
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts",
            "ServiceAccount",
            "v1",
            api::document!({}),
        ),
        (
            "/api/v1/namespaces/default/services",
            "Service",
            "v1",
            api::document!({"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}]}}),
        ),
        (
            "/api/v1/namespaces/default/endpoints",
            "Endpoints",
            "v1",
            api::document!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
        ),
        (
            "/api/v1/namespaces/default/events",
            "Event",
            "v1",
            api::document!({"involvedObject": {"namespace": "default", "name": "x"}, "type": "Normal",
                "lastTimestamp": "2026-01-02T03:04:05Z", "eventTime": null}),
        ),
        ("/api/v1/namespaces/default/pods", "Pod", "v1", template()),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            "Deployment",
            "apps/v1",
            api::document!({"spec": {"selector": selector(), "template": template()}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/replicasets",
            "ReplicaSet",
            "apps/v1",
            api::document!({"spec": {"selector": selector(), "template": template()}}),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            "EndpointSlice",
            "discovery.k8s.io/v1",
            api::document!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
                "ports": [{"name": "http", "port": 80}]}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            "Lease",
            "coordination.k8s.io/v1",
            api::document!({"spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000006Z"}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            "Role",
            "rbac.authorization.k8s.io/v1",
            api::document!({"rules": rules()}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "ClusterRole",
            "rbac.authorization.k8s.io/v1",
            api::document!({"rules": rules()}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            "RoleBinding",
            "rbac.authorization.k8s.io/v1",
            api::document!({"roleRef": named("Role"), "subjects": [named("User")]}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "ClusterRoleBinding",
            "rbac.authorization.k8s.io/v1",
            api::document!({"roleRef": named("ClusterRole"), "subjects": [named("Group")]}),
        ),
        (
            "/api/v1/namespaces/default/podtemplates",
            "PodTemplate",
            "v1",
            api::document!({"template": template()}),
        ),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            "ReplicationController",
            "v1",
            api::document!({"spec": {"template": template()}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/controllerrevisions",
            "ControllerRevision",
            "apps/v1",
            api::document!({"data": {"a": 1}, "revision": 2}),
        ),
        (
            "/apis/apps/v1/namespaces/default/daemonsets",
            "DaemonSet",
            "apps/v1",
            api::document!({"spec": {"selector": selector(), "template": template()}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets",
            "StatefulSet",
            "apps/v1",
            api::document!({"spec": {"selector": selector(), "template": template(), "serviceName": "s"}}),
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            "autoscaling/v2",
            api::document!({"spec": {"maxReplicas": 3, "scaleTargetRef": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": "d",
            }}}),
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            "Job",
            "batch/v1",
            api::document!({"spec": {"template": once()}}),
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            "CronJob",
            "batch/v1",
            api::document!({"spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": once()}}}}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            "PodDisruptionBudget",
            "policy/v1",
            api::document!({"spec": {"minAvailable": "10%", "selector": selector()}}),
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            "PriorityClass",
            "scheduling.k8s.io/v1",
            api::document!({"value": 7}),
        ),
    ];
    let mut made: Vec<(String, Value)> = objects
        .drain(..)
        .map(|(path, kind, api_version, mut object)| {
            let mut metadata = meta();
            if let Some(labels) = object.at(&["metadata", "labels"]) {
                metadata.set(&["labels"], labels.clone());
            }
            object.set(&["metadata"], metadata);
            object.set(&["kind"], kind);
            object.set(&["apiVersion"], api_version);
            (path.to_string(), object)
        })
        .collect();
    let is_made = |made: &[(String, Value)], resource: &api::Resource| {
        made.iter().any(|(_, object)| {
            object.str_at(&["kind"]) == resource.kind
                && object.str_at(&["apiVersion"]) == resource.api_version()
        })
    };
    for resource in stored_kinds() {
        if !is_made(&made, resource) {
            made.push(sample(resource));
        }
    }
    made
}

/// The kinds that are stored; other versions of them are in `versions.rs`.
fn stored_kinds() -> impl Iterator<Item = &'static Arc<api::Resource>> {
    let kinds = api::catalogue::on_by_default().resources();
    // Definitions of custom kinds do not go at once when they are deleted: `custom_lifecycle` has them.
    kinds.filter(|resource| {
        resource.has_verb("get")
            && resource.is_stored_as_itself()
            && resource.plural != "customresourcedefinitions"
    })
}

/// The richest of the samples that are also compared with the real kube-apiserver.
fn sample(resource: &api::Resource) -> (String, Value) {
    let file = format!(
        "{}/../../tests/parity/objects/{}.json",
        env!("CARGO_MANIFEST_DIR"),
        resource.plural
    );
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let text = text.replace("{namespace}", "default");
    let samples = Value::from_json(text.as_bytes()).unwrap();
    let objects = samples.list_at(&["objects"]);
    let richest = objects.iter().max_by_key(|object| object.to_json().len());
    let mut object = richest.unwrap_or_else(|| panic!("{file} is empty")).clone();
    // The names of these say what they are about.
    if !matches!(&*resource.plural, "ipaddresses" | "apiservices") {
        object.set(&["metadata", "name"], "one");
    }
    object.set(&["metadata", "labels", "a"], "b");
    let scope = if resource.namespaced {
        "namespaces/default/"
    } else {
        ""
    };
    let prefix = samples.str_at(&["prefix"]);
    (format!("{prefix}/{scope}{}", resource.plural), object)
}

#[tokio::test(start_paused = true)]
async fn every_stored_kind_goes_in_and_out() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let json = cluster.admin();
    let client = accepting(cluster.admin(), CLIENT_GO);
    for (path, object) in objects() {
        let path = path.as_str();
        let kind = object.str_at(&["kind"]).to_string();
        let mut watch = client
            .open("GET", &format!("{path}?watch=true"), "", b"")
            .await;
        assert_eq!(
            watch.headers()["content-type"],
            "application/vnd.kubernetes.protobuf;stream=watch"
        );
        let body = protobuf::encode_object(&object).unwrap();
        let created = decoded(&client.send("POST", path, PROTOBUF, &body).await, 201);
        let name = created.str_at(&["metadata", "name"]).to_string();
        let one = format!("{path}/{name}");
        let read = client.get(&one).await;
        let plain = json.get(&one).await.expect(200);
        assert_eq!(
            without_nulls(decoded(&read, 200)),
            without_nulls(plain.clone()),
            "{kind}"
        );
        assert_eq!(
            without_nulls(created),
            without_nulls(plain.clone()),
            "{kind}"
        );
        assert!(
            protobuf::encode_object(&plain).unwrap() == read.bytes,
            "{kind}"
        );

        let list = json.get(path).await.expect(200);
        let encoded = client.get(path).await;
        assert_eq!(encoded.headers["content-type"], PROTOBUF);
        assert!(
            protobuf::encode_object(&list).unwrap() == encoded.bytes,
            "{kind}List"
        );

        let mut buffer = Vec::new();
        loop {
            let (event, object) = event(watch.body_mut(), &mut buffer).await;
            if object.str_at(&["metadata", "name"]) == name {
                assert_eq!(event, "ADDED");
                assert_eq!(without_nulls(object), without_nulls(plain), "{kind}");
                break;
            }
        }

        let patch = br#"{"metadata":{"labels":{"c":"d"}}}"#;
        let patched = client
            .send("PATCH", &one, "application/merge-patch+json", patch)
            .await;
        let patched = decoded(&patched, 200);
        assert_eq!(patched.str_at(&["metadata", "labels", "c"]), "d");
        let mut update = patched;
        update.set(&["metadata", "labels", "c"], "e");
        let body = protobuf::encode_object(&update).unwrap();
        let updated = decoded(&client.send("PUT", &one, PROTOBUF, &body).await, 200);
        assert_eq!(updated.str_at(&["metadata", "labels", "c"]), "e");
        let deleted = decoded(&client.delete(&one).await, 200);
        assert!(
            ["Status", &kind].contains(&deleted.str_at(&["kind"])),
            "{deleted}"
        );
    }
}

/// The next frame of a watch.
async fn event(body: &mut apiserver::Body, buffer: &mut Vec<u8>) -> (String, Value) {
    loop {
        if let Some(length) = buffer.first_chunk::<4>() {
            let end = 4 + u32::from_be_bytes(*length) as usize;
            if buffer.len() >= end {
                let frame: Vec<u8> = buffer.drain(..end).collect();
                let definition = api::schema::table()
                    .definition("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent")
                    .unwrap();
                let event = protobuf::decode_message(definition, &frame[4..]).unwrap();
                let object = event.get("object").cloned().unwrap();
                return (event.str_at(&["type"]).to_string(), object);
            }
        }
        let frame = body.frame().await.expect("the watch goes on").unwrap();
        buffer.extend_from_slice(frame.data_ref().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn watches_tell_every_kind_of_event() {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let disk = SimulatedDisk::new(1).mount();
    let store = Embedded::open(disk, environment.clone(), Options::default())
        .await
        .unwrap();
    let cluster = Cluster::over(store.clone(), Authority::new(), environment.clone()).await;
    let admin = cluster.admin();
    let client = accepting(cluster.admin(), CLIENT_GO);
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=hidden!%3Dyes"
    );
    let mut response = client.open("GET", &path, "", b"").await;
    let mut buffer = Vec::new();
    let (kind, object) = event(response.body_mut(), &mut buffer).await;
    assert_eq!(
        (kind.as_str(), object.str_at(&["data", "a"])),
        ("ADDED", "1")
    );
    let (kind, object) = event(response.body_mut(), &mut buffer).await;
    assert_eq!(kind, "BOOKMARK");
    assert_eq!(object.str_at(&["kind"]), "ConfigMap");
    assert_eq!(
        object.str_at(&["metadata", "annotations", "k8s.io/initial-events-end"]),
        "true"
    );

    let one = format!("{MAPS}/a");
    let changed = admin
        .merge(&one, &api::document!({"data": {"a": "2"}}))
        .await
        .expect(200);
    let (kind, object) = event(response.body_mut(), &mut buffer).await;
    assert_eq!(kind, "MODIFIED");
    assert_eq!(without_nulls(object), without_nulls(changed));
    // No longer selected: the last state that was, at the revision of the change.
    let hidden = api::document!({"metadata": {"labels": {"hidden": "yes"}}, "data": {"a": "3"}});
    let hidden = admin.merge(&one, &hidden).await.expect(200);
    let (kind, object) = event(response.body_mut(), &mut buffer).await;
    assert_eq!(
        (kind.as_str(), object.str_at(&["data", "a"])),
        ("DELETED", "2")
    );
    let version = ["metadata", "resourceVersion"];
    assert_eq!(object.str_at(&version), hidden.str_at(&version));

    // A server that began later does not know what was before.
    let cluster = Cluster::over(store, Authority::new(), environment).await;
    let client = accepting(cluster.admin(), CLIENT_GO);
    let mut response = client
        .open(
            "GET",
            &format!("{MAPS}?watch=true&resourceVersion=1"),
            "",
            b"",
        )
        .await;
    let (kind, object) = event(response.body_mut(), &mut Vec::new()).await;
    assert_eq!(
        (kind.as_str(), object.str_at(&["reason"])),
        ("ERROR", "Expired")
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_has_a_protobuf_form_and_tables_have_none() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let as_form = |encoding: &str, form: &str| {
        let accept = format!("{encoding};as={form};g=meta.k8s.io;v=v1");
        accepting(cluster.admin(), &accept)
    };
    let one = format!("{MAPS}/a");
    let json = as_form("application/json", "PartialObjectMetadata")
        .get(&one)
        .await
        .expect(200);
    assert_eq!(json.str_at(&["kind"]), "PartialObjectMetadata");
    assert!(json.get("data").is_none());
    let client = as_form(PROTOBUF, "PartialObjectMetadata");
    let encoded = client.get(&one).await;
    assert!(protobuf::encode_object(&json).unwrap() == encoded.bytes);
    let listing = as_form(PROTOBUF, "PartialObjectMetadataList")
        .get(MAPS)
        .await;
    let list = decoded(&listing, 200);
    assert_eq!(list.str_at(&["kind"]), "PartialObjectMetadataList");
    let plain = as_form("application/json", "PartialObjectMetadataList")
        .get(MAPS)
        .await
        .expect(200);
    assert!(protobuf::encode_object(&plain).unwrap() == listing.bytes);
    let mut watch = client
        .open("GET", &format!("{MAPS}?watch=true"), "", b"")
        .await;
    let (kind, object) = event(watch.body_mut(), &mut Vec::new()).await;
    assert_eq!(
        (kind.as_str(), object.str_at(&["kind"])),
        ("ADDED", "PartialObjectMetadata")
    );

    // What cannot be had in the form that was asked for.
    let answer = client.get(MAPS).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(
        answer.failure(406, "NotAcceptable"),
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"
    );
    as_form(PROTOBUF, "PartialObjectMetadataList")
        .get(&one)
        .await
        .failure(406, "NotAcceptable");
    let message = as_form(PROTOBUF, "Table")
        .get(MAPS)
        .await
        .failure(406, "NotAcceptable");
    assert_eq!(
        message,
        "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
    let message = accepting(cluster.admin(), "application/yaml")
        .get(&format!("{MAPS}?watch=true"))
        .await;
    assert_eq!(message.code, 406);
}

#[tokio::test(start_paused = true)]
async fn failures_and_answers_of_subresources_are_protobuf_too() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let client = accepting(cluster.admin(), CLIENT_GO);
    let status = decoded(&client.get(&format!("{MAPS}/none")).await, 404);
    assert_eq!(status.str_at(&["kind"]), "Status");
    assert_eq!(status.str_at(&["message"]), "configmaps \"none\" not found");
    assert_eq!(status.str_at(&["details", "name"]), "none");
    let nobody = accepting(
        cluster.client(apiserver::Identity::component("nobody", &[])),
        CLIENT_GO,
    );
    assert_eq!(
        decoded(&nobody.get(MAPS).await, 403).str_at(&["reason"]),
        "Forbidden"
    );
    let broken = client.send("POST", MAPS, PROTOBUF, b"k8s\0\x12\xff").await;
    assert_eq!(decoded(&broken, 400).str_at(&["reason"]), "BadRequest");

    const PODS: &str = "/api/v1/namespaces/default/pods";
    admin.post(PODS, &pod("a")).await.expect(201);
    let binding = api::document!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "n"},
    });
    let body = protobuf::encode_object(&binding).unwrap();
    let bound = client
        .send("POST", &format!("{PODS}/a/binding"), PROTOBUF, &body)
        .await;
    assert_eq!(decoded(&bound, 201).str_at(&["status"]), "Success");
    // DeleteOptions come in the version of whatever group they delete from.
    let options = api::document!({"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}});
    let definition = api::schema::table()
        .of_kind("", "v1", "DeleteOptions")
        .unwrap();
    let body = protobuf::encode_as(definition, "apps/v1", "DeleteOptions", &options).unwrap();
    let answer = client
        .send("DELETE", &format!("{PODS}/a"), PROTOBUF, &body)
        .await;
    assert_eq!(decoded(&answer, 409).str_at(&["reason"]), "Conflict");

    let review = api::document!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    });
    let body = protobuf::encode_object(&review).unwrap();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = decoded(&client.send("POST", path, PROTOBUF, &body).await, 201);
    assert_eq!(
        answer.at(&["status", "allowed"]).and_then(Value::as_bool),
        Some(true)
    );
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = api::document!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let body = protobuf::encode_object(&request).unwrap();
    let answer = decoded(&client.send("POST", path, PROTOBUF, &body).await, 201);
    assert!(answer.str_at(&["status", "token"]).contains('.'));
}

#[tokio::test(start_paused = true)]
async fn discovery_has_a_protobuf_form() {
    let cluster = Cluster::start().await;
    let client = accepting(cluster.admin(), CLIENT_GO);
    for path in ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"] {
        let plain = cluster.admin().get(path).await.expect(200);
        let mut decoded = without_nulls(decoded(&client.get(path).await, 200));
        if let Some(version) = plain.get("apiVersion") {
            assert_eq!(decoded.get("apiVersion"), Some(version), "{path}");
        } else {
            decoded.remove(&["apiVersion"]);
        }
        assert_eq!(decoded, without_nulls(plain), "{path}");
    }
}
