//! Answers the judge of `tests/cel` with our side: one case per line in, one answer per line out, with
//! the fields of `tests/cel/oracle.go` and values written as `tests/cel/values.go` does.

#![expect(
    unsafe_code,
    reason = "an allocator that counts cannot be written without it"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use cel::ast::Name;
use cel::function::{SizeBounds, SizeEstimate};
use cel::libraries::authorizer::{
    Attributes, Authorizer, AuthorizerValue, Decision, Subject, Target, authorizer_type,
};
use cel::libraries::jsonpatch;
use cel::types::TypeProvider;
use cel::value::{HostKind, HostValue, Map, Shape};
use cel::{Environment, Limits, Program, Type, Value, Variables};
use serde_json::{Value as Json, json};

/// Kubernetes' limit of one evaluation.
const PER_CALL_LIMIT: u64 = 1_000_000;

fn main() -> io::Result<()> {
    panic::set_hook(Box::new(|_| {}));
    let mut environments = BTreeMap::new();
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let case: Json = serde_json::from_str(&line?)?;
        let answer = panic::catch_unwind(AssertUnwindSafe(|| ask(&case, &mut environments)));
        let mut answer = answer.unwrap_or_else(|_| json!({ "crash": "panicked" }));
        if let (Some(name), Json::Object(fields)) = (case.get("name"), &mut answer) {
            fields.insert("name".to_owned(), name.clone());
        }
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn ask(case: &Json, environments: &mut BTreeMap<String, Environment>) -> Json {
    let version = case["version"].as_str().unwrap_or_default();
    let base = environments.entry(version.to_owned()).or_insert_with(|| {
        match version
            .split_once('.')
            .and_then(|(_, minor)| minor.parse().ok())
        {
            Some(minor) => Environment::of_version(minor),
            None => Environment::for_new_expressions(),
        }
    });
    let mut extension = base.extend();
    for name in case["with"].as_array().into_iter().flatten() {
        extension = match name.as_str() {
            Some("bind") => extension.bindings(),
            Some("jsonpatch") => extension.overloads(jsonpatch::overloads()),
            _ => extension,
        };
    }
    let objects = Objects(case["objects"].clone());
    for (name, text) in case["declare"].as_object().into_iter().flatten() {
        match text.as_str().and_then(|text| parse_type(text, &objects)) {
            Some(of) => extension = extension.variable(name, of),
            None => return json!({ "crash": format!("no type: {text}") }),
        }
    }
    if case["objects"].is_object() {
        extension = extension.provider(Arc::new(objects));
    }
    let environment = extension.done();
    let source = case["expr"].as_str().unwrap_or_default();
    let checked = match environment.compile(source) {
        Ok(checked) => checked,
        Err(errors) => return json!({ "errors": errors.to_string() }),
    };
    let mut answer = serde_json::Map::new();
    if case["ast"].as_bool() == Some(true) {
        answer.insert("ast".to_owned(), cel::print::tree(&checked.ast).into());
    }
    answer.insert("type".to_owned(), checked.result_type().to_string().into());
    let estimate = environment.estimate(&checked, &Sizes(&case["sizes"]));
    answer.insert(
        "estimate".to_owned(),
        format!("{}-{}", estimate.min, estimate.max).into(),
    );
    let program = match Program::new(&checked) {
        Ok(program) => program,
        Err(error) => {
            answer.insert("error".to_owned(), format!("program: {error}").into());
            return answer.into();
        }
    };
    let variables: Vec<(&str, Value<'_>)> = case["vars"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), read(value)))
        .collect();
    let limits = Limits {
        cost: Some(PER_CALL_LIMIT),
        interrupted: None,
    };
    if case["measure"].as_bool() == Some(true) {
        answer.insert("measured".to_owned(), measure(&program, &variables, limits));
    }
    let outcome = program.evaluate(&variables, limits);
    answer.insert("cost".to_owned(), outcome.cost.into());
    match outcome.value {
        Ok(value) => answer.insert("value".to_owned(), write_value(&value).into()),
        Err(error) => answer.insert("error".to_owned(), error.to_string().into()),
    };
    answer.into()
}

/// The mean of many evaluations, after some that warm the thread up.
fn measure<'v>(program: &'v Program, variables: &dyn Variables<'v>, limits: Limits<'_>) -> Json {
    const COUNT: u32 = 200_000;
    let run = |count| {
        for _ in 0..count {
            std::hint::black_box(program.evaluate(variables, limits).cost);
        }
    };
    run(COUNT / 10);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let began = now();
    run(COUNT);
    let took = now() - began;
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    json!({
        "nanoseconds": took * 1e9 / f64::from(COUNT),
        "allocations": allocations as f64 / f64::from(COUNT),
    })
}

/// Seconds since the first call.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the time that passes"
)]
fn now() -> f64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Counts what is allocated.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: All calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: The caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: The caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Objects with declared fields.
struct Objects(Json);

impl TypeProvider for Objects {
    fn has_type(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        parse_type(self.0.get(type_name)?.get(field)?.as_str()?, self)
    }

    fn fields(&self, type_name: &str) -> Vec<Name> {
        let fields = self.0.get(type_name).and_then(Json::as_object);
        let names = fields.into_iter().flatten();
        names.map(|(name, _)| Name::from(name.as_str())).collect()
    }
}

/// The largest sizes of what is at a path.
struct Sizes<'a>(&'a Json);

impl SizeBounds for Sizes<'_> {
    fn size(&self, path: &[Name], _: &Type) -> Option<SizeEstimate> {
        let path: Vec<&str> = path.iter().map(|name| &**name).collect();
        let max = self.0.get(path.join("."))?.as_u64()?;
        Some(SizeEstimate { min: 0, max })
    }
}

/// Decides as `tests/cel/objects.go` does.
struct Judge(String);

impl Authorizer for Judge {
    fn check(&self, asked: &Attributes) -> Decision {
        let user = match &asked.user {
            Subject::Requester => self.0.clone(),
            Subject::ServiceAccount { namespace, name } => {
                format!("system:serviceaccount:{namespace}:{name}")
            }
        };
        let verb = asked.verb.as_str();
        let reason = match &asked.target {
            Target::Path(path) => [&user, verb, path].join("|"),
            Target::Resource(of) => [
                &user,
                verb,
                &of.group,
                &of.resource,
                &of.subresource,
                &of.namespace,
                &of.name,
            ]
            .join("|"),
        };
        Decision {
            allowed: verb != "fail" && reason.len().is_multiple_of(2),
            error: (verb == "fail").then(|| format!("failed: {reason}")),
            reason,
        }
    }
}

fn parse_type(text: &str, objects: &Objects) -> Option<Type> {
    let text = text.trim();
    let opaque = |name: &str| Type::Opaque(name.into(), [].into());
    Some(match text {
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "dyn" => Type::Dyn,
        "type" => Type::of_types(),
        "ip" => opaque("net.IP"),
        "cidr" => opaque("net.CIDR"),
        "quantity" => Type::Object("kubernetes.Quantity".into()),
        "url" => Type::Object("kubernetes.URL".into()),
        "authorizer" => authorizer_type(),
        name if objects.has_type(name) => Type::Object(name.into()),
        _ => {
            let (outer, inner) = text.strip_suffix(')')?.split_once('(')?;
            match outer {
                "list" => Type::list(parse_type(inner, objects)?),
                "optional" => Type::optional(parse_type(inner, objects)?),
                "map" => {
                    let (key, value) = inner.split_once(',')?;
                    Type::map(parse_type(key, objects)?, parse_type(value, objects)?)
                }
                _ => return None,
            }
        }
    })
}

/// Reads a value in place: lists and objects of JSON are values of the host.
fn read(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::Int(whole),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => text.as_str().into(),
        Json::Object(fields) => match fields.iter().next() {
            Some((tag, inner)) if fields.len() == 1 && tag.starts_with('$') => tagged(tag, inner),
            _ => host(json),
        },
        Json::Array(_) => host(json),
    }
}

fn host(json: &Json) -> Value<'_> {
    Value::Host(HostValue {
        data: json,
        shape: &JsonShape,
    })
}

fn tagged<'a>(tag: &str, inner: &'a Json) -> Value<'a> {
    let text = match inner {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    match tag {
        "$uint" => text.parse().map_or(Value::Null, Value::Uint),
        "$double" => cel::numbers::parse_go_double(&text).map_or(Value::Null, Value::Double),
        "$bytes" => decode_base64(&text).into(),
        "$duration" => cel::duration::parse(&text).map_or(Value::Null, Value::Duration),
        "$timestamp" => {
            cel::timestamp::Timestamp::parse(&text).map_or(Value::Null, Value::Timestamp)
        }
        "$ip" | "$quantity" => computed(&format!("{}({text:?})", &tag[1..])),
        "$authorizer" => AuthorizerValue::new(Arc::new(Judge(text))).into(),
        "$map" => {
            let pairs = inner.as_array().into_iter().flatten();
            let map: Map<'a> = pairs.map(|pair| (read(&pair[0]), read(&pair[1]))).collect();
            Value::Map(map.into())
        }
        _ => Value::Null,
    }
}

/// The value of an expression without variables.
fn computed<'a>(source: &str) -> Value<'a> {
    let program = Environment::for_stored_expressions()
        .compile(source)
        .ok()
        .and_then(|checked| Program::new(&checked).ok());
    program
        .and_then(|program| program.evaluate(&(), Limits::default()).value.ok())
        .unwrap_or(Value::Null)
}

fn decode_base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut held, mut octets) = (0u32, 0, Vec::new());
    for byte in text.bytes() {
        let Some(digit) = ALPHABET.iter().position(|known| *known == byte) else {
            continue;
        };
        bits = bits << 6 | digit as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            octets.push((bits >> held) as u8);
        }
    }
    octets
}

struct JsonShape;

impl Shape for JsonShape {
    fn kind(&self, data: &(dyn Any + Send + Sync)) -> HostKind {
        match data.downcast_ref() {
            Some(Json::Array(_)) => HostKind::List,
            _ => HostKind::Map,
        }
    }

    fn type_of(&self, data: &(dyn Any + Send + Sync)) -> Type {
        match self.kind(data) {
            HostKind::List => Type::list(Type::Dyn),
            _ => Type::map(Type::Dyn, Type::Dyn),
        }
    }

    fn len(&self, data: &(dyn Any + Send + Sync)) -> usize {
        match data.downcast_ref() {
            Some(Json::Array(items)) => items.len(),
            Some(Json::Object(fields)) => fields.len(),
            _ => 0,
        }
    }

    fn at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<Value<'a>> {
        match data.downcast_ref()? {
            Json::Array(items) => items.get(index).map(read),
            Json::Object(fields) => fields.values().nth(index).map(read),
            _ => None,
        }
    }

    fn key_at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<&'a str> {
        match data.downcast_ref()? {
            Json::Object(fields) => fields.keys().nth(index).map(String::as_str),
            _ => None,
        }
    }

    fn get<'a>(&'a self, data: &'a (dyn Any + Send + Sync), key: &str) -> Option<Value<'a>> {
        match data.downcast_ref()? {
            Json::Object(fields) => fields.get(key).map(read),
            _ => None,
        }
    }
}

fn write_value(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(value) => {
            format!("double({})", cel::numbers::go_double_from(*value, i32::MIN))
        }
        Value::String(text) => quote(text),
        Value::Bytes(octets) => {
            let digits: String = octets.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("b\"{digits}\"")
        }
        Value::Duration(nanoseconds) => format!("duration({nanoseconds})"),
        Value::Timestamp(at) => {
            let mut at = *at;
            at.offset = 0;
            format!("timestamp({at})")
        }
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("optional({})", write_value(value)),
        Value::Type(of) => format!("type({of})"),
        Value::Opaque(value) => format!("{value:?}"),
        Value::Object(object) => object.type_name.to_string(),
        Value::List(_) | Value::Map(_) | Value::Host(_) => {
            if value.list_len().is_some() {
                let items: Vec<String> = value.items().map(|item| write_value(&item)).collect();
                return format!("[{}]", items.join(", "));
            }
            let mut entries: Vec<String> = value
                .entries()
                .map(|(key, value)| format!("{}: {}", write_value(&key), write_value(&value)))
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// As Go writes JSON without the escapes of HTML.
fn quote(text: &str) -> String {
    json!(text)
        .to_string()
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}
