//! GET with `watch`: a stream of events from the cache, with bookmarks.

use std::sync::Arc;
use std::time::Duration;

use api::{Reason, Resource, Status, Value};
use bytes::Bytes;
use futures::Stream;
use http::Response;
use tokio::time::{Instant, Sleep};

use super::list::parse_revision;
use super::selection::Selection;
use super::{partial, table};
use crate::body::{Body, BoxError};
use crate::cache::{Change, Entry, EventType, From, Initial, Watch};
use crate::negotiate::Form;
use crate::response;
use crate::server::Context;

const BOOKMARKS: Duration = Duration::from_secs(60);
/// A watch ends by itself after 30 to 60 minutes unless the client says otherwise.
const LEAST_TIMEOUT: u64 = 1800;

pub(crate) async fn watch(
    context: Arc<Context>,
    resource: &'static Resource,
) -> Result<Response<Body>, Status> {
    let server = context.server.clone();
    let kind = server.kind(resource)?;
    let selection = Selection::of(&context, resource)?;
    let query = &context.query;
    let revision = parse_revision(query.get("resourceVersion"))?;
    let bookmarks = query.flag("allowWatchBookmarks");
    let initial = query.flag("sendInitialEvents");
    if !query.get("sendInitialEvents").is_empty()
        && query.get("resourceVersionMatch") != "NotOlderThan"
    {
        return Err(Status::invalid(
            "meta.k8s.io",
            "ListOptions",
            "",
            vec![api::Cause {
                reason: "FieldValueForbidden",
                message: "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan".to_string(),
                field: "resourceVersionMatch".to_string(),
            }],
        ));
    }
    let from = match revision {
        None | Some(0) => From::State,
        Some(_) if initial => From::State,
        Some(revision) => From::After(revision),
    };
    if from == From::State && revision != Some(0) {
        server.catch_up().await?;
    }
    let content = match Watch::begin(&server.cache, kind, from, selection.requirement()) {
        Ok(watch) => Ok(watch),
        Err(too_old) => Err(Status::new(
            Reason::Expired,
            format!(
                "too old resource version: {} ({})",
                revision.unwrap_or_default(),
                too_old.oldest
            ),
        )),
    };
    let seconds = match query.get("timeoutSeconds").parse::<u64>() {
        Ok(seconds) if seconds > 0 => seconds,
        _ => LEAST_TIMEOUT + server.environment.random_u64() % LEAST_TIMEOUT,
    };
    let stream = match content {
        Ok(watch) => {
            let after = match from {
                From::After(revision) => revision,
                From::State => 0,
            };
            let state = WatchStream {
                context,
                resource,
                selection,
                after,
                bookmarks,
                end_of_initial: initial && bookmarks,
                columns_sent: false,
                next_bookmark: Instant::now() + BOOKMARKS,
                deadline: Box::pin(tokio::time::sleep(Duration::from_secs(seconds))),
                finished: false,
                watch,
            };
            Body::stream(events(state))
        }
        Err(status) => {
            let line = event_line("ERROR", &status.to_document());
            Body::stream(futures::stream::iter([Ok::<_, BoxError>(line)]))
        }
    };
    Ok(response::bytes(200, "application/json", stream))
}

/// One watch on its way.
struct WatchStream {
    context: Arc<Context>,
    resource: &'static Resource,
    selection: Selection,
    /// Changes up to this revision are the client's already.
    after: u64,
    bookmarks: bool,
    /// A bookmark that marks the end of the initial state is due.
    end_of_initial: bool,
    columns_sent: bool,
    next_bookmark: Instant,
    deadline: std::pin::Pin<Box<Sleep>>,
    finished: bool,
    watch: Watch,
}

fn events(mut state: WatchStream) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
    let first = state.initial();
    let first = (!first.is_empty()).then(|| Ok(Bytes::from(first)));
    let live = futures::stream::unfold(state, |mut state| async move {
        let line = state.next().await?;
        Some((Ok(line), state))
    });
    use futures::StreamExt;
    futures::stream::iter(first).chain(live)
}

impl WatchStream {
    /// Everything that is known at the beginning, in one piece.
    fn initial(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let initial = std::mem::replace(
            &mut self.watch.subscription.initial,
            Initial::Changes(Vec::new()),
        );
        match initial {
            Initial::State(snapshot) => {
                let prefix = self.selection.prefix.clone();
                for entry in snapshot.range(&prefix, "") {
                    if self.selection.matches(entry) {
                        self.write(&mut out, EventType::Added, entry, entry.revision, None);
                    }
                }
                self.after = snapshot.revision;
                if self.end_of_initial {
                    out.extend_from_slice(&self.bookmark(snapshot.revision, true));
                }
            }
            Initial::Changes(changes) => {
                for change in changes {
                    self.take(&mut out, &change);
                }
            }
        }
        out
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.finished {
                return None;
            }
            let mut out = Vec::new();
            tokio::select! {
                biased;
                change = self.watch.subscription.changes.recv() => {
                    let change = change?;
                    let event = change.seen_by(|entry| self.selection.matches(entry));
                    if let Some(event) = event
                        && change.revision > self.after
                        && self.context.output.form == Form::Object
                        && self.watch.subscription.changes.is_empty()
                    {
                        // The usual case: one event, whose line is shared by all watchers.
                        self.after = change.revision;
                        return Some(change.line(event));
                    }
                    self.take(&mut out, &change);
                    while let Ok(change) = self.watch.subscription.changes.try_recv() {
                        self.take(&mut out, &change);
                    }
                }
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARKS;
                    out = self.due_bookmark();
                }
                () = self.context.closing.cancelled() => return None,
                () = &mut self.deadline => {
                    self.finished = true;
                    if self.bookmarks {
                        out = self.due_bookmark();
                    }
                }
            }
            if !out.is_empty() {
                return Some(out.into());
            }
        }
    }

    /// A bookmark at the newest revision all of whose events this client has.
    fn due_bookmark(&mut self) -> Vec<u8> {
        // Read first, look at the queue second: what the feed has applied, it has queued.
        let applied = self.context.server.cache.applied();
        match self.watch.subscription.changes.is_empty() {
            true => self.bookmark(applied.max(self.after), false).to_vec(),
            false => Vec::new(),
        }
    }

    fn take(&mut self, out: &mut Vec<u8>, change: &Change) {
        if change.revision <= self.after {
            return;
        }
        let event = change.seen_by(|entry| self.selection.matches(entry));
        if let Some(event) = event
            && let Some(entry) = change.object(event)
        {
            self.write(out, event, entry, change.revision, Some(change));
        }
    }

    fn write(
        &mut self,
        out: &mut Vec<u8>,
        event: EventType,
        entry: &Entry,
        revision: u64,
        change: Option<&Change>,
    ) {
        match (self.context.output.form, change) {
            (Form::Object, Some(change)) => out.extend_from_slice(&change.line(event)),
            (Form::Object, None) => {
                out.extend_from_slice(b"{\"type\":\"");
                out.extend_from_slice(event.name().as_bytes());
                out.extend_from_slice(b"\",\"object\":");
                entry.write(out, revision);
                out.extend_from_slice(b"}\n");
            }
            (form, _) => {
                let Ok(mut object) = entry.object() else {
                    return;
                };
                object.set(&["metadata", "resourceVersion"], revision.to_string());
                let shaped = match form {
                    Form::Table => {
                        let columns = !std::mem::replace(&mut self.columns_sent, true);
                        table(
                            &self.context,
                            self.resource,
                            &[object],
                            &Value::object(),
                            columns,
                        )
                        .unwrap_or_else(|status| status.to_document())
                    }
                    _ => partial(&object),
                };
                out.extend_from_slice(&event_line(event.name(), &shaped));
            }
        }
    }

    fn bookmark(&mut self, revision: u64, end_of_initial: bool) -> Bytes {
        let mut metadata =
            api::document!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if end_of_initial {
            metadata.set(&["annotations", "k8s.io/initial-events-end"], "true");
        }
        let object = match self.context.output.form {
            Form::Object => {
                let mut object = empty_object(self.resource);
                object.set(&["kind"], self.resource.kind);
                object.set(&["apiVersion"], self.resource.api_version());
                object.set(&["metadata"], metadata);
                object
            }
            Form::PartialObjectMetadata => partial(&api::document!({"metadata": metadata})),
            Form::Table => {
                let mut row = api::document!({"cells": []});
                row.set(
                    &["object"],
                    partial(&api::document!({"metadata": metadata})),
                );
                api::document!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"resourceVersion": revision.to_string()},
                    "columnDefinitions": [], "rows": [row],
                })
            }
        };
        event_line("BOOKMARK", &object)
    }
}

/// The required fields of a kind, empty: typed clients decode bookmarks as whole objects.
fn empty_object(resource: &Resource) -> Value {
    match resource.kind {
        "Pod" => api::document!({"spec": {"containers": null}, "status": {}}),
        "Deployment" | "ReplicaSet" => api::document!({
            "spec": {"selector": null, "template": {"metadata": {"creationTimestamp": null}, "spec": {"containers": null}}},
            "status": {},
        }),
        "EndpointSlice" => api::document!({"addressType": "", "endpoints": null, "ports": null}),
        "Event" => api::document!({"involvedObject": {}}),
        "RoleBinding" | "ClusterRoleBinding" => {
            api::document!({"roleRef": {"apiGroup": "", "kind": "", "name": ""}})
        }
        "PriorityClass" => api::document!({"value": 0}),
        _ => Value::object(),
    }
}

fn event_line(event: &str, object: &Value) -> Bytes {
    let mut line = format!("{{\"type\":\"{event}\",\"object\":").into_bytes();
    line.extend_from_slice(&object.to_json());
    line.extend_from_slice(b"}\n");
    line.into()
}
