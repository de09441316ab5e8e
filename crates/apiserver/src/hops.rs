//! The spans of hops 1 to 5 for the kinds that are traced, which are Pods: from the client's request to 201 Created.

use api::{Resource, Value};
use trace::{Hop, Sink, Span};

use crate::cache::CachedObject;
use crate::context::Context;

/// Times of one creation; records only at its end, when the object's UID is known to be stored.
pub(crate) struct Hops(Option<Times>);

struct Times {
    body: u64,
    put: i64,
    stored: u64,
    revision: i64,
    uid: String,
}

impl Hops {
    pub fn begin(context: &Context, resource: &Resource, body: usize) -> Hops {
        let is_traced = resource.strategy().is_traced();
        Hops((is_traced && !context.dry_run).then_some(Times {
            body: body as u64,
            put: 0,
            stored: 0,
            revision: 0,
            uid: String::new(),
        }))
    }

    pub fn none() -> Hops {
        Hops(None)
    }

    pub fn put(&mut self, context: &Context, object: &Value, stored: usize) {
        if let Some(times) = &mut self.0 {
            times.uid = object.str_at(&["metadata", "uid"]).to_string();
            times.put = context.server.environment.now_micros();
            times.stored = stored as u64;
        }
    }

    pub fn revision(&mut self, context: &Context) {
        if let Some(times) = &mut self.0 {
            times.revision = context.server.environment.now_micros();
        }
    }

    pub fn created(self, entry: &CachedObject, context: &Context) {
        let Some(times) = self.0 else {
            return;
        };
        let uid = &times.uid;
        let timelines = &context.server.timelines;
        timelines.begin(uid, entry.namespace(), entry.name());
        let now = context.server.environment.now_micros();
        let span = |hop, name: &str, component: &str, start: i64, end: i64, bytes| Span {
            hop,
            name: name.to_string(),
            component: component.to_string(),
            start,
            queue_us: 0,
            work_us: (end - start).max(0) as u64,
            bytes,
            failure: None,
        };
        let client = match client_span(context) {
            Some((start, work, bytes)) => {
                span(Hop::Client, "request", "client", start, start + work, bytes)
            }
            None => span(
                Hop::Client,
                "request",
                "external",
                context.received,
                context.received,
                times.body,
            ),
        };
        let committed = times.revision.max(times.put);
        for span in [
            client,
            span(
                Hop::Admission,
                "admit",
                "apiserver",
                context.received,
                times.put,
                times.body,
            ),
            span(
                Hop::Put,
                "transact",
                "store",
                times.put,
                committed,
                times.stored,
            ),
            span(Hop::Revision, "revision", "store", committed, committed, 0),
            span(
                Hop::Created,
                "201 Created",
                "apiserver",
                committed,
                now,
                entry.bytes.len() as u64,
            ),
        ] {
            timelines.record(uid, span);
        }
    }
}

/// `coracle-client-span: start=<unix µs>;work=<µs>;bytes=<n>`.
fn client_span(context: &Context) -> Option<(i64, i64, u64)> {
    let text = context.headers.get("coracle-client-span")?.to_str().ok()?;
    let field = |name: &str| {
        text.split(';').find_map(|part| {
            let (key, value) = part.trim().split_once('=')?;
            (key == name).then(|| value.parse::<i64>().ok()).flatten()
        })
    };
    Some((
        field("start")?,
        field("work")?.max(0),
        field("bytes")?.max(0) as u64,
    ))
}
