//! An in-memory API of pods and nodes: list, watch, binding, status patches and events. It keeps
//! resourceVersions and preconditions, and can be told to fail.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

#[derive(Clone, Default)]
pub struct FakeApi {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: u64,
    /// By plural, then by path below it.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    watchers: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
    events: Vec<Value>,
    bindings: Vec<String>,
    failing_bindings: usize,
    binding_delay: Duration,
}

impl FakeApi {
    pub fn client(&self) -> kube::Client {
        client::connect::from_service(self.clone())
    }

    pub fn create_pod(&self, name: &str, spec: Value) {
        let metadata = json!({"namespace": "default", "name": name, "uid": format!("uid-{name}")});
        self.put(
            "pods",
            json!({"metadata": metadata, "spec": spec, "status": {}}),
        );
    }

    /// A node with this much cpu.
    pub fn put_node(&self, name: &str, cpu: &str) {
        let allocatable = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
        let metadata = json!({"name": name, "uid": format!("uid-{name}")});
        self.put(
            "nodes",
            json!({"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}}),
        );
    }

    pub fn put(&self, plural: &str, object: Value) {
        self.lock().put(plural, object);
    }

    pub fn delete_pod(&self, name: &str) {
        let mut state = self.lock();
        let pods = state.objects.entry("pods".to_owned()).or_default();
        let mut object = pods.remove(name).expect("a pod to delete");
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.tell("pods", "DELETED", &object);
    }

    pub fn pod(&self, name: &str) -> Value {
        let state = self.lock();
        let pod = state.objects.get("pods").and_then(|pods| pods.get(name));
        pod.cloned().unwrap_or(Value::Null)
    }

    pub fn node_of(&self, name: &str) -> Option<String> {
        let node = self.pod(name)["spec"]["nodeName"].clone();
        node.as_str().map(str::to_owned)
    }

    /// `reason: message` of each event about the pod.
    pub fn events(&self, pod: &str) -> Vec<String> {
        let state = self.lock();
        let about = state
            .events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == pod);
        about
            .map(|event| {
                let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
                format!("{}: {}", text("reason"), text("message"))
            })
            .collect()
    }

    /// `pod node` in the order in which they were written.
    pub fn bindings(&self) -> Vec<String> {
        self.lock().bindings.clone()
    }

    pub fn fail_bindings(&self, count: usize) {
        self.lock().failing_bindings = count;
    }

    /// Makes each binding take this long, so that decisions come before any is seen.
    pub fn delay_bindings(&self, delay: Duration) {
        self.lock().binding_delay = delay;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("api lock")
    }
}

impl State {
    fn put(&mut self, plural: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let objects = self.objects.entry(plural.to_owned()).or_default();
        let old = objects.insert(name.to_owned(), object.clone());
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        self.tell(plural, kind, &object);
    }

    fn tell(&mut self, plural: &str, kind: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        let line = Bytes::from(line);
        self.watchers
            .retain(|(watched, watcher)| watched != plural || watcher.send(line.clone()).is_ok());
    }

    fn answer(&mut self, method: &Method, uri: &http::Uri, body: &Value) -> Answer {
        let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let query = uri.query().unwrap_or_default();
        match (method.as_str(), path.as_slice()) {
            ("GET", ["api", "v1", plural] | ["apis", _, _, plural])
                if query.contains("watch=true") =>
            {
                let (sender, receiver) = mpsc::unbounded_channel();
                self.watchers.push(((*plural).to_owned(), sender));
                let lines = stream::unfold(receiver, |mut receiver| async {
                    let line = receiver.recv().await?;
                    Some((Ok(Frame::data(line)), receiver))
                });
                Response::new(StreamBody::new(lines).boxed_unsync())
            }
            ("GET", ["api", "v1", plural] | ["apis", _, _, plural]) => {
                let objects = self.objects.entry((*plural).to_owned()).or_default();
                let items: Vec<&Value> = objects.values().collect();
                let metadata = json!({"resourceVersion": self.version.to_string()});
                whole(200, json!({"metadata": metadata, "items": items}))
            }
            ("GET", ["api", "v1", "namespaces", _, "pods", name]) => {
                let pods = self.objects.entry("pods".to_owned()).or_default();
                match pods.get(*name) {
                    Some(pod) => whole(200, pod.clone()),
                    None => failure(404, "NotFound", "no such pod"),
                }
            }
            ("POST", ["api", "v1", "namespaces", _, "pods", name, "binding"]) => {
                self.bind(name, body)
            }
            ("PATCH", ["api", "v1", "namespaces", _, "pods", name, "status"]) => {
                self.patch_status(name, body)
            }
            ("POST", ["api", "v1", "namespaces", _, "events"]) => {
                self.events.push(body.clone());
                whole(201, body.clone())
            }
            ("PATCH", ["api", "v1", "namespaces", _, "events", _]) => {
                whole(200, json!({"metadata": {}, "involvedObject": {}}))
            }
            _ => failure(404, "NotFound", uri.path()),
        }
    }

    fn bind(&mut self, name: &str, body: &Value) -> Answer {
        if self.failing_bindings > 0 {
            self.failing_bindings -= 1;
            return failure(500, "InternalError", "the disk is on fire");
        }
        let pods = self.objects.entry("pods".to_owned()).or_default();
        let Some(mut pod) = pods.get(name).cloned() else {
            return failure(404, "NotFound", "no such pod");
        };
        if pod["metadata"]["uid"] != body["metadata"]["uid"] || pod["spec"]["nodeName"].is_string()
        {
            return failure(409, "Conflict", "already assigned");
        }
        let node = body["target"]["name"].clone();
        let written = format!("{name} {}", node.as_str().unwrap_or_default());
        self.bindings.push(written);
        pod["spec"]["nodeName"] = node;
        pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "True"}]);
        self.put("pods", pod);
        whole(201, json!({"kind": "Status", "status": "Success"}))
    }

    fn patch_status(&mut self, name: &str, body: &Value) -> Answer {
        let pods = self.objects.entry("pods".to_owned()).or_default();
        let Some(mut pod) = pods.get(name).cloned() else {
            return failure(404, "NotFound", "no such pod");
        };
        if pod["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
            return failure(409, "Conflict", "the object has been modified");
        }
        pod["status"]["conditions"] = body["status"]["conditions"].clone();
        self.put("pods", pod.clone());
        whole(200, pod)
    }
}

impl tower::Service<Request<Body>> for FakeApi {
    type Response = Answer;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Answer, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await;
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            if parts.uri.path().ends_with("/binding") {
                let delay = api.lock().binding_delay;
                tokio::time::sleep(delay).await;
            }
            Ok(api.lock().answer(&parts.method, &parts.uri, &body))
        })
    }
}

fn whole(code: u16, body: Value) -> Answer {
    let frames = stream::iter([body.to_string()]);
    let frames = frames.map(|text| Ok(Frame::data(Bytes::from(text))));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).expect("a status code");
    response
}

fn failure(code: u16, reason: &str, message: &str) -> Answer {
    whole(
        code,
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}),
    )
}
