//! `coracle apply -f`: three-way merge of the last applied object, the live object, and the file.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use api::Resource;
use api::Value;
use clap::Args;
use environment::Environment;
use http::Method;

use super::connection::{Connection, is_not_found, request};
use super::{ConnectionArguments, resource};

/// The annotation with the last applied object. It is kubectl's, so that both can be used together.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Args)]
pub struct ApplyArguments {
    /// YAML or JSON file, directory of such files, or - for standard input
    #[arg(short = 'f', long = "filename", required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub async fn run(arguments: ApplyArguments) -> Result<ExitCode> {
    let environment = Environment::system();
    let read_from = environment.now_micros();
    let mut objects = Vec::new();
    for file in &arguments.files {
        objects.extend(read_objects(file)?);
    }
    let read_us = environment.now_micros() - read_from;
    let connection = Connection::open(&arguments.connection).await?;
    let mut failed = false;
    for object in objects {
        let hop = ClientSpan {
            environment: &environment,
            read_us,
        };
        if let Err(error) = apply(&connection, object, &hop).await {
            print_error!("{}", environment::chain(error.as_ref()));
            failed = true;
        }
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Reads all objects of a file, a directory or standard input. The items of a list are objects.
pub fn read_objects(path: &Path) -> Result<Vec<Value>> {
    let mut texts = Vec::new();
    if path == Path::new("-") {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text)?;
        texts.push(("standard input".to_string(), text));
    } else if path.is_dir() {
        let mut files: Vec<PathBuf> = std::fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<_>>()?;
        files.retain(|file| {
            file.extension()
                .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|e| extension == *e))
        });
        files.sort();
        for file in files {
            let text =
                std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
            texts.push((file.display().to_string(), text));
        }
    } else {
        let text = std::fs::read(path)
            .with_context(|| format!("the path \"{}\" cannot be read", path.display()))?;
        texts.push((path.display().to_string(), text));
    }
    let mut objects = Vec::new();
    for (name, text) in texts {
        let documents = api::document::yaml::parse_documents(&text)
            .with_context(|| format!("error parsing {name}"))?;
        for document in documents {
            match document.get("items").and_then(Value::as_array) {
                Some(items) if document.str_at(&["kind"]).ends_with("List") => {
                    objects.extend(items.iter().cloned());
                }
                _ if document.is_null() => {}
                _ => objects.push(document),
            }
        }
    }
    if objects.is_empty() {
        bail!("no objects passed to apply");
    }
    Ok(objects)
}

/// Measures hop 1: the time for reading the files, computing the patch and building the request.
struct ClientSpan<'a> {
    environment: &'a Environment,
    read_us: i64,
}

impl ClientSpan<'_> {
    fn header(&self, start: i64, bytes: usize) -> String {
        let now = self.environment.now_micros();
        format!(
            "start={};work={};bytes={bytes}",
            start - self.read_us,
            now - start + self.read_us
        )
    }
}

async fn apply(connection: &Connection, mut object: Value, hop: &ClientSpan<'_>) -> Result<()> {
    let resource = resource::of_object(&object)?;
    let namespace = match object.str_at(&["metadata", "namespace"]) {
        "" => connection.namespace.clone(),
        namespace => namespace.to_string(),
    };
    if resource.namespaced {
        object.set(&["metadata", "namespace"], namespace.as_str());
    }
    let name = object.str_at(&["metadata", "name"]).to_string();
    if name.is_empty() {
        bail!("resource name may not be empty");
    }
    object.remove(&["metadata", "annotations", LAST_APPLIED]);
    let applied = format!("{object}\n");
    object.set(&["metadata", "annotations", LAST_APPLIED], applied);

    let path = resource::object_path(resource, &namespace, &name);
    let live = match connection.get(&path).await {
        Ok(live) => Some(live),
        Err(error) if is_not_found(&error) => None,
        Err(error) => return Err(error),
    };
    let result = match live {
        None => create(connection, resource, &namespace, &object, hop).await?,
        Some(live) => patch(connection, resource, &path, &live, &object, hop).await?,
    };
    println!("{} {result}", resource::display_name(resource, &name));
    Ok(())
}

async fn create(
    connection: &Connection,
    resource: &Resource,
    namespace: &str,
    object: &Value,
    hop: &ClientSpan<'_>,
) -> Result<&'static str> {
    let start = hop.environment.now_micros();
    let body = object.to_json();
    let mut request = request(
        Method::POST,
        &format!(
            "{}?fieldManager=coracle-apply&fieldValidation=Strict",
            resource::collection_path(resource, namespace)
        ),
        "application/json",
        Some(("application/json", body.clone())),
    )?;
    let span = hop.header(start, body.len());
    request
        .headers_mut()
        .insert("coracle-client-span", span.parse()?);
    connection.call(request).await?;
    Ok("created")
}

async fn patch(
    connection: &Connection,
    resource: &Resource,
    path: &str,
    live: &Value,
    object: &Value,
    hop: &ClientSpan<'_>,
) -> Result<&'static str> {
    let start = hop.environment.now_micros();
    let last_applied = match live.str_at(&["metadata", "annotations", LAST_APPLIED]) {
        "" => Value::object(),
        text => {
            Value::from_json(text.as_bytes()).context("the last-applied annotation is not JSON")?
        }
    };
    let patch = api::patch::three_way(&last_applied, live, object, resource.definition)?;
    if patch.as_object().is_none_or(|fields| fields.is_empty()) {
        return Ok("unchanged");
    }
    let body = patch.to_json();
    let mut request = request(
        Method::PATCH,
        &format!("{path}?fieldManager=coracle-apply&fieldValidation=Strict"),
        "application/json",
        Some(("application/strategic-merge-patch+json", body.clone())),
    )?;
    let span = hop.header(start, body.len());
    request
        .headers_mut()
        .insert("coracle-client-span", span.parse()?);
    connection.call(request).await?;
    Ok("configured")
}
