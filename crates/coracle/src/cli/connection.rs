//! A connection to a server and raw requests over it, with the `Status` of a failure as the error.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use api::Value;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;

use super::ConnectionArguments;
use crate::layout::Layout;

/// A server, and the namespace commands apply to.
pub struct Connection {
    pub client: kube::Client,
    pub namespace: String,
}

/// A failed request as the server explained it.
#[derive(Debug, thiserror::Error)]
#[error("Error from server ({reason}): {message}")]
pub struct ServerError {
    pub code: u16,
    pub reason: String,
    pub message: String,
}

impl Connection {
    pub async fn open(arguments: &ConnectionArguments) -> Result<Connection> {
        let path = kubeconfig_path(arguments)?;
        let client = client::connect::from_kubeconfig(&path)
            .await
            .with_context(|| format!("kubeconfig {}", path.display()))?;
        let namespace = arguments
            .namespace
            .clone()
            .unwrap_or_else(|| client.default_namespace().to_string());
        Ok(Connection { client, namespace })
    }

    /// Sends a request and returns the response of a success, its body still to be read.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Body>> {
        let response = self
            .client
            .send(request)
            .await
            .map_err(|error| anyhow!("the server cannot be reached: {error}"))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let status = Value::from_json(&bytes).unwrap_or_default();
        let message = match status.str_at(&["message"]) {
            "" => String::from_utf8_lossy(&bytes).into_owned(),
            message => message.to_string(),
        };
        let reason = match status.str_at(&["reason"]) {
            "" => code.to_string(),
            reason => reason.to_string(),
        };
        Err(ServerError {
            code,
            reason,
            message,
        }
        .into())
    }

    /// Sends a request and reads the answer as a document.
    pub async fn call(&self, request: Request<Body>) -> Result<Value> {
        let response = self.send(request).await?;
        let bytes = response.into_body().collect().await?.to_bytes();
        Value::from_json(&bytes).context("the server's answer is not JSON")
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        self.call(request(Method::GET, path, "application/json", None)?)
            .await
    }
}

/// Builds a request; `body` carries its content type.
pub fn request(
    method: Method,
    path: &str,
    accept: &str,
    body: Option<(&str, Vec<u8>)>,
) -> Result<Request<Body>> {
    let mut builder = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::ACCEPT, accept);
    let body = match body {
        Some((content_type, bytes)) => {
            builder = builder.header(http::header::CONTENT_TYPE, content_type);
            Body::from(bytes)
        }
        None => Body::empty(),
    };
    Ok(builder.body(body)?)
}

/// Whether an error is the server's 404.
pub fn is_not_found(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<ServerError>()
        .is_some_and(|error| error.code == 404)
}

/// Percent-encodes a query value.
pub fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                (byte as char).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn kubeconfig_path(arguments: &ConnectionArguments) -> Result<PathBuf> {
    if let Some(path) = &arguments.kubeconfig {
        return Ok(path.clone());
    }
    if arguments.data_dir.as_os_str() == super::DEFAULT_DATA_DIR
        && let Some(path) = std::env::var_os("KUBECONFIG")
    {
        return Ok(path.into());
    }
    Ok(Layout::existing(&arguments.data_dir)
        .context("no --kubeconfig given and no cluster there")?
        .kubeconfig())
}
