//! Definitions of custom kinds: established, in conflict, deleted with all instances, found again
//! after a restart, and many of them.

use std::sync::Arc;

use api::Value;
use api::features::FeatureGates;
use environment::Environment;
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};

use crate::custom_harness::{
    DEFINITIONS, WIDGETS, condition, definition, establish, wait_for, wait_until_gone, widget,
    widgets,
};
use crate::harness::{Authority, Cluster, Decisions};

const NAME: &str = "widgets.example.com";

#[tokio::test(start_paused = true)]
async fn a_kind_is_served_once_its_definition_is_established() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    assert_eq!(admin.get(WIDGETS).await.code, 404);
    let established = establish(&admin, &widgets()).await;
    assert_eq!(
        condition(&established, "NamesAccepted"),
        ("True".to_string(), "NoConflicts".to_string())
    );
    assert_eq!(
        condition(&established, "Established"),
        ("True".to_string(), "InitialNamesAccepted".to_string())
    );
    let names = established.at(&["status", "acceptedNames"]).unwrap();
    assert_eq!(names.str_at(&["listKind"]), "WidgetList");
    // Nobody who sees that has to wait.
    admin.get(WIDGETS).await.expect(200);
    let kinds = admin.get("/apis/example.com/v1").await.expect(200);
    let names: Vec<&str> = kinds
        .list_at(&["resources"])
        .iter()
        .map(|one| one.str_at(&["name"]))
        .collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_is_accepted_when_it_becomes_free() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    establish(&admin, &widgets()).await;
    let mut other = definition("example.com", "gadgets", "Widget");
    other.set(&["spec", "names", "singular"], "gadget");
    other.set(&["spec", "names", "listKind"], "GadgetList");
    admin.post(DEFINITIONS, &other).await.expect(201);
    let refused = wait_for(&admin, "gadgets.example.com", |one| {
        condition(one, "NamesAccepted").0 == "False"
    });
    let refused = refused.await;
    assert_eq!(condition(&refused, "NamesAccepted").1, "KindConflict");
    assert_eq!(condition(&refused, "Established").1, "NotAccepted");
    let gadgets = WIDGETS.replace("widgets", "gadgets");
    assert_eq!(admin.get(&gadgets).await.code, 404);
    admin
        .delete(&format!("{DEFINITIONS}/{NAME}"))
        .await
        .expect(200);
    wait_for(&admin, "gadgets.example.com", |one| {
        condition(one, "Established").0 == "True"
    })
    .await;
    admin.get(&gadgets).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn a_definition_goes_after_its_instances_and_ends_their_watches() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    establish(&admin, &widgets()).await;
    let mut held = widget("held", api::document!({}));
    held.set(&["metadata", "finalizers"], vec!["example.com/held".into()]);
    admin.post(WIDGETS, &held).await.expect(201);
    admin
        .post(WIDGETS, &widget("free", api::document!({})))
        .await
        .expect(201);
    let mut events = admin.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(events.summary().await, "ADDED free");
    assert_eq!(events.summary().await, "ADDED held");
    let deleted = admin
        .delete(&format!("{DEFINITIONS}/{NAME}"))
        .await
        .expect(200);
    assert_eq!(condition(&deleted, "Terminating").0, "True");
    let mut seen = vec![events.summary().await, events.summary().await];
    seen.sort();
    assert_eq!(seen, ["DELETED free", "MODIFIED held"]);
    let refused = admin
        .post(WIDGETS, &widget("late", api::document!({})))
        .await;
    assert_eq!(
        refused.failure(403, "Forbidden"),
        "widgets.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    let kinds = admin.get("/apis/example.com/v1").await.expect(200);
    let verbs = kinds.list_at(&["resources"])[0].list_at(&["verbs"]);
    assert!(!verbs.contains(&"create".into()), "{verbs:?}");
    let release = api::document!({"metadata": {"finalizers": null}});
    admin
        .merge(&format!("{WIDGETS}/held"), &release)
        .await
        .expect(200);
    assert_eq!(events.summary().await, "DELETED held");
    assert_eq!(events.summary().await, "END");
    wait_until_gone(&admin, NAME).await;
    assert_eq!(admin.get(WIDGETS).await.code, 404);
    assert_eq!(admin.get("/apis/example.com").await.code, 404);
    // The same name can come again, and nothing is left of what was.
    establish(&admin, &widgets()).await;
    let list = admin.get(WIDGETS).await.expect(200);
    assert!(list.list_at(&["items"]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_when_objects_are_created_while_their_definition_goes() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    for round in 0..5 {
        establish(&admin, &widgets()).await;
        let writes = (0..20).map(|number| {
            let admin = cluster.admin();
            async move {
                let name = format!("w{number}");
                admin
                    .post(WIDGETS, &widget(&name, api::document!({})))
                    .await
                    .code
            }
        });
        let path = format!("{DEFINITIONS}/{NAME}");
        let delete = admin.delete(&path);
        let (codes, deleted) = tokio::join!(futures::future::join_all(writes), delete);
        deleted.expect(200);
        for code in codes {
            assert!(matches!(code, 201 | 403 | 404), "round {round}: {code}");
        }
        wait_until_gone(&admin, NAME).await;
        establish(&admin, &widgets()).await;
        let list = admin.get(WIDGETS).await.expect(200);
        assert!(list.list_at(&["items"]).is_empty(), "round {round}");
        admin.delete(&path).await.expect(200);
        wait_until_gone(&admin, NAME).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_observed_generation_of_a_definition_is_kept() {
    keeps_observed_generation("").await;
}

#[tokio::test(start_paused = true)]
async fn the_observed_generation_is_kept_without_the_gate_too() {
    // Upstream drops the field only where the object itself is written, and only if the stored object
    // has none: the status is then the stored one, so that nothing is ever dropped.
    keeps_observed_generation("CRDObservedGenerationTracking=false").await;
}

/// Others write these fields, the server keeps them.
async fn keeps_observed_generation(feature_gates: &str) {
    let cluster = Cluster::decided(Decisions {
        feature_gates: FeatureGates::parse(feature_gates).unwrap(),
        ..Decisions::default()
    })
    .await;
    let admin = cluster.admin();
    let established = establish(&admin, &widgets()).await;
    let mut conditions = established.list_at(&["status", "conditions"]).to_vec();
    for condition in &mut conditions {
        condition.set(&["observedGeneration"], 1);
    }
    let mut status = Value::object();
    status.set(&["status", "observedGeneration"], 1);
    status.set(&["status", "conditions"], conditions);
    let path = format!("{DEFINITIONS}/{NAME}");
    admin
        .merge(&format!("{path}/status"), &status)
        .await
        .expect(200);
    // The server writes the status once more, for the new name.
    let renamed = api::document!({"spec": {"names": {"shortNames": ["wd"]}}});
    admin.merge(&path, &renamed).await.expect(200);
    let is_accepted = |one: &Value| {
        let names = one.list_at(&["status", "acceptedNames", "shortNames"]);
        names == ["wd".into()]
    };
    let accepted = wait_for(&admin, NAME, is_accepted).await;
    assert_eq!(accepted.i64_at(&["metadata", "generation"]), Some(2));
    assert_eq!(accepted.i64_at(&["status", "observedGeneration"]), Some(1));
    for condition in accepted.list_at(&["status", "conditions"]) {
        assert_eq!(condition.i64_at(&["observedGeneration"]), Some(1));
    }
}

struct Disk {
    store: Arc<dyn store::Store>,
    environment: Environment,
}

impl Disk {
    async fn new() -> Disk {
        let environment = Environment::simulated(1, 1_800_000_000_000_000);
        let disk = SimulatedDisk::new(1).mount();
        let store = Embedded::open(disk, environment.clone(), Options::default())
            .await
            .unwrap();
        Disk { store, environment }
    }

    async fn server(&self) -> Cluster {
        let (store, environment) = (self.store.clone(), self.environment.clone());
        Cluster::at(
            "192.0.2.1:6443",
            false,
            store,
            Authority::new(),
            environment,
        )
        .await
    }

    /// A server that starts with the definition as `change` leaves it.
    async fn restarted_with(&self, change: impl Fn(&mut Value)) -> Cluster {
        let key = format!("/registry/apiextensions.k8s.io/customresourcedefinitions/{NAME}");
        let range = store::KeyRange::prefix(key.clone());
        let request = store::RangeRequest {
            range,
            revision: None,
            limit: 0,
        };
        let found = self.store.range(request).await.unwrap().items;
        let mut definition = Value::from_json(&found[0].value).unwrap();
        change(&mut definition);
        let put = store::Operation::Put {
            key: key.into(),
            value: definition.to_json().into(),
            lease: None,
        };
        let transaction = store::Transaction {
            compare: Vec::new(),
            then: vec![put],
        };
        self.store.transact(transaction).await.unwrap();
        self.server().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_at_any_step_ends_with_an_established_kind() {
    let disk = Disk::new().await;
    let first = disk.server().await;
    establish(&first.admin(), &widgets()).await;
    let created = first
        .admin()
        .post(WIDGETS, &widget("a", api::document!({})))
        .await;
    created.expect(201);
    first.stop().await;
    // Established: served from the first request on.
    let again = disk.server().await;
    again.admin().get(&format!("{WIDGETS}/a")).await.expect(200);
    again.stop().await;
    // Stopped before anything was said about it.
    let created = |one: &mut Value| drop(one.remove(&["status", "conditions"]));
    let unnamed = |one: &mut Value| {
        one.remove(&["status", "conditions"]);
        one.remove(&["status", "acceptedNames"]);
    };
    // Stopped between the names and the rest, as upstream may be.
    let named = |one: &mut Value| {
        let conditions = one
            .at_mut(&["status", "conditions"])
            .and_then(Value::as_array_mut);
        conditions
            .unwrap()
            .retain(|one| one.str_at(&["type"]) == "NamesAccepted");
    };
    let steps: [&dyn Fn(&mut Value); 3] = [&created, &unnamed, &named];
    for (index, step) in steps.into_iter().enumerate() {
        let cluster = disk.restarted_with(step).await;
        let admin = cluster.admin();
        if index > 0 {
            wait_for(&admin, NAME, |one| {
                condition(one, "Established").0 == "True"
            })
            .await;
            admin.get(&format!("{WIDGETS}/a")).await.expect(200);
        }
        cluster.stop().await;
        // What the step left is repaired for the next one.
        let cluster = disk.restarted_with(unnamed).await;
        let established = |one: &Value| condition(one, "Established").0 == "True";
        wait_for(&cluster.admin(), NAME, established).await;
        cluster.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_during_deletion_goes_on_with_it() {
    let disk = Disk::new().await;
    let first = disk.server().await;
    let admin = first.admin();
    establish(&admin, &widgets()).await;
    let mut held = widget("held", api::document!({}));
    held.set(&["metadata", "finalizers"], vec!["example.com/held".into()]);
    admin.post(WIDGETS, &held).await.expect(201);
    admin
        .delete(&format!("{DEFINITIONS}/{NAME}"))
        .await
        .expect(200);
    first.stop().await;
    let second = disk.server().await;
    let admin = second.admin();
    let release = api::document!({"metadata": {"finalizers": null}});
    admin
        .merge(&format!("{WIDGETS}/held"), &release)
        .await
        .expect(200);
    wait_until_gone(&admin, NAME).await;
}

#[tokio::test(start_paused = true)]
async fn the_thousandth_kind_costs_what_the_tenth_did() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let mut costs = Vec::new();
    for number in 0..1000 {
        let group = format!("g{}.example.com", number % 7);
        let kind = format!("Kind{number}");
        let one = definition(&group, &format!("kind{number}s"), &kind);
        let before = environment::work::visited();
        establish(&admin, &one).await;
        costs.push(environment::work::visited() - before);
    }
    let early: u64 = costs[10..60].iter().sum();
    let late: u64 = costs[950..].iter().sum();
    assert!(late <= early + early / 2 + 50, "{early} and {late}");
}
