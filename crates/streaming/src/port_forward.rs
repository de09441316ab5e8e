//! Port-forward, the serving side: each forwarded connection is a pair of streams, one for its
//! bytes and one for an error. The caller dials the port.

use std::{collections::BTreeMap, future::Future, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::JoinSet,
};

use crate::{
    Sink, Source, Upgrade,
    spdy::{self, Stream},
    upgrade::{self, Refusal},
    websocket::{self, Channels, Form},
};

pub const PROTOCOL: &str = "portforward.k8s.io";
const WEBSOCKET: [&str; 4] = [
    "",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "SPDY/3.1+portforward.k8s.io",
];
/// How long the second stream of a pair may take after the first.
const PAIRING: Duration = Duration::from_secs(30);
/// Pairs that have one stream and wait for the other.
const MOST_HALVES: usize = 256;
const CHUNK: usize = 32 * 1024;

/// Why a port could not be reached, in the words that the client is shown.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DialFailure(pub String);

/// Agrees with a client on how its connections are carried.
pub fn negotiate(headers: &HeaderMap) -> Result<Upgrade, Refusal> {
    upgrade::negotiate(headers, &WEBSOCKET, &[PROTOCOL])
}

/// Serves a connection that has been upgraded. `ports` are those of an old WebSocket client, which
/// names them beforehand. `dial` connects to a port; its failure is reported to the client.
pub async fn serve<I, C, F>(
    io: I,
    upgrade: &Upgrade,
    pod: &str,
    ports: &[u16],
    dial: impl Fn(u16) -> F,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: AsyncRead + AsyncWrite + Send + 'static,
    F: Future<Output = Result<C, DialFailure>> + Send + 'static,
{
    match upgrade {
        Upgrade::Spdy { .. } => over_spdy(io, pod, dial).await,
        Upgrade::WebSocket { protocol, .. } if protocol.starts_with(upgrade::TUNNEL_PREFIX) => {
            let io = websocket::tunnel(io, websocket::Role::Server).await;
            over_spdy(io, pod, dial).await;
        }
        Upgrade::WebSocket { protocol, .. } => {
            over_channels(io, Form::of(protocol), pod, ports, dial).await;
        }
    }
}

async fn over_spdy<I, C, F>(io: I, pod: &str, dial: impl Fn(u16) -> F)
where
    I: AsyncRead + AsyncWrite + Send + 'static,
    C: AsyncRead + AsyncWrite + Send + 'static,
    F: Future<Output = Result<C, DialFailure>> + Send + 'static,
{
    let (connection, mut incoming) = spdy::Connection::start(io, spdy::Role::Server);
    let mut halves: BTreeMap<String, (Stream, tokio::time::Instant)> = BTreeMap::new();
    let mut forwarding = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = incoming.accept() => stream,
            Some(_) = forwarding.join_next() => continue,
        };
        let Some(stream) = stream else {
            break;
        };
        let now = tokio::time::Instant::now();
        halves.retain(|_, (_, since)| now - *since < PAIRING);
        let Some((request, port)) = addressed(&stream) else {
            let _ = stream.sink.reset().await;
            continue;
        };
        let Some((first, _)) = halves.remove(&request) else {
            if halves.len() >= MOST_HALVES {
                let _ = stream.sink.reset().await;
            } else {
                halves.insert(request, (stream, now));
            }
            continue;
        };
        let (data, error) = match (kind(&first), kind(&stream)) {
            ("data", "error") => (first, stream),
            ("error", "data") => (stream, first),
            _ => {
                let _ = stream.sink.reset().await;
                halves.insert(request, (first, now));
                continue;
            }
        };
        let (dialled, pod) = (dial(port), pod.to_owned());
        forwarding.spawn(async move {
            let failure = match dialled.await {
                Ok(target) => carry(data.source, &data.sink, target).await.err(),
                Err(DialFailure(problem)) => Some(problem),
            };
            match failure {
                Some(problem) => {
                    let text = describe_failure(port, &pod, &problem);
                    let _ = error.sink.send(text.into()).await;
                    let _ = error.sink.finish().await;
                    let _ = data.sink.reset().await;
                }
                None => {
                    let _ = data.sink.finish().await;
                    let _ = error.sink.finish().await;
                }
            }
        });
    }
    forwarding.shutdown().await;
    drop(connection);
}

fn describe_failure(port: u16, pod: &str, problem: &str) -> String {
    format!("error forwarding port {port} to pod {pod}, uid : {problem}")
}

fn kind(stream: &Stream) -> &str {
    stream.headers.get("streamtype").unwrap_or_default()
}

/// Which pair a stream belongs to, and its port.
fn addressed(stream: &Stream) -> Option<(String, u16)> {
    let port = stream.headers.get("port")?.parse().ok()?;
    if port == 0 {
        return None;
    }
    let request = match (stream.headers.get("requestid"), kind(stream)) {
        (Some(id), "data" | "error") if !id.is_empty() => id.to_owned(),
        // Old clients name no request; they open the error stream first, then the data stream.
        (_, "error") => stream.id.to_string(),
        (_, "data") => stream.id.checked_sub(2)?.to_string(),
        _ => return None,
    };
    Some((request, port))
}

async fn over_channels<I, C, F>(
    io: I,
    form: Form,
    pod: &str,
    ports: &[u16],
    dial: impl Fn(u16) -> F,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: AsyncRead + AsyncWrite + Send + 'static,
    F: Future<Output = Result<C, DialFailure>> + Send + 'static,
{
    let role = websocket::Role::Server;
    let mut channels = Channels::start(io, role, form, ports.len() * 2).await;
    let mut forwarding = JoinSet::new();
    for (number, port) in ports.iter().copied().enumerate() {
        let Some(source) = channels.take_source(number * 2) else {
            continue;
        };
        let (data, error) = (
            channels.sink(number as u32 * 2),
            channels.sink(number as u32 * 2 + 1),
        );
        // Each channel begins with its port's number.
        for sink in [&data, &error] {
            let _ = sink.send(port.to_le_bytes().to_vec().into()).await;
        }
        let (dialled, pod) = (dial(port), pod.to_owned());
        forwarding.spawn(async move {
            let failure = match dialled.await {
                Ok(target) => carry(source, &data, target).await.err(),
                Err(DialFailure(problem)) => Some(problem),
            };
            if let Some(problem) = failure {
                let text = describe_failure(port, &pod, &problem);
                let _ = error.send(text.into()).await;
            }
        });
    }
    let all = async { while forwarding.join_next().await.is_some() {} };
    tokio::select! {
        () = all => {}
        () = channels.closed() => {}
    }
    channels.end().await;
}

/// Copies bytes until both sides have finished, or the port's side is gone.
async fn carry<C>(mut source: Source, sink: &Sink, target: C) -> Result<(), String>
where
    C: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = tokio::io::split(target);
    let inward = async {
        while let Some(bytes) = source.next().await {
            writer.write_all(&bytes).await?;
        }
        writer.shutdown().await
    };
    let outward = async {
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = reader.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            let bytes = Bytes::copy_from_slice(&buffer[..count]);
            if sink.send(bytes).await.is_err() {
                return Ok(());
            }
        }
    };
    tokio::pin!(inward, outward);
    let result: std::io::Result<()> = tokio::select! {
        result = &mut outward => result,
        result = &mut inward => match result {
            Ok(()) => outward.await,
            Err(error) => Err(error),
        },
    };
    result.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spdy::{Connection, Headers, Role};
    use tokio::io::DuplexStream;

    /// Port 7 echoes; others refuse.
    async fn echo(port: u16) -> Result<DuplexStream, DialFailure> {
        if port != 7 {
            return Err(DialFailure("connection refused".into()));
        }
        let (near, far) = tokio::io::duplex(1000);
        tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(far);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        });
        Ok(near)
    }

    async fn pair(client: &Connection, port: &str, request: &str) -> (Stream, Stream) {
        let open = async |kind: &str| {
            let pairs = [("streamType", kind), ("port", port), ("requestID", request)];
            client.open(Headers::new(&pairs)).await.expect("opened")
        };
        (open("error").await, open("data").await)
    }

    #[tokio::test]
    async fn each_pair_of_streams_is_a_connection_to_a_port() {
        let (near, far) = tokio::io::duplex(1000);
        let upgrade = Upgrade::Spdy {
            protocol: PROTOCOL.into(),
        };
        let serving = tokio::spawn(async move { serve(far, &upgrade, "p", &[], echo).await });
        let (client, _) = Connection::start(near, Role::Client);
        let (mut error, mut data) = pair(&client, "7", "0").await;
        let (mut other_error, _other) = pair(&client, "8", "1").await;
        data.sink.send("hello".into()).await.unwrap();
        data.sink.finish().await.unwrap();
        assert_eq!(data.source.collect(100).await, b"hello");
        assert_eq!(error.source.collect(100).await, b"");
        let told = String::from_utf8(other_error.source.collect(100).await).unwrap();
        assert_eq!(
            told,
            "error forwarding port 8 to pod p, uid : connection refused"
        );
        client.end().await;
        serving.await.expect("served");
    }

    #[tokio::test]
    async fn old_websocket_clients_name_their_ports_beforehand() {
        let (near, far) = tokio::io::duplex(1000);
        let upgrade = Upgrade::WebSocket {
            protocol: "v4.channel.k8s.io".into(),
            accept: String::new(),
        };
        tokio::spawn(async move { serve(far, &upgrade, "p", &[7, 8], echo).await });
        let form = Form::of("v4.channel.k8s.io");
        let mut client = Channels::start(near, websocket::Role::Client, form, 4).await;
        let (mut data, mut error) = (
            client.take_source(0).unwrap(),
            client.take_source(3).unwrap(),
        );
        assert_eq!(data.next().await.as_deref(), Some(&[7, 0][..]));
        client.sink(0).send("hello".into()).await.unwrap();
        assert_eq!(data.next().await.as_deref(), Some(&b"hello"[..]));
        assert_eq!(error.next().await.as_deref(), Some(&[8, 0][..]));
        assert!(
            error
                .next()
                .await
                .is_some_and(|text| text.ends_with(b"refused"))
        );
    }
}
