//! Priority: a pod's class becomes its number, and one class at most is everybody's default.

use api::{Status, Value};

use super::{Admitted, Operation};

pub(super) fn admit(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    if let (true, Operation::Update, Some(old)) =
        (admitted.is_pod(), admitted.operation, admitted.old)
    {
        // Those who write a whole pod without what was found for it keep it.
        for field in ["priority", "preemptionPolicy"] {
            let path = ["spec", field];
            if let (None, Some(value)) = (admitted.object.at(&path), old.at(&path)) {
                admitted.object.set(&path, value.clone());
            }
        }
    }
    if !admitted.is_new_pod() {
        return Ok(());
    }
    let cache = &admitted.context.server.cache;
    let classes = cache.named("scheduling.k8s.io", "priorityclasses");
    let name = admitted
        .object
        .str_at(&["spec", "priorityClassName"])
        .to_string();
    let class = match name.as_str() {
        "" => default_class(cache.snapshot(&classes).iter().map(|(_, entry)| entry)),
        _ => match classes.get(&name) {
            Some(entry) => Some(entry.object()?),
            None => {
                return Err(
                    admitted.forbidden(format_args!("no PriorityClass with name {name} was found"))
                );
            }
        },
    };
    let (value, policy) = match &class {
        Some(class) => {
            let class_name = class.str_at(&["metadata", "name"]);
            admitted
                .object
                .set(&["spec", "priorityClassName"], class_name);
            let policy = match class.str_at(&["preemptionPolicy"]) {
                "" => "PreemptLowerPriority",
                policy => policy,
            };
            (
                class.get("value").and_then(Value::as_i64).unwrap_or(0),
                policy.to_string(),
            )
        }
        None => (0, "PreemptLowerPriority".to_string()),
    };
    let given = admitted
        .object
        .at(&["spec", "priority"])
        .and_then(Value::as_i64);
    if let Some(given) = given
        && given != value
    {
        return Err(admitted.forbidden(format_args!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        )));
    }
    let given = admitted.object.str_at(&["spec", "preemptionPolicy"]);
    if !given.is_empty() && given != policy {
        return Err(admitted.forbidden(format_args!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    admitted.object.set(&["spec", "priority"], value);
    admitted.object.set(&["spec", "preemptionPolicy"], policy);
    Ok(())
}

/// Refuses a second default class.
pub(super) fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    let marked = admitted
        .object
        .get("globalDefault")
        .and_then(Value::as_bool);
    if !admitted.is("scheduling.k8s.io", "PriorityClass")
        || admitted.operation == Operation::Delete
        || marked != Some(true)
    {
        return Ok(());
    }
    let cache = &admitted.context.server.cache;
    let classes = cache.snapshot(&cache.named("scheduling.k8s.io", "priorityclasses"));
    let Some(class) = default_class(classes.iter().map(|(_, entry)| entry)) else {
        return Ok(());
    };
    let name = class.str_at(&["metadata", "name"]);
    if admitted.operation == Operation::Update && name == admitted.name() {
        return Ok(());
    }
    Err(admitted.forbidden(format_args!(
        "PriorityClass {name} is already marked as default. Only one default can exist"
    )))
}

/// The class marked as the global default; of several, the lowest counts.
fn default_class<'a>(
    entries: impl Iterator<Item = &'a std::sync::Arc<crate::cache::CachedObject>>,
) -> Option<Value> {
    entries
        .filter(|entry| !entry.name().starts_with("system-"))
        .filter_map(|entry| entry.object().ok())
        .filter(|class| class.get("globalDefault").and_then(Value::as_bool) == Some(true))
        .min_by_key(|class| class.get("value").and_then(Value::as_i64).unwrap_or(0))
}
