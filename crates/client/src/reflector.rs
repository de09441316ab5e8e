//! Keeps a cache equal to the server's state of one kind: list, then watch from there, for ever.
//!
//! 1. List in pages; replace the cache's content.
//! 2. Watch from the list's resourceVersion; every event and bookmark moves it forward.
//! 3. When the stream ends or breaks, watch again from where it was; when the server has forgotten
//!    that resourceVersion (410), or refuses the watch, go to 1.
//!
//! Failures are repeated after a growing delay, which only a live watch sets back.

use std::{ops::Range, sync::Arc, time::Duration};

use environment::Environment;
use kube::core::Status;
use memchr::{memchr2, memmem};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    Object, Scope,
    backoff::{Backoff, jitter},
    cache::Cache,
    transport::{self, Error, Form, get, lines, push_query},
};

const PAGE_SIZE: &str = "500";
const WATCH_SECONDS: u64 = 290;
const FIRST_DELAY: Duration = Duration::from_millis(50);
/// Short, so that a node is soon back after its server was away for long.
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// A stream that outlives its own announced end by this much is a dead connection.
const OVERTIME: Duration = Duration::from_secs(30);
/// A watch that lasted this long was alive even if nothing happened.
const ALIVE_AFTER: Duration = Duration::from_secs(5);

/// Where the objects come from.
pub(crate) struct Source {
    path: String,
    selectors: Vec<(&'static str, String)>,
    form: Form,
}

impl Source {
    pub(crate) fn of<K: Object>(scope: &Scope) -> Source {
        let mut selectors = Vec::new();
        if let Some(fields) = &scope.field_selector {
            selectors.push(("fieldSelector", fields.clone()));
        }
        if let Some(labels) = &scope.label_selector {
            selectors.push(("labelSelector", labels.clone()));
        }
        Source {
            path: K::url_path(&(), scope.namespace.as_deref()),
            selectors,
            form: Form::Whole,
        }
    }

    /// The metadata of everything listed at `path`.
    pub(crate) fn metadata(path: &str) -> Source {
        Source {
            path: path.to_owned(),
            selectors: Vec::new(),
            form: Form::Metadata,
        }
    }

    fn uri(&self, query: &[(&str, &str)]) -> String {
        let mut uri = self.path.clone();
        for (name, value) in &self.selectors {
            push_query(&mut uri, name, value);
        }
        for (name, value) in query {
            push_query(&mut uri, name, value);
        }
        uri
    }
}

pub(crate) struct Reflector<K> {
    client: kube::Client,
    environment: Environment,
    source: Source,
    cache: Arc<Cache<K>>,
    backoff: Backoff,
}

/// How a watch came to its end.
enum Ended {
    /// Watch again from the current resourceVersion.
    Resume,
    /// As before, after a delay.
    ResumeLater,
    /// The resourceVersion is no longer known.
    Expired,
    /// The server does not want this watch; see after a delay whether it still lists.
    Refused,
}

impl<K: Object> Reflector<K> {
    pub(crate) fn new(
        client: kube::Client,
        environment: Environment,
        source: Source,
        cache: Arc<Cache<K>>,
    ) -> Reflector<K> {
        Reflector {
            client,
            environment,
            source,
            cache,
            backoff: Backoff::new(FIRST_DELAY, LONGEST_DELAY),
        }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&mut self) {
        loop {
            let mut version = match self.list().await {
                Ok(version) => version,
                Err(error) => {
                    self.report("list", &error);
                    self.pause().await;
                    continue;
                }
            };
            loop {
                match self.watch(&mut version).await {
                    Ended::Resume => {}
                    Ended::ResumeLater => self.pause().await,
                    // Also an expired watch waits a little: a server that expires every list it
                    // gives must not be asked in a tight loop.
                    Ended::Expired | Ended::Refused => {
                        tracing::info!(path = self.source.path, version, "relisting");
                        self.pause().await;
                        break;
                    }
                }
            }
        }
    }

    /// Brings the cache to a complete list and gives its resourceVersion.
    async fn list(&mut self) -> Result<String, Error> {
        let mut objects = Vec::new();
        let mut token = String::new();
        let mut paged = true;
        loop {
            let uri = match (paged, token.as_str()) {
                (false, _) => self.source.uri(&[]),
                (true, "") => self.source.uri(&[("limit", PAGE_SIZE)]),
                (true, token) => self
                    .source
                    .uri(&[("limit", PAGE_SIZE), ("continue", token)]),
            };
            let bytes = match get(&self.client, &uri, self.source.form).await {
                // The pages took so long that their revision is gone: take all in one.
                Err(error) if paged && !token.is_empty() && error.is_expired() => {
                    objects.clear();
                    paged = false;
                    continue;
                }
                answer => answer?,
            };
            let page: Page<'_> =
                serde_json::from_slice(&bytes).map_err(|source| Error::Decode {
                    expected: "list",
                    source,
                })?;
            for item in page.items.unwrap_or_default() {
                match decode::<K>(item.get()) {
                    Ok(object) => objects.push(object),
                    Err(error) => self.skip(&error),
                }
            }
            token = page.metadata.continue_token.unwrap_or_default();
            if token.is_empty() {
                self.cache.replace(objects, self.environment.now_micros());
                return Ok(page.metadata.resource_version.unwrap_or_default());
            }
        }
    }

    /// Follows one watch request to its end, moving `version` along.
    async fn watch(&mut self, version: &mut String) -> Ended {
        let spread = Duration::from_secs(WATCH_SECONDS);
        let duration = spread + jitter(&self.environment, spread);
        let uri = self.source.uri(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", &duration.as_secs().to_string()),
        ]);
        let began = Instant::now();
        let deadline = began + duration + OVERTIME;
        let mut stream =
            match timeout_at(deadline, lines(&self.client, &uri, self.source.form)).await {
                Err(_) => return Ended::ResumeLater,
                Ok(Err(error)) => {
                    self.report("watch", &error);
                    return match error {
                        error if error.is_expired() => Ended::Expired,
                        error if error.is_refusal() => Ended::Refused,
                        _ => Ended::ResumeLater,
                    };
                }
                Ok(Ok(stream)) => stream,
            };
        let mut alive = false;
        loop {
            let line = match timeout_at(deadline, stream.next()).await {
                Err(_) => return Ended::ResumeLater,
                Ok(Ok(Some(line))) => line,
                Ok(ended) => {
                    if let Err(error) = ended {
                        self.report("watch", &error);
                    }
                    if alive || began.elapsed() >= ALIVE_AFTER {
                        self.backoff.reset();
                        return Ended::Resume;
                    }
                    return Ended::ResumeLater;
                }
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match self.apply(&line, version) {
                Ok(()) => {
                    alive = true;
                    self.backoff.reset();
                }
                Err(Error::Api(status)) => {
                    tracing::warn!(path = self.source.path, %status.message, "watch ended by the server");
                    return if transport::is_expired(&status) {
                        Ended::Expired
                    } else {
                        Ended::Refused
                    };
                }
                Err(error) => {
                    self.report("watch", &error);
                    return Ended::ResumeLater;
                }
            }
        }
    }

    fn apply(&self, line: &[u8], version: &mut String) -> Result<(), Error> {
        let failed = |expected| move |source| Error::Decode { expected, source };
        let event: Event<'_> = serde_json::from_slice(line).map_err(failed("watch event"))?;
        let object = event.object.get();
        if event.kind == "ERROR" {
            let status: Status = serde_json::from_str(object).map_err(failed("status"))?;
            return Err(Error::Api(status.boxed()));
        }
        let (now, bytes) = (self.environment.now_micros(), line.len() as u64);
        let reached = match event.kind.as_ref() {
            "ADDED" | "MODIFIED" | "DELETED" => match decode::<K>(object) {
                Ok(object) => {
                    let reached = object.meta().resource_version.clone();
                    if event.kind == "DELETED" {
                        self.cache.remove(object, now, bytes);
                    } else {
                        self.cache.set(object, now, bytes);
                    }
                    reached
                }
                Err(error) => {
                    self.skip(&error);
                    version_of(object).map_err(failed("object"))?
                }
            },
            // A bookmark, or a kind of event that a newer server knows.
            _ => version_of(object).map_err(failed("bookmark"))?,
        };
        if let Some(reached) = reached.filter(|reached| !reached.is_empty()) {
            *version = reached;
        }
        Ok(())
    }

    async fn pause(&mut self) {
        tokio::time::sleep(self.backoff.delay(&self.environment)).await;
    }

    /// One object that does not decode must not keep the others away.
    fn skip(&self, error: &serde_json::Error) {
        tracing::warn!(path = self.source.path, %error, "skipping an object that does not decode");
    }

    fn report(&self, verb: &str, error: &Error) {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(path = self.source.path, %error, cause, "{verb} failed");
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(rename = "resourceVersion")]
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

/// An object without its managed fields: nobody here reads them, they are a good part of an object,
/// and a write without them leaves them as they are.
fn decode<K: Object>(object: &str) -> Result<K, serde_json::Error> {
    match managed_fields(object) {
        Some(field) => {
            serde_json::from_str(&[&object[..field.start], &object[field.end..]].concat())
        }
        None => serde_json::from_str(object),
    }
}

/// Where the list `managedFields` stands in an object's metadata, with the comma that goes with it.
fn managed_fields(object: &str) -> Option<Range<usize>> {
    const NAME: &[u8] = br#""managedFields":["#;
    let bytes = object.as_bytes();
    // Inside a string the name's quotes would be escaped.
    let mut start = memmem::find(bytes, NAME)?;
    let is_of_metadata = depth_at(bytes, start)? == 2;
    if !is_of_metadata {
        return None;
    }
    let mut end = start + NAME.len();
    end += closing_bracket(&bytes[end..])?;
    if bytes.get(end) == Some(&b',') {
        end += 1;
    } else if bytes[start - 1] == b',' {
        start -= 1;
    }
    Some(start..end)
}

/// In how many objects and lists the position lies.
fn depth_at(bytes: &[u8], position: usize) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while at < position {
        match bytes[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => at += end_of_string(&bytes[at + 1..])?,
            _ => {}
        }
        at += 1;
    }
    Some(depth)
}

/// Behind the bracket that closes the list these bytes are the content of.
fn closing_bracket(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (1, 0);
    while depth > 0 {
        match bytes.get(at)? {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b'"' => at += end_of_string(&bytes[at + 1..])?,
            _ => {}
        }
        at += 1;
    }
    Some(at)
}

/// How far the closing quote is behind the opening one.
fn end_of_string(after_quote: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', &after_quote[at..])?;
        if after_quote[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
        if at > after_quote.len() {
            return None;
        }
    }
}

fn version_of(object: &str) -> Result<Option<String>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(default)]
        metadata: ListMetadata,
    }
    let versioned: Versioned = serde_json::from_str(object)?;
    Ok(versioned.metadata.resource_version)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn check(object: &str, without: &str) {
        let field = managed_fields(object).expect("has managed fields");
        assert_eq!(
            [&object[..field.start], &object[field.end..]].concat(),
            without
        );
        serde_json::from_str::<serde_json::Value>(without).expect("is still JSON");
    }

    #[test]
    fn managed_fields_are_cut_out() {
        check(
            r#"{"metadata":{"name":"a","managedFields":[{"manager":"x]\"[","f":{"f:a":[1,[2]]}}],"uid":"u"}}"#,
            r#"{"metadata":{"name":"a","uid":"u"}}"#,
        );
        check(
            r#"{"metadata":{"name":"a","managedFields":[]}}"#,
            r#"{"metadata":{"name":"a"}}"#,
        );
        check(
            r#"{"metadata":{"managedFields":["\\"]},"data":{}}"#,
            r#"{"metadata":{},"data":{}}"#,
        );
        for untouched in [
            r#"{"data":{"text":"\"managedFields\":[1]"}}"#,
            r#"{"metadata":{"managedFields":null}}"#,
            r#"{"data":{"spec":{"managedFields":[]}}}"#,
            r#"{"metadata":{"managedFields":["#,
            r#"{"metadata":{"managedFields":["\"#,
        ] {
            assert_eq!(managed_fields(untouched), None, "{untouched}");
        }
    }

    #[test]
    fn the_rest_of_an_object_is_kept() {
        let object: ConfigMap = decode(
            r#"{"metadata":{"name":"a","managedFields":[{"manager":"m"}]},"data":{"k":"v"}}"#,
        )
        .expect("decodes");
        assert_eq!(object.metadata.managed_fields, None);
        assert_eq!(object.metadata.name.as_deref(), Some("a"));
        assert_eq!(object.data.expect("data")["k"], "v");
    }
}
