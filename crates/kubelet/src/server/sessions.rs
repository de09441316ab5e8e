//! `/exec`, `/attach`, `/portForward` and `/run`: which container is meant, what the runtime is
//! asked for, and the passing on of the connection to where the runtime serves it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cri::v1;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use streaming::{proxy, upgrade};
use tokio::net::TcpStream;

use super::{Backend, Body, NOT_ALLOWED, Refusal, query};
use crate::{measures::Counter, runtime::observe};

/// A refusal of the runtime's streaming server is never longer.
const LARGEST_REFUSAL: usize = 64 * 1024;
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Exec,
    Attach,
    PortForward,
    Run,
}

/// The container and the action that a path and its query name.
#[derive(Debug)]
pub struct Target {
    action: Action,
    namespace: String,
    pod: String,
    uid: Option<String>,
    container: String,
    query: Vec<(String, String)>,
}

impl Target {
    pub fn parse(parts: &[&str], query: Option<&str>) -> Option<Target> {
        let action = match *parts.first()? {
            "exec" => Action::Exec,
            "attach" => Action::Attach,
            "portForward" => Action::PortForward,
            "run" => Action::Run,
            _ => return None,
        };
        let (namespace, pod, uid, container) = match (action, &parts[1..]) {
            (Action::PortForward, [namespace, pod]) => (namespace, pod, None, ""),
            (Action::PortForward, [namespace, pod, uid]) => (namespace, pod, Some(*uid), ""),
            (Action::PortForward, _) => return None,
            (_, [namespace, pod, container]) => (namespace, pod, None, *container),
            (_, [namespace, pod, uid, container]) => (namespace, pod, Some(*uid), *container),
            _ => return None,
        };
        Some(Target {
            action,
            namespace: (*namespace).to_owned(),
            pod: (*pod).to_owned(),
            uid: uid.map(str::to_owned),
            container: container.to_owned(),
            query: query::pairs(query.unwrap_or_default()),
        })
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.query.iter().filter(move |(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    fn flag(&self, name: &str) -> bool {
        self.all(name).next().is_some_and(|value| value == "1")
    }
}

pub async fn answer(
    backend: &Arc<Backend>,
    target: Target,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let allowed = match target.action {
        Action::Run => request.method() == Method::POST,
        _ => matches!(*request.method(), Method::GET | Method::POST),
    };
    if !allowed {
        return Err(refusal(StatusCode::METHOD_NOT_ALLOWED, NOT_ALLOWED));
    }
    let pod = backend.pods.find(&target.namespace, &target.pod);
    let pod = pod.ok_or_else(|| refusal(StatusCode::NOT_FOUND, "pod does not exist"))?;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    if target.uid.as_ref().is_some_and(|wanted| *wanted != uid) {
        return Err(refusal(StatusCode::NOT_FOUND, "pod not found"));
    }
    let subresource = match target.action {
        Action::Exec => Some("exec"),
        Action::Attach => Some("attach"),
        Action::PortForward => Some("portforward"),
        Action::Run => None,
    };
    if let Some(subresource) = subresource.filter(|_| upgrade::is_websocket(request.headers())) {
        let counter = Counter::WebSocketStreamingRequests;
        backend.telemetry.measures.count(counter, &[subresource]);
    }
    let mut runtime = backend.cri.runtime.clone();
    let observed = observe::pod(&backend.cri, &uid).await.map_err(failed)?;
    let container = || {
        let mut records = observed.containers.iter();
        let running = records.find(|record| record.name == target.container && record.running());
        running.map(|record| record.id.clone()).ok_or_else(|| {
            refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("container not found ({:?})", target.container),
            )
        })
    };
    let (stdin, stdout, tty) = (
        target.flag("input"),
        target.flag("output"),
        target.flag("tty"),
    );
    let stderr = target.flag("error") && !tty;
    let has_streams = stdin || stdout || stderr;
    let none = "you must specify at least 1 of stdin, stdout, stderr";
    let url = match target.action {
        Action::Exec | Action::Attach if !has_streams => {
            return Err(refusal(StatusCode::BAD_REQUEST, none));
        }
        Action::Exec => {
            let asked = v1::ExecRequest {
                container_id: container()?,
                cmd: target.all("command").map(str::to_owned).collect(),
                tty,
                stdin,
                stdout,
                stderr,
            };
            runtime.exec(asked).await.map_err(failed)?.into_inner().url
        }
        Action::Attach => {
            let asked = v1::AttachRequest {
                container_id: container()?,
                tty,
                stdin,
                stdout,
                stderr,
            };
            let answer = runtime.attach(asked).await.map_err(failed)?;
            answer.into_inner().url
        }
        Action::PortForward => {
            let sandbox = observed.sandboxes.iter().find(|sandbox| sandbox.ready);
            let sandbox = sandbox.ok_or_else(|| {
                let message = format!(
                    "failed to find sandbox for pod \"{}_{}\"",
                    target.pod, target.namespace
                );
                refusal(StatusCode::INTERNAL_SERVER_ERROR, message)
            })?;
            let asked = v1::PortForwardRequest {
                pod_sandbox_id: sandbox.id.clone(),
                port: ports(&target, request.headers())?,
            };
            let answer = runtime.port_forward(asked).await.map_err(failed)?;
            answer.into_inner().url
        }
        Action::Run => {
            let command = target.all("cmd").next().unwrap_or_default();
            let asked = v1::ExecSyncRequest {
                container_id: container()?,
                cmd: command.split(' ').map(str::to_owned).collect(),
                timeout: 0,
            };
            let output = runtime.exec_sync(asked).await.map_err(failed)?;
            let output = output.into_inner();
            let text = [output.stdout, output.stderr].concat();
            return match output.exit_code {
                0 => Ok(Response::new(Full::new(Bytes::from(text)).boxed_unsync())),
                code => {
                    let text = String::from_utf8_lossy(&text);
                    let message = format!("command exited with {code}: {text}");
                    Err(refusal(StatusCode::INTERNAL_SERVER_ERROR, message))
                }
            };
        }
    };
    pass_on(&url, request).await
}

/// The ports that a WebSocket client must name beforehand; others name them stream by stream.
fn ports(target: &Target, headers: &http::HeaderMap) -> Result<Vec<i32>, Refusal> {
    if !upgrade::is_websocket(headers) || !upgrade::tunnelled(headers).is_empty() {
        return Ok(Vec::new());
    }
    let named: Vec<&str> = target.all("port").collect();
    if named.is_empty() {
        let message = "query parameter \"port\" is required";
        return Err(refusal(StatusCode::BAD_REQUEST, message));
    }
    let parsed = named.iter().flat_map(|text| text.split(',')).map(|text| {
        let port = text.parse::<u16>().ok().filter(|port| *port > 0);
        port.map(i32::from).ok_or_else(|| {
            let message = format!("unable to parse {text:?} as a port");
            refusal(StatusCode::BAD_REQUEST, message)
        })
    });
    parsed.collect()
}

/// Asks the runtime's streaming server what we were asked, and joins the two connections.
async fn pass_on(url: &str, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let wrong = |problem: String| refusal(StatusCode::INTERNAL_SERVER_ERROR, problem);
    if !upgrade::is_upgrade(request.headers()) {
        return Err(refusal(StatusCode::BAD_REQUEST, "Upgrade request required"));
    }
    let address = url.strip_prefix("http://").and_then(|rest| {
        let (host, path) = rest.split_once('/')?;
        Some((host, format!("/{path}")))
    });
    let (host, path) = address.ok_or_else(|| wrong(format!("unusable streaming URL {url:?}")))?;
    let mut asked = Request::new(Empty::<Bytes>::new());
    *asked.method_mut() = request.method().clone();
    *asked.headers_mut() = proxy::passed_on(request.headers(), host);
    let uri = path.parse();
    *asked.uri_mut() = uri.map_err(|_| wrong(format!("unusable streaming URL {url:?}")))?;
    let dialling = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(host)).await;
    let stream = dialling.map_err(std::io::Error::from).flatten();
    let stream = stream.map_err(|error| wrong(format!("error dialing backend: {error}")))?;
    let _ = stream.set_nodelay(true);
    let mut answer = proxy::ask(stream, asked)
        .await
        .map_err(|error| wrong(format!("error sending request: {error}")))?;
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let body = Limited::new(answer.into_body(), LARGEST_REFUSAL).collect();
        let bytes = body.await.map(|body| body.to_bytes()).unwrap_or_default();
        response.headers_mut().remove(http::header::CONNECTION);
        return Ok(response.map(|_| Full::new(bytes).boxed_unsync()));
    }
    let (near, far) = (
        hyper::upgrade::on(&mut request),
        hyper::upgrade::on(&mut answer),
    );
    tokio::spawn(async move {
        if let (Ok(near), Ok(far)) = tokio::join!(near, far) {
            proxy::join(TokioIo::new(near), TokioIo::new(far)).await;
        }
    });
    Ok(response)
}

fn refusal(status: StatusCode, message: impl Into<String>) -> Refusal {
    Refusal {
        status,
        message: message.into(),
    }
}

fn failed(status: tonic::Status) -> Refusal {
    refusal(
        StatusCode::INTERNAL_SERVER_ERROR,
        crate::runtime::rpc_error(&status),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_pod_and_container() {
        let query = Some("command=sh&command=-c&input=1&tty=0");
        let target = Target::parse(&["exec", "ns", "web", "main"], query).expect("a target");
        assert_eq!(
            (
                target.action,
                target.pod.as_str(),
                target.container.as_str()
            ),
            (Action::Exec, "web", "main")
        );
        assert_eq!(target.all("command").collect::<Vec<_>>(), ["sh", "-c"]);
        assert!(target.flag("input") && !target.flag("tty") && !target.flag("output"));
        let target = Target::parse(&["portForward", "ns", "web", "uid"], None).expect("a target");
        assert_eq!(target.uid.as_deref(), Some("uid"));
        assert!(Target::parse(&["exec", "ns"], None).is_none());
        assert!(Target::parse(&["pods"], None).is_none());
    }
}
