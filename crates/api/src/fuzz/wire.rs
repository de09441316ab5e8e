//! Protobuf: what we write we read again, and nothing that anybody sends harms us.

use super::{document, input, random, rounds};
use crate::document::Value;
use crate::protobuf::{decode, decode_message, encode_as};
use crate::schema::{Definition, table};

/// Every registered kind with its definition.
fn kinds() -> Vec<(String, &'static str, &'static Definition)> {
    let mut kinds = Vec::new();
    for definition in table().definitions() {
        for kind in &definition.kinds {
            let api_version = crate::catalogue::api_version(kind.group, kind.version);
            kinds.push((api_version, kind.kind, definition));
        }
    }
    kinds
}

#[test]
fn every_kind_survives_encoding_and_decoding() {
    let mut seen = 0;
    for round in 0..rounds() {
        let mut random = random("round trips", round);
        for (api_version, kind, definition) in kinds() {
            for _ in 0..4 {
                let mut object = document(definition, &mut random);
                let Ok(bytes) = encode_as(definition, &api_version, kind, &object) else {
                    continue;
                };
                seen += 1;
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
    assert!(seen > 500, "{seen}");
}

#[test]
fn damaged_messages_of_every_kind_are_refused_or_skipped() {
    for round in 0..rounds() {
        let mut random = random("damage", round);
        for (api_version, kind, definition) in kinds() {
            let object = document(definition, &mut random);
            let Ok(bytes) = encode_as(definition, &api_version, kind, &object) else {
                continue;
            };
            for _ in 0..30 {
                let _ = decode(&input::damaged(&bytes, &mut random));
            }
            for _ in 0..5 {
                let _ = decode_message(definition, &random.bytes(300));
                let _ = decode_message(definition, &input::hostile(definition, &mut random));
            }
        }
    }
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
        .definition(crate::schema::JSON_SCHEMA)
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
