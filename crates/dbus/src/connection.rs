//! One connection to a bus: how it is let in, calls and their answers, signals, descriptors.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::UnixStream,
};

use crate::{Error, Kind, Message, Value};

const BUS: &str = "org.freedesktop.DBus";
const BUS_PATH: &str = "/org/freedesktop/DBus";
/// The longest answer while being let in.
const LONGEST_LINE: usize = 1024;
/// As other clients of the bus have it.
const LONGEST_CALL: Duration = Duration::from_secs(25);
/// Descriptors in one message.
const DESCRIPTORS: usize = 8;
/// Messages that came while an answer was waited for.
const WAITING: usize = 256;

pub struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    waiting: VecDeque<Message>,
    serial: u32,
}

impl Connection {
    /// A bus, on which everybody has a name.
    pub async fn open(socket: &Path) -> Result<Connection, Error> {
        let mut connection = Connection::open_private(socket).await?;
        connection.ask_bus("Hello", Vec::new()).await?;
        Ok(connection)
    }

    /// Connects to the private socket of one service, where there is no bus.
    pub async fn open_private(socket: &Path) -> Result<Connection, Error> {
        let mut connection = Connection {
            stream: UnixStream::connect(socket).await?,
            received: Vec::new(),
            descriptors: VecDeque::new(),
            waiting: VecDeque::new(),
            serial: 0,
        };
        // The bus learns our user from the kernel; the name is only the number of the same user.
        let user = hex::encode(nix::unistd::geteuid().to_string());
        let hello = format!("\0AUTH EXTERNAL {user}\r\n");
        connection.line(&hello, "OK").await?;
        connection
            .line("NEGOTIATE_UNIX_FD\r\n", "AGREE_UNIX_FD")
            .await?;
        connection.stream.write_all(b"BEGIN\r\n").await?;
        Ok(connection)
    }

    /// Takes a name, so that others find this connection by it.
    pub async fn own(&mut self, name: &str) -> Result<(), Error> {
        let body = vec![Value::Text(name.to_owned()), Value::UInt32(0)];
        self.ask_bus("RequestName", body).await.map(drop)
    }

    /// Asks for the signals that `rule` describes.
    pub async fn listen(&mut self, rule: &str) -> Result<(), Error> {
        let body = vec![Value::Text(rule.to_owned())];
        self.ask_bus("AddMatch", body).await.map(drop)
    }

    async fn ask_bus(&mut self, member: &str, body: Vec<Value>) -> Result<Message, Error> {
        self.call(Message::call(BUS, BUS_PATH, BUS, member, body))
            .await
    }

    /// Calls a method and waits for its answer.
    pub async fn call(&mut self, message: Message) -> Result<Message, Error> {
        let answer = tokio::time::timeout(LONGEST_CALL, self.answer(message)).await;
        answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn answer(&mut self, message: Message) -> Result<Message, Error> {
        let serial = self.send(message).await?;
        loop {
            let message = self.receive().await?;
            if message.reply_serial != Some(serial) {
                if self.waiting.len() == WAITING {
                    return Err(Error::Protocol("too many messages before an answer"));
                }
                self.waiting.push_back(message);
                continue;
            }
            if message.kind != Kind::Error {
                return Ok(message);
            }
            let text = match message.body.into_iter().next() {
                Some(Value::Text(text)) => text,
                _ => String::new(),
            };
            let name = message.error_name.unwrap_or_default();
            return Err(Error::Method { name, text });
        }
    }

    /// The next message that is no answer to a call. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Message, Error> {
        match self.waiting.pop_front() {
            Some(message) => Ok(message),
            None => self.receive().await,
        }
    }

    /// Sends a message and returns its serial number.
    pub async fn send(&mut self, mut message: Message) -> Result<u32, Error> {
        self.serial += 1;
        message.serial = self.serial;
        let bytes = message.encode();
        let mut sent = 0;
        while sent < bytes.len() {
            let descriptors: Vec<_> = match sent {
                0 => message.descriptors.iter().map(AsFd::as_fd).collect(),
                _ => Vec::new(),
            };
            let stream = &self.stream;
            sent += stream
                .async_io(Interest::WRITABLE, || {
                    let mut space =
                        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
                    let mut ancillary = SendAncillaryBuffer::new(&mut space);
                    if !descriptors.is_empty()
                        && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors))
                    {
                        return Err(io::Error::other("too many descriptors"));
                    }
                    let parts = [IoSlice::new(&bytes[sent..])];
                    let flags = SendFlags::NOSIGNAL;
                    Ok(sendmsg(stream, &parts, &mut ancillary, flags)?)
                })
                .await?;
        }
        Ok(self.serial)
    }

    async fn receive(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(length) = Message::length(&self.received)?
                && self.received.len() >= length
            {
                let (mut message, count) = Message::decode(&self.received[..length])?;
                self.received.drain(..length);
                if count > self.descriptors.len() {
                    return Err(Error::Protocol("descriptors are missing"));
                }
                message.descriptors = self.descriptors.drain(..count).collect();
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Error> {
        let mut buffer = [0; 4096];
        let stream = &self.stream;
        let (length, descriptors) = stream
            .async_io(Interest::READABLE, || {
                let mut space =
                    [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
                let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                let mut parts = [IoSliceMut::new(&mut buffer)];
                let flags = RecvFlags::CMSG_CLOEXEC;
                let length = recvmsg(stream, &mut parts, &mut ancillary, flags)?.bytes;
                let mut descriptors = Vec::new();
                for part in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(found) = part {
                        descriptors.extend(found);
                    }
                }
                Ok((length, descriptors))
            })
            .await?;
        if length == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.received.extend(&buffer[..length]);
        self.descriptors.extend(descriptors);
        Ok(())
    }

    /// Says a line and expects an answer that begins so.
    async fn line(&mut self, sent: &str, expected: &str) -> Result<(), Error> {
        self.stream.write_all(sent.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n") {
            if answer.len() == LONGEST_LINE {
                return Err(Error::Protocol("an answer without end"));
            }
            answer.push(self.stream.read_u8().await?);
        }
        let answer = String::from_utf8_lossy(&answer).trim().to_owned();
        match answer.starts_with(expected) {
            true => Ok(()),
            false => Err(Error::Refused(answer)),
        }
    }
}
