//! Tables of pods with their requests and limits.

use super::*;
use serde_json::{Value, json};

fn spec(fields: Value) -> PodSpec {
    let mut spec = fields;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([]);
    }
    serde_json::from_value(spec).expect("a spec")
}

fn requesting(cpu: &str, memory: &str) -> Value {
    json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
}

fn limited(cpu: &str, memory: &str) -> Value {
    json!({"name": "c", "resources": {"limits": {"cpu": cpu, "memory": memory}}})
}

fn sidecar(mut container: Value) -> Value {
    container["restartPolicy"] = json!("Always");
    container
}

/// Thousandths of a cpu, and MiB of memory.
fn shown(amounts: &Amounts<'_>) -> (i64, i64) {
    let cpu = amounts.cpu.unwrap_or_default().milli();
    (cpu, amounts.memory.unwrap_or_default().value() >> 20)
}

fn check(fields: Value, expected: (i64, i64)) {
    let spec = spec(fields.clone());
    assert_eq!(shown(&requests(&spec, Counted::Spec)), expected, "{fields}");
}

#[test]
fn containers_add_up_and_initialisation_sets_the_least() {
    let (a, b) = (requesting("100m", "10Mi"), requesting("0.2", "20Mi"));
    let once = requesting("1", "5Mi");
    let proxy = sidecar(requesting("50m", "5Mi"));
    check(json!({}), (0, 0));
    check(json!({"containers": [a, b]}), (300, 30));
    check(
        json!({"containers": [a, b], "initContainers": [once]}),
        (1000, 30),
    );
    // The largest init container counts, not their sum.
    check(
        json!({"containers": [a], "initContainers": [once, requesting("2", "5Mi")]}),
        (2000, 10),
    );
    // A sidecar runs alongside the containers and alongside the init containers after it.
    check(
        json!({"containers": [a], "initContainers": [proxy]}),
        (150, 15),
    );
    check(
        json!({"containers": [a], "initContainers": [once, proxy]}),
        (1000, 15),
    );
    check(
        json!({"containers": [a], "initContainers": [proxy, once]}),
        (1050, 15),
    );
}

#[test]
fn the_whole_pod_goes_before_its_containers_and_overhead_comes_on_top() {
    let a = requesting("100m", "10Mi");
    check(
        json!({"containers": [a], "overhead": {"cpu": "10m"}}),
        (110, 10),
    );
    check(
        json!({"containers": [a], "resources": {"requests": {"cpu": "2"}}}),
        (2000, 10),
    );
    check(
        json!({"containers": [a], "resources": {"requests": {"cpu": "2"}},
            "overhead": {"cpu": "10m", "memory": "1Mi"}}),
        (2010, 11),
    );
    let odd = spec(json!({"containers": [a],
        "resources": {"requests": {"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"}}}));
    let odd = requests(&odd, Counted::Spec);
    assert_eq!(odd.get("ephemeral-storage"), None);
    assert_eq!(
        odd.get("hugepages-2Mi").map(|one| one.value()),
        Some(4 << 20)
    );
}

#[test]
fn what_containers_do_not_state_can_be_assumed() {
    let spec = spec(json!({"containers": [{"name": "a"}, requesting("0", "1Mi")]}));
    let assumed = [("cpu".to_owned(), "100m"), ("memory".to_owned(), "200Mi")];
    let assumed: ResourceList = assumed
        .into_iter()
        .map(|(name, text)| {
            (
                name,
                serde_json::from_value(json!(text)).expect("a quantity"),
            )
        })
        .collect();
    let assumed = Amounts::of(Some(&assumed));
    let requests = requests_with(&spec, Counted::Spec, &assumed);
    assert_eq!(shown(&requests), (100, 201));
}

fn resized(container: Value, pod: Value) -> PodStatus {
    let mut status = pod;
    let mut container = container;
    for (field, value) in [
        ("name", json!("c")),
        ("image", json!("")),
        ("imageID", json!("")),
        ("ready", json!(true)),
        ("restartCount", json!(0)),
    ] {
        container[field] = value;
    }
    status["containerStatuses"] = json!([container]);
    serde_json::from_value(status).expect("a status")
}

#[test]
fn a_container_that_is_resized_counts_with_the_most_it_wants_was_given_and_has() {
    let pod = spec(json!({"containers": [requesting("2", "1Gi")]}));
    let seen = |status: &PodStatus| {
        let (cpu, memory) = shown(&requests(&pod, Counted::Status(status)));
        (cpu, memory >> 10)
    };
    let given = json!({"allocatedResources": {"cpu": "1", "memory": "2Gi"},
        "resources": {"requests": {"cpu": "3"}}});
    assert_eq!(seen(&PodStatus::default()), (2000, 1));
    assert_eq!(seen(&resized(given.clone(), json!({}))), (3000, 2));
    // What is allocated counts once the node reports what the container has.
    let not_yet = json!({"allocatedResources": {"cpu": "1", "memory": "2Gi"}});
    assert_eq!(seen(&resized(not_yet, json!({}))), (2000, 1));
    let refused = json!({"conditions":
        [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]});
    let has = json!({"allocatedResources": {"cpu": "1", "memory": "2Gi"},
        "resources": {"requests": {"cpu": "1"}}});
    assert_eq!(seen(&resized(has.clone(), refused)), (1000, 2));
    let deferred = json!({"conditions":
        [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]});
    assert_eq!(seen(&resized(has, deferred)), (2000, 2));
}

#[test]
fn plain_init_containers_are_not_resized() {
    let init = json!([requesting("4", "1Gi")]);
    let pod = spec(json!({"initContainers": init}));
    let status = resized(
        json!({"resources": {"requests": {"cpu": "9", "memory": "9Gi"}}}),
        json!({}),
    );
    assert_eq!(
        shown(&requests(&pod, Counted::Status(&status))),
        (4000, 1024)
    );
}

#[test]
fn a_resize_of_the_whole_pod_counts_for_the_scheduler_only() {
    let pod = spec(json!({"containers": [requesting("1", "1Mi")],
        "resources": {"requests": {"cpu": "2", "memory": "2Mi"}}}));
    let status: PodStatus = serde_json::from_value(json!({
        "resources": {"requests": {"cpu": "4", "memory": "1Mi"}},
        "allocatedResources": {"cpu": "3"},
    }))
    .expect("a status");
    assert_eq!(shown(&requests(&pod, Counted::Status(&status))), (4000, 2));
    assert_eq!(
        shown(&requests(&pod, Counted::ContainerStatus(&status))),
        (2000, 2)
    );
    assert_eq!(shown(&requests(&pod, Counted::Spec)), (2000, 2));
}

#[test]
fn limits_get_overhead_where_they_are() {
    let of = |fields: Value| {
        let spec = spec(fields);
        let limits = limits(&spec, Counted::Spec);
        (
            limits.cpu.map(|one| one.milli()),
            limits.memory.map(|one| one.value() >> 20),
        )
    };
    let overhead = json!({"cpu": "10m", "memory": "1Mi"});
    assert_eq!(
        of(
            json!({"containers": [limited("1", "64Mi"), limited("1", "64Mi")],
            "overhead": overhead})
        ),
        (Some(2010), Some(129))
    );
    let memory = json!({"name": "c", "resources": {"limits": {"memory": "64Mi"}}});
    assert_eq!(
        of(json!({"containers": [memory], "overhead": overhead})),
        (None, Some(65))
    );
    assert_eq!(
        of(json!({"containers": [memory], "overhead": overhead,
            "resources": {"limits": {"cpu": "3", "memory": "100Mi"}}})),
        (Some(3010), Some(101))
    );
}

#[test]
fn the_pod_is_limited_where_each_of_its_containers_is_or_it_is_as_a_whole() {
    let check = |fields: Value, expected: bool| {
        assert_eq!(
            has_limit(&spec(fields.clone()), "memory"),
            expected,
            "{fields}"
        );
    };
    let (yes, no) = (limited("1", "64Mi"), json!({"name": "c"}));
    check(json!({"containers": [yes]}), true);
    check(json!({"containers": [yes, no]}), false);
    check(json!({"containers": [yes], "initContainers": [no]}), false);
    check(
        json!({"containers": [yes], "initContainers": [sidecar(yes.clone()), no]}),
        true,
    );
    check(
        json!({"containers": [yes], "initContainers": [no, sidecar(yes.clone())]}),
        false,
    );
    check(
        json!({"containers": [no], "resources": {"limits": {"memory": "1Gi"}}}),
        true,
    );
    check(
        json!({"containers": [no], "resources": {"limits": {"cpu": "1"}}}),
        false,
    );
}

#[test]
fn resources_of_the_whole_pod_are_those_that_may_be_stated_so() {
    let stated = |resources: Value| of_whole_pod(&spec(json!({"resources": resources}))).is_some();
    assert!(stated(json!({"requests": {"cpu": "1"}})));
    assert!(stated(json!({"limits": {"hugepages-2Mi": "4Mi"}})));
    assert!(!stated(json!({"requests": {"ephemeral-storage": "1Gi"}})));
    assert!(!stated(json!({})));
}
