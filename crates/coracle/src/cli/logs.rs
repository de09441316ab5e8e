//! `coracle logs`: a container's log as the kubelet serves it.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use futures::TryStreamExt;
use http::Method;
use http_body_util::BodyExt;

use super::connection::{Connection, encode, request};
use super::{ConnectionArguments, resource};

#[derive(Args)]
pub struct LogsArguments {
    /// Pod, as NAME or pod/NAME
    #[arg(value_name = "POD")]
    pod: String,
    /// Container of the pod [default: its only one]
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Keep printing as the log grows
    #[arg(short, long)]
    follow: bool,
    /// Print the log of the container's previous run
    #[arg(short, long)]
    previous: bool,
    /// Print only this number of lines from the end
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
    /// Print only lines newer than this, such as 5s, 2m or 3h
    #[arg(long, value_name = "TIME", value_parser = crate::flags::duration)]
    since: Option<std::time::Duration>,
    /// Print the time of each line
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub async fn run(arguments: LogsArguments) -> Result<ExitCode> {
    let connection = Connection::open(&arguments.connection).await?;
    let name = arguments
        .pod
        .strip_prefix("pod/")
        .or_else(|| arguments.pod.strip_prefix("pods/"))
        .unwrap_or(&arguments.pod);
    let mut query = Vec::new();
    if let Some(container) = &arguments.container {
        query.push(format!("container={}", encode(container)));
    }
    for (flag, set) in [
        ("follow", arguments.follow),
        ("previous", arguments.previous),
        ("timestamps", arguments.timestamps),
    ] {
        if set {
            query.push(format!("{flag}=true"));
        }
    }
    if let Some(lines) = arguments.tail {
        query.push(format!("tailLines={lines}"));
    }
    if let Some(since) = arguments.since {
        query.push(format!(
            "sinceSeconds={}",
            since.as_secs_f64().ceil().max(1.0)
        ));
    }
    let pod = resource::object_path(resource::find("pods")?, &connection.namespace, name);
    let path = format!("{pod}/log?{}", query.join("&"));
    let response = connection
        .send(request(Method::GET, &path, "*/*", None)?)
        .await?;
    let mut frames = response.into_body().into_data_stream();
    let mut output = std::io::stdout().lock();
    while let Some(frame) = frames.try_next().await? {
        output.write_all(&frame)?;
        output.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}
