//! An API in memory that serves any kind: lists, watches, reads and writes. It checks nothing; what
//! is written is told to those who watch. Its objects come from a world, kind by kind, on first use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::world::World;

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

#[derive(Clone)]
pub struct FakeApi {
    state: Arc<Mutex<State>>,
}

struct State {
    world: World,
    version: u64,
    /// By plural, then by namespace and name.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    watchers: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
    requests: u64,
}

impl FakeApi {
    pub fn new(world: World) -> FakeApi {
        FakeApi {
            state: Arc::new(Mutex::new(State {
                world,
                version: 1_000,
                objects: BTreeMap::new(),
                watchers: Vec::new(),
                requests: 0,
            })),
        }
    }

    pub fn client(&self) -> kube::Client {
        client::connect::from_service(self.clone())
    }

    /// How many requests there were so far, besides lists and watches.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// Changes or adds an object.
    pub fn put(&self, plural: &str, object: Value) {
        self.state.lock().put(plural, object);
    }

    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let mut state = self.state.lock();
        state.of(plural).get(&key(namespace, name)).cloned()
    }

    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        self.state.lock().delete(plural, namespace, name);
    }
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl State {
    fn of(&mut self, plural: &str) -> &mut BTreeMap<String, Value> {
        if !self.objects.contains_key(plural) {
            let objects = self.world.objects(plural).into_iter().map(|object| {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                (key(text("namespace"), text("name")), object)
            });
            let objects = objects.collect();
            self.objects.insert(plural.to_owned(), objects);
        }
        self.objects.entry(plural.to_owned()).or_default()
    }

    fn put(&mut self, plural: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = key(text("namespace"), text("name"));
        let old = self.of(plural).insert(key, object.clone());
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        self.tell(plural, kind, &object);
        object
    }

    fn delete(&mut self, plural: &str, namespace: &str, name: &str) {
        if let Some(mut object) = self.of(plural).remove(&key(namespace, name)) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.tell(plural, "DELETED", &object);
        }
    }

    fn tell(&mut self, plural: &str, kind: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": object})));
        self.watchers
            .retain(|(watched, watcher)| watched != plural || watcher.send(line.clone()).is_ok());
    }

    fn answer(&mut self, method: &Method, uri: &http::Uri, body: Value) -> Answer {
        let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let query = uri.query().unwrap_or_default();
        if let ["api" | "apis"] = path.as_slice() {
            return whole(200, &self.world.discovery(path[0]));
        }
        let rest = match path.as_slice() {
            // Nobody measures what pods use here.
            ["apis", "metrics.k8s.io", ..] => return failure(404),
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => return failure(404),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..]
                if !rest.is_empty() && !matches!(rest, ["status" | "finalize"]) =>
            {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        match (method.as_str(), rest) {
            ("GET", []) => whole(200, &self.world.resources(&path)),
            ("GET", [plural]) if query.contains("watch=true") => {
                let (sender, receiver) = mpsc::unbounded_channel();
                self.watchers.push(((*plural).to_owned(), sender));
                let lines = stream::unfold(receiver, |mut receiver| async {
                    let line = receiver.recv().await?;
                    Some((Ok(Frame::data(line)), receiver))
                });
                Response::new(StreamBody::new(lines).boxed_unsync())
            }
            ("GET", [plural]) => {
                let version = self.version.to_string();
                let objects = self.of(plural).values();
                let items: Vec<&Value> = objects
                    .filter(|one| namespace.is_empty() || one["metadata"]["namespace"] == namespace)
                    .collect();
                whole(
                    200,
                    &json!({"metadata": {"resourceVersion": version}, "items": items}),
                )
            }
            (method, rest) => {
                self.requests += 1;
                self.one(method, namespace, rest, body)
            }
        }
    }

    fn one(&mut self, method: &str, namespace: &str, rest: &[&str], mut body: Value) -> Answer {
        match (method, rest) {
            ("GET", [_, name, "scale"]) => whole(200, &self.world.scale(name)),
            ("GET", [plural, name, ..]) => match self.of(plural).get(&key(namespace, name)) {
                Some(object) => whole(200, object),
                None => failure(404),
            },
            // Events are not watched by anybody, and there are many.
            ("POST", ["events"]) | ("PATCH", ["events", _]) => whole(201, &body),
            ("POST", [_, name, "binding"]) => {
                let node = body["target"]["name"].clone();
                let Some(mut pod) = self.of("pods").get(&key(namespace, name)).cloned() else {
                    return failure(404);
                };
                pod["spec"]["nodeName"] = node;
                self.put("pods", pod);
                whole(201, &json!({"kind": "Status", "status": "Success"}))
            }
            ("POST", [plural]) => {
                if body["metadata"]["name"].is_null() {
                    let prefix = body["metadata"]["generateName"].as_str().unwrap_or("made-");
                    body["metadata"]["name"] = json!(format!("{prefix}{}", self.version));
                }
                body["metadata"]["namespace"] = json!(namespace);
                body["metadata"]["uid"] = json!(format!("made-{}", self.version));
                let made = self.put(plural, body);
                whole(201, &made)
            }
            ("PUT", [plural, _, ..]) => {
                let written = self.put(plural, body);
                whole(200, &written)
            }
            ("PATCH", [plural, name, ..]) => {
                let Some(mut object) = self.of(plural).get(&key(namespace, name)).cloned() else {
                    return failure(404);
                };
                merge(&mut object, &body);
                let written = self.put(plural, object);
                whole(200, &written)
            }
            ("DELETE", [plural, name]) => {
                self.delete(plural, namespace, name);
                whole(200, &json!({"kind": "Status", "status": "Success"}))
            }
            _ => failure(404),
        }
    }
}

/// As a merge patch has it; lists are replaced, which is enough here.
fn merge(object: &mut Value, patch: &Value) {
    let (Value::Object(fields), Value::Object(changes)) = (&mut *object, patch) else {
        *object = patch.clone();
        return;
    };
    for (name, change) in changes {
        match change {
            Value::Null => {
                fields.remove(name);
            }
            _ if name.starts_with('$') => {}
            change => merge(fields.entry(name.clone()).or_insert(Value::Null), change),
        }
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
            Ok(api.state.lock().answer(&parts.method, &parts.uri, body))
        })
    }
}

fn whole(code: u16, body: &Value) -> Answer {
    let frames = stream::iter([body.to_string()]);
    let frames = frames.map(|text| Ok(Frame::data(Bytes::from(text))));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).expect("a status code");
    response
}

fn failure(code: u16) -> Answer {
    let body = json!({"kind": "Status", "status": "Failure", "code": code, "reason": "NotFound",
        "message": "there is no such object"});
    whole(code, &body)
}
