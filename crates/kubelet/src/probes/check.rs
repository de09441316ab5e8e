//! One probe, once: exec in the container, HTTP GET or TCP connect from the node, gRPC health.

use std::time::Duration;

use cri::v1;
use k8s_openapi::api::core::v1::Probe;
use tokio::net::TcpStream;

use super::Target;
use crate::http_get;

/// `Err` holds the output that the Unhealthy event shows.
pub async fn run(
    cri: &cri::Client,
    probe: &Probe,
    target: &Target,
    timeout: Duration,
) -> Result<(), String> {
    if let Some(action) = &probe.exec {
        let command = action.command.clone().unwrap_or_default();
        return exec(cri, &target.container_id, command, timeout).await;
    }
    if let Some(action) = &probe.http_get {
        let answer =
            http_get::get(action, &target.container, &target.pod_ip, "probe", timeout).await;
        return match answer {
            Ok(answer) if answer.left_host || (200..400).contains(&answer.status) => Ok(()),
            Ok(answer) => Err(format!(
                "HTTP probe failed with statuscode: {}",
                answer.status
            )),
            Err(error) => Err(error.to_string()),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let port =
            http_get::port(&action.port, &target.container).map_err(|error| error.to_string())?;
        let host = action
            .host
            .as_deref()
            .filter(|host| !host.is_empty())
            .unwrap_or(&target.pod_ip);
        let address = format!("{}:{port}", http_get::bracketed(host));
        return match tokio::time::timeout(timeout, TcpStream::connect(&address)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(http_get::dial_error(&address, &error)),
            Err(_) => Err(format!("dial tcp {address}: i/o timeout")),
        };
    }
    if let Some(action) = &probe.grpc {
        let address = format!("{}:{}", http_get::bracketed(&target.pod_ip), action.port);
        let service = action.service.clone().unwrap_or_default();
        return super::grpc::check(&address, service, timeout).await;
    }
    Err("missing probe handler".to_owned())
}

async fn exec(
    cri: &cri::Client,
    container_id: &str,
    command: Vec<String>,
    timeout: Duration,
) -> Result<(), String> {
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
                return Ok(());
            }
            let mut output = String::from_utf8_lossy(&response.stdout).into_owned();
            output.push_str(&String::from_utf8_lossy(&response.stderr));
            Err(output.chars().take(10 * 1024).collect())
        }
        Ok(Err(status)) if status.code() == tonic::Code::DeadlineExceeded => Err(format!(
            "command timed out: \"{shown}\" timed out after {}s",
            timeout.as_secs()
        )),
        Ok(Err(status)) => Err(crate::images::rpc_error(&status)),
        Err(_) => Err(format!(
            "command timed out: \"{shown}\" timed out after {}s",
            timeout.as_secs()
        )),
    }
}
