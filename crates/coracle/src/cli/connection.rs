//! A connection to an API server and raw requests over it. The error of a failed request is its
//! `Status`.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use api::Value;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;

use super::ConnectionArguments;
use crate::layout::Layout;

/// An API server, and the namespace to which commands apply.
pub struct Connection {
    pub client: kube::Client,
    pub namespace: String,
    /// Host and port.
    server: String,
    data_dir: PathBuf,
}

/// The server's `Status` for a failed request.
#[derive(Debug, thiserror::Error)]
#[error("Error from server ({reason}): {message}")]
pub struct ServerError {
    pub code: u16,
    pub reason: String,
    pub message: String,
}

impl Connection {
    pub async fn open(arguments: &ConnectionArguments) -> Result<Connection> {
        let paths = kubeconfig_paths(arguments)?;
        let config = match paths.as_slice() {
            [path] => client::connect::configuration(path, "coracle")
                .await
                .with_context(|| format!("reading kubeconfig {}", path.display()))?,
            paths => client::connect::merged_configuration(paths, "coracle").await?,
        };
        let server = match (config.cluster_url.host(), config.cluster_url.port_u16()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_string(),
            _ => config.cluster_url.to_string(),
        };
        let client = client::connect::from_config(config)?;
        let namespace = arguments
            .namespace
            .clone()
            .unwrap_or_else(|| client.default_namespace().to_string());
        Ok(Connection {
            client,
            namespace,
            server,
            data_dir: arguments.data_dir.clone(),
        })
    }

    /// Sends a request and returns the response of a success; its body has not been read.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Body>> {
        let response = self
            .client
            .send(request)
            .await
            .map_err(|error| self.unreachable(&error))?;
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

    /// The error where the server does not answer, in kubectl's words.
    fn unreachable(&self, error: &kube::Error) -> anyhow::Error {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        let (mut innermost, mut is_refused) = (error.to_string(), false);
        while let Some(next) = cause {
            innermost = next.to_string();
            is_refused |= next
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            cause = next.source();
        }
        let server = &self.server;
        if !is_refused {
            return anyhow!("Unable to connect to the server {server}: {innermost}");
        }
        let start = match self.data_dir.as_os_str() == super::DEFAULT_DATA_DIR {
            true => "coracle up".to_string(),
            false => format!("coracle up --data-dir {}", self.data_dir.display()),
        };
        anyhow!(
            "The connection to the server {server} was refused - did you specify the right host \
             or port? If the cluster is on this machine, start it with `{start}`."
        )
    }

    /// Sends a request and reads the response as a document.
    pub async fn call(&self, request: Request<Body>) -> Result<Value> {
        let response = self.send(request).await?;
        let bytes = response.into_body().collect().await?.to_bytes();
        Value::from_json(&bytes).context("the server's response is not JSON")
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

/// The kubeconfigs to use; several where KUBECONFIG lists several.
fn kubeconfig_paths(arguments: &ConnectionArguments) -> Result<Vec<PathBuf>> {
    if let Some(path) = &arguments.kubeconfig {
        return Ok(vec![path.clone()]);
    }
    if arguments.data_dir.as_os_str() == super::DEFAULT_DATA_DIR
        && let Some(list) = std::env::var_os("KUBECONFIG")
    {
        let paths = listed(&list);
        if !paths.is_empty() {
            return Ok(paths);
        }
    }
    let layout = Layout::existing(&arguments.data_dir)
        .context("there is no cluster: start one with `coracle up`, or use --kubeconfig")?;
    Ok(vec![layout.kubeconfig()])
}

/// The files in a value of KUBECONFIG, each once.
fn listed(list: &std::ffi::OsStr) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in std::env::split_paths(list) {
        if !path.as_os_str().is_empty() && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_kubeconfig_is_a_list_of_files() {
        let paths = listed(std::ffi::OsStr::new("/a::/b:/a:"));
        assert_eq!(paths, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert!(listed(std::ffi::OsStr::new(":")).is_empty());
    }

    #[tokio::test]
    async fn the_error_of_a_refused_connection_is_kubectls_with_a_hint() {
        client::connect::install_crypto_provider();
        let port = {
            let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::fs::write(
            &file,
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}'}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
                 users: [{{name: u, user: {{token: x}}}}]\n"
            ),
        )
        .unwrap();
        let connection = Connection::open(&ConnectionArguments {
            kubeconfig: Some(file),
            data_dir: super::super::DEFAULT_DATA_DIR.into(),
            namespace: None,
        })
        .await
        .unwrap();
        let message = connection.get("/version").await.unwrap_err().to_string();
        assert_eq!(
            message,
            format!(
                "The connection to the server 127.0.0.1:{port} was refused - did you specify the \
                 right host or port? If the cluster is on this machine, start it with `coracle up`."
            )
        );
    }
}
