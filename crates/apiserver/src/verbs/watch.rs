//! GET with `watch`: a stream of events from the cache, with bookmarks.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{self, Poll};
use std::time::Duration;

use api::{Reason, Resource, Status, Value};
use bytes::Bytes;
use futures::Stream;
use http::Response;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::converted_watch;
use super::list::{parse_revision, parse_timeout, reach};
use super::list_options::check_watch;
use super::selection::Selection;
use super::{go_type, partial, protobuf_kind, table, write_partial};
use crate::body::{Body, BoxError};
use crate::cache::{CachedObject, Change, EventType, Frame, From, Initial, Watch};
use crate::context::Context;
use crate::converted;
use crate::negotiate::{Encoding, Form, Output};
use crate::response;

const BOOKMARKS: Duration = Duration::from_secs(60);
/// Events are handed over in pieces of about this size, however many there are.
const PIECE: usize = 64 * 1024;
/// A watch ends by itself after 30 to 60 minutes unless the client says otherwise.
const LEAST_TIMEOUT: u64 = 1800;

pub(crate) async fn watch(
    context: Arc<Context>,
    resource: &Arc<Resource>,
) -> Result<Response<Body>, Status> {
    let server = context.server.clone();
    let kind = server.objects.kind(resource)?;
    let selection = Selection::of(&context, resource)?;
    if context.output.form == Form::PartialObjectMetadataList {
        return Err(Status::new(
            Reason::NotAcceptable,
            format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(resource, "")
            ),
        ));
    }
    let encoding = context.output.encoding;
    let query = &context.query;
    let revision = parse_revision(query.get("resourceVersion"))
        .map_err(|problem| Status::new(Reason::Unknown, problem.to_string()))?;
    let bookmarks = query.flag("allowWatchBookmarks");
    let initial = query.flag("sendInitialEvents");
    check_watch(query, context.server.feature_gates.is_on("WatchList"))?;
    // Said not to want the state, as opposed to not saying.
    let only_news = !initial && !query.get("sendInitialEvents").is_empty();
    if revision.is_none() || initial && revision != Some(0) {
        server.objects.catch_up().await?;
    }
    let timeout = parse_timeout(query)?;
    let from = match revision {
        None | Some(0) if only_news => From::After(server.cache.applied()),
        None | Some(0) => From::State,
        Some(_) if initial => From::State,
        Some(revision) => From::After(revision),
    };
    if let Some(revision) = revision.filter(|_| initial)
        && let Err(status) = reach(&context, revision).await
    {
        let mut error = Vec::new();
        write_event(&mut error, "ERROR", &status.to_document(), encoding)?;
        let stream = Body::stream(futures::stream::iter([Ok::<_, BoxError>(error.into())]));
        return Ok(response::bytes(200, encoding.stream_media_type(), stream));
    }
    if from == From::State {
        let name = selection.exact_name();
        kind.check_readable(&selection.prefix, "", None, name)?;
    }
    let content = match Watch::begin(&server.cache, kind.clone(), from, selection.requirement()) {
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
    let seconds = match timeout {
        Some(seconds) if seconds > 0 => seconds.unsigned_abs(),
        _ => LEAST_TIMEOUT + server.environment.random_u64() % LEAST_TIMEOUT,
    };
    let needs_hook = converted::needs_hook(resource).is_some();
    let stream = match content {
        Ok(mut watch) => {
            if needs_hook {
                converted_watch::convert(&context, resource, &selection, &mut watch).await?;
            }
            let after = match from {
                From::After(revision) => revision,
                From::State => 0,
            };
            let frame = frame_of(resource, context.output)
                .filter(|_| resource.is_storage_version() && !needs_hook);
            let stream = WatchStream {
                closing: Box::pin(context.closing.clone().cancelled_owned()),
                context,
                resource: resource.clone(),
                selection,
                frame,
                after,
                end_of_initial: initial && bookmarks,
                next_key: None,
                columns_sent: false,
                next_bookmark: bookmarks.then(|| Box::pin(tokio::time::sleep(BOOKMARKS))),
                deadline: Box::pin(tokio::time::sleep(Duration::from_secs(seconds))),
                finished: false,
                uncounted: 0,
                counter: server.metrics.watch_events_of(resource),
                watch,
            };
            Body::stream(stream)
        }
        Err(status) => {
            let mut error = Vec::new();
            write_event(&mut error, "ERROR", &status.to_document(), encoding)?;
            Body::stream(futures::stream::iter([Ok::<_, BoxError>(error.into())]))
        }
    };
    Ok(response::bytes(200, encoding.stream_media_type(), stream))
}

/// The body of a watch. The timers and channels that it waits for are kept between events, because
/// a thousand watchers wake up for each of them.
struct WatchStream {
    context: Arc<Context>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    resource: Arc<Resource>,
    selection: Selection,
    /// The form of events that all watchers of the stored version share, if this is one.
    frame: Option<Frame>,
    /// Changes up to this revision are the client's already.
    after: u64,
    /// A bookmark that marks the end of the initial state is due.
    end_of_initial: bool,
    /// The key at which the initial state goes on.
    next_key: Option<Arc<str>>,
    columns_sent: bool,
    /// For clients that want bookmarks.
    next_bookmark: Option<Pin<Box<Sleep>>>,
    deadline: Pin<Box<Sleep>>,
    finished: bool,
    /// Events that were written and not counted yet.
    uncounted: u64,
    /// Counts the events of all watches of the resource.
    counter: Arc<AtomicU64>,
    watch: Watch,
}

impl Stream for WatchStream {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        waker: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Bytes, BoxError>>> {
        let next = std::task::ready!(self.poll_events(waker));
        let events = std::mem::take(&mut self.uncounted);
        if events > 0 {
            self.counter.fetch_add(events, Ordering::Relaxed);
        }
        Poll::Ready(next.map(Ok))
    }
}

impl WatchStream {
    fn poll_events(&mut self, waker: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if self.finished {
                return Poll::Ready(None);
            }
            let mut out = Vec::new();
            if self.initial(&mut out) {
                if !out.is_empty() {
                    return Poll::Ready(Some(out.into()));
                }
                continue;
            }
            // First, so that a watch that is never idle ends all the same.
            if self.closing.as_mut().poll(waker).is_ready() {
                return Poll::Ready(None);
            }
            if self.deadline.as_mut().poll(waker).is_ready() {
                self.finished = true;
                if self.next_bookmark.is_some() {
                    out = self.due_bookmark();
                }
            } else if let Poll::Ready(change) = self.watch.subscription.changes.poll_recv(waker) {
                let Some(change) = change else {
                    return Poll::Ready(None);
                };
                let event = change.seen_by(|entry| self.selection.matches(entry));
                if let Some(event) = event
                    && change.revision > self.after
                    && let Some(frame) = self.frame
                    && self.watch.subscription.changes.is_empty()
                {
                    // The usual case: one event, whose bytes are shared by all watchers. Others
                    // of the same revision may follow: a lease takes all its keys at once.
                    return Poll::Ready(Some(self.shared(&change, event, frame)));
                }
                self.append(&mut out, &change);
                while out.len() < PIECE
                    && let Ok(change) = self.watch.subscription.changes.try_recv()
                {
                    self.append(&mut out, &change);
                }
            } else if let Some(timer) = &mut self.next_bookmark
                && timer.as_mut().poll(waker).is_ready()
            {
                timer.as_mut().reset(Instant::now() + BOOKMARKS);
                out = self.due_bookmark();
            } else {
                return Poll::Pending;
            }
            if !out.is_empty() {
                return Poll::Ready(Some(out.into()));
            }
        }
    }

    /// Writes the next piece of the initial state; false when all of it has been written.
    fn initial(&mut self, out: &mut Vec<u8>) -> bool {
        let none = Initial::Changes(VecDeque::new());
        let mut initial = std::mem::replace(&mut self.watch.subscription.initial, none);
        let more = match &mut initial {
            Initial::Changes(changes) if changes.is_empty() => false,
            Initial::Changes(changes) => {
                while out.len() < PIECE
                    && let Some(change) = changes.pop_front()
                {
                    self.append(out, &change);
                }
                true
            }
            Initial::State(snapshot) => {
                let (prefix, start) = (self.selection.prefix.clone(), self.next_key.take());
                for entry in snapshot.range(&prefix, start.as_deref().unwrap_or_default()) {
                    if out.len() >= PIECE {
                        self.next_key = Some(entry.key.clone());
                        break;
                    }
                    if self.selection.matches(entry) {
                        self.write(out, EventType::Added, entry, entry.revision);
                    }
                }
                if self.next_key.is_none() {
                    self.after = snapshot.revision;
                    if self.end_of_initial {
                        self.bookmark(out, snapshot.revision, true);
                    }
                    return true;
                }
                true
            }
        };
        if more {
            self.watch.subscription.initial = initial;
        }
        more
    }

    /// A bookmark at the newest revision all of whose events this client has.
    fn due_bookmark(&mut self) -> Vec<u8> {
        // Read first, look at the queue second: what the feed has applied, it has queued.
        let applied = self.context.server.cache.applied();
        let mut out = Vec::new();
        // A watcher that was cut off has an empty queue too, and has missed something.
        let changes = &self.watch.subscription.changes;
        if changes.is_empty() && !changes.is_closed() {
            self.bookmark(&mut out, applied.max(self.after), false);
        }
        out
    }

    /// Writes the event that this client sees of a change, if it sees one.
    fn append(&mut self, out: &mut Vec<u8>, change: &Change) {
        if change.revision <= self.after {
            return;
        }
        let event = change.seen_by(|entry| self.selection.matches(entry));
        let Some(event) = event else {
            return;
        };
        match (self.frame, change.object(event)) {
            (Some(frame), _) => out.extend_from_slice(&self.shared(change, event, frame)),
            (None, Some(entry)) => self.write(out, event, entry, change.revision),
            (None, None) => {}
        }
    }

    /// An event in bytes that all watchers of its form share.
    fn shared(&mut self, change: &Change, event: EventType, frame: Frame) -> Bytes {
        self.uncounted += 1;
        let made = change.frame(event, frame, || {
            let mut out = Vec::new();
            if let Some(entry) = change.object(event) {
                out.reserve(entry.bytes.len() + 80);
                self.try_write(&mut out, event, entry, change.revision)?;
            }
            let cache = &self.context.server.cache;
            cache.frames.fetch_add(1, Ordering::Relaxed);
            Ok(out.into())
        });
        made.unwrap_or_else(|status| {
            self.fail(change.object(event), &status);
            Bytes::new()
        })
    }

    /// Writes one event. An object that cannot be written ends the watch: nobody may miss it.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        event: EventType,
        entry: &Arc<CachedObject>,
        revision: u64,
    ) {
        self.uncounted += 1;
        if let Err(status) = self.try_write(out, event, entry, revision) {
            self.fail(Some(entry), &status);
        }
    }

    fn fail(&mut self, entry: Option<&Arc<CachedObject>>, status: &Status) {
        let key = entry.map_or("", |entry| &*entry.key);
        tracing::error!(key, %status, "an object cannot be shown to a watcher");
        self.finished = true;
    }

    fn try_write(
        &mut self,
        out: &mut Vec<u8>,
        event: EventType,
        entry: &Arc<CachedObject>,
        revision: u64,
    ) -> Result<(), Status> {
        let Output { form, encoding, .. } = self.context.output;
        let entry = &self
            .context
            .server
            .cache
            .forms
            .shown(&self.resource, entry)?;
        match (form, encoding) {
            (Form::Table, _) => {
                let mut object = entry.object()?;
                object.set(&["metadata", "resourceVersion"], revision.to_string());
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                let metadata = Value::object();
                let table = table(&self.context, &self.resource, &[object], &metadata, columns)?;
                write_event(out, event.name(), &table, encoding)?;
            }
            (_, Encoding::Protobuf) => {
                let (shape, api_version, kind) = protobuf_kind(&self.resource, form);
                let forms = &self.context.server.cache.forms;
                let message = forms.message(&self.resource, entry, shape)?;
                let version = revision.to_string();
                message.write_event(out, event.name(), (&api_version, kind), &version);
            }
            (form, _) => {
                out.extend_from_slice(b"{\"type\":\"");
                out.extend_from_slice(event.name().as_bytes());
                out.extend_from_slice(b"\",\"object\":");
                match form {
                    Form::Object => entry.write(out, revision),
                    _ => write_partial(&self.resource, entry, out, revision)?,
                }
                out.extend_from_slice(b"}\n");
            }
        }
        Ok(())
    }

    fn bookmark(&mut self, out: &mut Vec<u8>, revision: u64, end_of_initial: bool) {
        self.uncounted += 1;
        let mut whole = empty_object(&self.resource);
        whole.set(&["kind"], &*self.resource.kind);
        whole.set(&["apiVersion"], self.resource.api_version());
        whole.set(&["metadata", "resourceVersion"], revision.to_string());
        if end_of_initial {
            let mark = ["metadata", "annotations", "k8s.io/initial-events-end"];
            whole.set(&mark, "true");
        }
        let object = match self.context.output.form {
            Form::Object => whole,
            Form::PartialObjectMetadata | Form::PartialObjectMetadataList => {
                let mut partial = partial(&whole);
                if let Some(metadata) = partial.at_mut(&["metadata"]) {
                    self.resource.strategy().row_metadata(metadata);
                }
                partial
            }
            Form::Table => {
                let metadata = api::document!({"resourceVersion": revision.to_string()});
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                let rows = [whole];
                match table(&self.context, &self.resource, &rows, &metadata, columns) {
                    Ok(table) => table,
                    Err(_) => return,
                }
            }
        };
        let encoding = self.context.output.encoding;
        if let Err(status) = write_event(out, "BOOKMARK", &object, encoding) {
            tracing::error!(kind = &*self.resource.kind, %status, "a bookmark cannot be written");
            self.finished = true;
        }
    }
}

fn frame_of(resource: &Resource, output: Output) -> Option<Frame> {
    let plain = !resource.strategy().hides_metadata();
    match (output.form, output.encoding) {
        (Form::Object, Encoding::Json) => Some(Frame::Json),
        (Form::Object, Encoding::Protobuf) => Some(Frame::Protobuf),
        (Form::PartialObjectMetadata, Encoding::Json) if plain => Some(Frame::JsonMetadata),
        (Form::PartialObjectMetadata, Encoding::Protobuf) => Some(Frame::ProtobufMetadata),
        // Columns go out with the first row only.
        _ => None,
    }
}

/// An object of the kind without anything in it: typed clients decode bookmarks as whole objects.
fn empty_object(resource: &Resource) -> Value {
    let mut object = Value::object();
    if let Some(definition) = api::schema::table().definition(resource.definition.name()) {
        api::schema::normalise(definition, &mut object);
    }
    resource.strategy().fill_empty(&mut object);
    object
}

/// Writes an event around a document that names its own kind.
fn write_event(
    out: &mut Vec<u8>,
    event: &str,
    object: &Value,
    encoding: Encoding,
) -> Result<(), Status> {
    match encoding {
        Encoding::Protobuf => {
            let object = api::protobuf::encode_object(object).map_err(Status::internal)?;
            out.extend_from_slice(&api::protobuf::watch_frame(event, &object));
        }
        _ => {
            out.extend_from_slice(format!("{{\"type\":\"{event}\",\"object\":").as_bytes());
            out.extend_from_slice(&object.to_json());
            out.extend_from_slice(b"}\n");
        }
    }
    Ok(())
}
