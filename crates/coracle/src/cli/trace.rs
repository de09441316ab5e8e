//! `coracle trace pod/NAME`: the pod's way through the eleven hops, as a timeline or as JSON.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use http::Method;
use http_body_util::BodyExt;

use super::ConnectionArguments;
use super::connection::{Connection, request};

#[derive(Args)]
pub struct TraceArguments {
    /// Pod, as pod/NAME or NAME
    #[arg(value_name = "POD")]
    pod: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

pub async fn run(arguments: TraceArguments) -> Result<ExitCode> {
    let name = match arguments.pod.split_once('/') {
        None => arguments.pod.as_str(),
        Some(("pod" | "pods" | "po", name)) => name,
        Some((kind, _)) => bail!("only pods have a timeline, not {kind}: use pod/NAME"),
    };
    let connection = Connection::open(&arguments.connection).await?;
    let path = format!(
        "/coracle/v1/trace/namespaces/{}/pods/{name}",
        connection.namespace
    );
    let response = connection
        .send(request(Method::GET, &path, "application/json", None)?)
        .await?;
    let bytes = response.into_body().collect().await?.to_bytes();
    match arguments.output {
        Output::Json => println!("{}", String::from_utf8_lossy(&bytes)),
        Output::Text => {
            let timeline = trace::Timeline::from_json(&bytes)?;
            print!("{}", trace::render(&timeline));
        }
    }
    Ok(ExitCode::SUCCESS)
}
