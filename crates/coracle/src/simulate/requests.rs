//! Requests of the simulation: plain JSON, many at once. One that fails for good ends the simulation.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use client::retry;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

/// The number of requests that may be in flight.
const AT_ONCE: usize = 64;
const ATTEMPTS: usize = 5;

#[derive(Clone)]
pub struct Requests {
    pub client: kube::Client,
}

impl Requests {
    pub async fn open(kubeconfig: &Path) -> Result<Requests> {
        let client = client::connect::from_kubeconfig_as(kubeconfig, "coracle-simulate")
            .await
            .with_context(|| format!("reading kubeconfig {}", kubeconfig.display()))?;
        Ok(Requests { client })
    }

    /// Sends a request, and repeats it while the server is unavailable. Returns the response's text.
    pub async fn send(
        &self,
        method: http::Method,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<String, kube::Error> {
        let mut attempt = 1;
        loop {
            let request = http::Request::builder()
                .method(method.clone())
                .uri(path)
                .header(http::header::CONTENT_TYPE, content_type)
                .body(body.to_vec())
                .map_err(kube::Error::HttpError)?;
            match self.client.request_text(request).await {
                Err(error) if attempt < ATTEMPTS && retry::is_transient(&error) => {
                    attempt += 1;
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
                other => return other,
            }
        }
    }

    /// Creates an object unless it exists already.
    pub async fn ensure(&self, path: &str, object: &Value) -> Result<()> {
        let body = serde_json::to_vec(object)?;
        match self.send(http::Method::POST, path, JSON, &body).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
            other => other
                .map(|_| ())
                .with_context(|| format!("request to {path}")),
        }
    }

    pub async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let body = serde_json::to_vec(object)?;
        let sent = self.send(http::Method::POST, path, JSON, &body).await;
        sent.map(|_| ())
            .with_context(|| format!("request to {path}"))
    }

    /// Deletes an object or a collection, if it exists.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let now = br#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#;
        match self.send(http::Method::DELETE, path, JSON, now).await {
            Err(error) if retry::is_not_found(&error) => Ok(()),
            other => other
                .map(|_| ())
                .with_context(|| format!("request to {path}")),
        }
    }
}

pub const JSON: &str = "application/json";

/// Calls `act` for each number below `count`, many at once.
pub async fn for_each<F>(count: usize, act: impl Fn(usize) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let act = Arc::new(act);
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(AT_ONCE, move |number| {
            let act = act.clone();
            async move { act(number).await }
        })
        .await
}

/// Calls `act` for each number below `count`, many at once, and returns the results in order.
pub async fn collect<T, F>(count: usize, act: impl Fn(usize) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>>,
{
    stream::iter((0..count).map(act))
        .buffered(AT_ONCE)
        .try_collect()
        .await
}
