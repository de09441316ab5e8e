//! `coracle describe`: the object as YAML-like text, and its events.

use std::process::ExitCode;

use anyhow::Result;
use api::Value;
use clap::Args;

use super::connection::{Connection, encode};
use super::{ConnectionArguments, get, resource};

#[derive(Args)]
pub struct DescribeArguments {
    /// Resource type and names, such as `pod web` or `deployment/web`
    #[arg(required = true, value_name = "TYPE[/NAME]")]
    targets: Vec<String>,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub async fn run(arguments: DescribeArguments) -> Result<ExitCode> {
    let connection = Connection::open(&arguments.connection).await?;
    for (resource, name) in resource::parse_targets(&arguments.targets)? {
        let objects = if name.is_empty() {
            let path = resource::collection_path(resource, &connection.namespace);
            let list = connection.get(&path).await?;
            list.get("items")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        } else {
            let path = resource::object_path(resource, &connection.namespace, &name);
            vec![connection.get(&path).await?]
        };
        for object in objects {
            print!("{}", describe(&object));
            print!("{}", events(&connection, &object).await?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Name and namespace first, then labels, annotations, and everything else in the order of a
/// manifest, without managed fields.
fn describe(object: &Value) -> String {
    let mut text = format!("Name:         {}\n", object.str_at(&["metadata", "name"]));
    let namespace = object.str_at(&["metadata", "namespace"]);
    if !namespace.is_empty() {
        text.push_str(&format!("Namespace:    {namespace}\n"));
    }
    for (title, field) in [("Labels", "labels"), ("Annotations", "annotations")] {
        let mut lines = Vec::new();
        if let Some(pairs) = object.at(&["metadata", field]).and_then(Value::as_object) {
            for (name, value) in pairs.iter() {
                if name != "kubectl.kubernetes.io/last-applied-configuration" {
                    lines.push(format!("{name}={}", value.as_str().unwrap_or_default()));
                }
            }
        }
        if lines.is_empty() {
            lines.push("<none>".to_string());
        }
        text.push_str(&format!(
            "{:<14}{}\n",
            format!("{title}:"),
            lines.join("\n              ")
        ));
    }
    text.push_str(&format!(
        "Created:      {}\n",
        object.str_at(&["metadata", "creationTimestamp"])
    ));
    let fields = object
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.iter());
    for (name, value) in fields {
        if ["apiVersion", "kind", "metadata"].contains(&name) {
            continue;
        }
        let mut part = Value::object();
        part.set(&[&capitalised(name)], value.clone());
        text.push_str(&api::document::yaml::to_yaml(&part));
    }
    text
}

async fn events(connection: &Connection, object: &Value) -> Result<String> {
    let uid = object.str_at(&["metadata", "uid"]);
    let namespace = match object.str_at(&["metadata", "namespace"]) {
        "" => "default",
        namespace => namespace,
    };
    let path = resource::collection_path(resource::find("events")?, namespace);
    let selector = encode(&format!("involvedObject.uid={uid}"));
    let list = connection
        .get(&format!("{path}?fieldSelector={selector}"))
        .await?;
    let mut items = list
        .get("items")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if items.is_empty() {
        return Ok("Events:       <none>\n".to_string());
    }
    items.sort_by(|a, b| time_of(a).cmp(time_of(b)));
    let mut lines = vec![
        ["  TYPE", "REASON", "LAST SEEN", "FROM", "COUNT", "MESSAGE"]
            .map(String::from)
            .to_vec(),
    ];
    for event in &items {
        let count = event.get("count").and_then(Value::as_i64).unwrap_or(1);
        lines.push(vec![
            format!("  {}", event.str_at(&["type"])),
            event.str_at(&["reason"]).to_string(),
            time_of(event).to_string(),
            event.str_at(&["source", "component"]).to_string(),
            count.to_string(),
            event.str_at(&["message"]).to_string(),
        ]);
    }
    Ok(format!("Events:\n{}", get::align(&lines)))
}

fn time_of(event: &Value) -> &str {
    [
        &["lastTimestamp"][..],
        &["eventTime"],
        &["metadata", "creationTimestamp"],
    ]
    .into_iter()
    .map(|path| event.str_at(path))
    .find(|text| !text.is_empty())
    .unwrap_or_default()
}

fn capitalised(name: &str) -> String {
    let mut characters = name.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}
