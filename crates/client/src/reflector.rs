//! Keeps a cache equal to the server's state of one kind: lists once, then watches for ever.
//!
//! 1. List in pages, and replace the cache's content.
//! 2. Watch from the list's resource version; every event and bookmark advances it.
//! 3. When the stream ends or breaks, watch again from the last resource version. When the server no
//!    longer has that version (410), or rejects the watch, go to 1.
//!
//! After a failure the reflector waits with a growing back-off, which only a live watch resets.

use std::{sync::Arc, time::Duration};

use environment::Environment;
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    Object,
    backoff::{Backoff, jitter},
    transport::{self, Error, Form, get, lines, push_query},
};

const PAGE_SIZE: &str = "500";
const WATCH_SECONDS: u64 = 290;
const FIRST_DELAY: Duration = Duration::from_millis(50);
/// Short, so that a node reconnects soon after its server was down for long.
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// A stream that is still open this long after its announced end is a dead connection.
const OVERTIME: Duration = Duration::from_secs(30);
/// A watch that lasted this long counts as alive, even without an event.
const ALIVE_AFTER: Duration = Duration::from_secs(5);

/// Which objects of a kind an informer follows; all of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    pub namespace: Option<String>,
    pub field_selector: Option<String>,
    pub label_selector: Option<String>,
}

/// The API path and selectors of a reflector's objects.
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

/// What a reflector keeps equal to the server's state. The reflector itself does not know the type of
/// the objects, so that it is compiled once and not for every kind.
pub(crate) trait Reflected: Send + Sync {
    /// Decodes an object of a list, and keeps it until the list is complete.
    fn stage(&self, object: &str) -> Result<(), serde_json::Error>;
    /// Forgets what was staged.
    fn unstage(&self);
    /// The staged objects are all that there are.
    fn replace(&self, received_micros: i64);
    /// Decodes an object that was added, changed or, with `is_deleted`, deleted. Returns its resource
    /// version.
    fn apply(
        &self,
        object: &str,
        is_deleted: bool,
        received_micros: i64,
        bytes: u64,
    ) -> Result<Option<String>, serde_json::Error>;
}

pub(crate) struct Reflector {
    client: kube::Client,
    environment: Environment,
    source: Source,
    target: Arc<dyn Reflected>,
    backoff: Backoff,
}

/// How a watch ended.
enum WatchEnd {
    /// Watch again from the current resource version.
    Resume,
    /// Watch again from the current resource version after a delay.
    ResumeLater,
    /// The server no longer has the resource version.
    Expired,
    /// The server rejects the watch. List again after a delay.
    Rejected,
}

impl Reflector {
    pub(crate) fn new(
        client: kube::Client,
        environment: Environment,
        source: Source,
        target: Arc<dyn Reflected>,
    ) -> Reflector {
        Reflector {
            client,
            environment,
            source,
            target,
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
                    self.target.unstage();
                    self.report("list", &error);
                    self.pause().await;
                    continue;
                }
            };
            loop {
                match self.watch(&mut version).await {
                    WatchEnd::Resume => {}
                    WatchEnd::ResumeLater => self.pause().await,
                    // An expired watch waits too: a server that expires every list must not be
                    // asked in a tight loop.
                    WatchEnd::Expired | WatchEnd::Rejected => {
                        tracing::info!(
                            path = self.source.path,
                            version,
                            "Listing again: the watch cannot continue from its resource version"
                        );
                        self.pause().await;
                        break;
                    }
                }
            }
        }
    }

    /// Replaces the target's content by a complete list. Returns the list's resource version.
    async fn list(&mut self) -> Result<String, Error> {
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
                // The resource version expired between two pages: get the whole list at once.
                Err(error) if paged && !token.is_empty() && error.is_expired() => {
                    self.target.unstage();
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
                if let Err(error) = self.target.stage(item.get()) {
                    self.skip(&error);
                }
            }
            token = page.metadata.continue_token.unwrap_or_default();
            if token.is_empty() {
                self.target.replace(self.environment.now_micros());
                return Ok(page.metadata.resource_version.unwrap_or_default());
            }
        }
    }

    /// Follows one watch request to its end, advancing `version`.
    async fn watch(&mut self, version: &mut String) -> WatchEnd {
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
                Err(_) => return WatchEnd::ResumeLater,
                Ok(Err(error)) => {
                    self.report("watch", &error);
                    return match error {
                        error if error.is_expired() => WatchEnd::Expired,
                        error if error.is_rejection() => WatchEnd::Rejected,
                        _ => WatchEnd::ResumeLater,
                    };
                }
                Ok(Ok(stream)) => stream,
            };
        let mut alive = false;
        loop {
            let line = match timeout_at(deadline, stream.next()).await {
                Err(_) => return WatchEnd::ResumeLater,
                Ok(Ok(Some(line))) => line,
                Ok(ended) => {
                    if let Err(error) = ended {
                        self.report("watch", &error);
                    }
                    if alive || began.elapsed() >= ALIVE_AFTER {
                        self.backoff.reset();
                        return WatchEnd::Resume;
                    }
                    return WatchEnd::ResumeLater;
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
                    tracing::warn!(
                        path = self.source.path,
                        %status.message,
                        "The server ended a watch with an error"
                    );
                    return if transport::is_expired(&status) {
                        WatchEnd::Expired
                    } else {
                        WatchEnd::Rejected
                    };
                }
                Err(error) => {
                    self.report("watch", &error);
                    return WatchEnd::ResumeLater;
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
            "ADDED" | "MODIFIED" | "DELETED" => {
                match self
                    .target
                    .apply(object, event.kind == "DELETED", now, bytes)
                {
                    Ok(reached) => reached,
                    Err(error) => {
                        self.skip(&error);
                        version_of(object).map_err(failed("object"))?
                    }
                }
            }
            // A bookmark, or an event type of a newer server.
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

    /// An object that cannot be decoded does not affect the others.
    fn skip(&self, error: &serde_json::Error) {
        tracing::warn!(path = self.source.path, %error, "Skipping an object that cannot be decoded");
    }

    fn report(&self, verb: &str, error: &Error) {
        let error = environment::chain(error);
        tracing::warn!(path = self.source.path, %error, "Cannot {verb} objects; will try again");
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

fn version_of(object: &str) -> Result<Option<String>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(default)]
        metadata: ListMetadata,
    }
    let versioned: Versioned = serde_json::from_str(object)?;
    Ok(versioned.metadata.resource_version)
}
