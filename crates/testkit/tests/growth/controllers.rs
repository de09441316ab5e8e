//! All controllers together, in several worlds of a few kinds each: an object of each kind is changed, added and deleted
//! among a hundred, a thousand and some thousand others.

use std::collections::BTreeMap;
use std::time::Duration;

use client::Informers;
use environment::{Environment, work};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::fake_api::FakeApi;
use crate::world::{World, labels, name, object};
use crate::{SIZES, assert_does_not_grow};

/// How many others there are where the controllers write to each of them when they begin, which takes
/// its time.
const FEWER: [usize; 3] = [100, 1_000, 3_000];

/// What happens, and how.
type Event = (&'static str, fn(&FakeApi, usize));

/// Everything that an event causes at once happens within this time. Short, so that no period of
/// any controller ends meanwhile.
const SOON: Duration = Duration::from_millis(100);
/// A few objects more or less are looked at as caches catch up.
const SLACK: u64 = 40;

#[test]
fn node_pod_and_replica_set_controllers_visit_only_affected_objects() {
    check(
        &["nodes", "leases", "pods", "replicasets"],
        &[
            ("a pod becomes unready", |api, _| {
                change(api, "pods", 3, |pod| {
                    pod["status"]["conditions"][0]["status"] = json!("False");
                });
            }),
            ("a node is tainted", |api, _| {
                change(api, "nodes", 4, |node| {
                    node["spec"]["taints"] = json!([{"key": "k", "effect": "NoExecute"}]);
                });
            }),
            ("a node is lost", |api, _| {
                change(api, "nodes", 5, |node| {
                    node["status"]["conditions"][0]["status"] = json!("Unknown");
                });
            }),
            ("a node moves to another zone", |api, _| {
                change(api, "nodes", 6, |node| {
                    node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("other");
                });
            }),
            ("a pod without an owner comes", |api, size| {
                let mut pod = object("pods", 7).unwrap_or_default();
                pod["metadata"]["name"] = json!(format!("orphan-{size}"));
                pod["metadata"]["uid"] = json!("orphan");
                pod["metadata"]["ownerReferences"] = Value::Null;
                api.put("pods", pod);
            }),
        ],
    );
}

#[test]
fn the_deployment_controller_visits_only_affected_objects() {
    check_among(
        FEWER,
        &["deployments", "replicasets"],
        &[("a Deployment gets another template", |api, _| {
            change(api, "deployments", 8, |deployment| {
                let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
                container["image"] = json!("example.com/c:2");
                deployment["metadata"]["generation"] = json!(2);
            });
        })],
    );
}

#[test]
fn stateful_set_and_replication_controllers_visit_only_affected_objects() {
    check_among(
        FEWER,
        &[
            "statefulsets",
            "replicationcontrollers",
            "pods",
            "replicasets",
        ],
        &[],
    );
}

#[test]
fn the_daemon_set_controller_visits_only_affected_objects() {
    check_among(FEWER, &["daemonsets", "nodes", "pods", "replicasets"], &[]);
}

#[test]
fn job_and_cron_job_controllers_visit_only_affected_objects() {
    check_among(FEWER, &["jobs", "cronjobs", "pods", "replicasets"], &[]);
}

#[test]
fn the_disruption_controller_visits_only_affected_objects() {
    check_among(FEWER, &["poddisruptionbudgets", "pods", "replicasets"], &[]);
}

#[test]
fn the_pod_autoscaler_visits_only_affected_objects() {
    check_among(FEWER, &["horizontalpodautoscalers", "pods"], &[]);
}

#[test]
fn endpoint_controllers_visit_only_affected_objects() {
    check_among(
        FEWER,
        &["services", "pods", "nodes"],
        &[
            ("a pod becomes unready", |api, _| {
                change(api, "pods", 3, |pod| {
                    pod["status"]["conditions"][0]["status"] = json!("False");
                });
            }),
            ("a Service selects other pods", |api, _| {
                change(api, "services", 4, |service| {
                    service["spec"]["selector"] = labels(5);
                });
            }),
            ("a node moves to another zone", |api, _| {
                change(api, "nodes", 6, |node| {
                    node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("other");
                });
            }),
        ],
    );
}

#[test]
fn volume_controllers_visit_only_affected_objects() {
    check(
        &[
            "persistentvolumes",
            "persistentvolumeclaims",
            "pods",
            "nodes",
            "storageclasses",
        ],
        &[
            ("a claim is deleted while a pod uses it", |api, _| {
                change(api, "persistentvolumeclaims", 3, |claim| {
                    claim["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
                });
            }),
            ("a volume without a claim comes", |api, size| {
                let mut volume = object("persistentvolumes", size + 9).unwrap_or_default();
                volume["spec"]["claimRef"] = Value::Null;
                volume["status"]["phase"] = json!("Available");
                api.put("persistentvolumes", volume);
            }),
            ("a claim without a volume comes", |api, size| {
                let mut claim = object("persistentvolumeclaims", size + 10).unwrap_or_default();
                claim["metadata"]["annotations"] = Value::Null;
                claim["spec"]["volumeName"] = Value::Null;
                claim["status"] = json!({"phase": "Pending"});
                api.put("persistentvolumeclaims", claim);
            }),
        ],
    );
}

#[test]
fn account_role_and_quota_controllers_visit_only_affected_objects() {
    check_among(
        FEWER,
        &[
            "serviceaccounts",
            "secrets",
            "clusterroles",
            "ipaddresses",
            "servicecidrs",
            "resourcequotas",
            "namespaces",
            "pods",
        ],
        &[
            ("a role that is aggregated comes", |api, _| {
                let mut role = object("clusterroles", 3).unwrap_or_default();
                role["metadata"]["name"] = json!("part");
                role["metadata"]["labels"] = json!({"aggregate-to": "role-3"});
                role["aggregationRule"] = Value::Null;
                api.put("clusterroles", role);
            }),
            ("a pod that a quota counts ends", |api, _| {
                change(api, "pods", 4, |pod| {
                    pod["status"]["phase"] = json!("Succeeded");
                });
            }),
        ],
    );
}

/// Changes the object with that number.
fn change(api: &FakeApi, plural: &str, n: usize, edit: impl FnOnce(&mut Value)) {
    let namespace = object(plural, n).unwrap_or_default()["metadata"]["namespace"].clone();
    let namespace = namespace.as_str().unwrap_or_default();
    let mut object = api
        .get(plural, namespace, &name(plural, n))
        .unwrap_or_else(|| panic!("{plural} has number {n}"));
    edit(&mut object);
    api.put(plural, object);
}

/// What happens to one object of every kind.
fn touch(api: &FakeApi, plural: &str) {
    change(api, plural, 0, |object| {
        object["metadata"]["annotations"]["touched"] = json!("yes");
        if object["metadata"]["generation"].is_number() {
            object["metadata"]["generation"] = json!(2);
        }
    });
}

#[track_caller]
fn check(kinds: &'static [&'static str], events: &[Event]) {
    check_among(SIZES, kinds, events);
}

#[track_caller]
fn check_among(sizes: [usize; 3], kinds: &'static [&'static str], events: &[Event]) {
    let mut counted: BTreeMap<String, Vec<(usize, u64)>> = BTreeMap::new();
    for size in sizes {
        for (event, count) in measure(World { size, kinds }, events) {
            counted.entry(event).or_default().push((size, count));
        }
    }
    let mut grows = Vec::new();
    for (event, counted) in &counted {
        let least = counted.first().map_or(0, |(_, count)| *count);
        if counted.iter().any(|(_, count)| *count > least + SLACK) {
            grows.push(format!("{event}: {counted:?}"));
        }
    }
    assert!(grows.is_empty(), "these grow: {grows:#?}");
    for (event, counted) in &counted {
        assert_does_not_grow(event, counted, SIZES[0], SLACK);
    }
}

/// How many objects are looked at, and how many requests are made, for each event.
fn measure(world: World, events: &[Event]) -> Vec<(String, u64)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (size, kinds) = (world.size, world.kinds);
        let api = FakeApi::new(world);
        let stop = CancellationToken::new();
        start(&api, &stop);
        settle(&api).await;
        let mut counts = Vec::new();
        for (event, cause) in events {
            counts.push((event.to_string(), cost(&api, || cause(&api, size)).await));
        }
        for plural in kinds {
            let of = |what: &str| format!("{plural}: one is {what}");
            if object(plural, 0).is_none() {
                continue;
            }
            counts.push((of("changed"), cost(&api, || touch(&api, plural)).await));
            let added = object(plural, size).unwrap_or_default();
            let add = || api.put(plural, added.clone());
            counts.push((of("added"), cost(&api, add).await));
            let namespace = added["metadata"]["namespace"].as_str().unwrap_or_default();
            let delete = || api.delete(plural, namespace, &name(plural, 1));
            counts.push((of("deleted"), cost(&api, delete).await));
        }
        stop.cancel();
        counts
    })
}

/// What is looked at and asked for because of `cause`.
async fn cost(api: &FakeApi, cause: impl FnOnce()) -> u64 {
    let before = work::visited() + api.requests();
    cause();
    tokio::time::sleep(SOON).await;
    work::visited() + api.requests() - before
}

/// Waits until the controllers have done what there is to do at first.
async fn settle(api: &FakeApi) {
    let mut quiet = 0;
    while quiet < 3 {
        let before = (work::visited(), api.requests());
        tokio::time::sleep(SOON / 2).await;
        quiet = match before == (work::visited(), api.requests()) {
            true => quiet + 1,
            false => 0,
        };
    }
}

fn start(api: &FakeApi, stop: &CancellationToken) {
    let environment = Environment::simulated(1, 1_767_225_600_000_000);
    let client = api.client();
    let accounts = {
        let client = client.clone();
        controllers::Accounts::new(move |_| client.clone())
    };
    let config = controllers::Config {
        informers: Informers::new(client.clone(), environment.clone()),
        client,
        accounts,
        environment,
        recorder: trace::Recorder::off(),
        root_ca_pem: "ca".to_owned(),
        candidate: None,
        authority: None,
        token_signer: Some(controllers::TokenSigner::new(|_| Some("token".to_owned()))),
        namespace_grace: Duration::ZERO,
        pod_range: Some("10.128.0.0/9".to_owned()),
        reserved_pod_ranges: None,
        feature_gates: Default::default(),
        without: Vec::new(),
    };
    tokio::spawn(controllers::run(config, stop.clone()));
}
