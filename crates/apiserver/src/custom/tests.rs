//! What a new kind makes the server do does not grow with the kinds that there are.

use std::cell::Cell;
use std::collections::BTreeMap;

use api::catalogue::Catalogue;
use api::openapi::{Declarations, Declared, Documents, Kinds};
use api::{Resource, Value};

use super::kind;

fn definition(number: usize) -> Value {
    let group = format!("g{number}.example.com");
    let names = api::document!({
        "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList",
    });
    api::document!({
        "metadata": {"name": format!("things.{group}"), "uid": format!("uid-{number}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": names.clone(),
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"a": {"type": "string"}}},
                }}},
            }],
        },
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
    })
}

/// Schemas by the name of their definition; counts how many are read.
#[derive(Default)]
struct Counted {
    schemas: BTreeMap<String, Value>,
    read: Cell<usize>,
}

impl Declarations for Counted {
    fn of(&self, resource: &Resource) -> Option<Declared> {
        self.read.set(self.read.get() + 1);
        let schema = self.schemas.get(&resource.definition.custom()?.kind.name)?;
        Some(Declared {
            schema: Some(schema.clone()),
            selectable_fields: Vec::new(),
        })
    }
}

fn define(catalogue: &Catalogue, counted: &mut Counted, number: usize) {
    let definition = definition(number);
    let served = kind::of(&definition).unwrap();
    let version = &definition.list_at(&["spec", "versions"])[0];
    let schema = version.at(&["schema", "openAPIV3Schema"]).unwrap();
    let name = definition.str_at(&["metadata", "name"]);
    counted.schemas.insert(name.to_string(), schema.clone());
    let replaced = catalogue.replace(&served.group, &served.plural, served.versions);
    assert!(replaced.is_ok());
}

#[test]
fn documents_are_made_of_the_new_kind_alone() {
    for size in [10, 100, 500] {
        let catalogue = Catalogue::by_default();
        let mut counted = Counted::default();
        for number in 0..size {
            define(&catalogue, &mut counted, number);
        }
        let documents = Documents::default();
        let ask = |counted: &Counted, path: &str| {
            let snapshot = catalogue.snapshot();
            let kinds = Kinds {
                snapshot: &snapshot,
                declarations: counted,
            };
            documents.v3_index(kinds);
            assert!(documents.v3(kinds, path).is_some());
            documents.v2_json(kinds);
            documents.v2_protobuf(kinds);
        };
        ask(&counted, "apis/g0.example.com/v1");
        let before = counted.read.replace(0);
        assert!(before > size, "{before} schemas were read for {size} kinds");
        define(&catalogue, &mut counted, size);
        ask(&counted, &format!("apis/g{size}.example.com/v1"));
        // Once for v3 and once for each form of v2.
        assert_eq!(counted.read.get(), 3, "among {size} kinds");
    }
}
