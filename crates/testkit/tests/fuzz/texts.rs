//! Selectors, field paths and quantities.

use api::apply::FieldSet;
use api::document::Value;
use api::quantity::Quantity;
use api::selector::{FieldSelector, LabelSelector};

use crate::driver::{Bound, run};
use crate::input;
use crate::random::Random;

/// Text with something of `corpus` in it.
fn text(corpus: &'static [&'static str]) -> impl Fn(&mut Random) -> Vec<u8> {
    move |random| match random.below(8) {
        0 => input::repeated(random).into_bytes(),
        1 => random.bytes(40),
        2 | 3 => input::pieces(random).into_bytes(),
        4 => random.pick(corpus).as_bytes().to_vec(),
        _ => input::damaged(random.pick(corpus).as_bytes(), random),
    }
}

#[test]
fn random_label_selectors_do_not_panic() {
    const CORPUS: &[&str] = &[
        "a=b",
        "a==b,c!=d",
        "a in (b,c),d notin (e)",
        "!a,b",
        "app.kubernetes.io/name=web,x>1,y<2",
        "a in (),b=",
    ];
    run("label-selector", Bound::READING, text(CORPUS), |input| {
        let text = String::from_utf8_lossy(input);
        if let Ok(selector) = LabelSelector::parse(&text) {
            let _ = selector.matches(|_| Some("a"));
            let _ = selector.matches(|_| None);
            let written = selector.to_string();
            assert!(LabelSelector::parse(&written).is_ok(), "{written}");
        }
    });
}

#[test]
fn random_field_selectors_do_not_panic() {
    const CORPUS: &[&str] = &[
        "metadata.name=a",
        "spec.nodeName!=,status.phase==Running",
        "a\\,b=c\\=d",
    ];
    run("field-selector", Bound::READING, text(CORPUS), |input| {
        let text = String::from_utf8_lossy(input);
        if let Ok(selector) = FieldSelector::parse(&text) {
            let _ = selector.matches(|field| (field == "metadata.name").then_some("a"));
        }
    });
}

#[test]
fn random_field_paths_do_not_panic() {
    const CORPUS: &[&str] = &[
        "metadata.name",
        "metadata.labels['app']",
        "metadata.annotations['a/b']",
        "status.podIP",
        "spec.containers{web}",
        r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#,
        r#"{"k:{\"name\":\"a\"}":{},"v:1":{},"i:3":{"f:b":{}}}"#,
    ];
    let pods = api::catalogue::built_in()
        .find("", "v1", "pods")
        .expect("Pods");
    run("field-path", Bound::READING, text(CORPUS), move |input| {
        let text = String::from_utf8_lossy(input);
        let pod = api::document!({"spec": {"containers": [{"name": "a", "env": [
            {"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": text}}},
        ]}]}});
        let _ = pods.strategy().validate_create(&pod);
        if let Ok(fields) = Value::from_json(input)
            && let Ok(set) = FieldSet::from_fields(fields)
        {
            let written = set.clone().into_fields();
            assert_eq!(FieldSet::from_fields(written), Ok(set));
        }
    });
}

#[test]
fn random_quantities_do_not_panic() {
    const CORPUS: &[&str] = &[
        "1",
        "100m",
        "1.5Gi",
        "-3e6",
        "+.5",
        "12E",
        "0.000000001",
        "1e-9",
        "9Ei",
    ];
    run("quantity", Bound::READING, text(CORPUS), |input| {
        let text = String::from_utf8_lossy(input);
        if let Ok(quantity) = Quantity::parse(&text) {
            let written = quantity.to_string();
            assert!(Quantity::parse(&written).is_ok(), "{written}");
            let _ = (quantity + quantity - quantity).rounded_to_milli();
            let _ = (quantity.value(), quantity.milli());
        }
    });
}
