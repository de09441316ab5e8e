//! One host of a registry: requests with its headers, its certificates and our credentials.
//!
//! Redirects are followed here and not by the HTTP client, so that credentials are sent to this host
//! and to no other.

use std::fs;

use bytes::Bytes;
use environment::chain;
use parking_lot::Mutex;
use reqwest::{
    Client, Response, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION, RANGE, WWW_AUTHENTICATE},
};

use super::{Credentials, Error, Settings, auth, body::small_body, challenge, hosts::Host};
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
    /// The client for hosts of redirects, which has no client certificate.
    elsewhere: Client,
    credentials: Credentials,
    repository: String,
    idle: std::time::Duration,
    authorization: Mutex<Option<HeaderValue>>,
}

/// The host that gave an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asker {
    Host,
    /// A host that a redirect led to.
    Elsewhere,
}

/// The headers of a request.
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
        let ours = client(&host, settings, true)?;
        Ok(Endpoint {
            elsewhere: match host.client.is_empty() {
                true => ours.clone(),
                false => client(&host, settings, false)?,
            },
            client: ours,
            label,
            host,
            credentials: credentials.clone(),
            repository: name.repository.clone(),
            idle: settings.idle_timeout,
            authorization: Mutex::new(None),
        })
    }

    /// The whole body of a small answer, and the digest in its header.
    pub async fn document(
        &self,
        path: &str,
        accept: Option<&str>,
    ) -> Result<(Vec<u8>, Option<String>), Error> {
        let mut attempt = 1;
        let response = loop {
            match self.get(path, Want { accept, from: 0 }).await {
                // An overloaded registry often answers a moment later.
                Err(error @ Error::Status { .. }) if error.is_passing() && attempt < ATTEMPTS => {
                    tracing::debug!(error = %chain(&error), "the request is repeated");
                    tokio::time::sleep(PAUSE * attempt).await;
                    attempt += 1;
                }
                other => break other?,
            }
        };
        let digest = response
            .headers()
            .get("docker-content-digest")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        Ok((small_body(response, &self.label).await?, digest))
    }

    /// Any successful answer, after authentication where it is wanted.
    pub async fn get(&self, path: &str, want: Want<'_>) -> Result<Response, Error> {
        let mut url = self.parse(&format!("{}/{path}", self.host.base))?;
        if let Some(registry) = &self.host.stands_for {
            url.query_pairs_mut().append_pair("ns", registry);
        }
        let (mut response, mut asker) = self.follow(url.clone(), want).await?;
        // The host of a redirect gets no credentials, no matter what it asks for.
        if response.status().as_u16() == 401
            && asker == Asker::Host
            && self.authorize(&response).await?
        {
            (response, asker) = self.follow(url, want).await?;
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
                why: match (status, asker) {
                    (401, Asker::Elsewhere) => "the host of a redirect asks for credentials".into(),
                    (401, Asker::Host) => "authorization failed: no basic auth credentials".into(),
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

    /// The answer at the end of all redirects, and whether it is this host's own.
    async fn follow(&self, url: Url, want: Want<'_>) -> Result<(Response, Asker), Error> {
        let origin = url.origin();
        let mut url = url;
        let mut asker = Asker::Host;
        for _ in 0..MOST_REDIRECTS {
            let client = match asker {
                Asker::Host => &self.client,
                Asker::Elsewhere => &self.elsewhere,
            };
            let mut request = client.get(url.clone());
            if let Some(accept) = want.accept {
                request = request.header(ACCEPT, accept);
            }
            if want.from > 0 {
                request = request.header(RANGE, format!("bytes={}-", want.from));
            }
            if asker == Asker::Host {
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
                return Ok((response, asker));
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
            // After a redirect to another host, a redirect back gets no credentials either.
            if next.origin() != origin {
                asker = Asker::Elsewhere;
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
            &self.elsewhere,
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

/// An HTTP client for the host, with the client certificate if `shows`.
fn client(host: &Host, settings: &Settings, shows: bool) -> Result<Client, Error> {
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
    if let Some((certificate, key)) = host.client.first().filter(|_| shows) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    /// A host of this test's own: answers every request with what `answer` makes of its text, and
    /// keeps the text.
    async fn host(answer: impl Fn(&str) -> String + Send + 'static) -> (String, Requests) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Requests::default();
        let seen = requests.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut text = Vec::new();
                let mut buffer = [0; 4096];
                while !text.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut buffer).await {
                        Ok(length @ 1..) => text.extend_from_slice(&buffer[..length]),
                        _ => break,
                    }
                }
                let text = String::from_utf8_lossy(&text).to_ascii_lowercase();
                let answered = answer(&text);
                seen.lock().push(text);
                let _ = stream.write_all(answered.as_bytes()).await;
            }
        });
        (address, requests)
    }

    type Requests = Arc<Mutex<Vec<String>>>;

    fn answer(status: &str, header: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\n{header}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }

    async fn ask(address: &str) -> Result<Response, Error> {
        let host = Host {
            base: format!("http://{address}/v2"),
            headers: vec![("x-secret".into(), "of-the-first".into())],
            ..Host::default()
        };
        let name = Name::parse("example.com/team/web:1").expect("a name");
        let credentials = Credentials::Basic("tester".into(), "secret".into());
        let endpoint = Endpoint::new(host, &name, &credentials, &Settings::default())?;
        endpoint.get("team/web/blobs/x", Want::default()).await
    }

    fn has_secrets(requests: &Requests) -> bool {
        let requests = requests.lock();
        let mut requests = requests.iter();
        requests.any(|text| text.contains("authorization:") || text.contains("x-secret"))
    }

    #[tokio::test]
    async fn the_host_of_a_redirect_never_gets_credentials() {
        for challenge in ["Basic realm=\"x\"", "Bearer realm=\"http://ADDRESS/token\""] {
            let (own, seen_elsewhere) = host({
                let challenge = challenge.to_owned();
                move |text| {
                    let address = text.split("host: ").nth(1).unwrap_or_default();
                    let address = address.lines().next().unwrap_or_default();
                    let challenge = challenge.replace("ADDRESS", address);
                    let header = format!("www-authenticate: {challenge}");
                    answer("401 Unauthorized", &header, "")
                }
            })
            .await;
            let location = format!("location: http://{own}/blob");
            let first = move |_: &str| answer("307 Temporary Redirect", &location, "");
            let (first, seen_first) = host(first).await;
            let refused = ask(&first).await.expect_err("nothing was given");
            assert!(matches!(refused, Error::Unauthorized { .. }), "{refused}");
            assert_eq!(seen_elsewhere.lock().len(), 1, "asked once: {challenge}");
            assert!(!has_secrets(&seen_elsewhere), "{:?}", seen_elsewhere.lock());
            assert_eq!(seen_first.lock().len(), 1);
        }
    }

    #[tokio::test]
    async fn the_way_back_from_a_redirect_carries_no_credentials_either() {
        let place: Arc<Mutex<String>> = Arc::default();
        let back = place.clone();
        let (second, seen_elsewhere) = host(move |_| {
            let location = format!("location: http://{}/v2/secrets", back.lock());
            answer("302 Found", &location, "")
        })
        .await;
        let location = format!("location: http://{second}/blob");
        let (first, seen_first) = host(move |text| {
            if text.contains("/v2/secrets") {
                return answer("200 OK", "x: y", "told");
            }
            match text.contains("authorization: basic") {
                true => answer("302 Found", &location, ""),
                false => answer(
                    "401 Unauthorized",
                    "www-authenticate: Basic realm=\"x\"",
                    "",
                ),
            }
        })
        .await;
        *place.lock() = first.clone();
        ask(&first).await.expect("an answer");
        assert!(!has_secrets(&seen_elsewhere));
        let seen_first = seen_first.lock();
        assert_eq!(seen_first.len(), 3);
        assert!(seen_first[1].contains("authorization: basic"));
        assert!(
            !seen_first[2].contains("authorization"),
            "{}",
            seen_first[2]
        );
    }
}
