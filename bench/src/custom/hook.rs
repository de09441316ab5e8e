//! A webhook that admits everything but objects named `probe`, over TLS on the loopback interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

pub struct Hook {
    pub address: SocketAddr,
    /// The certificate to trust, as `caBundle` has it.
    pub authority: String,
}

impl Hook {
    /// Serves on a thread of its own, as long as the process runs.
    pub fn start() -> Result<Hook> {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let certificate =
            rcgen::CertificateParams::new(vec!["localhost".to_string()])?.self_signed(&key)?;
        let private = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|problem| anyhow::anyhow!("{problem}"))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::spawn(move || {
            let served = runtime.block_on(accept(listener, TlsAcceptor::from(Arc::new(config))));
            if let Err(problem) = served {
                eprintln!("the webhook ended: {problem:#}");
            }
        });
        Ok(Hook {
            address,
            authority: BASE64_STANDARD.encode(certificate.pem()),
        })
    }
}

async fn accept(listener: std::net::TcpListener, tls: TlsAcceptor) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let tls = tls.clone();
        tokio::spawn(async move {
            // Ends when the client closes the connection.
            let _ = answer(stream, tls).await;
        });
    }
}

async fn answer(stream: TcpStream, tls: TlsAcceptor) -> Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut held = Vec::new();
    loop {
        let (begin, end) = loop {
            if let Some(found) = whole(&held)? {
                break found;
            }
            if stream.read_buf(&mut held).await? == 0 {
                return Ok(());
            }
        };
        let review = std::str::from_utf8(&held[begin..end])?;
        let (_, rest) = review.split_once(r#""uid":""#).context("a review")?;
        let (uid, _) = rest.split_once('"').context("a review")?;
        let allowed = !review.contains(r#""name":"probe""#);
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":{allowed}}}}}"#
        );
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
        let answer = format!("{head}{}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await?;
        held.drain(..end);
    }
}

/// Where the body of the first request begins and ends, once it is there.
fn whole(held: &[u8]) -> Result<Option<(usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(begin) = request.parse(held)? else {
        return Ok(None);
    };
    let length = request
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .context("a length")?;
    let end = begin + std::str::from_utf8(length.value)?.parse::<usize>()?;
    Ok((held.len() >= end).then_some((begin, end)))
}
