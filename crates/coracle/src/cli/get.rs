//! `coracle get`: tables as the server renders them, or the objects themselves.

use std::process::ExitCode;

use anyhow::{Result, bail};
use api::Resource;
use api::Value;
use clap::{Args, ValueEnum};
use http::Method;

use super::connection::{Connection, encode, request};
use super::{ConnectionArguments, resource};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[derive(Args)]
pub struct GetArguments {
    /// Resource type and names, such as `pods`, `pod web` or `pod/web`
    #[arg(required = true, value_name = "TYPE[/NAME]")]
    targets: Vec<String>,
    /// List the objects of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Label selector, such as app=web,tier!=db
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Output {
    Table,
    Wide,
    Yaml,
    Json,
    Name,
}

pub async fn run(arguments: GetArguments) -> Result<ExitCode> {
    let connection = Connection::open(&arguments.connection).await?;
    let namespace = match arguments.all_namespaces {
        true => "",
        false => connection.namespace.as_str(),
    };
    let mut code = ExitCode::SUCCESS;
    let targets = resource::parse_targets(&arguments.targets)?;
    let is_one_object = matches!(targets.as_slice(), [(_, name)] if !name.is_empty());
    let mut objects = Vec::new();
    for (resource, name) in targets {
        let path = match name.as_str() {
            "" => resource::collection_path(resource, namespace),
            name if namespace.is_empty() && resource.namespaced => {
                bail!("a resource cannot be retrieved by name across all namespaces: {name}")
            }
            name => resource::object_path(resource, namespace, name),
        };
        let query = match &arguments.selector {
            Some(selector) => format!("?labelSelector={}", encode(selector)),
            None => String::new(),
        };
        let wants_table = matches!(arguments.output, Output::Table | Output::Wide);
        let accept = if wants_table {
            TABLE
        } else {
            "application/json"
        };
        let answer = match connection
            .call(request(
                Method::GET,
                &format!("{path}{query}"),
                accept,
                None,
            )?)
            .await
        {
            Ok(answer) => answer,
            Err(error) => {
                print_error!("{}", environment::chain(error.as_ref()));
                code = ExitCode::FAILURE;
                continue;
            }
        };
        match arguments.output {
            Output::Table | Output::Wide => print_table(
                &answer,
                arguments.output == Output::Wide,
                arguments.all_namespaces && resource.namespaced,
                namespace,
            ),
            Output::Json | Output::Yaml => objects.extend(objects_of(resource, answer)),
            Output::Name => print_names(resource, &answer),
        }
    }
    let document = match is_one_object {
        true => objects.pop(),
        false => Some(list_of(objects)),
    };
    match (arguments.output, document) {
        (Output::Json, Some(document)) => println!("{}", serde_json::to_string_pretty(&document)?),
        (Output::Yaml, Some(document)) => print!("{}", api::document::yaml::to_yaml(&document)),
        _ => {}
    }
    Ok(code)
}

/// The objects of a response, each with its type and without managed fields, so that they can be
/// applied.
fn objects_of(resource: &Resource, mut answer: Value) -> Vec<Value> {
    let mut objects = match answer.get_mut("items").map(std::mem::take) {
        Some(Value::Array(items)) => items,
        Some(_) => Vec::new(),
        None => vec![answer],
    };
    let version = match &*resource.group {
        "" => resource.version.to_string(),
        group => format!("{group}/{}", resource.version),
    };
    for object in &mut objects {
        object.set(&["apiVersion"], version.as_str());
        object.set(&["kind"], &*resource.kind);
        object.remove(&["metadata", "managedFields"]);
    }
    objects
}

/// A `List` of objects of any kinds, as kubectl prints it.
fn list_of(objects: Vec<Value>) -> Value {
    let mut list = api::document!({
        "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""},
    });
    list.set(&["items"], objects);
    list
}

fn print_names(resource: &Resource, answer: &Value) {
    let single = vec![answer.clone()];
    let items = answer
        .get("items")
        .and_then(Value::as_array)
        .unwrap_or(&single);
    for item in items {
        let name = item.str_at(&["metadata", "name"]);
        println!("{}", resource::display_name(resource, name));
    }
}

/// Prints a server-side Table: columns of priority 0, or all of them when `wide`.
fn print_table(table: &Value, wide: bool, with_namespace: bool, namespace: &str) {
    let empty = Vec::new();
    let columns = table
        .get("columnDefinitions")
        .and_then(Value::as_array)
        .unwrap_or(&empty);
    let rows = table
        .get("rows")
        .and_then(Value::as_array)
        .unwrap_or(&empty);
    if rows.is_empty() {
        match namespace {
            "" => print_error!("No resources found"),
            namespace => print_error!("No resources found in {namespace} namespace."),
        }
        return;
    }
    let shown: Vec<usize> = (0..columns.len())
        .filter(|index| {
            wide || columns[*index]
                .get("priority")
                .and_then(Value::as_i64)
                .unwrap_or(0)
                == 0
        })
        .collect();
    let mut lines = Vec::new();
    let mut header: Vec<String> = shown
        .iter()
        .map(|index| columns[*index].str_at(&["name"]).to_uppercase())
        .collect();
    if with_namespace {
        header.insert(0, "NAMESPACE".to_string());
    }
    lines.push(header);
    for row in rows {
        let cells = row.get("cells").and_then(Value::as_array).unwrap_or(&empty);
        let mut line: Vec<String> = shown
            .iter()
            .map(|index| match cells.get(*index) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            })
            .collect();
        if with_namespace {
            line.insert(
                0,
                row.str_at(&["object", "metadata", "namespace"]).to_string(),
            );
        }
        lines.push(line);
    }
    print!("{}", align(&lines));
}

/// Pads every column to its widest cell plus three spaces, as kubectl does.
pub fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut padded = String::new();
        for (column, cell) in line.iter().enumerate() {
            padded.push_str(cell);
            let missing = widths[column] - cell.chars().count() + 3;
            padded.extend(std::iter::repeat_n(' ', missing));
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_objects_can_be_applied() {
        let deployments = resource::find("deployments").unwrap();
        let answer = api::document!({
            "kind": "DeploymentList", "apiVersion": "apps/v1", "metadata": {"resourceVersion": "7"},
            "items": [{"metadata": {"name": "web", "managedFields": [{"manager": "x"}]}}],
        });
        let list = list_of(objects_of(deployments, answer));
        let expected = "apiVersion: v1\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\n  metadata:\n    name: web\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
        assert_eq!(api::document::yaml::to_yaml(&list), expected);
        let empty = api::document!({"kind": "DeploymentList", "items": null});
        assert_eq!(objects_of(deployments, empty), Vec::<Value>::new());
        let one = api::document!({"metadata": {"name": "web"}});
        assert_eq!(
            objects_of(deployments, one)[0].str_at(&["kind"]),
            "Deployment"
        );
    }

    #[test]
    fn columns_are_padded_to_their_widest_cell() {
        let lines = [vec!["NAME", "READY"], vec!["web-1", "1/1"], vec!["a", ""]]
            .map(|line| line.into_iter().map(String::from).collect::<Vec<_>>());
        assert_eq!(align(&lines), "NAME    READY\nweb-1   1/1\na\n");
    }
}
