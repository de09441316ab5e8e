//! Schemas, expressions and objects that are made to explode: each is refused, within bounded time
//! and memory, and the server goes on.

use std::time::Duration;

use api::Value;

use crate::custom_harness::{DEFINITIONS, WIDGETS, establish, widget, widgets};
use crate::harness::{Answer, Client, Cluster};

/// Far more than any of these needs, and far less than the work that is refused would take.
const LONGEST: Duration = Duration::from_secs(120);

const SCHEMA: [&str; 2] = ["schema", "openAPIV3Schema"];

/// Widgets whose `spec` has this schema.
fn with_spec(spec: Value) -> Value {
    let mut definition = widgets();
    let version = &mut definition.list_at_mut(&["spec", "versions"])[0];
    for field in [
        "subresources",
        "selectableFields",
        "additionalPrinterColumns",
    ] {
        version.remove(&[field]);
    }
    let mut schema = api::document!({"type": "object"});
    schema.set(&["properties", "spec"], spec);
    version.set(&SCHEMA, schema);
    definition
}

async fn post(admin: &Client, path: &str, body: &Value) -> Answer {
    let answer = tokio::time::timeout(LONGEST, admin.post(path, body)).await;
    answer.expect("the answer takes too long")
}

#[tokio::test]
async fn schemas_that_explode_are_refused() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    // Ten thousand levels.
    let name = "x-kubernetes-preserve-unknown-fields";
    let (open, close) = (r#"{"type":"array","items":"#, "}");
    let deep = format!(
        r#"{}{{"{name}":true}}{}"#,
        open.repeat(10_000),
        close.repeat(10_000)
    );
    let body = widgets().to_string();
    let schema = widgets().list_at(&["spec", "versions"])[0]
        .at(&SCHEMA)
        .unwrap()
        .to_string();
    let body = body.replacen(&schema, &deep, 1);
    let refused = admin.send("POST", DEFINITIONS, "application/json", body.as_bytes());
    let refused = tokio::time::timeout(LONGEST, refused).await.unwrap();
    let message = refused.failure(400, "BadRequest");
    assert!(message.contains("exceeded max depth"), "{message}");

    // Rules within unbounded lists within unbounded lists.
    let rule = |text: &str| api::document!([{"rule": text}]);
    let mut nested = api::document!({"type": "string"});
    nested.set(&["x-kubernetes-validations"], rule("self.contains('x')"));
    for _ in 0..3 {
        nested = api::document!({"type": "array", "items": nested});
    }
    let mut spec = api::document!({"type": "object"});
    spec.set(&["properties", "list"], nested);
    let refused = post(&admin, DEFINITIONS, &with_spec(spec)).await;
    let message = refused.failure(422, "Invalid");
    let words = "estimated rule cost exceeds budget by factor of more than 100x (try simplifying \
                 the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and \
                 strings are declared)";
    assert!(message.contains(words), "{message}");

    // Many rules, none of which is too dear alone.
    let mut properties = Value::object();
    for number in 0..100 {
        let mut text = api::document!({"type": "string", "maxLength": 40_000});
        let words = format!("self.matches('(a|b)*{number}') && !self.matches('{number}(c|d)*')");
        text.set(&["x-kubernetes-validations"], rule(&words));
        let list = api::document!({"type": "array", "maxItems": 200, "items": text});
        properties.set(&[&format!("list{number}")], list);
    }
    let spec = api::document!({"type": "object", "properties": properties});
    let refused = post(&admin, DEFINITIONS, &with_spec(spec)).await;
    let message = refused.failure(422, "Invalid");
    let words = "estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of";
    assert!(message.contains(words), "{message}");
    admin.get(DEFINITIONS).await.expect(200);
}

#[tokio::test]
async fn expressions_that_explode_are_refused() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let doubled = format!(
        "{}self{}",
        "optional.of(".repeat(40),
        ").optMap(v, [v, v])".repeat(40)
    );
    for (rule, words) in [
        (
            format!("{}self.a{}", "(".repeat(5_000), ")".repeat(5_000)),
            "expression recursion limit exceeded: 250",
        ),
        (
            format!("self.a == ''{}", " || self.a == ''".repeat(50_000)),
            "expression code point size exceeds limit: size: 800012, limit 100000",
        ),
        // Upstream expands this one until its memory is used up.
        (
            format!("{doubled}.hasValue()"),
            "the macros of the expression expand to too many parts",
        ),
        (
            "self.a.matches('((a{100}){100}){100}')".to_string(),
            "invalid matches argument",
        ),
        (
            "self.a.split(',').all(x, self.a.split(',').all(y, y != x + ','))".to_string(),
            "estimated rule cost exceeds budget by factor of more than 100x",
        ),
    ] {
        let spec = api::document!({
            "type": "object", "properties": {"a": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": rule.as_str()}],
        });
        let refused = post(&admin, DEFINITIONS, &with_spec(spec)).await;
        let message = refused.failure(422, "Invalid");
        let start: String = rule.chars().take(60).collect();
        assert!(message.contains(words), "{start}: {message}");
    }
    admin.get(DEFINITIONS).await.expect(200);
}

#[tokio::test]
async fn a_short_object_with_long_defaults_is_too_large() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let long = "x".repeat(300_000);
    let items = api::document!({"type": "object", "properties": {
        "a": {"type": "string", "default": long}, "b": {"type": "string"},
    }});
    let mut spec = api::document!({"type": "object"});
    spec.set(
        &["properties", "list"],
        api::document!({"type": "array", "items": items}),
    );
    establish(&admin, &with_spec(spec)).await;
    let with_items = |name: &str, count: usize| {
        let items = vec![Value::object(); count];
        let mut spec = Value::object();
        spec.set(&["list"], items);
        widget(name, spec)
    };
    let made = post(&admin, WIDGETS, &with_items("small", 2))
        .await
        .expect(201);
    let items = made.list_at(&["spec", "list"]).iter();
    assert!(items.clone().all(|item| item.has(&["a"])));
    // Each of these would be thirty gigabytes.
    let too_large = "etcdserver: request is too large";
    let refused = post(&admin, WIDGETS, &with_items("large", 100_000)).await;
    assert_eq!(refused.failure(500, ""), too_large);
    let change = with_items("small", 100_000);
    let path = format!("{WIDGETS}/small");
    let refused = admin.merge(&path, &change);
    let refused = tokio::time::timeout(LONGEST, refused).await.unwrap();
    assert_eq!(refused.failure(500, ""), too_large);
    // A default that comes later is filled into what is stored, and no further than that.
    let mut later = admin
        .get(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .expect(200);
    let item = [
        &SCHEMA[..],
        &[
            "properties",
            "spec",
            "properties",
            "list",
            "items",
            "properties",
        ],
    ]
    .concat();
    let version = &mut later.list_at_mut(&["spec", "versions"])[0];
    let properties = version.at_mut(&item).unwrap();
    properties.remove(&["a", "default"]);
    admin
        .put(&format!("{DEFINITIONS}/widgets.example.com"), &later)
        .await
        .expect(200);
    post(&admin, WIDGETS, &with_items("stored", 40_000))
        .await
        .expect(201);
    let version = &mut later.list_at_mut(&["spec", "versions"])[0];
    let properties = version.at_mut(&item).unwrap();
    properties.set(&["b", "default"], "y".repeat(300_000));
    later.remove(&["metadata", "resourceVersion"]);
    let change = api::document!({"spec": {"versions": later.list_at(&["spec", "versions"])}});
    admin
        .merge(&format!("{DEFINITIONS}/widgets.example.com"), &change)
        .await
        .expect(200);
    let path = format!("{WIDGETS}/stored");
    let read = admin.get(&path);
    let read = tokio::time::timeout(LONGEST, read).await.unwrap();
    assert_eq!(read.code, 200);
    assert!(read.bytes.len() < 8 << 20, "{}", read.bytes.len());
}

#[tokio::test]
async fn an_object_that_multiplies_with_its_schema_is_refused() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let words: Vec<Value> = (0..5_000)
        .map(|word| format!("word-{word}").into())
        .collect();
    let last = words.last().cloned().unwrap();
    let mut spec = api::document!({"type": "object"});
    let list = api::document!({"type": "array", "items": {"type": "string", "enum": words}});
    spec.set(&["properties", "list"], list);
    establish(&admin, &with_spec(spec)).await;
    let with_items = |name: &str, count: usize| {
        let mut spec = Value::object();
        spec.set(&["list"], vec![last.clone(); count]);
        widget(name, spec)
    };
    post(&admin, WIDGETS, &with_items("small", 1_000))
        .await
        .expect(201);
    let refused = post(&admin, WIDGETS, &with_items("large", 50_000)).await;
    assert_eq!(
        refused.failure(422, "Invalid"),
        "Widget.example.com \"large\" is invalid: <nil>: Invalid value: \"\": the object was not \
         validated to its end: object and schema together need more than 50000000 steps"
    );
    admin.get(WIDGETS).await.expect(200);
}
