//! One host of a registry: requests with its headers, its certificates and our credentials.
//!
//! Redirects are followed here and not by the HTTP client: what proves who we are goes to the host
//! it was meant for and to no other.

use std::fs;

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::{
    Client, Response, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION, RANGE, WWW_AUTHENTICATE},
};

use super::{Credentials, Error, LARGEST_DOCUMENT, Settings, auth, challenge, hosts::Host};
use crate::images::reference::Name;

const MOST_REDIRECTS: usize = 10;
/// How often a document is asked for, and how long the first pause between two attempts is.
const ATTEMPTS: u32 = 4;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

pub struct Endpoint {
    pub host: Host,
    /// For messages.
    pub label: String,
    client: Client,
    credentials: Credentials,
    repository: String,
    idle: std::time::Duration,
    authorization: Mutex<Option<HeaderValue>>,
}

/// What is asked for beside the path.
#[derive(Clone, Copy, Default)]
pub struct Want<'a> {
    pub accept: Option<&'a str>,
    /// The first byte wanted, if not all of them.
    pub from: u64,
}

impl Endpoint {
    pub fn new(
        host: Host,
        name: &Name,
        credentials: &Credentials,
        settings: &Settings,
    ) -> Result<Endpoint, Error> {
        let label = host
            .base
            .split("://")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .unwrap_or_default()
            .to_owned();
        Ok(Endpoint {
            client: client(&host, settings)?,
            label,
            host,
            credentials: credentials.clone(),
            repository: name.repository.clone(),
            idle: settings.idle_timeout,
            authorization: Mutex::new(None),
        })
    }

    /// A small answer whole, and the digest its header tells.
    pub async fn document(
        &self,
        path: &str,
        accept: Option<&str>,
    ) -> Result<(Vec<u8>, Option<String>), Error> {
        let mut attempt = 1;
        let response = loop {
            match self.get(path, Want { accept, from: 0 }).await {
                // Overloaded registries say so; a moment later they often answer.
                Err(error @ Error::Status { .. }) if error.is_passing() && attempt < ATTEMPTS => {
                    tracing::debug!(%error, "asked again soon");
                    tokio::time::sleep(PAUSE * attempt).await;
                    attempt += 1;
                }
                other => break other?,
            }
        };
        let told = response
            .headers()
            .get("docker-content-digest")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        Ok((small_body(response, &self.label).await?, told))
    }

    /// Any successful answer, after authentication where it is wanted.
    pub async fn get(&self, path: &str, want: Want<'_>) -> Result<Response, Error> {
        let mut url = self.parse(&format!("{}/{path}", self.host.base))?;
        if let Some(registry) = &self.host.stands_for {
            url.query_pairs_mut().append_pair("ns", registry);
        }
        let mut response = self.follow(url.clone(), want).await?;
        if response.status().as_u16() == 401 && self.authorize(&response).await? {
            response = self.follow(url, want).await?;
        }
        let status = response.status().as_u16();
        let what = path.to_owned();
        match status {
            200 | 206 => Ok(response),
            404 => Err(Error::NotFound {
                host: self.label.clone(),
                what,
            }),
            401 | 403 => Err(Error::Unauthorized {
                host: self.label.clone(),
                what,
                why: match status {
                    401 => "authorization failed: no basic auth credentials".into(),
                    _ => "access denied".into(),
                },
            }),
            status => {
                let body = small_body(response, &self.label).await.unwrap_or_default();
                let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
                Err(Error::Status {
                    host: self.label.clone(),
                    what,
                    status,
                    detail: match text.trim() {
                        "" => String::new(),
                        text => format!(": {text}"),
                    },
                })
            }
        }
    }

    /// The next piece of a body; silence for too long is an error.
    pub async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, Error> {
        match tokio::time::timeout(self.idle, response.chunk()).await {
            Ok(result) => result.map_err(|source| self.transport(source)),
            Err(_) => Err(self.silent()),
        }
    }

    async fn follow(&self, url: Url, want: Want<'_>) -> Result<Response, Error> {
        let origin = url.origin();
        let mut url = url;
        for _ in 0..MOST_REDIRECTS {
            let mut request = self.client.get(url.clone());
            if let Some(accept) = want.accept {
                request = request.header(ACCEPT, accept);
            }
            if want.from > 0 {
                request = request.header(RANGE, format!("bytes={}-", want.from));
            }
            if url.origin() == origin {
                for (name, value) in &self.host.headers {
                    request = request.header(name, value);
                }
                if let Some(value) = self.authorization.lock().clone() {
                    request = request.header(AUTHORIZATION, value);
                }
            }
            let response = tokio::time::timeout(self.idle, request.send())
                .await
                .map_err(|_| self.silent())?
                .map_err(|source| self.transport(source))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let target = response
                .headers()
                .get(LOCATION)
                .and_then(|value| value.to_str().ok())
                .ok_or_else(|| self.nonsense("a redirect to nowhere".into()))?;
            let next = url
                .join(target)
                .map_err(|error| self.nonsense(format!("a redirect to {target:?}: {error}")))?;
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(self.nonsense(format!("a redirect away from TLS to {next}")));
            }
            url = next;
        }
        Err(self.nonsense("too many redirects".into()))
    }

    /// Answers the challenges of a refusal. False if there is nothing to answer with.
    async fn authorize(&self, refusal: &Response) -> Result<bool, Error> {
        let challenges: Vec<_> = refusal
            .headers()
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(challenge::parse)
            .collect();
        let scope = format!("repository:{}:pull", self.repository);
        let asked = auth::authorization(
            &self.client,
            &self.credentials,
            &challenges,
            &scope,
            self.host.base.starts_with("https:"),
            &self.label,
        );
        let header = tokio::time::timeout(self.idle, asked)
            .await
            .map_err(|_| self.silent())??;
        let found = header.is_some();
        *self.authorization.lock() = header;
        Ok(found)
    }

    fn parse(&self, text: &str) -> Result<Url, Error> {
        Url::parse(text).map_err(|error| self.nonsense(format!("{text}: {error}")))
    }

    fn transport(&self, source: reqwest::Error) -> Error {
        Error::Transport {
            host: self.label.clone(),
            source: source.without_url(),
        }
    }

    fn silent(&self) -> Error {
        Error::Silent {
            host: self.label.clone(),
            seconds: self.idle.as_secs(),
        }
    }

    pub fn nonsense(&self, why: String) -> Error {
        Error::Nonsense {
            host: self.label.clone(),
            why,
        }
    }
}

/// A body that must be small, whatever its header says.
pub async fn small_body(mut response: Response, host: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|source| Error::Transport {
        host: host.into(),
        source: source.without_url(),
    })? {
        if bytes.len() as u64 + chunk.len() as u64 > LARGEST_DOCUMENT {
            return Err(Error::Nonsense {
                host: host.into(),
                why: "a document that is too large".into(),
            });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn client(host: &Host, settings: &Settings) -> Result<Client, Error> {
    // The first caller decides the process's provider; an error means it is already decided.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let wrong = |path: &std::path::Path, why: String| Error::Configuration {
        path: path.to_owned(),
        why,
    };
    let read =
        |path: &std::path::Path| fs::read(path).map_err(|error| wrong(path, error.to_string()));
    let mut builder = Client::builder()
        .user_agent(concat!("coracle/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(host.dial_timeout.unwrap_or(settings.connect_timeout))
        .read_timeout(settings.idle_timeout)
        .tls_danger_accept_invalid_certs(host.skip_verify);
    let mut authorities = Vec::new();
    for path in &host.authorities {
        let bundle = reqwest::Certificate::from_pem_bundle(&read(path)?)
            .map_err(|error| wrong(path, error.to_string()))?;
        if bundle.is_empty() {
            return Err(wrong(path, "holds no certificate".into()));
        }
        authorities.extend(bundle);
    }
    builder = builder.tls_certs_merge(authorities);
    // One identity is all that TLS asks for; the first that can be read is ours.
    if let Some((certificate, key)) = host.client.first() {
        let mut pem = read(certificate)?;
        if let Some(key) = key {
            pem.push(b'\n');
            pem.extend(read(key)?);
        }
        let identity = reqwest::Identity::from_pem(&pem)
            .map_err(|error| wrong(certificate, error.to_string()))?;
        builder = builder.identity(identity);
    }
    builder.build().map_err(|source| Error::Transport {
        host: host.base.clone(),
        source,
    })
}
