//! RuntimeClass: a pod gets its class's overhead, node selector and tolerations.

use api::resources::amounts;
use api::{Status, Value};

use super::Admitted;

const OVERHEAD: [&str; 2] = ["spec", "overhead"];
const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

pub(super) async fn mutate(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    let Some(class) = class_of(admitted).await? else {
        return Ok(());
    };
    if let Some(fixed) = class.at(&["overhead", "podFixed"]) {
        let given = amounts(admitted.object, &OVERHEAD);
        if !given.is_empty() && given != amounts(&class, &["overhead", "podFixed"]) {
            return Err(admitted.forbidden(MISMATCH));
        }
        admitted.object.set(&OVERHEAD, fixed.clone());
    }
    if let Some(scheduling) = class.get("scheduling") {
        let told = place(admitted.object, scheduling);
        told.map_err(|why| admitted.forbidden(why))?;
    }
    Ok(())
}

pub(super) async fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    if !admitted.is_new_pod() {
        return Ok(());
    }
    let class = class_of(admitted).await?;
    let given = admitted.object.has(&OVERHEAD);
    match class.as_ref().filter(|class| class.has(&["overhead"])) {
        Some(class) => {
            let fixed = amounts(class, &["overhead", "podFixed"]);
            match fixed == amounts(admitted.object, &OVERHEAD) {
                true => Ok(()),
                false => Err(admitted.forbidden(MISMATCH)),
            }
        }
        None if given => Err(admitted.forbidden(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )),
        None => Ok(()),
    }
}

async fn class_of(admitted: &Admitted<'_>) -> Result<Option<Value>, Status> {
    let name = admitted.object.str_at(&["spec", "runtimeClassName"]);
    if !admitted.is_new_pod() || name.is_empty() {
        return Ok(None);
    }
    match admitted
        .one("node.k8s.io", "runtimeclasses", "", name)
        .await?
    {
        Some(class) => Ok(Some(class)),
        None => Err(admitted.forbidden(format_args!(
            "pod rejected: RuntimeClass {name:?} not found"
        ))),
    }
}

/// Adds where such pods may run to what the pod itself says.
fn place(pod: &mut Value, scheduling: &Value) -> Result<(), String> {
    for (key, wanted) in scheduling.fields_at(&["nodeSelector"]) {
        let path = ["spec", "nodeSelector", key];
        match pod.at(&path) {
            Some(given) if given != wanted => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    text(wanted),
                    text(given)
                ));
            }
            _ => pod.set(&path, wanted.clone()),
        }
    }
    let all = [
        pod.list_at(&["spec", "tolerations"]),
        scheduling.list_at(&["tolerations"]),
    ]
    .concat();
    if !all.is_empty() {
        pod.set(&["spec", "tolerations"], without_redundant(&all));
    }
    Ok(())
}

/// More tolerations than this are all kept.
const MOST_COMPARED: usize = 1_000;

/// Leaves out what another one includes; of equal ones the first stays.
fn without_redundant(all: &[Value]) -> Vec<Value> {
    // Each is compared with all others.
    if all.len() > MOST_COMPARED {
        return all.to_vec();
    }
    let mut kept: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let before = kept.iter().any(|other| includes(other, toleration));
        let after = || {
            let mut later = all[index + 1..].iter();
            later.any(|other| other != toleration && includes(other, toleration))
        };
        if !before && !after() {
            kept.push(toleration.clone());
        }
    }
    kept
}

/// Whether `wide` tolerates everything that `narrow` does.
fn includes(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |toleration: &Value, field: &str| toleration.str_at(&[field]).to_string();
    let operator = |toleration: &Value| match toleration.str_at(&["operator"]) {
        "" => "Equal".to_string(),
        operator => operator.to_string(),
    };
    if text(wide, "key") != text(narrow, "key")
        && !(text(wide, "key").is_empty() && operator(wide) == "Exists")
    {
        return false;
    }
    if !text(wide, "effect").is_empty() && text(wide, "effect") != text(narrow, "effect") {
        return false;
    }
    let seconds = |toleration: &Value| toleration.i64_at(&["tolerationSeconds"]);
    if let Some(ours) = seconds(wide)
        && seconds(narrow).is_none_or(|theirs| theirs > ours)
    {
        return false;
    }
    operator(wide) == "Exists"
        || operator(narrow) == "Equal" && text(wide, "value") == text(narrow, "value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_adds_its_places_and_a_contradiction_is_told() {
        let scheduling = api::document!({
            "nodeSelector": {"runtime": "sealed"},
            "tolerations": [{"key": "sealed", "operator": "Exists", "effect": "NoSchedule"}],
        });
        let mut pod = api::document!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        place(&mut pod, &scheduling).unwrap();
        assert_eq!(pod.str_at(&["spec", "nodeSelector", "runtime"]), "sealed");
        // Everything was tolerated before.
        assert_eq!(pod.list_at(&["spec", "tolerations"]).len(), 1);
        let mut pod = api::document!({"spec": {"nodeSelector": {"runtime": "open"}}});
        let told = place(&mut pod, &scheduling).unwrap_err();
        assert_eq!(
            told,
            "conflict: runtimeClass.scheduling.nodeSelector[runtime] = sealed; pod.spec.nodeSelector[runtime] = open"
        );
    }
}
