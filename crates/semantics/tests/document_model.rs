//! The same random object as a typed object and as a document gets the same answer from the rules
//! here and from those of `api`.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use api::resources::{Counted as DocumentCounted, List, of_pod};
use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::{api::resource::Quantity as QuantityText, apis::meta::v1::LabelSelector},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use semantics::{
    amounts::Amounts,
    label_selector,
    pod_resources::{Counted, limits, requests},
    qos,
};
use serde_json::{Map, Value, json};

const SEEDS: u64 = 3000;

fn document(value: &Value) -> api::Value {
    api::Value::from_json(value.to_string().as_bytes()).expect("a document")
}

fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("a typed object")
}

/// One of the choices.
fn any<'a>(random: &mut StdRng, choices: &[&'a str]) -> &'a str {
    choices[random.random_range(0..choices.len())]
}

fn one_in(random: &mut StdRng, times: u32) -> bool {
    random.random_range(0..times) == 0
}

/// Up to two values, `None` now and then.
fn values(random: &mut StdRng) -> Value {
    match random.random_range(0..4) {
        0 => Value::Null,
        count => {
            let values = (1..count).map(|_| any(random, &["a", "b", ""]));
            json!(values.collect::<Vec<_>>())
        }
    }
}

#[test]
fn label_selectors_match_the_same_labels() {
    for seed in 0..SEEDS {
        let random = &mut StdRng::seed_from_u64(seed);
        let keys = ["app", "tier", "example.com/zone"];
        let mut selector = Map::new();
        if one_in(random, 2) {
            let mut exact = Map::new();
            for key in keys.iter().take(random.random_range(0..3)) {
                exact.insert(key.to_string(), json!(any(random, &["a", "b", ""])));
            }
            selector.insert("matchLabels".to_owned(), exact.into());
        }
        if one_in(random, 2) {
            let count = random.random_range(0..3);
            let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Like"];
            let expressions: Vec<Value> = (0..count)
                .map(|_| {
                    json!({"key": any(random, &keys), "operator": any(random, &operators),
                        "values": values(random)})
                })
                .collect();
            selector.insert("matchExpressions".to_owned(), expressions.into());
        }
        let selector = match one_in(random, 20) {
            true => Value::Null,
            false => selector.into(),
        };
        let mut labels = BTreeMap::new();
        for key in keys {
            if one_in(random, 2) {
                labels.insert(key.to_owned(), any(random, &["a", "b", ""]).to_owned());
            }
        }
        let parsed: Option<LabelSelector> = typed(&selector);
        let label = |key: &str| labels.get(key).map(String::as_str);
        let expected = api::selector::LabelSelector::from_document(&document(&selector))
            .is_ok_and(|selector| selector.matches(label));
        let found = label_selector::parse(parsed.as_ref()).matches(label);
        assert_eq!(found, expected, "seed {seed}: {selector} {labels:?}");
        let found = parsed.is_some_and(|parsed| label_selector::matches(&parsed, &labels));
        assert_eq!(
            found, expected,
            "seed {seed}, unparsed: {selector} {labels:?}"
        );
    }
}

fn amounts(random: &mut StdRng) -> Value {
    let mut amounts = Map::new();
    for (name, choices) in [
        ("cpu", &["0", "100m", "0.1", "1", "2500m", "1n"][..]),
        ("memory", &["0", "64Mi", "67108864", "1Gi", "1e3"]),
        ("ephemeral-storage", &["1Gi", "2G"]),
        ("hugepages-2Mi", &["2Mi", "4Mi"]),
        ("example.com/gpu", &["1", "2"]),
    ] {
        if one_in(random, 2) {
            amounts.insert(name.to_owned(), json!(any(random, choices)));
        }
    }
    amounts.into()
}

fn resources(random: &mut StdRng) -> Value {
    let mut resources = Map::new();
    if one_in(random, 4) {
        let both = amounts(random);
        resources.insert("requests".to_owned(), both.clone());
        resources.insert("limits".to_owned(), both);
        return resources.into();
    }
    for list in ["requests", "limits"] {
        if !one_in(random, 3) {
            resources.insert(list.to_owned(), amounts(random));
        }
    }
    resources.into()
}

fn containers(random: &mut StdRng, prefix: &str, count: usize) -> Vec<Value> {
    (0..count)
        .map(|index| {
            let mut container = json!({"name": format!("{prefix}{index}")});
            if !one_in(random, 5) {
                container["resources"] = resources(random);
            }
            if prefix == "i" && one_in(random, 2) {
                container["restartPolicy"] = json!("Always");
            }
            container
        })
        .collect()
}

fn statuses(random: &mut StdRng, containers: &[Value]) -> Vec<Value> {
    let mut statuses = Vec::new();
    for container in containers {
        if one_in(random, 3) {
            continue;
        }
        let mut status = json!({"name": container["name"], "image": "", "imageID": "",
            "ready": true, "restartCount": 0});
        if !one_in(random, 3) {
            status["resources"] = resources(random);
        }
        if !one_in(random, 3) {
            status["allocatedResources"] = amounts(random);
        }
        statuses.push(status);
    }
    statuses
}

fn pod(random: &mut StdRng) -> Value {
    let count = random.random_range(1..4);
    let main = containers(random, "c", count);
    let count = random.random_range(0..4);
    let init = containers(random, "i", count);
    let mut status = json!({
        "containerStatuses": statuses(random, &main),
        "initContainerStatuses": statuses(random, &init),
    });
    if one_in(random, 3) {
        let reason = any(random, &["Infeasible", "Deferred"]);
        status["conditions"] =
            json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    }
    let mut spec = json!({"containers": main, "initContainers": init});
    if one_in(random, 3) {
        spec["resources"] = resources(random);
    }
    if one_in(random, 3) {
        spec["overhead"] = amounts(random);
    }
    json!({"spec": spec, "status": status})
}

fn by_name(amounts: &Amounts<'_>) -> BTreeMap<String, Quantity> {
    let amounts = amounts.iter();
    amounts
        .map(|(name, quantity)| (name.to_owned(), quantity))
        .collect()
}

#[test]
fn a_pod_has_the_same_requests_and_limits() {
    for seed in 0..SEEDS {
        let value = pod(&mut StdRng::seed_from_u64(seed));
        let (pod, document): (Pod, _) = (typed(&value), document(&value));
        let spec = pod.spec.as_ref().expect("a spec");
        let status = pod.status.as_ref().expect("a status");
        for (counted, of_document) in [
            (Counted::Spec, DocumentCounted::Spec),
            (
                Counted::ContainerStatus(status),
                DocumentCounted::ContainerStatus,
            ),
        ] {
            assert_eq!(
                by_name(&requests(spec, counted)),
                of_pod(&document, List::Requests, of_document),
                "requests of seed {seed}: {value}"
            );
            assert_eq!(
                by_name(&limits(spec, counted)),
                of_pod(&document, List::Limits, of_document),
                "limits of seed {seed}: {value}"
            );
        }
    }
}

#[test]
fn a_pod_has_the_same_qos_class() {
    for seed in 0..SEEDS {
        let mut value = pod(&mut StdRng::seed_from_u64(seed));
        value["status"] = json!({});
        let found = qos::class(&typed(&value));
        let expected = api::strategy::pod::qos::class(&document(&value));
        assert_eq!(found.as_str(), expected, "seed {seed}: {value}");
    }
}

#[test]
fn quantities_have_the_same_size_in_both_forms() {
    for seed in 0..SEEDS {
        let random = &mut StdRng::seed_from_u64(seed);
        let suffixes = [
            "", "m", "u", "n", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-2",
        ];
        let whole = random.random_range(0..100_000);
        let fraction = match one_in(random, 2) {
            true => format!(".{}", random.random_range(0..1000)),
            false => String::new(),
        };
        let text = format!("{whole}{fraction}{}", any(random, &suffixes));
        let list = BTreeMap::from([("cpu".to_owned(), QuantityText(text.clone()))]);
        let found = Amounts::of(Some(&list)).cpu;
        assert_eq!(
            found,
            api::resources::quantity(&text.as_str().into()),
            "{text}"
        );
    }
}
