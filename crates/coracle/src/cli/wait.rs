//! `coracle wait`: waits for a condition, the value of a field, or the deletion of objects. It
//! watches and does not poll.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::Resource;
use api::Value;
use clap::Args;
use futures::TryStreamExt;
use http::Method;
use http_body_util::BodyExt;

use super::connection::{Connection, encode, is_not_found, request};
use super::{ConnectionArguments, resource};
use crate::flags;

#[derive(Args)]
pub struct WaitArguments {
    /// Resource type and names, such as `pod/web` or `deployment web`
    #[arg(required = true, value_name = "TYPE[/NAME]")]
    targets: Vec<String>,
    /// What to wait for: `condition=NAME[=VALUE]`, `jsonpath={.field}=VALUE` or `delete`
    #[arg(long = "for", value_name = "WHAT")]
    what: String,
    /// Label selector of the objects, instead of names
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Time limit, such as 90s or 5m; 0 checks once, and a negative time waits for a week
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = limit, allow_hyphen_values = true)]
    timeout: Duration,
    #[command(flatten)]
    connection: ConnectionArguments,
}

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// The time limit, with kubectl's meaning of zero and negative times.
fn limit(text: &str) -> Result<Duration, flags::InvalidValue> {
    Ok(flags::signed_duration(text)?.unwrap_or(WEEK))
}

/// The state for which to wait.
enum Goal {
    Condition { name: String, value: String },
    Field { path: Vec<String>, value: String },
    Gone,
}

pub async fn run(arguments: WaitArguments) -> Result<ExitCode> {
    let goal = parse_goal(&arguments.what)?;
    let connection = Connection::open(&arguments.connection).await?;
    let mut targets = Vec::new();
    for (resource, name) in resource::parse_targets(&arguments.targets)? {
        if !name.is_empty() {
            targets.push((resource, name));
            continue;
        }
        let Some(selector) = &arguments.selector else {
            bail!("give the name of a resource, or a --selector");
        };
        let path = resource::collection_path(resource, &connection.namespace);
        let list = connection
            .get(&format!("{path}?labelSelector={}", encode(selector)))
            .await?;
        for item in list
            .get("items")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            targets.push((resource, item.str_at(&["metadata", "name"]).to_string()));
        }
        if targets.is_empty() {
            bail!("no matching resources found");
        }
    }
    let deadline = tokio::time::Instant::now() + arguments.timeout;
    for (resource, name) in targets {
        let namespace = connection.namespace.clone();
        let met = match arguments.timeout.is_zero() {
            true => is_met_now(&connection, resource, &namespace, &name, &goal).await?,
            false => {
                let waiting = until(&connection, resource, &namespace, &name, &goal);
                let waited = tokio::time::timeout_at(deadline, waiting).await;
                waited.map_or(Ok(false), |result| result.map(|()| true))?
            }
        };
        if !met {
            bail!(
                "timed out waiting for the condition on {}",
                resource::display_name(resource, &name)
            );
        }
        println!("{} condition met", resource::display_name(resource, &name));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the object meets the goal now.
async fn is_met_now(
    connection: &Connection,
    resource: &Resource,
    namespace: &str,
    name: &str,
    goal: &Goal,
) -> Result<bool> {
    let path = resource::object_path(resource, namespace, name);
    match connection.get(&path).await {
        Ok(object) => Ok(goal.is_met(&object)),
        Err(error) if matches!(goal, Goal::Gone) && is_not_found(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Waits until the object does not exist.
pub async fn until_gone(
    connection: &Connection,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<()> {
    until(connection, resource, namespace, name, &Goal::Gone).await
}

fn parse_goal(text: &str) -> Result<Goal> {
    if text.eq_ignore_ascii_case("delete") {
        return Ok(Goal::Gone);
    }
    let (kind, rest) = text
        .split_once('=')
        .with_context(|| format!("unrecognized condition: \"{text}\""))?;
    match kind {
        "condition" => {
            let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
            Ok(Goal::Condition {
                name: name.to_string(),
                value: value.to_string(),
            })
        }
        "jsonpath" => {
            let (path, value) = rest
                .split_once('=')
                .context("jsonpath wait needs a value: jsonpath={.field}=VALUE")?;
            let path = path
                .trim_matches(|c| "'{}".contains(c))
                .trim_start_matches('.');
            Ok(Goal::Field {
                path: path.split('.').map(String::from).collect(),
                value: value.to_string(),
            })
        }
        _ => bail!("unrecognized condition: \"{text}\""),
    }
}

/// Lists, then watches from that list on. A watch that ends starts again with a new list.
async fn until(
    connection: &Connection,
    resource: &Resource,
    namespace: &str,
    name: &str,
    goal: &Goal,
) -> Result<()> {
    let collection = resource::collection_path(resource, namespace);
    let selector = encode(&format!("metadata.name={name}"));
    loop {
        let object_path = resource::object_path(resource, namespace, name);
        match (connection.get(&object_path).await, goal) {
            (Ok(object), _) if goal.is_met(&object) => return Ok(()),
            (Ok(_), _) => {}
            (Err(error), Goal::Gone) if is_not_found(&error) => return Ok(()),
            (Err(error), _) => return Err(error),
        }
        let list = connection
            .get(&format!("{collection}?fieldSelector={selector}"))
            .await?;
        let items = list.get("items").and_then(Value::as_array);
        if items.is_some_and(|items| items.iter().any(|item| goal.is_met(item))) {
            return Ok(());
        }
        if matches!(goal, Goal::Gone) && items.is_none_or(|items| items.is_empty()) {
            return Ok(());
        }
        let version = list.str_at(&["metadata", "resourceVersion"]);
        let path =
            format!("{collection}?watch=1&fieldSelector={selector}&resourceVersion={version}");
        let response = connection
            .send(request(Method::GET, &path, "application/json", None)?)
            .await?;
        let mut frames = response.into_body().into_data_stream();
        let mut buffer: Vec<u8> = Vec::new();
        while let Some(frame) = frames.try_next().await? {
            buffer.extend_from_slice(&frame);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let event =
                    Value::from_json(&line).context("the server sent an invalid watch event")?;
                let met = match (event.str_at(&["type"]), goal) {
                    ("DELETED", Goal::Gone) => true,
                    ("DELETED", _) => bail!("{name} was deleted while waiting"),
                    ("ADDED" | "MODIFIED", _) => event
                        .get("object")
                        .is_some_and(|object| goal.is_met(object)),
                    _ => false,
                };
                if met {
                    return Ok(());
                }
            }
        }
    }
}

impl Goal {
    fn is_met(&self, object: &Value) -> bool {
        match self {
            Goal::Gone => false,
            Goal::Condition { name, value } => object
                .at(&["status", "conditions"])
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .any(|condition| {
                    condition.str_at(&["type"]).eq_ignore_ascii_case(name)
                        && condition.str_at(&["status"]).eq_ignore_ascii_case(value)
                }),
            Goal::Field { path, value } => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                match object.at(&path) {
                    Some(Value::String(text)) => text == value,
                    Some(other) => other.to_string() == *value,
                    None => false,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_fields_and_deletion_can_be_waited_for() {
        let pod = api::document!({"status": {
            "phase": "Running", "replicas": 2,
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        for (text, met) in [
            ("condition=ready", true),
            ("condition=Ready=false", false),
            ("jsonpath={.status.phase}=Running", true),
            ("jsonpath={.status.replicas}=2", true),
            ("delete", false),
        ] {
            assert_eq!(parse_goal(text).unwrap().is_met(&pod), met, "{text}");
        }
        assert!(parse_goal("sunshine").is_err());
    }

    #[test]
    fn zero_and_negative_time_limits_mean_what_they_mean_to_kubectl() {
        for (text, seconds) in [
            ("5s", 5),
            ("1m30s", 90),
            ("30", 30),
            ("0", 0),
            ("-1s", 604_800),
        ] {
            assert_eq!(limit(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert!(limit("soon").is_err());
    }
}
