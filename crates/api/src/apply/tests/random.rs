//! Random configurations by several appliers: what each last applied is in the object and owned by
//! it, and nothing that nobody applies remains.

use super::*;
use crate::document;

/// A small generator of its own: the same numbers everywhere.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn configuration(numbers: &mut Numbers) -> Value {
    let mut pod = document!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
    for name in ["x", "y", "z"] {
        if numbers.coin() {
            let value = numbers.below(3).to_string();
            pod.set(&["metadata", "labels", name], value);
        }
    }
    if numbers.coin() {
        let finalizers: Vec<Value> = ["f/a", "f/b", "f/c"]
            .into_iter()
            .filter(|_| numbers.coin())
            .map(Value::from)
            .collect();
        pod.set(&["metadata", "finalizers"], finalizers);
    }
    let mut containers = Vec::new();
    for name in ["a", "b", "c"] {
        if numbers.coin() {
            let mut container = document!({"name": name});
            if numbers.coin() {
                container.set(&["image"], format!("i{}", numbers.below(2)));
            }
            if numbers.coin() {
                let port = 80 + numbers.below(3) as i64;
                container.set(
                    &["ports"],
                    document!([{"containerPort": port, "name": "p"}]),
                );
            }
            if numbers.coin() {
                let args: Vec<Value> = (0..numbers.below(3))
                    .map(|i| i.to_string().into())
                    .collect();
                container.set(&["args"], args);
            }
            if numbers.coin() {
                container.set(
                    &["resources", "limits", "cpu"],
                    numbers.below(4).to_string(),
                );
            }
            containers.push(container);
        }
    }
    if numbers.coin() {
        containers.reverse();
    }
    if !containers.is_empty() {
        pod.set(&["spec", "containers"], containers);
    }
    if numbers.coin() {
        pod.set(
            &["spec", "nodeSelector", "zone"],
            numbers.below(2).to_string(),
        );
    }
    pod
}

/// Whether `object` has all that `part` says; items of lists are found by key or value.
fn contains(place: Place<'_>, object: Option<&Value>, part: &Value) -> bool {
    match place.form(Some(part)) {
        place::Form::Map {
            atomic: false,
            place,
        } => part.fields_at(&[]).all(|(name, value)| {
            let child = place.child(name).unwrap_or(Place::Opaque);
            contains(child, object.and_then(|object| object.get(name)), value)
        }),
        place::Form::List(items) if !items.is_atomic() => {
            compare::list(Some(part)).iter().all(|item| {
                let element = items.element(item);
                let found = compare::list(object)
                    .iter()
                    .find(|candidate| items.element(candidate) == element);
                found.is_some() && contains(items.item(), found, item)
            })
        }
        _ => match (object, part) {
            (Some(object), part) => same(object, part),
            // Empty lists and maps disappear.
            (None, Value::Array(items)) => items.is_empty(),
            (None, Value::Object(fields)) => fields.is_empty(),
            _ => false,
        },
    }
}

#[test]
fn appliers_get_what_they_apply_and_own_it() {
    let place = Place::Declared(Shape::of(resource("pods").definition.name()).unwrap());
    for seed in 0..400 {
        let mut numbers = Numbers(seed);
        let mut live: Option<Value> = None;
        for _ in 0..8 {
            let manager = ["one", "two", "three"][numbers.below(3) as usize];
            let configuration = configuration(&mut numbers);
            let object = applied("pods", live.as_ref(), &configuration, manager, true).unwrap();
            assert!(
                contains(place, Some(&object), &configuration),
                "seed {seed}: {object}\nlacks {configuration}"
            );
            let owned = FieldSet::from_fields(fields_of(&object, manager)).unwrap();
            let wanted = stripped(remove::all_fields(place, &configuration));
            assert_eq!(owned, wanted, "seed {seed}");
            // Every label and container is owned by somebody.
            let entries = Entries::read(object.at(&MANAGED_FIELDS).cloned()).unwrap();
            let all = entries.0.iter().fold(FieldSet::default(), |all, entry| {
                all.union(entry.fields.clone())
            });
            let mut bare = object.clone();
            bare.remove(&MANAGED_FIELDS);
            let path = |steps: &[String]| all.contains(steps);
            for (name, _) in bare.fields_at(&["metadata", "labels"]) {
                let steps = ["metadata", "labels", name].map(element::field);
                assert!(path(&steps), "seed {seed}: label {name} has no owner");
            }
            for container in bare.list_at(&["spec", "containers"]) {
                let name = container.str_at(&["name"]);
                let steps = [
                    element::field("spec"),
                    element::field("containers"),
                    format!("k:{{\"name\":\"{name}\"}}"),
                ];
                assert!(path(&steps), "seed {seed}: container {name} has no owner");
            }
            // Applying the same again changes nothing.
            let again = applied("pods", Some(&object), &configuration, manager, false).unwrap();
            assert_eq!(again, object, "seed {seed}");
            live = Some(object);
        }
    }
}
