//! Bytes between a session's streams and descriptors: pipes and terminals.

use std::{io, os::fd::OwnedFd};

use bytes::Bytes;
use streaming::{Sink, Source};
use tokio::{io::AsyncWriteExt, net::unix::pipe};
use tokio_util::sync::CancellationToken;

use crate::sys;

const CHUNK: usize = 32 * 1024;

/// The reading end of a pipe or our side of a terminal.
pub fn reader(descriptor: OwnedFd) -> io::Result<pipe::Receiver> {
    sys::set_nonblocking(std::os::fd::AsFd::as_fd(&descriptor))?;
    pipe::Receiver::from_owned_fd_unchecked(descriptor)
}

/// The writing end of a pipe or our side of a terminal.
pub fn writer(descriptor: OwnedFd) -> io::Result<pipe::Sender> {
    sys::set_nonblocking(std::os::fd::AsFd::as_fd(&descriptor))?;
    pipe::Sender::from_owned_fd_unchecked(descriptor)
}

/// Copies output to the client until its end. When `ended` is cancelled, the bytes in the pipe are still
/// read, but no more are waited for: another process may have inherited the pipe.
pub async fn output(reader: pipe::Receiver, sink: Sink, ended: CancellationToken) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let last = tokio::select! {
            biased;
            ready = reader.readable() => {
                if ready.is_err() {
                    return;
                }
                false
            }
            () = ended.cancelled() => true,
        };
        match reader.try_read(&mut buffer) {
            // A terminal that no process has open any more answers with an error.
            Ok(0) => return,
            Ok(count) => {
                let bytes = Bytes::copy_from_slice(&buffer[..count]);
                if sink.send(bytes).await.is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !last => {}
            Err(_) => return,
        }
    }
}

/// Input from the client, until its end.
pub async fn input(mut source: Source, writer: &mut pipe::Sender) {
    while let Some(bytes) = source.next().await {
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
