//! One request on its way: who asks for what, and what is to be said about it.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::identity::Identity;
use crate::negotiate::Output;
use crate::query::Query;
use crate::request::RequestInfo;
use crate::server::Server;

/// One request on its way.
pub(crate) struct Context {
    pub server: Arc<Server>,
    pub identity: Arc<Identity>,
    pub info: RequestInfo,
    pub query: Query,
    pub headers: HeaderMap,
    pub output: Output,
    pub dry_run: bool,
    /// Whether the server makes the request itself. Webhooks are not asked about it: they may need a
    /// cluster that starts only with what the server writes.
    pub is_internal: bool,
    /// When the request arrived, in microseconds since the Unix epoch.
    pub received: i64,
    /// Ends watches and followed logs of the network when the listener shuts down.
    pub closing: CancellationToken,
    /// When the request is given up, if ever.
    pub deadline: Option<Instant>,
    warnings: Mutex<Vec<String>>,
    /// What admission notes for the audit log.
    annotations: Mutex<Vec<(String, String)>>,
}

/// What admission may note about one request.
const MOST_ANNOTATIONS: usize = 256;

impl Context {
    pub fn new(
        server: Arc<Server>,
        identity: Arc<Identity>,
        info: RequestInfo,
        query: Query,
        headers: HeaderMap,
        closing: CancellationToken,
    ) -> Context {
        let received = server.environment.now_micros();
        Context {
            server,
            identity,
            info,
            query,
            headers,
            output: Output::JSON,
            dry_run: false,
            is_internal: false,
            received,
            closing,
            deadline: None,
            warnings: Mutex::default(),
            annotations: Mutex::default(),
        }
    }

    /// A request the server makes to itself, e.g. at its start.
    pub fn internal(server: &Arc<Server>) -> Context {
        let mut headers = HeaderMap::new();
        let agent = HeaderValue::from_static("kube-apiserver");
        headers.insert(http::header::USER_AGENT, agent);
        let mut context = Context::new(
            server.clone(),
            Identity::component("system:apiserver", &[crate::identity::MASTERS]).into(),
            RequestInfo::default(),
            Query::default(),
            headers,
            CancellationToken::new(),
        );
        context.is_internal = true;
        context
    }

    pub fn warn(&self, warning: impl Into<String>) {
        let mut warnings = self.warnings.lock();
        let warning = warning.into();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Notes something about the request for the audit log; the first value of a key stays.
    pub fn annotate(&self, key: String, value: String) {
        let mut annotations = self.annotations.lock();
        let is_known = annotations.iter().any(|(known, _)| *known == key);
        if !is_known && annotations.len() < MOST_ANNOTATIONS {
            annotations.push((key, value));
        }
    }

    #[allow(dead_code)] // For the audit log.
    pub fn take_annotations(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.annotations.lock())
    }

    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }
}
