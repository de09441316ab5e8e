//! Where the kubelet reports what it does: events in the API, spans of the pods' timelines, and
//! metrics.

use std::sync::Arc;

use crate::{events::Events, measures::Measures, spans::Spans};

/// Cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    pub events: Events,
    pub spans: Spans,
    pub measures: Arc<Measures>,
}
