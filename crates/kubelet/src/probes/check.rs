//! One probe, once: exec in the container, HTTP GET or TCP connect from the node, gRPC health.

use std::{collections::BTreeMap, time::Duration};

use cri::v1;
use k8s_openapi::api::core::v1::Probe;
use tokio::net::TcpStream;

use super::Target;
use crate::{container::expansion::expand, http_get};

/// The outcome of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    Success,
    /// Success, but with a message.
    Warning(String),
    /// Failure, with the output that the Unhealthy event shows.
    Failure(String),
    /// The probe itself could not be made.
    Error(String),
}

impl ProbeOutcome {
    /// Whether the probe succeeded; `None` if it could not be made.
    pub fn succeeded(&self) -> Option<bool> {
        match self {
            ProbeOutcome::Success | ProbeOutcome::Warning(_) => Some(true),
            ProbeOutcome::Failure(_) => Some(false),
            ProbeOutcome::Error(_) => None,
        }
    }
}

pub async fn run(
    cri: &cri::Client,
    probe: &Probe,
    target: &Target,
    timeout: Duration,
) -> ProbeOutcome {
    if let Some(action) = &probe.exec {
        let command = expanded(target, action.command.as_deref().unwrap_or_default());
        return exec(cri, &target.container_id, command, timeout).await;
    }
    if let Some(action) = &probe.http_get {
        let answer =
            http_get::get(action, &target.container, &target.pod_ip, "probe", timeout).await;
        return match answer {
            Ok(answer) if (200..300).contains(&answer.status) => ProbeOutcome::Success,
            Ok(answer) if (300..400).contains(&answer.status) => ProbeOutcome::Warning(format!(
                "Probe terminated redirects, Response body: {}",
                answer.body
            )),
            Ok(answer) => ProbeOutcome::Failure(format!(
                "HTTP probe failed with statuscode: {}",
                answer.status
            )),
            Err(http_get::Error::Port(why)) => ProbeOutcome::Error(why),
            Err(error) => ProbeOutcome::Failure(error.to_string()),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let port = match http_get::port(&action.port, &target.container) {
            Ok(port) => port,
            Err(error) => return ProbeOutcome::Error(error.to_string()),
        };
        let host = action
            .host
            .as_deref()
            .filter(|host| !host.is_empty())
            .unwrap_or(&target.pod_ip);
        let address = format!("{}:{port}", http_get::bracketed(host));
        return match tokio::time::timeout(timeout, TcpStream::connect(&address)).await {
            Ok(Ok(_)) => ProbeOutcome::Success,
            Ok(Err(error)) => ProbeOutcome::Failure(http_get::dial_error(&address, &error)),
            Err(_) => ProbeOutcome::Failure(format!("dial tcp {address}: i/o timeout")),
        };
    }
    if let Some(action) = &probe.grpc {
        let address = format!("{}:{}", http_get::bracketed(&target.pod_ip), action.port);
        let service = action.service.clone().unwrap_or_default();
        let checked = super::grpc::check(&address, service, timeout).await;
        return match checked {
            Ok(()) => ProbeOutcome::Success,
            Err(failure) => ProbeOutcome::Failure(failure.to_string()),
        };
    }
    ProbeOutcome::Error("missing probe handler".to_owned())
}

/// `$(VAR)` in a command is replaced by the literal value in the container's `env`.
fn expanded(target: &Target, command: &[String]) -> Vec<String> {
    let variables = target.container.env.iter().flatten();
    let known: BTreeMap<String, String> = variables
        .map(|one| (one.name.clone(), one.value.clone().unwrap_or_default()))
        .collect();
    command.iter().map(|word| expand(word, &known)).collect()
}

async fn exec(
    cri: &cri::Client,
    container_id: &str,
    command: Vec<String>,
    timeout: Duration,
) -> ProbeOutcome {
    let shown = command.join(" ");
    let request = v1::ExecSyncRequest {
        container_id: container_id.to_owned(),
        cmd: command,
        timeout: timeout.as_secs().max(1) as i64,
    };
    let mut runtime = cri.runtime.clone();
    // The runtime keeps the time; a little more here covers one that does not.
    let limit = timeout + Duration::from_secs(1);
    match tokio::time::timeout(limit, runtime.exec_sync(request)).await {
        Ok(Ok(response)) => {
            let response = response.into_inner();
            if response.exit_code == 0 {
                return ProbeOutcome::Success;
            }
            let mut output = String::from_utf8_lossy(&response.stdout).into_owned();
            output.push_str(&String::from_utf8_lossy(&response.stderr));
            ProbeOutcome::Failure(output.chars().take(10 * 1024).collect())
        }
        Ok(Err(status)) if status.code() == tonic::Code::DeadlineExceeded => {
            ProbeOutcome::Failure(timed_out(&shown, timeout))
        }
        Ok(Err(status)) => ProbeOutcome::Error(crate::runtime::rpc_error(&status)),
        Err(_) => ProbeOutcome::Failure(timed_out(&shown, timeout)),
    }
}

fn timed_out(command: &str, timeout: Duration) -> String {
    let timeout = environment::go_duration::format(timeout.as_nanos() as i64);
    format!("command timed out: \"{command}\" timed out after {timeout}")
}
