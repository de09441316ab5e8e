//! One HTTP/1.1 connection over TLS with little overhead: a load generator shares its cores with the
//! server that it measures. It trusts every certificate and has no redirects, retries or pools.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const BUFFER: usize = 64 * 1024;
const HEADERS: usize = 32;

/// A response without its body.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub code: u16,
    pub bytes: usize,
}

/// The rest of the body that is being read.
#[derive(Clone, Copy, Debug)]
enum Left {
    Length(usize),
    /// Of the current chunk; its line end is still to come when `begun`.
    Chunk {
        bytes: usize,
        begun: bool,
    },
    Nothing,
}

pub struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Box<[u8]>,
    /// Received bytes that have not been parsed yet.
    held: Range<usize>,
    left: Left,
}

impl Connection {
    pub async fn open(address: SocketAddr, tls: &TlsConnector) -> Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(address.ip());
        let stream = tls.connect(name, stream).await?;
        Ok(Connection {
            stream,
            buffer: vec![0; BUFFER].into(),
            held: 0..0,
            left: Left::Nothing,
        })
    }

    /// Like [`Connection::open`], with small buffers, so that 5,000 of them fit into memory.
    pub async fn open_small(address: SocketAddr, tls: &TlsConnector) -> Result<Connection> {
        let mut connection = Connection::open(address, tls).await?;
        connection.buffer = vec![0; BUFFER / 8].into();
        Ok(connection)
    }

    /// Sends a request and reads the whole response.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<Answer> {
        let code = self.begin(request).await?;
        let mut bytes = 0;
        while let Some(data) = self.data().await? {
            bytes += data.len();
        }
        Ok(Answer { code, bytes })
    }

    /// Like [`Connection::exchange`], and returns the body.
    pub async fn fetch(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>)> {
        let code = self.begin(request).await?;
        let mut body = Vec::new();
        while let Some(data) = self.data().await? {
            body.extend_from_slice(&self.buffer[data]);
        }
        Ok((code, body))
    }

    /// Sends a request and reads the head of the response; [`Connection::data`] reads the body.
    pub async fn begin(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        loop {
            if let Some(code) = self.head()? {
                return Ok(code);
            }
            self.receive().await?;
        }
    }

    /// The next piece of the body, where [`Connection::bytes`] finds it.
    pub async fn data(&mut self) -> Result<Option<Range<usize>>> {
        loop {
            match self.left {
                Left::Nothing | Left::Length(0) => return Ok(None),
                Left::Length(bytes) | Left::Chunk { bytes, .. } if bytes > 0 => {
                    if self.held.is_empty() {
                        self.receive().await?;
                    }
                    let taken = bytes.min(self.held.len());
                    let data = self.held.start..self.held.start + taken;
                    self.held.start += taken;
                    self.left = match self.left {
                        Left::Chunk { .. } => Left::Chunk {
                            bytes: bytes - taken,
                            begun: true,
                        },
                        _ => Left::Length(bytes - taken),
                    };
                    return Ok(Some(data));
                }
                Left::Chunk { begun, .. } => {
                    if begun {
                        self.line().await?;
                    }
                    let line = self.line().await?;
                    let digits = std::str::from_utf8(&self.buffer[line])?;
                    let bytes = usize::from_str_radix(digits.trim(), 16)?;
                    self.left = Left::Chunk { bytes, begun: true };
                    if bytes == 0 {
                        self.line().await?;
                        self.left = Left::Nothing;
                    }
                }
                Left::Length(_) => return Ok(None),
            }
        }
    }

    pub fn bytes(&self, data: Range<usize>) -> &[u8] {
        &self.buffer[data]
    }

    /// Consumes a line including its end.
    async fn line(&mut self) -> Result<Range<usize>> {
        loop {
            let held = &self.buffer[self.held.clone()];
            if let Some(end) = held.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.held.start..self.held.start + end;
                self.held.start += end + 2;
                return Ok(line);
            }
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> Result<()> {
        if self.held.start > 0 {
            self.buffer.copy_within(self.held.clone(), 0);
            self.held = 0..self.held.len();
        }
        ensure!(self.held.end < self.buffer.len(), "a head or line too long");
        let read = self.stream.read(&mut self.buffer[self.held.end..]).await?;
        ensure!(read > 0, "the server closed the connection");
        self.held.end += read;
        Ok(())
    }

    fn head(&mut self) -> Result<Option<u16>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(&self.buffer[self.held.clone()])? {
            httparse::Status::Complete(length) => length,
            httparse::Status::Partial => return Ok(None),
        };
        let code = response.code.context("a status code")?;
        let value = |name: &str| {
            let mut headers = response.headers.iter();
            headers
                .find(|header| header.name.eq_ignore_ascii_case(name))
                .map(|header| header.value)
        };
        self.left = match (value("transfer-encoding"), value("content-length")) {
            (Some(b"chunked"), _) => Left::Chunk {
                bytes: 0,
                begun: false,
            },
            (None, Some(digits)) => Left::Length(std::str::from_utf8(digits)?.parse()?),
            _ => bail!("an answer of unknown length"),
        };
        self.held.start += length;
        Ok(Some(code))
    }
}

/// TLS that trusts every server: all of them were just started on this machine.
pub fn connector() -> Result<TlsConnector> {
    let provider = Arc::new(default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
