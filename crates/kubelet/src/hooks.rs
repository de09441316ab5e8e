//! Lifecycle hooks: postStart and preStop by exec, HTTP GET or sleep. Errors carry the words that the
//! container's status shows. A hook over HTTPS that is answered in HTTP is asked again over HTTP, as
//! hooks were before certificates of pods counted for anything.

use std::time::Duration;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Pod};

use crate::{
    container::fields::quoted,
    http_get,
    measures::{Counter, Measures},
    pod_spec::format_pod,
    runtime::rpc_error,
    telemetry::Telemetry,
};

/// The caller bounds the time of a hook.
const UNBOUNDED: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Runs a hook to its end. The caller bounds the time.
pub async fn run(
    cri: &cri::Client,
    telemetry: &Telemetry,
    handler: &LifecycleHandler,
    pod: &Pod,
    container: &Container,
    container_id: &str,
    pod_ip: &str,
) -> Result<(), Error> {
    let whose = format!(
        "for Container \"{}\" in Pod \"{}\"",
        container.name,
        format_pod(pod)
    );
    if let Some(action) = &handler.exec {
        let command = action.command.clone().unwrap_or_default();
        let shown = command.join(" ");
        let request = v1::ExecSyncRequest {
            container_id: container_id.to_owned(),
            cmd: command,
            timeout: 0,
        };
        let (error, output) = match cri.runtime.clone().exec_sync(request).await {
            Ok(response) => {
                let response = response.into_inner();
                if response.exit_code == 0 {
                    return Ok(());
                }
                failure(&shown, &response)
            }
            Err(status) => (rpc_error(&status), String::new()),
        };
        return Err(Error(format!(
            "Exec lifecycle hook ([{shown}]) {whose} failed - error: {error}, message: {}",
            quoted(&output)
        )));
    }
    if let Some(action) = &handler.http_get {
        return match get(action, container, pod_ip).await {
            Ok(Got::AsAsked) => Ok(()),
            Ok(Got::OverHttp { place }) => {
                let count = Counter::LifecycleHandlerHttpFallbacks;
                telemetry.measures.count(count, &[]);
                let message = format!(
                    "request to HTTPS lifecycle hook {place} got HTTP response, retry with HTTP succeeded"
                );
                telemetry
                    .events
                    .warning(pod, "LifecycleHTTPFallback", message);
                Ok(())
            }
            Err(error) => {
                let path = action.path.as_deref().unwrap_or_default();
                Err(Error(format!(
                    "HTTP lifecycle hook ({path}) {whose} failed - error: {error}"
                )))
            }
        };
    }
    if let Some(action) = &handler.sleep {
        let mut sleep = Sleep {
            measures: &telemetry.measures,
            over: false,
        };
        tokio::time::sleep(Duration::from_secs(action.seconds.max(0) as u64)).await;
        sleep.over = true;
        return Ok(());
    }
    // tcpSocket is there to be read, and cannot be run.
    Err(Error("Cannot run handler: invalid handler".to_owned()))
}

/// The answer to a hook over HTTP.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    AsAsked,
    /// Asked for over HTTPS. `place` is its host and port.
    OverHttp {
        place: String,
    },
}

async fn get(
    action: &HTTPGetAction,
    container: &Container,
    pod_ip: &str,
) -> Result<Got, http_get::Error> {
    let error = match http_get::get(action, container, pod_ip, "lifecycle", UNBOUNDED).await {
        Ok(_) => return Ok(Got::AsAsked),
        Err(error @ http_get::Error::PlainAnswer { .. }) => error,
        Err(error) => return Err(error),
    };
    let mut plain = action.clone();
    plain.scheme = Some("HTTP".to_owned());
    // What was meant for an encrypted connection stays off this one.
    if let Some(headers) = &mut plain.http_headers {
        headers.retain(|header| !header.name.eq_ignore_ascii_case("Authorization"));
    }
    match http_get::get(&plain, container, pod_ip, "lifecycle", UNBOUNDED).await {
        Ok(_) => Ok(Got::OverHttp {
            place: http_get::place(action, container, pod_ip)?,
        }),
        Err(_) => Err(error),
    }
}

/// A sleep that may be cut short.
struct Sleep<'a> {
    measures: &'a Measures,
    over: bool,
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.measures.count(Counter::SleepActionTerminated, &[]);
        }
    }
}

/// The error and the output of a command that failed.
fn failure(command: &str, response: &v1::ExecSyncResponse) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&response.stdout), text(&response.stderr));
    let error = format!(
        "command '{command}' exited with {}: {err}",
        response.exit_code
    );
    (error, format!("{out}{err}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// A server that knows no TLS: it answers the first `bad` connections with an error, as servers
    /// answer what is no HTTP, the next with `OK`. Returns its port and what it was asked.
    fn plain_server(bad: usize) -> (u16, std::thread::JoinHandle<Vec<String>>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let served = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for turn in 0..=bad {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut bytes = [0; 4096];
                let count = stream.read(&mut bytes).expect("a request");
                asked.push(String::from_utf8_lossy(&bytes[..count]).into_owned());
                let status = if turn < bad {
                    "400 Bad Request"
                } else {
                    "200 OK"
                };
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(head.as_bytes()).expect("answered");
            }
            asked
        });
        (port, served)
    }

    fn action(port: u16) -> HTTPGetAction {
        serde_json::from_value(serde_json::json!({
            "scheme": "HTTPS", "port": port, "path": "/hook",
            "httpHeaders": [{"name": "authorization", "value": "secret"},
                {"name": "X-Kept", "value": "yes"}],
        }))
        .expect("an action")
    }

    #[tokio::test]
    async fn a_plain_answer_to_https_is_requested_again_without_authorization() {
        client::connect::install_crypto_provider();
        let (port, served) = plain_server(1);
        let got = get(&action(port), &Container::default(), "127.0.0.1").await;
        let place = format!("127.0.0.1:{port}");
        assert_eq!(got.expect("an answer"), Got::OverHttp { place });
        let asked = served.join().expect("served");
        assert!(asked[0].starts_with('\u{16}'), "a TLS handshake first");
        let again = asked[1].to_lowercase();
        assert!(again.starts_with("get /hook "), "{again}");
        assert!(again.contains("x-kept: yes"), "{again}");
        assert!(!again.contains("secret"), "{again}");
    }

    #[tokio::test]
    async fn a_failed_retry_over_http_returns_the_first_error() {
        client::connect::install_crypto_provider();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            drop(listener);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        });
        let got = get(&action(port), &Container::default(), "127.0.0.1").await;
        served.join().expect("served");
        assert_eq!(
            got.expect_err("an error").to_string(),
            format!(
                "Get \"https://127.0.0.1:{port}/hook\": http: server gave HTTP response to HTTPS client"
            )
        );
    }

    #[test]
    fn a_failed_hook_command_is_reported_with_its_output() {
        let response = v1::ExecSyncResponse {
            stdout: b"out\n".to_vec(),
            stderr: b"err".to_vec(),
            exit_code: 3,
        };
        assert_eq!(
            failure("sh -c x", &response),
            (
                "command 'sh -c x' exited with 3: err".to_owned(),
                "out\nerr".to_owned()
            )
        );
    }
}
