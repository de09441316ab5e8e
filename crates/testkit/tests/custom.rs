//! Custom kinds among the controllers of a whole cluster: they are collected, counted, scaled and
//! deleted like built-in kinds, and what crashes and deletions interrupt is ended afterwards.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::DynamicObject;
use kube::core::discovery::ApiResource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{Cluster, Crash, eventually};

const NAME: &str = "widgets.example.com";

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

fn definition() -> Value {
    json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget",
                "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "color": {"type": "string"}, "replicas": {"type": "integer"},
                    }},
                    "status": {"type": "object", "properties": {
                        "replicas": {"type": "integer"}, "selector": {"type": "string"},
                    }},
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    })
}

fn definitions(cluster: &Cluster) -> Api<CustomResourceDefinition> {
    Api::all(cluster.client())
}

fn widgets(cluster: &Cluster, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    Api::namespaced_with(cluster.client(), namespace, &kind)
}

fn widget(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec,
    })
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one.type_ == "Established" && one.status == "True")
}

async fn until_established(cluster: &Cluster) {
    let definitions = definitions(cluster);
    eventually("the kind is established", async || {
        let found = definitions.get_opt(NAME).await.expect("get")?;
        is_established(&found).then_some(())
    })
    .await;
}

async fn until_gone(cluster: &Cluster) {
    let definitions = definitions(cluster);
    eventually("the definition is gone", async || {
        let left = definitions.get_opt(NAME).await.expect("get");
        left.is_none().then_some(())
    })
    .await;
}

async fn establish(cluster: &Cluster) {
    create(&definitions(cluster), definition()).await;
    until_established(cluster).await;
}

fn owner(api_version: &str, kind: &str, name: &str, uid: Option<&str>) -> Value {
    json!([{
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true,
    }])
}

fn owned_by_widget(name: &str, widget: &DynamicObject) -> Value {
    let uid = widget.metadata.uid.as_deref();
    let owner_name = widget.metadata.name.as_deref().unwrap_or_default();
    json!({"metadata": {
        "name": name, "labels": {"of": "widget"},
        "ownerReferences": owner("example.com/v1", "Widget", owner_name, uid),
    }})
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

#[tokio::test]
async fn custom_objects_are_collected_with_their_owners() {
    let cluster = cluster(0).await;
    establish(&cluster).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let widgets = widgets(&cluster, "default");
    let parent = create(&maps, json!({"metadata": {"name": "parent"}})).await;
    let mut child = widget("child", json!({}));
    let uid = parent.metadata.uid.as_deref();
    child["metadata"]["ownerReferences"] = owner("v1", "ConfigMap", "parent", uid);
    let child = create(&widgets, child).await;
    create(&maps, owned_by_widget("grandchild", &child)).await;
    create(&widgets, widget("free", json!({}))).await;
    maps.delete("parent", &DeleteParams::background())
        .await
        .expect("delete");
    eventually("the child is collected", async || {
        let left = widgets.get_opt("child").await.expect("get");
        left.is_none().then_some(())
    })
    .await;
    eventually("the child's own is collected", async || {
        let left = maps.get_opt("grandchild").await.expect("get");
        left.is_none().then_some(())
    })
    .await;
    widgets.get("free").await.expect("nobody owned it");
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn a_terminating_namespace_deletes_its_custom_objects() {
    let cluster = cluster(0).await;
    establish(&cluster).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    create(&namespaces, json!({"metadata": {"name": "going"}})).await;
    let widgets = widgets(&cluster, "going");
    let mut held = widget("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&widgets, held).await;
    create(&widgets, widget("free", json!({}))).await;
    namespaces
        .delete("going", &DeleteParams::default())
        .await
        .expect("delete");
    eventually("the namespace says what it waits for", async || {
        let namespace = namespaces.get("going").await.expect("get");
        let conditions = namespace.status?.conditions?;
        let message = |kind: &str| {
            let found = conditions.iter().find(|one| one.type_ == kind);
            found.and_then(|one| one.message.clone())
        };
        let remaining = message("NamespaceContentRemaining")?;
        let finalizers = message("NamespaceFinalizersRemaining")?;
        (remaining.contains("widgets.example.com has 1 resource instances")
            && finalizers.contains("example.com/hold in 1 resource instances"))
        .then_some(())
    })
    .await;
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    widgets
        .patch("held", &PatchParams::default(), &release)
        .await
        .expect("patch");
    eventually("the namespace is gone", async || {
        let left = namespaces.get_opt("going").await.expect("get");
        left.is_none().then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn a_quota_counts_custom_objects() {
    let cluster = cluster(0).await;
    establish(&cluster).await;
    let count = "count/widgets.example.com";
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.client());
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {count: "2"}}});
    create(&quotas, quota).await;
    let until_used = async |wanted: &str| {
        eventually("the quota is counted", async || {
            let used = quotas.get("few").await.expect("get").status?.used?;
            (used.get(count)?.0 == wanted).then_some(())
        })
        .await;
    };
    until_used("0").await;
    let widgets = widgets(&cluster, "default");
    create(&widgets, widget("a", json!({}))).await;
    create(&widgets, widget("b", json!({}))).await;
    let third: DynamicObject = serde_json::from_value(widget("c", json!({}))).expect("a widget");
    let refused = widgets.create(&PostParams::default(), &third).await;
    let refused = refused.expect_err("there are two already");
    assert_eq!(code(&refused), 403);
    let words = "exceeded quota: few, requested: count/widgets.example.com=1, \
        used: count/widgets.example.com=2, limited: count/widgets.example.com=2";
    assert!(refused.to_string().contains(words), "{refused}");
    widgets
        .delete("a", &DeleteParams::default())
        .await
        .expect("delete");
    until_used("1").await;
    create(&widgets, widget("c", json!({}))).await;
    until_used("2").await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn an_autoscaler_scales_a_custom_kind() {
    let cluster = cluster(0).await;
    establish(&cluster).await;
    let widgets = widgets(&cluster, "default");
    create(&widgets, widget("web", json!({"replicas": 1}))).await;
    let scalers: Api<HorizontalPodAutoscaler> = Api::default_namespaced(cluster.client());
    let target = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "web"});
    let scaler = json!({
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 5, "metrics": []},
    });
    create(&scalers, scaler).await;
    eventually("the widget has as many replicas as it must", async || {
        let web = widgets.get("web").await.expect("get");
        (web.data["spec"]["replicas"] == 3).then_some(())
    })
    .await;
    eventually("the autoscaler says so", async || {
        let status = scalers.get("web").await.expect("get").status?;
        let conditions = status.conditions?;
        let mut able = conditions.iter().filter(|one| one.type_ == "AbleToScale");
        able.next().filter(|one| one.status == "True").map(drop)
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn a_disruption_budget_counts_what_a_custom_kind_wants() {
    let cluster = cluster(1).await;
    establish(&cluster).await;
    let widgets = widgets(&cluster, "default");
    let web = create(&widgets, widget("web", json!({"replicas": 4}))).await;
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(cluster.client());
    let budget = json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"of": "widget"}}},
    });
    create(&budgets, budget).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for name in ["a", "b", "c"] {
        let mut pod = owned_by_widget(name, &web);
        pod["spec"] = json!({"containers": [{"name": "main", "image": "registry.test/web"}]});
        create(&pods, pod).await;
    }
    // Half of the four that are wanted, not of the three that are there.
    eventually("the budget is counted", async || {
        let status = budgets.get("web").await.expect("get").status?;
        let counts = (
            status.expected_pods,
            status.desired_healthy,
            status.current_healthy,
            status.disruptions_allowed,
        );
        (counts == (Some(4), Some(2), Some(3), Some(1))).then_some(())
    })
    .await;
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn a_definition_deleted_during_writes_watches_and_a_collection_leaves_nothing() {
    let cluster = cluster(0).await;
    let definitions = definitions(&cluster);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    for round in 0..3 {
        establish(&cluster).await;
        let widgets = widgets(&cluster, "default");
        // The garbage collector knows the kind when it deletes one whose owner never was.
        let mut stray = widget("stray", json!({}));
        stray["metadata"]["ownerReferences"] = owner("v1", "ConfigMap", "nobody", Some("none"));
        create(&widgets, stray).await;
        eventually("the garbage collector knows the kind", async || {
            let left = widgets.get_opt("stray").await.expect("get");
            left.is_none().then_some(())
        })
        .await;
        let parent = create(&maps, json!({"metadata": {"name": "parent"}})).await;
        for number in 0..12 {
            let mut one = widget(&format!("w{number}"), json!({}));
            if number % 2 == 0 {
                let uid = parent.metadata.uid.as_deref();
                one["metadata"]["ownerReferences"] = owner("v1", "ConfigMap", "parent", uid);
            }
            let one = create(&widgets, one).await;
            create(&maps, owned_by_widget(&format!("of-{number}"), &one)).await;
        }
        let watch = widgets.watch(&WatchParams::default(), "0").await;
        let watch = watch.expect("watch");
        let creations = async {
            for number in 0..40 {
                let late = widget(&format!("late-{number}"), json!({}));
                let late: DynamicObject = serde_json::from_value(late).expect("a widget");
                if let Err(error) = widgets.create(&PostParams::default(), &late).await {
                    assert!(matches!(code(&error), 403 | 404), "round {round}: {error}");
                }
            }
        };
        let changes = async {
            for number in 0..40 {
                let change = Patch::Merge(json!({"spec": {"color": format!("c{number}")}}));
                let changed = widgets.patch("w1", &PatchParams::default(), &change).await;
                if let Err(error) = changed {
                    assert!(matches!(code(&error), 404 | 409), "round {round}: {error}");
                }
            }
        };
        let deletions = async {
            let parent = maps.delete("parent", &DeleteParams::background()).await;
            parent.expect("delete");
            let definition = definitions.delete(NAME, &DeleteParams::default()).await;
            definition.expect("delete");
        };
        tokio::join!(creations, changes, deletions);
        until_gone(&cluster).await;
        let ended = tokio::time::timeout(Duration::from_secs(60), watch.count()).await;
        assert!(ended.is_ok(), "round {round}: the watch goes on");
        eventually("what widgets owned is collected", async || {
            let selected = ListParams::default().labels("of=widget");
            let left = maps.list(&selected).await.expect("list").items;
            left.is_empty().then_some(())
        })
        .await;
        // The next round begins with nothing of this one.
        establish(&cluster).await;
        let left = widgets.list(&ListParams::default()).await.expect("list");
        assert!(left.items.is_empty(), "round {round}");
        let definition = definitions.delete(NAME, &DeleteParams::default()).await;
        definition.expect("delete");
        until_gone(&cluster).await;
    }
    cluster.shut_down().await.expect("shut down");
}

/// Runs on simulated time, where a sync of the disk takes two milliseconds.
fn simulated(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("runtime");
    runtime.block_on(test);
}

/// Longer than it takes to write a definition and its status.
const MOMENTS: u64 = 24;

#[test]
fn a_server_that_loses_power_at_any_moment_of_an_establishment_serves_the_kind_afterwards() {
    for moment in 0..MOMENTS {
        simulated(async {
            let built = Cluster::builder().simulated(moment).start().await;
            let mut cluster = built.expect("start");
            let definitions = definitions(&cluster);
            let moment = Duration::from_micros(500 * moment);
            let creation = async {
                let one = serde_json::from_value(definition()).expect("a definition");
                let created = definitions.create(&PostParams::default(), &one).await;
                created.expect("create");
                // The server goes on with it until the moment is over.
                std::future::pending::<()>().await;
            };
            let _ = tokio::time::timeout(moment, creation).await;
            let was_seen = definitions.get_opt(NAME).await.expect("get").is_some();
            cluster.crash_server(Crash::Power);
            cluster.start_server().await.expect("start again");
            let found = definitions.get_opt(NAME).await.expect("get");
            assert!(
                found.is_some() || !was_seen,
                "{moment:?}: what was seen is lost"
            );
            if found.is_none() {
                create(&definitions, definition()).await;
            }
            until_established(&cluster).await;
            let widgets = widgets(&cluster, "default");
            create(&widgets, widget("a", json!({}))).await;
            cluster.shut_down().await.expect("shut down");
        });
    }
}

#[test]
fn a_server_that_loses_power_at_any_moment_of_a_deletion_goes_on_with_it() {
    for moment in 0..MOMENTS {
        simulated(async {
            let built = Cluster::builder().simulated(moment).start().await;
            let mut cluster = built.expect("start");
            let definitions = definitions(&cluster);
            establish(&cluster).await;
            let widgets = widgets(&cluster, "default");
            for name in ["a", "b", "c"] {
                create(&widgets, widget(name, json!({}))).await;
            }
            let moment = Duration::from_micros(500 * moment);
            let deletion = async {
                let deleted = definitions.delete(NAME, &DeleteParams::default()).await;
                deleted.expect("delete");
                std::future::pending::<()>().await;
            };
            let _ = tokio::time::timeout(moment, deletion).await;
            let seen = definitions.get_opt(NAME).await.expect("get");
            let was_marked = seen.is_none_or(|one| one.metadata.deletion_timestamp.is_some());
            cluster.crash_server(Crash::Power);
            cluster.start_server().await.expect("start again");
            let found = definitions.get_opt(NAME).await.expect("get");
            let is_kept = found.is_some_and(|one| one.metadata.deletion_timestamp.is_none());
            assert!(!is_kept || !was_marked, "{moment:?}: the deletion is lost");
            if is_kept {
                let all = widgets.list(&ListParams::default()).await.expect("list");
                assert_eq!(all.items.len(), 3, "{moment:?}");
                let deleted = definitions.delete(NAME, &DeleteParams::default()).await;
                deleted.expect("delete");
            }
            until_gone(&cluster).await;
            establish(&cluster).await;
            let left = widgets.list(&ListParams::default()).await.expect("list");
            assert!(left.items.is_empty(), "{moment:?}");
            cluster.shut_down().await.expect("shut down");
        });
    }
}
