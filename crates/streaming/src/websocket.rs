//! Kubernetes' channels over WebSocket: each message begins with the number of its channel. From
//! `v5` on a message `255, n` says that channel `n` is finished. Also SPDY inside WebSocket, where
//! messages are just bytes.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{
    SinkExt, Stream, StreamExt,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::streams::{LARGEST_CHUNK, Outgoing, Sink, Source, WAITING_FRAMES};

pub use tokio_tungstenite::tungstenite::protocol::Role;

/// No message may be larger.
const LARGEST_MESSAGE: usize = 8 << 20;
const CLOSE: u8 = 255;
/// After our goodbye the peer's answer is awaited for this long.
const LINGER: Duration = Duration::from_secs(5);

/// How channels are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Text messages: the channel as a digit, the data in base64.
    pub base64: bool,
    /// Channels can be finished one by one.
    pub closes: bool,
}

impl Form {
    /// What a subprotocol's name means. Without a name it is the oldest form.
    pub fn of(protocol: &str) -> Form {
        Form {
            base64: protocol.contains("base64"),
            closes: protocol == "v5.channel.k8s.io",
        }
    }
}

/// An upgraded connection whose messages carry channels. Dropping it sends a close frame and closes.
pub struct Channels {
    sources: Vec<Option<Source>>,
    outgoing: mpsc::Sender<Outgoing>,
    gone: CancellationToken,
    _leaving: DropGuard,
}

impl Channels {
    /// `count` channels over a connection that has been upgraded.
    pub async fn start<I>(io: I, role: Role, form: Form, count: usize) -> Channels
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (writer, reader) = socket(io, role).await.split();
        let (outgoing, frames) = mpsc::channel(WAITING_FRAMES);
        let (senders, sources) = (0..count)
            .map(|_| {
                let (sender, source) = Source::channel();
                (Some(sender), Some(source))
            })
            .unzip();
        let (gone, leaving) = (CancellationToken::new(), CancellationToken::new());
        let (ended, left) = (gone.clone(), leaving.clone());
        tokio::spawn(async move {
            let written = tokio::spawn(write(writer, frames, form, role, left.clone()));
            let writer = written.abort_handle();
            read(reader, senders, form, left.clone(), ended).await;
            if left.is_cancelled() {
                let _ = tokio::time::timeout(LINGER, written).await;
            }
            writer.abort();
        });
        Channels {
            sources,
            outgoing,
            gone,
            _leaving: leaving.drop_guard(),
        }
    }

    /// What arrives on a channel; can be taken once.
    pub fn take_source(&mut self, channel: usize) -> Option<Source> {
        self.sources.get_mut(channel)?.take()
    }

    pub fn sink(&self, channel: u32) -> Sink {
        Sink {
            id: channel,
            outgoing: self.outgoing.clone(),
        }
    }

    /// Resolves when the peer is gone.
    pub async fn closed(&self) {
        self.gone.cancelled().await;
    }

    /// Says goodbye after everything that was sent before.
    pub async fn end(self) {
        let _ = self.outgoing.send(Outgoing::End).await;
    }
}

async fn socket<I>(io: I, role: Role) -> WebSocketStream<I>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(LARGEST_MESSAGE))
        .max_frame_size(Some(LARGEST_MESSAGE));
    WebSocketStream::from_raw_socket(io, role, Some(config)).await
}

async fn read<I>(
    mut reader: SplitStream<WebSocketStream<I>>,
    mut channels: Vec<Option<mpsc::Sender<Bytes>>>,
    form: Form,
    leaving: CancellationToken,
    gone: CancellationToken,
) where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let all = async {
        while let Some(Ok(message)) = reader.next().await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => text.into(),
                Message::Close(_) => return,
                _ => continue,
            };
            if !deliver(bytes, &mut channels, form).await {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = leaving.cancelled() => {}
        () = all => {}
    }
    drop(channels);
    gone.cancel();
    let rest = async { while let Some(Ok(_)) = reader.next().await {} };
    let _ = tokio::time::timeout(LINGER, rest).await;
}

/// False when the peer does not keep to the protocol.
async fn deliver(
    mut bytes: Bytes,
    channels: &mut [Option<mpsc::Sender<Bytes>>],
    form: Form,
) -> bool {
    let Some(first) = bytes.first().copied() else {
        return true;
    };
    let data = bytes.split_off(1);
    if form.closes && first == CLOSE {
        let Some(channel) = data.first().map(|channel| usize::from(*channel)) else {
            return false;
        };
        return match channels.get_mut(channel) {
            Some(sender) => {
                *sender = None;
                true
            }
            None => false,
        };
    }
    let (channel, data) = match form.base64 {
        true => match STANDARD.decode(&data) {
            Ok(decoded) => (first.wrapping_sub(b'0'), Bytes::from(decoded)),
            Err(_) => return true,
        },
        false => (first, data),
    };
    if let Some(Some(sender)) = channels.get(usize::from(channel))
        && !data.is_empty()
    {
        // The channel has no reader any more: the bytes are dropped.
        let _ = sender.send(data).await;
    }
    true
}

async fn write<I>(
    mut writer: SplitSink<WebSocketStream<I>, Message>,
    mut frames: mpsc::Receiver<Outgoing>,
    form: Form,
    role: Role,
    leaving: CancellationToken,
) where
    I: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let frame = tokio::select! {
            biased;
            frame = frames.recv() => frame,
            () = leaving.cancelled() => None,
        };
        let message = match frame {
            Some(Outgoing::Data(channel, bytes)) => encode(channel as u8, &bytes, form),
            // Servers say goodbye to all channels at once.
            Some(Outgoing::Finish(channel)) if form.closes && role == Role::Client => {
                Message::Binary(vec![CLOSE, channel as u8].into())
            }
            Some(Outgoing::End) | None => {
                let _ = writer.send(goodbye()).await;
                return;
            }
            Some(_) => continue,
        };
        if writer.send(message).await.is_err() {
            return;
        }
    }
}

/// Clients take a goodbye without a code for a failure.
fn goodbye() -> Message {
    Message::Close(Some(CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    }))
}

fn encode(channel: u8, bytes: &[u8], form: Form) -> Message {
    match form.base64 {
        true => {
            let mut text = String::from(char::from(b'0'.wrapping_add(channel)));
            STANDARD.encode_string(bytes, &mut text);
            Message::text(text)
        }
        false => {
            let mut message = Vec::with_capacity(bytes.len() + 1);
            message.push(channel);
            message.extend_from_slice(bytes);
            Message::Binary(message.into())
        }
    }
}

/// Sends each chunk as a message, then a close frame. The first message is empty: it shows the
/// client that it is connected. Ends early when the client is gone.
pub async fn send_all<I>(io: I, base64: bool, mut chunks: impl Stream<Item = Bytes> + Unpin)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let (mut writer, mut reader) = socket(io, Role::Server).await.split();
    let message = |bytes: Bytes| match base64 {
        true => Message::text(STANDARD.encode(&bytes)),
        false => Message::Binary(bytes),
    };
    let sending = async {
        let mut next = Some(Bytes::new());
        while let Some(bytes) = next {
            if writer.send(message(bytes)).await.is_err() {
                return;
            }
            next = chunks.next().await;
        }
        let _ = writer.send(goodbye()).await;
    };
    let listening = async { while let Some(Ok(_)) = reader.next().await {} };
    tokio::pin!(sending, listening);
    tokio::select! {
        () = &mut sending => { let _ = tokio::time::timeout(LINGER, listening).await; }
        () = &mut listening => {}
    }
}

/// The bytes inside a WebSocket, as a connection of their own: SPDY is spoken on it.
pub async fn tunnel<I>(io: I, role: Role) -> DuplexStream
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (near, far) = tokio::io::duplex(2 * LARGEST_CHUNK);
    let (mut writer, mut reader) = socket(io, role).await.split();
    let (mut source, mut sink) = tokio::io::split(far);
    tokio::spawn(async move {
        let inward = async {
            while let Some(Ok(message)) = reader.next().await {
                let bytes = match message {
                    Message::Binary(bytes) => bytes,
                    Message::Close(_) => break,
                    _ => continue,
                };
                if sink.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            let _ = sink.shutdown().await;
        };
        let outward = async {
            let mut buffer = vec![0; LARGEST_CHUNK];
            while let Ok(count @ 1..) = source.read(&mut buffer).await {
                let message = Message::Binary(Bytes::copy_from_slice(&buffer[..count]));
                if writer.send(message).await.is_err() {
                    return;
                }
            }
            let _ = writer.send(goodbye()).await;
        };
        tokio::pin!(inward, outward);
        // When one side is done the other gets a moment for its last bytes.
        tokio::select! {
            () = &mut inward => { let _ = tokio::time::timeout(LINGER, outward).await; }
            () = &mut outward => { let _ = tokio::time::timeout(LINGER, inward).await; }
        }
    });
    near
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pair(protocol: &str) -> (Channels, Channels) {
        let (near, far) = tokio::io::duplex(1000);
        let form = Form::of(protocol);
        tokio::join!(
            Channels::start(near, Role::Client, form, 5),
            Channels::start(far, Role::Server, form, 5)
        )
    }

    #[tokio::test]
    async fn channels_carry_bytes_in_every_form() {
        for protocol in [
            "",
            "v4.channel.k8s.io",
            "v5.channel.k8s.io",
            "v4.base64.channel.k8s.io",
        ] {
            let (mut client, mut server) = pair(protocol).await;
            let sent: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
            let (sink, bytes) = (client.sink(0), Bytes::from(sent.clone()));
            let sending = tokio::spawn(async move { sink.send(bytes).await });
            let mut stdin = server.take_source(0).expect("a channel");
            let mut received = Vec::new();
            while received.len() < sent.len() {
                received.extend_from_slice(&stdin.next().await.expect("more"));
            }
            assert_eq!(received, sent, "{protocol}");
            sending.await.expect("joined").expect("sent");
            server.sink(1).send("out".into()).await.expect("sent");
            server.end().await;
            let mut stdout = client.take_source(1).expect("a channel");
            assert_eq!(stdout.collect(100).await, b"out", "{protocol}");
        }
    }

    #[tokio::test]
    async fn one_channel_is_finished_alone_from_v5_on() {
        let (client, mut server) = pair("v5.channel.k8s.io").await;
        let (mut stdin, mut resize) = (
            server.take_source(0).unwrap(),
            server.take_source(4).unwrap(),
        );
        client.sink(0).send("last".into()).await.unwrap();
        client.sink(0).finish().await.unwrap();
        client.sink(4).send("{}".into()).await.unwrap();
        assert_eq!(stdin.collect(100).await, b"last");
        assert_eq!(resize.next().await.as_deref(), Some(&b"{}"[..]));
    }

    #[tokio::test]
    async fn a_tunnel_carries_spdy() {
        use crate::spdy::{Connection, Headers, Role as Side};
        let (near, far) = tokio::io::duplex(1000);
        let (near, far) = tokio::join!(tunnel(near, Role::Client), tunnel(far, Role::Server));
        let (client, _) = Connection::start(near, Side::Client);
        let (server, mut incoming) = Connection::start(far, Side::Server);
        let opening = client.open(Headers::new(&[("port", "80")]));
        let (ours, theirs) = tokio::join!(opening, incoming.accept());
        let (mut ours, theirs) = (ours.unwrap(), theirs.unwrap());
        assert_eq!(theirs.headers.get("port"), Some("80"));
        theirs.sink.send("through".into()).await.unwrap();
        server.end().await;
        assert_eq!(ours.source.collect(100).await, b"through");
    }

    #[tokio::test]
    async fn random_bytes_are_refused_without_a_panic() {
        let (sender, mut source) = Source::channel();
        let mut channels = vec![Some(sender)];
        for form in [
            Form::of(""),
            Form::of("v5.channel.k8s.io"),
            Form::of("base64.channel.k8s.io"),
        ] {
            for message in [
                &b""[..],
                b"\x09abc",
                b"\xff",
                b"\xff\x20",
                b"9!!!",
                b"0%%%",
                b"\0",
            ] {
                deliver(Bytes::from_static(message), &mut channels, form).await;
            }
        }
        drop(channels);
        assert_eq!(source.next().await, None);
    }
}
