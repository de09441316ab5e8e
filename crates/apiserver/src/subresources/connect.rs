//! Requests that become connections: exec, attach, port-forward, the proxies, and logs over
//! WebSocket. Kubelets are spoken to in SPDY: what newer clients say over WebSocket is translated
//! here, everything else is passed on as it is.

use std::sync::Arc;

use api::{Resource, Status, Value};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyStream, Empty};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use streaming::{
    Upgrade,
    remote_command::{self, CommandOutcome, Options, Remote, Session},
    upgrade, websocket,
};

use super::kubelet::locate;
pub(crate) use super::upgraded::Line;
use super::upgraded::{join, refusal};
use super::{log, not_allowed, not_served, proxy};
use crate::admission;
use crate::authorization::Attributes;
use crate::body::{Body, RequestBody};
use crate::context::Context;
use crate::negotiate::Output;
use crate::query::encode;

const LOG_PROTOCOLS: [&str; 3] = ["", "binary.k8s.io", "base64.binary.k8s.io"];

pub(crate) fn is_wanted(context: &Context) -> bool {
    match context.info.subresource.as_str() {
        "exec" | "attach" | "portforward" | "proxy" => true,
        "log" => upgrade::is_websocket(&context.headers),
        _ => false,
    }
}

pub(crate) async fn handle(
    mut context: Context,
    line: Line,
    body: RequestBody,
) -> Result<Response<Body>, Status> {
    let info = &context.info;
    let resource = info.resource.clone().ok_or_else(not_served)?;
    let known = resource.subresource(&info.subresource);
    let known = known.ok_or_else(not_served)?;
    info.check_names()?;
    let is_proxy = info.subresource == "proxy";
    if !is_proxy && (!known.verbs.contains(&info.verb) || line.method == Method::HEAD) {
        return Err(not_allowed());
    }
    context.output = Output::JSON;
    if context.info.subresource != "log" {
        let options = admitted_options(&context, &resource, &line);
        admission::connect(&context, &resource, options).await?;
    }
    match context.info.subresource.as_str() {
        "proxy" => proxy::handle(&context, &resource, line, body).await,
        "log" => log_over_websocket(&context, &resource, line).await,
        _ => session(&context, &resource, line).await,
    }
}

/// The options of a connection, as hooks see them.
fn admitted_options(context: &Context, resource: &Resource, line: &Line) -> Value {
    let (info, query) = (&context.info, &context.query);
    let Some(known) = resource.subresource(&info.subresource) else {
        return Value::Null;
    };
    let mut document = api::document!({
        "kind": &*known.kind,
        "apiVersion": api::resource::api_version(&known.group, &known.version),
    });
    match info.subresource.as_str() {
        "proxy" => {
            let path = proxy::path_behind(line.uri.path(), info.depth);
            if !path.is_empty() {
                document.set(&["path"], path);
            }
        }
        "portforward" => {
            let ports = query.all("ports").filter_map(|port| port.parse().ok());
            let ports: Vec<Value> = ports.map(Value::Integer).collect();
            if !ports.is_empty() {
                document.set(&["ports"], ports);
            }
        }
        _ => {
            let options = options(context);
            for (field, is_set) in [
                ("stdin", options.stdin),
                ("stdout", options.stdout),
                ("stderr", options.stderr),
                ("tty", options.tty),
            ] {
                if is_set {
                    document.set(&[field], true);
                }
            }
            let container = query.get("container");
            if !container.is_empty() {
                document.set(&["container"], container);
            }
            if info.subresource == "exec" {
                let words = query.all("command").map(Value::from);
                document.set(&["command"], words.collect::<Vec<Value>>());
            }
        }
    }
    document
}

/// Exec, attach and port-forward.
async fn session(
    context: &Context,
    resource: &Arc<Resource>,
    mut line: Line,
) -> Result<Response<Body>, Status> {
    let (server, info) = (&context.server, &context.info);
    // Whoever may only read must not get in through the verb of a WebSocket's GET.
    let attributes = Attributes {
        verb: "create".to_string(),
        ..Attributes::of(info)
    };
    server.authorizer.check(&context.identity, &attributes)?;
    let pod = server
        .objects
        .get(resource, &info.namespace, &info.name)
        .await?;
    let pod = pod.object()?;
    let path = kubelet_path(context, &pod)?;
    let node = pod.str_at(&["spec", "nodeName"]);
    if node.is_empty() {
        let message = format!("pod {} does not have a host assigned", info.name);
        return Err(Status::bad_request(message));
    }
    let near = line.upgrade.take();
    let near = near.filter(|_| upgrade::is_upgrade(&context.headers));
    let near = near.ok_or_else(|| Status::bad_request("Upgrade request required"))?;
    let (address, port) = locate(context, node).await?;
    let far = Kubelet {
        address,
        port,
        path,
    };
    let tunnels = upgrade::tunnelled(&context.headers);
    if info.subresource != "portforward" && remote_command::wants_v5(&context.headers) {
        return translate(context, near, far);
    }
    if info.subresource == "portforward" && !tunnels.is_empty() {
        return tunnel(context, near, &far, &tunnels).await;
    }
    let answer = far.ask(context, &line.method, context.headers.clone());
    join(near, answer.await?).await
}

/// The kubelet's path and query for what was asked.
fn kubelet_path(context: &Context, pod: &Value) -> Result<String, Status> {
    let (info, query) = (&context.info, &context.query);
    let of_pod = format!("{}/{}", encode(&info.namespace), encode(&info.name));
    if info.subresource == "portforward" {
        let ports: Vec<&str> = query.all("ports").collect();
        return Ok(match ports.is_empty() {
            true => format!("/portForward/{of_pod}"),
            false => format!("/portForward/{of_pod}?port={}", encode(&ports.join(","))),
        });
    }
    let container = log::choose_container(pod, query.get("container"))?;
    let options = options(context);
    let mut parameters: Vec<String> = [
        (options.stdin, "input=1"),
        (options.stdout, "output=1"),
        (options.stderr, "error=1"),
        (options.tty, "tty=1"),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .map(|(_, parameter)| parameter.to_string())
    .collect();
    if info.subresource == "exec" {
        let words = query.all("command");
        parameters.extend(words.map(|word| format!("command={}", encode(word))));
    }
    Ok(format!(
        "/{}/{of_pod}/{}?{}",
        info.subresource,
        encode(&container),
        parameters.join("&")
    ))
}

fn options(context: &Context) -> Options {
    let query = &context.query;
    let unless_denied = |name: &str| query.all(name).next().is_none() || query.flag(name);
    let tty = query.flag("tty");
    Options {
        stdin: query.flag("stdin"),
        stdout: unless_denied("stdout"),
        stderr: unless_denied("stderr") && !tty,
        tty,
    }
}

/// A place at a kubelet.
struct Kubelet {
    address: std::net::IpAddr,
    port: u16,
    path: String,
}

impl Kubelet {
    async fn ask(
        &self,
        context: &Context,
        method: &Method,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Status> {
        let Kubelet {
            address,
            port,
            path,
        } = self;
        let failed = |problem: &dyn std::fmt::Display| {
            Status::internal(format_args!("error dialing backend: {problem}"))
        };
        let dialer = context.server.kubelets.as_ref();
        let dialer =
            dialer.ok_or_else(|| failed(&"this server has no kubelet client certificate"))?;
        let stream = dialer.connect(*address, *port).await;
        let stream = stream.map_err(|problem| failed(&problem))?;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method.clone();
        let host = std::net::SocketAddr::new(*address, *port).to_string();
        *request.headers_mut() = streaming::proxy::passed_on(&headers, &host);
        *request.uri_mut() = path
            .parse()
            .map_err(|_| failed(&"the path cannot be passed on"))?;
        let answer = streaming::proxy::ask(stream, request).await;
        answer.map_err(|problem| failed(&problem))
    }
}

/// A client that speaks WebSocket v5 and a kubelet that is spoken to in SPDY.
fn translate(context: &Context, near: OnUpgrade, far: Kubelet) -> Result<Response<Body>, Status> {
    let agreed = upgrade::negotiate(&context.headers, &[remote_command::V5], &[]);
    let agreed = agreed.map_err(|refusal| Status::bad_request(refusal.message))?;
    let response: Response<()> = agreed.response();
    let context = context.aside();
    tokio::spawn(async move {
        let options = options(&context);
        let Ok(near) = near.await else {
            return;
        };
        let session = Session::start(TokioIo::new(near), &agreed, options).await;
        let Ok(session) = session else {
            return;
        };
        match reach(&context, &far, options).await {
            Ok(remote) => remote_command::join(session, remote).await,
            Err(outcome) => session.finish(&outcome).await,
        }
    });
    Ok(response.map(|()| Body::empty()))
}

async fn reach(
    context: &Context,
    far: &Kubelet,
    options: Options,
) -> Result<Remote, CommandOutcome> {
    let mut headers = context.headers.clone();
    upgrade::ask_for_spdy(&mut headers, &[Remote::PROTOCOL.to_string()]);
    let answer = far.ask(context, &Method::POST, headers).await;
    let mut answer = answer.map_err(|status| CommandOutcome::Failure(status.message))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let text = refusal(answer).await;
        let text = String::from_utf8_lossy(&text).trim().to_string();
        let message = format!("unable to upgrade connection: {text}");
        return Err(CommandOutcome::Failure(message));
    }
    let upgraded = hyper::upgrade::on(&mut answer).await;
    let upgraded = upgraded.map_err(|problem| CommandOutcome::Failure(problem.to_string()))?;
    let remote = Remote::start(TokioIo::new(upgraded), options).await;
    remote.map_err(|problem| CommandOutcome::Failure(problem.to_string()))
}

/// A client that speaks SPDY inside WebSocket; the kubelet gets what is inside.
async fn tunnel(
    context: &Context,
    near: OnUpgrade,
    far: &Kubelet,
    protocols: &[String],
) -> Result<Response<Body>, Status> {
    let mut headers = context.headers.clone();
    upgrade::ask_for_spdy(&mut headers, protocols);
    let mut answer = far.ask(context, &Method::POST, headers).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return join(near, answer).await;
    }
    let offered: Vec<String> = protocols
        .iter()
        .map(|name| format!("{}{name}", upgrade::TUNNEL_PREFIX))
        .collect();
    let names: Vec<&str> = offered.iter().map(String::as_str).collect();
    let agreed = upgrade::negotiate(&context.headers, &names, &[]);
    let agreed = agreed.map_err(|refusal| Status::bad_request(refusal.message))?;
    let response: Response<()> = agreed.response();
    let far = hyper::upgrade::on(&mut answer);
    tokio::spawn(async move {
        if let (Ok(near), Ok(far)) = tokio::join!(near, far) {
            let inside = websocket::tunnel(TokioIo::new(near), websocket::Role::Server).await;
            streaming::proxy::join(inside, TokioIo::new(far)).await;
        }
    });
    Ok(response.map(|()| Body::empty()))
}

/// The log's chunks as messages.
async fn log_over_websocket(
    context: &Context,
    resource: &Arc<Resource>,
    line: Line,
) -> Result<Response<Body>, Status> {
    let near = line.upgrade;
    let near = near.ok_or_else(|| Status::bad_request("Upgrade request required"))?;
    let agreed = upgrade::negotiate(&context.headers, &LOG_PROTOCOLS, &[]);
    let agreed = agreed.map_err(|refusal| Status::bad_request(refusal.message))?;
    let answer = log::get(context, resource).await?;
    let response: Response<()> = agreed.response();
    let base64 =
        matches!(&agreed, Upgrade::WebSocket { protocol, .. } if protocol.contains("base64"));
    let closing = context.closing.clone();
    tokio::spawn(async move {
        let Ok(near) = near.await else {
            return;
        };
        let chunks = BodyStream::new(answer.into_body())
            .take_while(|frame| std::future::ready(frame.is_ok()))
            .filter_map(|frame| {
                std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok()))
            });
        let sending = websocket::send_all(TokioIo::new(near), base64, Box::pin(chunks));
        tokio::select! {
            biased;
            () = closing.cancelled() => {}
            () = sending => {}
        }
    });
    Ok(response.map(|()| Body::empty()))
}

impl Context {
    /// The part of a request that goes on after its answer has been given.
    fn aside(&self) -> Arc<Context> {
        Arc::new(Context::new(
            self.server.clone(),
            self.identity.clone(),
            self.info.clone(),
            self.query.clone(),
            self.headers.clone(),
            self.closing.clone(),
        ))
    }
}
