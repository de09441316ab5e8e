//! Random documents of a type in the table, in the form that our own decoders would give them.

use api::document::{Object, Value};
use api::schema::{Definition, Type, normalise, table};
use api::{Resource, catalogue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::random::Random;

/// What stands where a schema or something else may.
const JSON_SCHEMA: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

const DEEPEST: usize = 7;
const WORDS: [&str; 8] = [
    "a",
    "web",
    "x-1",
    "ünï",
    "0",
    "with space",
    "日本",
    "\"quoted\\",
];

/// A random object of some served kind, and that kind.
pub fn some_object(random: &mut Random) -> (&'static Resource, Value) {
    let resource = random.pick(catalogue::built_in().resources());
    (resource, object_of(resource, random))
}

/// A random object of a kind.
pub fn object_of(resource: &'static Resource, random: &mut Random) -> Value {
    let definition = table()
        .definition(resource.definition)
        .expect("in the table");
    let mut object = document(definition, random);
    object.set(&["apiVersion"], resource.api_version());
    object.set(&["kind"], &*resource.kind);
    object
}

/// A document of `definition`.
pub fn document(definition: &'static Definition, random: &mut Random) -> Value {
    let mut object = object(definition, 0, random);
    normalise(definition, &mut object);
    object
}

fn object(definition: &Definition, depth: usize, random: &mut Random) -> Value {
    let mut fields = Object::default();
    for property in &definition.properties {
        let field = table().field(property);
        // `apiVersion` and `kind` are the envelope's; the deeper, the sparser.
        let skipped = matches!(field.name, "" | "apiVersion" | "kind")
            || field.protobuf.is_none()
            || !random.one_in(2 + depth);
        if skipped {
            continue;
        }
        if let Some(value) = value(&field.kind, depth + 1, random) {
            fields.insert(field.name, value);
        }
    }
    Value::Object(fields)
}

fn text(random: &mut Random) -> String {
    let count = 1 + random.below(3);
    (0..count).map(|_| *random.pick(&WORDS)).collect()
}

fn value(kind: &Type, depth: usize, random: &mut Random) -> Option<Value> {
    if depth > DEEPEST {
        return None;
    }
    Some(match kind {
        Type::String => text(random).into(),
        Type::Bool => true.into(),
        Type::Int32 => Value::Integer(i64::from(random.next() as i32 | 1)),
        Type::Int64 => Value::Integer(random.next() as i64 | 1),
        Type::Float => Value::Float(random.below(1000) as f64 + 0.5),
        Type::Bytes => {
            let mut bytes = random.bytes(20);
            bytes.push(1);
            STANDARD.encode(bytes).into()
        }
        Type::Time => moment(random).into(),
        Type::MicroTime => {
            let fraction = random.below(1_000_000);
            let whole = moment(random);
            let whole = whole.trim_end_matches('Z');
            format!("{whole}.{fraction:06}Z").into()
        }
        Type::Duration => format!("{}s", 1 + random.below(59)).into(),
        Type::Quantity => (*random.pick(&["1", "100m", "3Gi", "-5", "1500k", "12e6"])).into(),
        Type::IntOrString => match random.one_in(2) {
            true => Value::Integer(i64::from(random.next() as i32)),
            false => text(random).into(),
        },
        Type::Raw | Type::Json | Type::Any => {
            let mut raw = Value::object();
            raw.set(&[&text(random)], random.below(9) as i64);
            raw
        }
        Type::Fields => {
            let mut fields = Value::object();
            fields.set(&["f:spec", "f:a"], Value::object());
            fields
        }
        Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings => {
            let schema = table().definition(JSON_SCHEMA)?;
            object(schema, depth + 2, random)
        }
        Type::Object(index) => object(table().at(*index), depth, random),
        Type::List { item, .. } => {
            let count = 1 + random.below(3);
            let items: Vec<Value> = (0..count)
                .filter_map(|_| value(item, depth + 1, random))
                .collect();
            (!items.is_empty()).then_some(Value::Array(items))?
        }
        Type::Map(item) => {
            let mut fields = Object::default();
            for _ in 0..=random.below(3) {
                if let Some(value) = value(item, depth + 1, random) {
                    fields.insert(text(random), value);
                }
            }
            (!fields.is_empty()).then_some(Value::Object(fields))?
        }
    })
}

fn moment(random: &mut Random) -> String {
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        1970 + random.below(200),
        1 + random.below(12),
        1 + random.below(28),
        random.below(24),
        random.below(60),
        random.below(60)
    )
}
