//! `samples.txt` was written by Kubernetes' own encoders (see `tools/tables/samples`). `cargo xtask
//! tables --check` names a file with samples of every kind instead.

use super::*;
use crate::schema::{Target, decode_json_as};

struct Sample {
    api_version: &'static str,
    kind: &'static str,
    bytes: Vec<u8>,
    json: &'static str,
}

fn samples() -> Vec<Sample> {
    static TEXT: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| match std::env::var("CORACLE_PROTOBUF_SAMPLES") {
            Ok(path) => std::fs::read_to_string(path).expect("the samples"),
            Err(_) => include_str!("samples.txt").to_string(),
        });
    TEXT.lines()
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [api_version, kind, hexadecimal, json] = columns[..] else {
                panic!("four columns")
            };
            let bytes = (0..hexadecimal.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap())
                .collect();
            Sample {
                api_version,
                kind,
                bytes,
                json,
            }
        })
        .collect()
}

/// What Go writes as `null` is absent in our documents.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object
                .iter_mut()
                .for_each(|(_, value)| without_nulls(value));
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

fn expected(sample: &Sample) -> Value {
    let mut value = Value::from_json(sample.json.as_bytes()).unwrap();
    without_nulls(&mut value);
    value
}

#[test]
fn documents_are_encoded_byte_for_byte_as_by_go() {
    for sample in samples() {
        let document = Value::from_json(sample.json.as_bytes()).unwrap();
        assert!(
            encode_object(&document).unwrap() == sample.bytes,
            "{} {}",
            sample.api_version,
            sample.kind
        );
    }
}

#[test]
fn bytes_are_decoded_as_by_go() {
    for sample in samples() {
        let mut decoded = decode(&sample.bytes).unwrap();
        without_nulls(&mut decoded);
        assert_eq!(decoded, expected(&sample), "{}", sample.kind);
    }
}

#[test]
fn json_is_decoded_as_by_go() {
    for sample in samples() {
        let (group, version) = split_api_version(sample.api_version);
        let target = Target::of_kind(group, version, sample.kind).unwrap();
        let (mut decoded, problems) = decode_json_as(&target, sample.json.as_bytes()).unwrap();
        without_nulls(&mut decoded);
        assert_eq!(decoded, expected(&sample), "{}", sample.kind);
        assert_eq!(problems, []);
    }
}

#[test]
fn damaged_bytes_are_refused_or_skipped_but_never_panic() {
    assert_eq!(decode(b"{}"), Err(Error::NoEnvelope));
    for sample in samples()
        .into_iter()
        .filter(|sample| sample.bytes.len() < 2000)
    {
        for end in 0..sample.bytes.len() {
            let _ = decode(&sample.bytes[..end]);
        }
        for at in 4..sample.bytes.len() {
            let mut damaged = sample.bytes.clone();
            damaged[at] ^= 0x55;
            let _ = decode(&damaged);
        }
    }
}

#[test]
fn tables_have_no_protobuf_form() {
    let definition = table()
        .definition("io.k8s.apimachinery.pkg.apis.meta.v1.Table")
        .unwrap();
    let result = encode_as(definition, "meta.k8s.io/v1", "Table", &Value::object());
    assert!(matches!(result, Err(Error::NoProtobuf { .. })));
}

#[test]
fn watch_events_are_framed() {
    assert_eq!(
        watch_frame("ADDED", b"xyz"),
        b"\0\0\0\x0e\x0a\x05ADDED\x12\x05\x0a\x03xyz"
    );
}

#[test]
fn kept_messages_are_what_is_encoded_afresh() {
    let versions = ["", "7", "12345678901234567890"];
    let mut seen = 0;
    for sample in samples() {
        let mut document = Value::from_json(sample.json.as_bytes()).unwrap();
        let definition = definition_of(sample.api_version, sample.kind).unwrap();
        if definition.property("metadata").is_none() {
            continue;
        }
        seen += 1;
        let message = Message::of(definition, &document).unwrap();
        for version in versions {
            document.set(&["metadata", "resourceVersion"], version);
            let expected = encode_object(&document).unwrap();
            let mut written = Vec::new();
            message.write_enveloped(&mut written, sample.api_version, sample.kind, version);
            assert!(written == expected, "{} {version}", sample.kind);
            let mut event = Vec::new();
            let kind = (sample.api_version, sample.kind);
            message.write_event(&mut event, "ADDED", kind, version);
            assert!(event == watch_frame("ADDED", &expected), "{}", sample.kind);
        }
        let list_kind = format!("{}List", sample.kind);
        let Ok(list) = definition_of(sample.api_version, &list_kind) else {
            continue;
        };
        let metadata = crate::document!({"resourceVersion": "9", "remainingItemCount": 4});
        let list = ListMessage::of(list, &metadata).unwrap();
        let mut items = Vec::new();
        for version in versions {
            list.write_item(&mut items, &message, version);
        }
        let (head, end) = list.around(sample.api_version, &list_kind, items.len());
        let written = [head, items, end].concat();
        let objects: Vec<Value> = versions
            .iter()
            .map(|version| {
                document.set(&["metadata", "resourceVersion"], *version);
                document.clone()
            })
            .collect();
        let expected = crate::document!({
            "apiVersion": sample.api_version, "kind": list_kind, "metadata": metadata,
            "items": objects,
        });
        assert!(
            written == encode_object(&expected).unwrap(),
            "{}",
            sample.kind
        );
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn every_served_kind_has_a_kept_form_and_a_list() {
    for resource in crate::catalogue::built_in().resources() {
        let definition = table().definition(resource.definition.name()).unwrap();
        assert!(Message::of(definition, &Value::object()).is_ok());
        if resource.has_verb("list") {
            let list = format!("{}List", resource.kind);
            definition_of(&resource.api_version(), &list).unwrap();
        }
    }
}

/// A ControllerRevision whose data is a ControllerRevision, `levels` times.
fn nested_revisions(levels: usize) -> Vec<u8> {
    let (definition, kind) = (
        definition_of("apps/v1", "ControllerRevision"),
        "ControllerRevision",
    );
    let definition = definition.expect("a kind");
    let (data, _) = definition
        .field("data")
        .and_then(|field| field.protobuf)
        .expect("a field of the message");
    let mut bytes = b"{}".to_vec();
    for _ in 0..levels {
        let mut writer = Writer::with_prefix(MAGIC);
        writer.message(1, |meta| {
            meta.bytes(1, b"apps/v1");
            meta.bytes(2, kind.as_bytes());
        });
        writer.message(2, |raw| raw.message(data, |inner| inner.bytes(1, &bytes)));
        bytes = writer.finish();
    }
    bytes
}

#[test]
fn embedded_objects_count_towards_the_depth() {
    let decoded = decode(&nested_revisions(50)).expect("fifty levels");
    assert!(decoded.has(&["data", "data", "data"]));
    for levels in [MAX_DEPTH + 2, 3_000] {
        assert_eq!(decode(&nested_revisions(levels)), Err(Error::TooDeep));
    }
}

#[test]
fn json_that_is_embedded_counts_towards_the_depth() {
    let nested = |levels: usize| {
        let mut value = Value::Null;
        for _ in 0..levels {
            value = Value::Array(vec![value]);
        }
        let revision = crate::document!({"metadata": {"name": "a"}});
        let mut revision = revision;
        revision.set(&["data"], value);
        let definition = definition_of("apps/v1", "ControllerRevision").expect("a kind");
        encode_as(definition, "apps/v1", "ControllerRevision", &revision).expect("encoded")
    };
    assert!(decode(&nested(MAX_DEPTH - 1)).is_ok());
    assert_eq!(decode(&nested(MAX_DEPTH)), Err(Error::TooDeep));
}

#[test]
fn maps_in_any_order_cost_n_log_n() {
    let definition = definition_of("v1", "ConfigMap").expect("a kind");
    let (data, _) = definition
        .field("data")
        .and_then(|field| field.protobuf)
        .expect("a field");
    crate::steps::assert_n_log_n(|entries| {
        let mut writer = Writer::with_prefix(b"");
        for entry in (0..entries).rev() {
            writer.message(data, |inner| {
                inner.bytes(1, format!("{entry:07}").as_bytes())
            });
        }
        let bytes = writer.finish();
        crate::steps::of(|| {
            let object = decode_message(definition, &bytes).expect("a ConfigMap");
            assert_eq!(object.fields_at(&["data"]).count(), entries);
        })
    });
}

#[test]
fn packed_numbers_are_read() {
    // PodSecurityContext.supplementalGroups = 4, packed 1, 300.
    let definition = table()
        .definition("io.k8s.api.core.v1.PodSecurityContext")
        .unwrap();
    let decoded = decode_message(definition, b"\x22\x03\x01\xac\x02").unwrap();
    assert_eq!(decoded.to_string(), r#"{"supplementalGroups":[1,300]}"#);
}
