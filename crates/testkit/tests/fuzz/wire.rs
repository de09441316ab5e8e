//! Protobuf: what we write we read again, and nothing that anybody sends harms us.

use api::Value;
use api::protobuf::{decode, decode_message, encode_as};
use api::schema::{Definition, table};

use crate::documents::document;
use crate::driver::{Bound, run};
use crate::input;
use crate::random::Random;

/// Every registered kind with its definition.
fn kinds() -> Vec<(String, &'static str, &'static Definition)> {
    let mut kinds = Vec::new();
    for definition in table().definitions() {
        for kind in &definition.kinds {
            let api_version = api::resource::api_version(kind.group, kind.version);
            kinds.push((api_version, kind.kind, definition));
        }
    }
    kinds
}

/// Some kind with an object of it, encoded.
fn encoded(random: &mut Random) -> (Vec<u8>, Value) {
    let kinds = kinds();
    loop {
        let (api_version, kind, definition) = random.pick(&kinds);
        let mut object = document(definition, random);
        if let Ok(bytes) = encode_as(definition, api_version, kind, &object) {
            object.set(&["apiVersion"], api_version.as_str());
            object.set(&["kind"], *kind);
            return (bytes, object);
        }
    }
}

#[test]
fn every_kind_survives_encoding_and_decoding() {
    for (api_version, kind, definition) in kinds() {
        let mut random = Random::new(2_026, kind);
        for _ in 0..4 {
            let mut object = document(definition, &mut random);
            let Ok(bytes) = encode_as(definition, &api_version, kind, &object) else {
                continue;
            };
            object.set(&["apiVersion"], api_version.as_str());
            object.set(&["kind"], kind);
            let decoded = decode(&bytes).expect("our own bytes");
            assert!(
                decoded == object,
                "{api_version} {kind}\n{object}\n{decoded}"
            );
        }
    }
}

#[test]
fn random_protobuf_bodies_do_not_panic() {
    let make = |random: &mut Random| {
        let (bytes, _) = encoded(random);
        match random.below(10) {
            0 => random.bytes(300),
            1 => {
                let kinds = kinds();
                let (_, _, definition) = random.pick(&kinds);
                input::hostile(definition, random)
            }
            2 => bytes,
            _ => input::damaged(&bytes, random),
        }
    };
    let all = kinds();
    run("protobuf", Bound::READING, make, move |input| {
        if let Ok(object) = decode(input) {
            assert_eq!(object.check_depth(), Ok(()));
        }
        let (_, _, definition) = all[input.len() % all.len()];
        let _ = decode_message(definition, input);
    });
}

#[test]
fn lengths_beyond_the_message_allocate_nothing() {
    let definition = table().definition("io.k8s.api.core.v1.Pod").expect("Pods");
    // Field 1 with a length of almost 2^63, and packed numbers that claim as many.
    for huge in [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f".as_slice(),
        b"\x12\xff\xff\xff\xff\x0f\x22\xff\xff\xff\xff\x0f",
    ] {
        assert!(decode_message(definition, huge).is_err());
    }
}

#[test]
fn nesting_is_bounded() {
    let definition = table()
        .definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
        .expect("schemas");
    // `not` within `not`, deeper than any stack would bear.
    let field = definition.field("not").and_then(|field| field.protobuf);
    let (number, _) = field.expect("`not` has a number");
    let deep = input::nested(number, 20_000);
    assert!(decode_message(definition, &deep).is_err());
    let shallow = input::nested(number, 10);
    let decoded: Value = decode_message(definition, &shallow).expect("ten levels are fine");
    assert!(decoded.has(&["not", "not", "not"]));
}
