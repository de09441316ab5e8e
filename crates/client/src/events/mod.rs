//! Writes core/v1 Events about objects in the background. Repeated Events increase a count.
//!
//! Best effort like upstream's recorder: the caller never waits and never fails. A full channel or a
//! server that does not answer costs Events and nothing else.

use std::{collections::BTreeMap, time::Duration};

use environment::Environment;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use tokio::sync::mpsc;

use crate::{Object, backoff::Backoff, retry};

mod correlator;

use correlator::{Correlator, Write};

const CHANNEL: usize = 1000;
const ATTEMPTS: usize = 12;
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// Cheap to clone; the background task ends when the last clone is dropped.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Observation>,
    environment: Environment,
}

struct Observation {
    about: ObjectReference,
    severity: Severity,
    reason: String,
    message: String,
    annotations: BTreeMap<String, String>,
    at: Timestamp,
}

/// The rate at which Events are written: a number per second after a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    pub per_second: f64,
    pub burst: f64,
}

impl Recorder {
    /// `component` is the reporting component, such as `default-scheduler`; `host` is its node, if any.
    pub fn new(
        client: kube::Client,
        environment: Environment,
        component: &str,
        host: Option<&str>,
    ) -> Recorder {
        Recorder::paced(client, environment, component, host, None)
    }

    /// Events beyond that rate wait.
    pub fn paced(
        client: kube::Client,
        environment: Environment,
        component: &str,
        host: Option<&str>,
        pace: Option<Pace>,
    ) -> Recorder {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        let reporter = Reporter {
            client,
            environment: environment.clone(),
            component: component.to_owned(),
            host: host.map(str::to_owned),
            correlator: Correlator::new(),
            last_name_nanos: 0,
            turns: pace.map(Turns::new),
        };
        tokio::spawn(reporter.run(receiver));
        Recorder {
            sender,
            environment,
        }
    }

    pub fn normal<K: Object>(&self, about: &K, reason: &str, message: impl Into<String>) {
        self.record(reference(about), Severity::Normal, reason, message);
    }

    pub fn warning<K: Object>(&self, about: &K, reason: &str, message: impl Into<String>) {
        self.record(reference(about), Severity::Warning, reason, message);
    }

    /// Like `event`, for a reference with more than the object, such as the `fieldPath` of a container.
    pub fn record(
        &self,
        about: ObjectReference,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record_annotated(about, severity, reason, message, BTreeMap::new());
    }

    /// Like `event`, with `annotations` for programs that read Events.
    pub fn record_annotated(
        &self,
        about: ObjectReference,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
        annotations: BTreeMap<String, String>,
    ) {
        let observation = Observation {
            about,
            severity,
            reason: reason.to_owned(),
            message: message.into(),
            annotations,
            at: self.environment.now(),
        };
        if self.sender.try_send(observation).is_err() {
            tracing::debug!(reason, "an event was dropped: too many are waiting");
        }
    }
}

/// The reference to `object` in an Event.
pub fn reference<K: Object>(object: &K) -> ObjectReference {
    ObjectReference {
        resource_version: object.meta().resource_version.clone(),
        ..object.object_ref(&())
    }
}

struct Reporter {
    client: kube::Client,
    environment: Environment,
    component: String,
    host: Option<String>,
    correlator: Correlator,
    last_name_nanos: i128,
    turns: Option<Turns>,
}

/// Spaces Events according to a [`Pace`].
struct Turns {
    pace: Pace,
    tokens: f64,
    filled: tokio::time::Instant,
}

impl Turns {
    fn new(pace: Pace) -> Turns {
        Turns {
            pace,
            tokens: pace.burst.max(1.0),
            filled: tokio::time::Instant::now(),
        }
    }

    async fn next(&mut self) {
        loop {
            let now = tokio::time::Instant::now();
            let passed = (now - self.filled).as_secs_f64();
            self.filled = now;
            let tokens = self.tokens + passed * self.pace.per_second;
            self.tokens = tokens.min(self.pace.burst.max(1.0));
            if self.tokens >= 1.0 {
                self.tokens -= 1.0;
                return;
            }
            let missing = (1.0 - self.tokens) / self.pace.per_second.max(0.001);
            tokio::time::sleep(Duration::from_secs_f64(missing)).await;
        }
    }
}

impl Reporter {
    async fn run(mut self, mut receiver: mpsc::Receiver<Observation>) {
        while let Some(observation) = receiver.recv().await {
            let now_micros = self.environment.now_micros();
            let event = self.event(observation);
            let Some(write) = self.correlator.correlate(event, now_micros) else {
                continue;
            };
            if let Some(turns) = &mut self.turns {
                turns.next().await;
            }
            self.write(write).await;
        }
    }

    fn event(&mut self, observation: Observation) -> Event {
        let Observation {
            about,
            severity,
            reason,
            message,
            annotations,
            at,
        } = observation;
        // Names must differ also when two observations share a clock tick.
        let nanos = at.as_nanosecond().max(self.last_name_nanos + 1);
        self.last_name_nanos = nanos;
        let object_name = about.name.as_deref().unwrap_or_default();
        let mut name = format!("{object_name}.{nanos:x}");
        if name.len() > 253 {
            name = self.environment.uuid();
        }
        let namespace = about
            .namespace
            .clone()
            .filter(|namespace| !namespace.is_empty())
            .unwrap_or_else(|| "default".to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace),
                annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(reason),
            message: Some(message),
            type_: Some(format!("{severity:?}")),
            count: Some(1),
            first_timestamp: Some(Time(at)),
            last_timestamp: Some(Time(at)),
            source: Some(EventSource {
                component: Some(self.component.clone()),
                host: self.host.clone(),
            }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(self.host.clone().unwrap_or_default()),
            ..Event::default()
        }
    }

    /// Repeats a write until it succeeds, is rejected, or has failed too often.
    async fn write(&mut self, write: Write) {
        let Write { event, mut repeat } = write;
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
        for _ in 0..ATTEMPTS {
            let result = if repeat {
                let patch = serde_json::json!({
                    "count": event.count,
                    "lastTimestamp": event.last_timestamp,
                    "message": event.message,
                });
                let patch = Patch::Strategic(patch);
                api.patch(name, &PatchParams::default(), &patch).await
            } else {
                api.create(&PostParams::default(), &event).await
            };
            match result {
                Ok(_) => return,
                // The Event we counted on has been removed: post it anew.
                Err(error) if repeat && retry::is_not_found(&error) => repeat = false,
                Err(error) if retry::is_transient(&error) => {
                    tokio::time::sleep(backoff.delay(&self.environment)).await;
                }
                Err(error) => {
                    tracing::debug!(%error, reason = event.reason, "an event was refused");
                    return;
                }
            }
        }
        tracing::debug!(reason = event.reason, "an event could not be posted");
    }
}
