//! JSON, YAML and protobuf bodies of every kind, and what the server does with an object before it
//! stores it: defaulting, validation, warnings, and the forms it is told in.

use api::document::{MAX_DEPTH, Value, yaml};
use api::schema::{self, decode_json, table};
use api::{Resource, protobuf, warnings};

use crate::documents::some_object;
use crate::driver::{Bound, run};
use crate::input;
use crate::random::Random;

/// Validation words every mistake of every field.
const HANDLING: Bound = Bound {
    bytes: 16 << 20,
    bytes_per_byte: 20_000,
};

/// Which kind an input is read as follows from the input.
fn kind_of(input: &[u8]) -> &'static Resource {
    let text = String::from_utf8_lossy(input);
    let kinds = api::catalogue::built_in().resources();
    let named = kinds
        .iter()
        .filter(|resource| text.contains(&*resource.kind))
        .max_by_key(|resource| resource.kind.len());
    named.unwrap_or(&kinds[input.len() % kinds.len()])
}

/// All that happens to an object on its way into the store, and that it can be read again.
fn handle(resource: &'static Resource, mut object: Value) {
    assert_eq!(object.check_depth(), Ok(()));
    schema::defaults(resource, &mut object);
    let strategy = resource.strategy();
    strategy.default(&mut object);
    strategy.prepare_create(&mut object);
    let _ = strategy.validate_create(&object);
    let _ = warnings::of(resource, &object, None, "");
    let _ = schema::forget_empty(resource, &mut object);
    let json = object.to_json();
    let again = Value::from_json(&json).expect("what is stored can be read");
    assert_eq!(again.to_json(), json);
    if let Ok(bytes) = protobuf::encode(resource, &object) {
        let _ = protobuf::decode(&bytes).expect("our own bytes");
    }
}

fn json(random: &mut Random) -> Vec<u8> {
    match random.below(20) {
        0 => input::pieces(random).into_bytes(),
        1 => input::repeated(random).into_bytes(),
        2 => random.bytes(60),
        3 => {
            let (_, mut object) = some_object(random);
            object.set(&["metadata", "labels"], "here");
            let json = String::from_utf8_lossy(&object.to_json()).into_owned();
            json.replace("\"here\"", &input::many_keys(random))
                .into_bytes()
        }
        4..9 => some_object(random).1.to_json(),
        _ => {
            let (_, object) = some_object(random);
            input::damaged(&object.to_json(), random)
        }
    }
}

#[test]
fn random_json_bodies_do_not_panic() {
    run("json", HANDLING, json, |input| {
        let resource = kind_of(input);
        let _ = schema::repeated_fields(input);
        let _ = schema::parse_json(input);
        if let Ok((object, _)) = decode_json(resource, input) {
            handle(resource, object);
        }
    });
}

#[test]
fn json_round_trips() {
    let make = |random: &mut Random| some_object(random).1.to_json();
    run("json-round", HANDLING, make, |input| {
        let object = Value::from_json(input).expect("JSON");
        let (group, version) = api::resource::split_api_version(object.str_at(&["apiVersion"]));
        let kind = object.str_at(&["kind"]);
        let resource = api::catalogue::built_in()
            .find_kind(group, version, kind)
            .expect("a kind");
        let (read, _) = decode_json(resource, input).expect("a document of that kind");
        assert_eq!(read, object);
        let documents = yaml::parse_documents(yaml::to_yaml(&object).as_bytes());
        assert_eq!(documents.as_deref(), Ok([object].as_slice()));
    });
}

/// Anchors within anchors, aliases of them, and merges.
fn aliases(random: &mut Random) -> String {
    let mut text = String::new();
    let count = 1 + random.below(60);
    for anchor in 0..count {
        let levels = random.below(120);
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        let before = match anchor {
            0 => "x".repeat(random.below(2_000)),
            _ => {
                let alias = format!("*a{}", random.below(anchor));
                vec![alias; 1 + random.below(20)].join(",")
            }
        };
        text.push_str(&match random.below(5) {
            0 => format!("<<: &a{anchor} {{k: [{before}]}}\n"),
            1 => format!("a{anchor}: &a{anchor} {{k: [{before}]}}\n"),
            _ => format!("a{anchor}: &a{anchor} [{open}{before}{close}]\n"),
        });
    }
    text
}

#[test]
fn random_yaml_bodies_do_not_panic() {
    let make = |random: &mut Random| match random.below(10) {
        0 => input::pieces(random).into_bytes(),
        1 => input::repeated(random).into_bytes(),
        2 => aliases(random).into_bytes(),
        3 => input::many_keys(random).replace(',', "\n").into_bytes(),
        4 => json(random),
        _ => {
            let text = yaml::to_yaml(&some_object(random).1);
            input::damaged(text.as_bytes(), random)
        }
    };
    run("yaml", HANDLING, make, |input| {
        let _ = yaml::parse_documents(input);
        let Ok((documents, _)) = yaml::parse_with_repeated(input) else {
            return;
        };
        for mut document in documents {
            assert_eq!(document.check_depth(), Ok(()));
            let resource = kind_of(input);
            if schema::decode(resource, &mut document).is_ok() {
                handle(resource, document);
            }
        }
    });
}

#[test]
fn documents_deeper_than_the_limit_are_rejected_in_every_format() {
    let maps = api::catalogue::built_in()
        .find("apps", "v1", "controllerrevisions")
        .expect("a kind");
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"metadata":{{"name":"a"}},"revision":1,"data":{open}{close}}}"#)
    };
    for (levels, fits) in [(MAX_DEPTH - 1, true), (MAX_DEPTH, false)] {
        let text = nested(levels);
        assert_eq!(decode_json(maps, text.as_bytes()).is_ok(), fits);
        assert_eq!(yaml::parse_documents(text.as_bytes()).is_ok(), fits);
        let Ok(object) = Value::from_json(text.as_bytes()) else {
            panic!("what was once stored can be read: {levels}");
        };
        let bytes = protobuf::encode(maps, &object).expect("encoded");
        assert_eq!(protobuf::decode(&bytes).is_ok(), fits);
    }
    // The table is made once.
    assert!(!table().definitions().is_empty());
}
