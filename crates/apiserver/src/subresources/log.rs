//! pods/log: the kubelet's answer, passed on as it comes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Reason, Resource, Status, Value, catalogue};
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, BodyStream, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;

use crate::body::Body;
use crate::query::encode;
use crate::response;
use crate::server::Context;
use crate::{Error, KubeletClient};

const PARAMETERS: [&str; 8] = [
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
    "stream",
];
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens connections to kubelets.
pub(crate) struct KubeletDialer {
    connector: tokio_rustls::TlsConnector,
}

impl KubeletDialer {
    pub fn new(client: &KubeletClient) -> Result<KubeletDialer, Error> {
        let wrong = |problem: String| Error::Configuration(format!("kubelet client: {problem}"));
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(client.ca_pem.as_bytes()) {
            let certificate = certificate.map_err(|problem| wrong(problem.to_string()))?;
            roots
                .add(certificate)
                .map_err(|problem| wrong(problem.to_string()))?;
        }
        let chain = CertificateDer::pem_slice_iter(client.certificate_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|problem| wrong(problem.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(client.key_pem.as_bytes())
            .map_err(|problem| wrong(problem.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_root_certificates(roots)
                    .with_client_auth_cert(chain, key)
            })
            .map_err(|problem| wrong(problem.to_string()))?;
        Ok(KubeletDialer {
            connector: tokio_rustls::TlsConnector::from(Arc::new(config)),
        })
    }

    async fn get(
        &self,
        address: IpAddr,
        port: u16,
        path: &str,
    ) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
        let stream =
            tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect((address, port))).await??;
        let name = ServerName::IpAddress(address.into());
        let stream = self.connector.connect(name, stream).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get(path)
            .header("host", format!("{address}:{port}"))
            .body(Empty::<Bytes>::new())?;
        Ok(sender.send_request(request).await?)
    }
}

pub(super) async fn get(
    context: &Context,
    resource: &'static Resource,
) -> Result<Response<Body>, Status> {
    let server = &context.server;
    let info = &context.info;
    let pod = server
        .get(resource, &info.namespace, &info.name)
        .await?
        .object()?;
    let container = choose_container(&pod, context.query.get("container"))?;
    let node = pod.str_at(&["spec", "nodeName"]);
    if node.is_empty() {
        // Nothing has run yet: an empty log.
        return Ok(response::text(200, ""));
    }
    let (address, port) = locate(context, node).await?;
    let unavailable = |problem: &dyn std::fmt::Display| {
        Status::internal(format_args!(
            "Get \"https://{address}:{port}/containerLogs/{}/{}/{container}\": {problem}",
            info.namespace, info.name
        ))
    };
    let dialer = server
        .kubelets
        .as_ref()
        .ok_or_else(|| unavailable(&"this server has no kubelet client certificate"))?;
    let mut path = format!(
        "/containerLogs/{}/{}/{}",
        encode(&info.namespace),
        encode(&info.name),
        encode(&container)
    );
    let parameters: Vec<String> = PARAMETERS
        .iter()
        .filter(|name| !context.query.get(name).is_empty())
        .map(|name| format!("{name}={}", encode(context.query.get(name))))
        .collect();
    if !parameters.is_empty() {
        path = format!("{path}?{}", parameters.join("&"));
    }
    let answer = dialer
        .get(address, port, &path)
        .await
        .map_err(|problem| unavailable(&problem))?;
    let code = answer.status().as_u16();
    if code != 200 {
        let body = Limited::new(answer.into_body(), 64 * 1024).collect().await;
        let text = body
            .map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_string())
            .unwrap_or_default();
        let reason = match code {
            400 => Reason::BadRequest,
            404 => Reason::NotFound,
            401 => Reason::Unauthorized,
            403 => Reason::Forbidden,
            _ => Reason::InternalError,
        };
        return Err(Status::new(reason, text));
    }
    let frames = BodyStream::new(answer.into_body()).filter_map(|frame| async {
        match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(problem) => Some(Err(problem.into())),
        }
    });
    Ok(response::bytes(200, "text/plain", Body::stream(frames)))
}

fn choose_container(pod: &Value, asked: &str) -> Result<String, Status> {
    let name = pod.str_at(&["metadata", "name"]);
    let names = |list: &str| -> Vec<String> {
        pod.at(&["spec", list])
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|container| container.str_at(&["name"]).to_string())
            .collect()
    };
    let (containers, init) = (names("containers"), names("initContainers"));
    if asked.is_empty() {
        return match containers.as_slice() {
            [only] => Ok(only.clone()),
            several => {
                let mut message = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    several.join(" ")
                );
                if !init.is_empty() {
                    message = format!(
                        "{message} or one of the init containers: [{}]",
                        init.join(" ")
                    );
                }
                Err(Status::bad_request(message))
            }
        };
    }
    match containers
        .iter()
        .chain(&init)
        .any(|container| container == asked)
    {
        true => Ok(asked.to_string()),
        false => Err(Status::bad_request(format!(
            "container {asked} is not valid for pod {name}"
        ))),
    }
}

async fn locate(context: &Context, node: &str) -> Result<(IpAddr, u16), Status> {
    let nodes = catalogue::find("", "v1", "nodes").ok_or_else(super::not_served)?;
    let node = context.server.find(nodes, "", node).await?.object()?;
    let addresses = node.at(&["status", "addresses"]).and_then(Value::as_array);
    let address = addresses
        .into_iter()
        .flatten()
        .find(|address| address.str_at(&["type"]) == "InternalIP")
        .and_then(|address| address.str_at(&["address"]).parse().ok());
    let port = node
        .at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"])
        .and_then(Value::as_i64)
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
        .unwrap_or(10250);
    match address {
        Some(address) => Ok((address, port)),
        None => Err(Status::internal(format_args!(
            "no preferred addresses found; known addresses: []"
        ))),
    }
}
