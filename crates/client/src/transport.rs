//! The reflector's requests: bodies as bytes, watch streams as lines, errors as `Status`.
//!
//! This is no general client (that is `kube::Client`): it has only what list and watch need, with
//! bounds.

use bytes::{Bytes, BytesMut};
use http::{Request, header};
use http_body_util::{BodyExt, Limited};
use kube::{client::Body, core::Status};

/// No object that a store accepts is longer. A longer line or error body means a broken server.
const LONGEST_LINE: usize = 16 << 20;
const LARGEST_LIST_PAGE: usize = 1 << 30;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the server answered {} {}: {}", .0.code, .0.reason, .0.message)]
    Api(Box<Status>),
    #[error("the request failed")]
    Request(#[source] kube::Error),
    #[error("the request could not be built")]
    Build(#[source] http::Error),
    #[error("the connection broke while a response was read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the server sent a line of more than {LONGEST_LINE} bytes")]
    LineTooLong,
    #[error("the server sent an invalid {expected}")]
    Decode {
        expected: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// The server no longer has the resource version or continue token.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self, Error::Api(status) if is_expired(status))
    }

    /// The server rejects this watch, and will reject it again.
    pub(crate) fn is_rejection(&self) -> bool {
        matches!(self, Error::Api(status)
            if (400..500).contains(&status.code) && status.code != 429)
    }
}

pub(crate) fn is_expired(status: &Status) -> bool {
    status.code == 410 || status.reason == "Expired" || status.reason == "Gone"
}

/// How much of each object the server sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Whole,
    Metadata,
}

impl Form {
    fn accept(self, watching: bool) -> &'static str {
        match (self, watching) {
            (Form::Whole, _) => "application/json",
            (Form::Metadata, false) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            (Form::Metadata, true) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
        }
    }
}

pub(crate) async fn get(client: &kube::Client, uri: &str, form: Form) -> Result<Bytes, Error> {
    let body = open(client, uri, form.accept(false)).await?;
    let body = Limited::new(body, LARGEST_LIST_PAGE);
    Ok(body.collect().await.map_err(Error::Body)?.to_bytes())
}

/// Starts a watch and returns its lines.
pub(crate) async fn lines(client: &kube::Client, uri: &str, form: Form) -> Result<Lines, Error> {
    Ok(Lines {
        body: open(client, uri, form.accept(true)).await?,
        buffer: BytesMut::new(),
        searched: 0,
    })
}

pub(crate) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// The length of the part of `buffer` that contains no newline.
    searched: usize,
}

impl Lines {
    /// The next complete line without its newline, or `None` at the end of the stream. An incomplete
    /// last line is dropped, and the watch resumes before it.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(position) = self.buffer[self.searched..]
                .iter()
                .position(|b| *b == b'\n')
            {
                let line = self.buffer.split_to(self.searched + position + 1).freeze();
                self.searched = 0;
                return Ok(Some(line.slice(..line.len() - 1)));
            }
            self.searched = self.buffer.len();
            if self.searched > LONGEST_LINE {
                return Err(Error::LineTooLong);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Error::Body(error.into())),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

async fn open(client: &kube::Client, uri: &str, accept: &str) -> Result<Body, Error> {
    let request = Request::get(uri)
        .header(header::ACCEPT, accept)
        .body(Body::empty())
        .map_err(Error::Build)?;
    let response = client.send(request).await.map_err(Error::Request)?;
    let code = response.status();
    if code.is_success() {
        return Ok(response.into_body());
    }
    let body = Limited::new(response.into_body(), LONGEST_LINE);
    let bytes = body.collect().await.map_err(Error::Body)?.to_bytes();
    let mut status = serde_json::from_slice::<Status>(&bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&bytes);
        Status::failure(text.trim(), code.canonical_reason().unwrap_or_default())
    });
    if status.code == 0 {
        status.code = code.as_u16();
    }
    Err(Error::Api(status.boxed()))
}

/// Appends `name=value` to a query, percent-encoding the value.
pub(crate) fn push_query(uri: &mut String, name: &str, value: &str) {
    uri.push(if uri.contains('?') { '&' } else { '?' });
    uri.push_str(name);
    uri.push('=');
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(byte as char);
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
}
