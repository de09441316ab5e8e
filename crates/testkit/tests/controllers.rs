//! The cluster, network and storage controllers on a whole cluster in this process: what a user
//! does through the API, and what must follow from it.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    ResourceQuota, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{Cluster, eventually};

/// Pods can be created in its default namespace: admission waits only a moment for their account.
async fn cluster(nodes: usize) -> Cluster {
    let cluster = Cluster::builder()
        .scheduler()
        .controllers()
        .nodes(nodes)
        .start()
        .await
        .expect("start");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    eventually("the default account", async || {
        accounts.get_opt("default").await.expect("get")
    })
    .await;
    cluster
}

async fn create<K>(api: &Api<K>, value: Value) -> K
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let object: K = serde_json::from_value(value).expect("an object");
    api.create(&PostParams::default(), &object)
        .await
        .expect("create")
}

async fn patch<K>(api: &Api<K>, name: &str, value: Value)
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(value))
        .await
        .expect("patch");
}

fn pod(name: &str, extra: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "registry.test/web",
            "ports": [{"name": "http", "containerPort": 8080}]}]},
    });
    for (key, value) in extra.as_object().expect("fields") {
        pod["spec"][key] = value.clone();
    }
    pod
}

#[tokio::test]
async fn a_cycle_of_owner_references_does_not_block_deletion() {
    let cluster = cluster(0).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let names = ["one", "two", "three"];
    let mut uids = Vec::new();
    for name in names {
        let made = create(&maps, json!({"metadata": {"name": name}})).await;
        uids.push(made.metadata.uid.expect("uid"));
    }
    for (index, name) in names.iter().enumerate() {
        let owner = (index + 2) % 3;
        let references = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": names[owner],
            "uid": uids[owner], "controller": true, "blockOwnerDeletion": true}]);
        patch(
            &maps,
            name,
            json!({"metadata": {"ownerReferences": references}}),
        )
        .await;
    }
    maps.delete("one", &DeleteParams::foreground())
        .await
        .expect("delete");
    eventually("all three are gone", async || {
        let left = maps.list(&ListParams::default()).await.expect("list");
        let left = left
            .items
            .into_iter()
            .filter(|map| names.contains(&map.metadata.name.as_deref().unwrap_or_default()));
        (left.count() == 0).then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn owner_references_to_another_namespace_are_ignored() {
    let cluster = cluster(0).await;
    let elsewhere: Api<ConfigMap> = Api::namespaced(cluster.client(), "kube-public");
    let here: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let owner = create(&elsewhere, json!({"metadata": {"name": "owner"}})).await;
    create(
        &here,
        json!({"metadata": {"name": "child", "ownerReferences": [{"apiVersion": "v1",
            "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}]}}),
    )
    .await;
    eventually("the child is collected", async || {
        here.get_opt("child")
            .await
            .expect("get")
            .is_none()
            .then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn a_terminating_namespace_deletes_its_pods_first() {
    let cluster = cluster(1).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    create(&namespaces, json!({"metadata": {"name": "going"}})).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "going");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "going");
    create(&maps, json!({"metadata": {"name": "kept"}})).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "going");
    eventually("the default account", async || {
        accounts.get_opt("default").await.expect("get")
    })
    .await;
    let mut held = pod("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&pods, held).await;
    namespaces
        .delete("going", &DeleteParams::default())
        .await
        .expect("delete");
    eventually("conditions", async || {
        let namespace = namespaces.get("going").await.expect("get");
        let conditions = namespace.status?.conditions?;
        (conditions.len() == 5).then_some(())
    })
    .await;
    let waiting = pods.get("held").await.expect("get");
    assert!(waiting.metadata.deletion_timestamp.is_some());
    assert!(maps.get_opt("kept").await.expect("get").is_some());
    patch(&pods, "held", json!({"metadata": {"finalizers": null}})).await;
    eventually("the namespace is gone", async || {
        let left = namespaces.get_opt("going").await.expect("get");
        left.is_none().then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn services_get_endpoints_endpoint_slices_and_ip_addresses() {
    let cluster = cluster(1).await;
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let endpoints: Api<Endpoints> = Api::default_namespaced(cluster.client());
    let slices: Api<EndpointSlice> = Api::default_namespaced(cluster.client());
    let addresses: Api<IPAddress> = Api::all(cluster.client());
    let service = create(
        &services,
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": "http"}]}}),
    )
    .await;
    let address = service.spec.expect("spec").cluster_ip.expect("address");
    let record = addresses.get(&address).await.expect("record");
    assert_eq!(record.spec.parent_ref.name, "web");
    create(&pods, pod("web", json!({}))).await;
    eventually("Endpoints", async || {
        let found = endpoints.get_opt("web").await.expect("get")?;
        let subset = found.subsets?.into_iter().next()?;
        assert_eq!(subset.ports.expect("ports")[0].port, 8080);
        subset.addresses.filter(|list| list.len() == 1)
    })
    .await;
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    eventually("a slice", async || {
        let found = slices.list(&of_web).await.expect("list").items;
        assert!(found.len() <= 1, "{found:?}");
        let ready = found
            .first()?
            .endpoints
            .as_ref()?
            .first()?
            .conditions
            .as_ref()?
            .ready?;
        ready.then_some(())
    })
    .await;
    services
        .delete("web", &DeleteParams::default())
        .await
        .expect("delete");
    assert!(addresses.get_opt(&address).await.expect("get").is_none());
    eventually("nothing is left", async || {
        let slices = slices.list(&of_web).await.expect("list").items;
        let endpoints = endpoints.get_opt("web").await.expect("get");
        (slices.is_empty() && endpoints.is_none()).then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn manual_endpoints_are_mirrored_to_endpoint_slices() {
    let cluster = cluster(0).await;
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let endpoints: Api<Endpoints> = Api::default_namespaced(cluster.client());
    let slices: Api<EndpointSlice> = Api::default_namespaced(cluster.client());
    create(
        &services,
        json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}}),
    )
    .await;
    let by_hand = json!({"metadata": {"name": "db"}, "subsets": [{
        "addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 5432}]}]});
    create(&endpoints, by_hand).await;
    let of_db = ListParams::default().labels("kubernetes.io/service-name=db");
    eventually("a mirror", async || {
        let found = slices.list(&of_db).await.expect("list").items;
        let first = found.first()?.endpoints.as_ref()?.first()?.clone();
        (first.addresses == ["192.0.2.1"]).then_some(())
    })
    .await;
    endpoints
        .delete("db", &DeleteParams::default())
        .await
        .expect("delete");
    eventually("no mirror", async || {
        let left = slices.list(&of_db).await.expect("list").items;
        left.is_empty().then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn services_can_use_the_addresses_of_an_additional_service_cidr() {
    let cluster = cluster(0).await;
    let ranges: Api<ServiceCIDR> = Api::all(cluster.client());
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let is_ready = async |name: &str| {
        let range = ranges.get_opt(name).await.expect("get")?;
        let ready = range.status?.conditions?.into_iter().next()?;
        (ready.status == "True").then_some(())
    };
    eventually("the default range", async || is_ready("kubernetes").await).await;
    create(
        &ranges,
        json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/24"]}}),
    )
    .await;
    eventually("the new range", async || is_ready("more").await).await;
    create(
        &services,
        json!({"metadata": {"name": "far"}, "spec": {"clusterIP": "10.200.0.7",
            "ports": [{"port": 80}]}}),
    )
    .await;
    ranges
        .delete("more", &DeleteParams::default())
        .await
        .expect("delete");
    eventually("it is held", async || {
        let range = ranges.get("more").await.expect("get");
        let ready = range.status?.conditions?.into_iter().next()?;
        (ready.reason == "Terminating").then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn the_usage_of_a_quota_decreases_when_objects_are_deleted() {
    let cluster = cluster(0).await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.client());
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    // What comes by itself in every namespace is there before anything is counted.
    let published = async || maps.get_opt("kube-root-ca.crt").await.expect("get");
    eventually("the cluster's certificate", published).await;
    create(&maps, json!({"metadata": {"name": "counted"}})).await;
    create(
        &quotas,
        json!({"metadata": {"name": "few"}, "spec": {"hard": {"configmaps": "10", "pods": "2"}}}),
    )
    .await;
    let used = async |name: &str| {
        let quota = quotas.get("few").await.expect("get");
        let used = quota.status?.used?;
        used.get(name).map(|used| used.0.clone())
    };
    let all = maps.list(&ListParams::default()).await.expect("list");
    let all = all.items.len();
    let counted = async |count: usize| {
        let now = used("configmaps").await?;
        (now == count.to_string()).then_some(())
    };
    eventually("a count of all", async || counted(all).await).await;
    assert_eq!(used("pods").await.as_deref(), Some("0"));
    maps.delete("counted", &DeleteParams::default())
        .await
        .expect("delete");
    eventually("one less", async || counted(all - 1).await).await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn cluster_roles_are_aggregated() {
    let cluster = cluster(0).await;
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    create(
        &roles,
        json!({"metadata": {"name": "whole"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "whole"}}]}}),
    )
    .await;
    create(
        &roles,
        json!({"metadata": {"name": "part", "labels": {"to": "whole"}},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    )
    .await;
    eventually("the part's rule", async || {
        let rules = roles.get("whole").await.expect("get").rules?;
        (rules.len() == 1).then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn a_claim_is_bound_protected_and_released() {
    let cluster = cluster(1).await;
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    create(
        &volumes,
        json!({"metadata": {"name": "disk"}, "spec": {"capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/srv/disk"},
            "persistentVolumeReclaimPolicy": "Retain"}}),
    )
    .await;
    let phase = async |name: &str| {
        let volume = volumes.get(name).await.expect("get");
        volume.status?.phase
    };
    eventually("an available volume", async || {
        (phase("disk").await? == "Available").then_some(())
    })
    .await;
    create(
        &claims,
        json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}}),
    )
    .await;
    eventually("a bound claim", async || {
        let claim = claims.get("data").await.expect("get");
        assert!(claim.metadata.finalizers.is_some());
        let status = claim.status?;
        (status.phase? == "Bound" && status.capacity?["storage"].0 == "2Gi").then_some(())
    })
    .await;
    assert_eq!(phase("disk").await.as_deref(), Some("Bound"));
    let uses = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    create(&pods, pod("user", uses)).await;
    eventually("a running pod", async || {
        let pod = pods.get("user").await.expect("get");
        (pod.status?.phase? == "Running").then_some(())
    })
    .await;
    claims
        .delete("data", &DeleteParams::default())
        .await
        .expect("delete");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        claims.get_opt("data").await.expect("get").is_some(),
        "in use"
    );
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    pods.delete("user", &now).await.expect("delete");
    eventually("a released volume", async || {
        let gone = claims.get_opt("data").await.expect("get").is_none();
        (gone && phase("disk").await? == "Released").then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn the_default_storage_class_provisions_a_volume_on_the_pods_node() {
    let cluster = cluster(1).await;
    let classes: Api<StorageClass> = Api::all(cluster.client());
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let nodes: Api<Node> = Api::all(cluster.client());
    let class = eventually("the default class", async || {
        classes.get_opt("local-path").await.expect("get")
    })
    .await;
    assert_eq!(class.provisioner, "coracle.dev/local-path");
    eventually("a node", async || {
        nodes.get_opt("node-0").await.expect("get")
    })
    .await;
    patch(
        &nodes,
        "node-0",
        json!({"metadata": {"labels": {"kubernetes.io/hostname": "node-0"},
            "annotations": {"coracle.dev/local-path-directory": "/data/local-path"}}}),
    )
    .await;
    create(
        &claims,
        json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "local-path", "resources": {"requests": {"storage": "1Gi"}}}}),
    )
    .await;
    // What the scheduler does when it has found a node for a pod that uses the claim.
    patch(
        &claims,
        "data",
        json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-0"}}}),
    )
    .await;
    let name = eventually("a bound claim", async || {
        let claim = claims.get("data").await.expect("get");
        (claim.status?.phase? == "Bound").then_some(claim.spec?.volume_name?)
    })
    .await;
    let volume = volumes.get(&name).await.expect("get");
    let spec = volume.spec.expect("spec");
    let path = spec.host_path.expect("path").path;
    assert_eq!(path, format!("/data/local-path/{name}"));
    claims
        .delete("data", &DeleteParams::default())
        .await
        .expect("delete");
    // The node has no directory to remove here: it holds the volume until it does.
    eventually("a volume on its way out", async || {
        volumes
            .get(&name)
            .await
            .expect("get")
            .metadata
            .deletion_timestamp
    })
    .await;
    nodes
        .delete("node-0", &DeleteParams::default())
        .await
        .expect("delete");
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn pods_that_do_not_tolerate_a_no_execute_taint_are_evicted() {
    let cluster = cluster(1).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let nodes: Api<Node> = Api::all(cluster.client());
    create(&pods, pod("shy", json!({}))).await;
    let tolerations = json!({"tolerations": [{"key": "trouble", "operator": "Exists"}]});
    create(&pods, pod("brave", tolerations)).await;
    let running = async |name: &str| {
        let pod = pods.get(name).await.expect("get");
        (pod.status?.phase? == "Running").then_some(())
    };
    eventually("both run", async || {
        running("shy").await?;
        running("brave").await
    })
    .await;
    patch(
        &nodes,
        "node-0",
        json!({"spec": {"taints": [{"key": "trouble", "effect": "NoExecute"}]}}),
    )
    .await;
    eventually("the shy one leaves", async || {
        let pod = pods.get_opt("shy").await.expect("get");
        pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
            .then_some(())
    })
    .await;
    assert!(
        pods.get("brave")
            .await
            .expect("get")
            .metadata
            .deletion_timestamp
            .is_none()
    );
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn pod_cidrs_overlap_neither_those_of_other_nodes_nor_the_service_range() {
    // The Services' range is the first half of it.
    let cluster = Cluster::builder()
        .controllers()
        .pod_range("10.96.0.0/11")
        .start()
        .await
        .expect("start");
    let nodes: Api<Node> = Api::all(cluster.client());
    let brought = json!({"metadata": {"name": "brings"}, "spec": {"podCIDR": "10.112.0.0/24",
        "podCIDRs": ["10.112.0.0/24"]}});
    create(&nodes, brought).await;
    for name in ["first", "second"] {
        create(&nodes, json!({"metadata": {"name": name}})).await;
    }
    let mut ranges = Vec::new();
    for name in ["brings", "first", "second"] {
        let range = eventually("the node has a range", async || {
            nodes.get(name).await.expect("get").spec?.pod_cidr
        })
        .await;
        ranges.push(range);
    }
    ranges.sort();
    assert_eq!(ranges, ["10.112.0.0/24", "10.112.1.0/24", "10.112.2.0/24"]);
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn nodes_get_no_ttl_annotation() {
    let cluster = Cluster::builder()
        .controllers()
        .pod_range("10.244.0.0/16")
        .start()
        .await
        .expect("start");
    let nodes: Api<Node> = Api::all(cluster.client());
    create(&nodes, json!({"metadata": {"name": "a"}})).await;
    // The controllers have handled the node when it has its range.
    let node = eventually("the node has a range", async || {
        let node = nodes.get("a").await.expect("get");
        node.spec.clone()?.pod_cidr.map(|_| node)
    })
    .await;
    let annotations = node.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get("node.alpha.kubernetes.io/ttl"), None);
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn validating_policies_are_type_checked() {
    let cluster = cluster(0).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
    }});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    create(&definitions, definition).await;
    eventually("the definition to be established", async || {
        let definition = definitions.get("widgets.example.com").await.expect("get");
        let conditions = definition.status.and_then(|status| status.conditions);
        let mut conditions = conditions.unwrap_or_default().into_iter();
        conditions.find(|condition| condition.type_ == "Established" && condition.status == "True")
    })
    .await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client());
    let rule = |group: &str, resource: &str| {
        json!({
            "operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"],
            "resources": [resource],
        })
    };
    let policy = json!({
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [rule("apps", "deployments"), rule("example.com", "widgets")],
            },
            "variables": [{"name": "name", "expression": "object.metadata.name"}],
            "validations": [
                {"expression": "variables.name.startsWith('a')"},
                {"expression": "object.spec.replicas > 1"},
                {"expression": "object.spec.size > 1", "messageExpression": "string(object.spec.other)"},
            ],
        },
    });
    create(&policies, policy).await;
    let status = eventually("the type check", async || {
        let policy = policies.get("p").await.expect("get");
        let generation = policy.metadata.generation;
        policy
            .status
            .filter(|status| status.observed_generation == generation)
    })
    .await;
    let warnings = status
        .type_checking
        .and_then(|found| found.expression_warnings);
    let warnings: Vec<(String, Vec<String>)> = warnings
        .unwrap_or_default()
        .into_iter()
        .map(|found| {
            let kinds = found.warning.lines().filter(|line| line.contains("Kind="));
            let kinds = kinds.map(|line| line.split(": ERROR").next().unwrap_or_default());
            (found.field_ref, kinds.map(str::to_string).collect())
        })
        .collect();
    let expected = [
        ("expression", 1, vec!["example.com/v1, Kind=Widget"]),
        ("expression", 2, vec!["apps/v1, Kind=Deployment"]),
        (
            "messageExpression",
            2,
            vec!["apps/v1, Kind=Deployment", "example.com/v1, Kind=Widget"],
        ),
    ]
    .map(|(field, index, kinds)| {
        let kinds: Vec<String> = kinds.into_iter().map(str::to_string).collect();
        (format!("spec.validations[{index}].{field}"), kinds)
    });
    assert_eq!(warnings, expected);
}
