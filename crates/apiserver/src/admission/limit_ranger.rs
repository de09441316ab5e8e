//! LimitRanger: containers get a namespace's default requests and limits, and what asks for too
//! little or too much is refused.

use api::quantity::Quantity;
use api::resources::{Amounts, List, amounts, of_containers};
use api::{Status, Value};

use super::{Admitted, Operation};

const NOTE: &str = "kubernetes.io/limit-ranger";
/// Up to here amounts are compared in thousandths, beyond in whole units.
const LARGEST_IN_MILLI: i64 = i64::MAX / 1000;

pub(super) fn mutate(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    if !admitted.is("", "Pod") || !concerns(admitted) {
        return Ok(());
    }
    for range in ranges(admitted)? {
        give_defaults(admitted.object, &range);
    }
    Ok(())
}

pub(super) fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    if !concerns(admitted) {
        return Ok(());
    }
    for range in ranges(admitted)? {
        let broken = match &*admitted.resource.kind {
            "Pod" => broken_by_pod(admitted.object, &range),
            _ => broken_by_claim(admitted.object, &range),
        };
        match broken.as_slice() {
            [] => {}
            [only] => return Err(admitted.forbidden(only)),
            several => return Err(admitted.forbidden(format_args!("[{}]", several.join(", ")))),
        }
    }
    Ok(())
}

/// New pods, resized ones, and claims that are not on their way out.
fn concerns(admitted: &Admitted<'_>) -> bool {
    let deleting = |old: &Value| old.has(&["metadata", "deletionTimestamp"]);
    if admitted.old.is_some_and(deleting) {
        return false;
    }
    match (admitted.subresource, admitted.operation) {
        ("", Operation::Create) => {
            admitted.is("", "Pod") || admitted.is("", "PersistentVolumeClaim")
        }
        ("", Operation::Update) => admitted.is("", "PersistentVolumeClaim"),
        ("resize", Operation::Update) => admitted.is("", "Pod"),
        _ => false,
    }
}

fn ranges(admitted: &Admitted<'_>) -> Result<Vec<Value>, Status> {
    let found = admitted.all("", "limitranges", &admitted.namespace());
    found.iter().map(|entry| entry.object()).collect()
}

fn limits_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let limits = range.list_at(&["spec", "limits"]).iter();
    limits.filter(move |limit| limit.str_at(&["type"]) == kind)
}

fn give_defaults(pod: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    for limit in limits_of(range, "Container") {
        requests.extend(amounts(limit, &["defaultRequest"]));
        limits.extend(amounts(limit, &["default"]));
    }
    let mut told = Vec::new();
    for (list, called) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        for container in pod.list_at_mut(&["spec", list]) {
            let name = container.str_at(&["name"]).to_string();
            // The note tells of requests first, but limits are set first, as a request defaults to
            // nothing else here.
            let set_limits = fill(container, "limits", &limits);
            let set_requests = fill(container, "requests", &requests);
            for (set, what) in [(set_requests, "request"), (set_limits, "limit")] {
                if !set.is_empty() {
                    told.push(format!("{} {what} for {called} {name}", set.join(", ")));
                }
            }
        }
    }
    if !told.is_empty() {
        let note = format!("LimitRanger plugin set: {}", told.join("; "));
        pod.set(&["metadata", "annotations", NOTE], note);
    }
}

/// Sets what is missing and names it.
fn fill(container: &mut Value, list: &str, defaults: &Amounts) -> Vec<String> {
    let mut set = Vec::new();
    for (name, amount) in defaults {
        let path = ["resources", list, name.as_str()];
        if !container.has(&path) {
            container.set(&path, amount.to_string());
            set.push(name.clone());
        }
    }
    set
}

/// What is asked for, as one of the three kinds of limit sees it.
struct Asked {
    kind: &'static str,
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn of_container(container: &Value) -> Asked {
        Asked {
            kind: "Container",
            requests: amounts(container, &["resources", "requests"]),
            limits: amounts(container, &["resources", "limits"]),
        }
    }

    fn check(&self, limit: &Value, broken: &mut Vec<String>) {
        for (name, least) in amounts(limit, &["min"]) {
            broken.extend(self.below(&name, least));
        }
        for (name, most) in amounts(limit, &["max"]) {
            broken.extend(self.above(&name, most));
        }
        for (name, ratio) in amounts(limit, &["maxLimitRequestRatio"]) {
            broken.extend(self.apart(&name, ratio));
        }
    }

    fn below(&self, name: &str, least: Quantity) -> Option<String> {
        let head = format!("minimum {name} usage per {} is {least}", self.kind);
        match (self.requests.get(name), self.limits.get(name)) {
            (None, _) => Some(format!("{head}.  No request is specified")),
            (Some(request), _) if less(*request, least) => {
                Some(format!("{head}, but request is {request}"))
            }
            (_, Some(limit)) if less(*limit, least) => {
                Some(format!("{head}, but limit is {limit}"))
            }
            _ => None,
        }
    }

    fn above(&self, name: &str, most: Quantity) -> Option<String> {
        let head = format!("maximum {name} usage per {} is {most}", self.kind);
        match (self.requests.get(name), self.limits.get(name)) {
            (_, None) => Some(format!("{head}.  No limit is specified")),
            (_, Some(limit)) if less(most, *limit) => Some(format!("{head}, but limit is {limit}")),
            (Some(request), _) if less(most, *request) => {
                Some(format!("{head}, but request is {request}"))
            }
            _ => None,
        }
    }

    fn apart(&self, name: &str, ratio: Quantity) -> Option<String> {
        let head = format!(
            "{name} max limit to request ratio per {} is {ratio}",
            self.kind
        );
        let given = |list: &Amounts| list.get(name).copied().filter(|amount| !amount.is_zero());
        let Some(request) = given(&self.requests) else {
            return Some(format!(
                "{head}, but no request is specified or request is 0"
            ));
        };
        let Some(limit) = given(&self.limits) else {
            return Some(format!("{head}, but no limit is specified or limit is 0"));
        };
        let observed = limit.milli() as f64 / request.milli() as f64;
        match observed * 1000.0 > ratio.milli() as f64 {
            true => Some(format!("{head}, but provided ratio is {observed:.6}")),
            false => None,
        }
    }
}

fn less(left: Quantity, right: Quantity) -> bool {
    match left.value().max(right.value()) <= LARGEST_IN_MILLI {
        true => left.milli() < right.milli(),
        false => left.value() < right.value(),
    }
}

fn broken_by_pod(pod: &Value, range: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    for limit in range.list_at(&["spec", "limits"]) {
        match limit.str_at(&["type"]) {
            "Container" => {
                for list in ["containers", "initContainers"] {
                    for container in pod.list_at(&["spec", list]) {
                        Asked::of_container(container).check(limit, &mut broken);
                    }
                }
            }
            "Pod" => {
                let whole = Asked {
                    kind: "Pod",
                    requests: of_containers(pod, List::Requests),
                    limits: of_containers(pod, List::Limits),
                };
                whole.check(limit, &mut broken);
            }
            _ => {}
        }
    }
    without_repetition(broken)
}

fn broken_by_claim(claim: &Value, range: &Value) -> Vec<String> {
    let asked = Asked {
        kind: "PersistentVolumeClaim",
        requests: amounts(claim, &["spec", "resources", "requests"]),
        limits: Amounts::new(),
    };
    let mut broken = Vec::new();
    for limit in limits_of(range, "PersistentVolumeClaim") {
        for (name, least) in amounts(limit, &["min"]) {
            broken.extend(asked.below(&name, least));
        }
        for (name, most) in amounts(limit, &["max"]) {
            let head = format!("maximum {name} usage per {} is {most}", asked.kind);
            match asked.requests.get(&name) {
                None => broken.push(format!("{head}.  No request is specified")),
                Some(request) if less(most, *request) => {
                    broken.push(format!("{head}, but request is {request}"));
                }
                Some(_) => {}
            }
        }
    }
    without_repetition(broken)
}

fn without_repetition(broken: Vec<String>) -> Vec<String> {
    let mut told = std::collections::BTreeSet::new();
    let is_new = |text: &String| told.insert(text.clone());
    broken.into_iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range() -> Value {
        api::document!({"spec": {"limits": [
            {
                "type": "Container",
                "min": {"cpu": "50m"}, "max": {"cpu": "500m"},
                "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m", "memory": "10Mi"},
                "maxLimitRequestRatio": {"cpu": "3"},
            },
            {"type": "Pod", "max": {"cpu": "600m"}},
            {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}},
        ]}})
    }

    fn check(resources: Value, expected: &[&str]) {
        let mut container = api::document!({"name": "a"});
        container.set(&["resources"], resources);
        let mut pod = Value::object();
        pod.set(&["spec", "containers"], vec![container]);
        give_defaults(&mut pod, &range());
        assert_eq!(broken_by_pod(&pod, &range()), expected);
    }

    #[test]
    fn defaults_are_given_and_noted() {
        let mut pod = api::document!({"spec": {"containers": [{"name": "a"}]}});
        give_defaults(&mut pod, &range());
        assert_eq!(
            pod.str_at(&["metadata", "annotations", NOTE]),
            "LimitRanger plugin set: cpu, memory request for container a; cpu limit for container a"
        );
        assert_eq!(
            pod.list_at(&["spec", "containers"])[0].get("resources"),
            Some(&api::document!({
                "requests": {"cpu": "100m", "memory": "10Mi"}, "limits": {"cpu": "200m"},
            }))
        );
    }

    #[test]
    fn too_little_too_much_and_too_far_apart_are_told() {
        check(Value::object(), &[]);
        check(
            api::document!({"requests": {"cpu": "20m"}, "limits": {"cpu": "40m"}}),
            &["minimum cpu usage per Container is 50m, but request is 20m"],
        );
        check(
            api::document!({"requests": {"cpu": "700m"}, "limits": {"cpu": "700m"}}),
            &[
                "maximum cpu usage per Container is 500m, but limit is 700m",
                "maximum cpu usage per Pod is 600m, but limit is 700m",
            ],
        );
        check(
            api::document!({"requests": {"cpu": "100m"}, "limits": {"cpu": "400m"}}),
            &["cpu max limit to request ratio per Container is 3, but provided ratio is 4.000000"],
        );
        let claim = api::document!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
        assert_eq!(
            broken_by_claim(&claim, &range()),
            ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]
        );
    }
}
