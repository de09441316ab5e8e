//! One client of the shim: bytes in, bytes out, never blocking the loop.

use std::{
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use nix::errno::Errno;

use super::protocol::{self, Message};
use crate::sys;

pub struct Connection {
    stream: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Came with the requests and are not taken yet.
    descriptors: Vec<OwnedFd>,
    /// Receives exits from its first `State` request on.
    pub subscribed: bool,
    pub closed: bool,
}

impl Connection {
    pub fn new(stream: UnixStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            descriptors: Vec::new(),
            subscribed: false,
            closed: false,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub fn wants_to_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Reads what is there and returns the whole documents in it.
    pub fn read(&mut self) -> Vec<Vec<u8>> {
        let mut chunk = [0; 4096];
        loop {
            match sys::receive_with(self.stream.as_fd(), &mut chunk) {
                Ok((0, _)) => {
                    self.closed = true;
                    break;
                }
                Ok((length, descriptors)) => {
                    self.incoming.extend_from_slice(&chunk[..length]);
                    self.descriptors.extend(descriptors);
                    // No request uses more; those left over are closed.
                    self.descriptors.truncate(sys::MOST_DESCRIPTORS);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(_) => {
                    self.closed = true;
                    break;
                }
            }
        }
        let mut documents = Vec::new();
        loop {
            match protocol::take_frame(&mut self.incoming) {
                Ok(Some(document)) => documents.push(document),
                Ok(None) => return documents,
                Err(_) => {
                    self.closed = true;
                    return documents;
                }
            }
        }
    }

    /// The descriptors that came with a request.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// As [`Connection::send`], with a descriptor. For clients that have read what came before.
    pub fn send_with(&mut self, message: &Message, descriptor: BorrowedFd<'_>) {
        let frame = match protocol::frame(message) {
            Ok(frame) if self.outgoing.is_empty() => frame,
            _ => {
                self.closed = true;
                return;
            }
        };
        match sys::send_with(self.stream.as_fd(), &frame, &[descriptor]) {
            Ok(length) => self.outgoing.extend_from_slice(&frame[length..]),
            Err(_) => self.closed = true,
        }
    }

    pub fn send(&mut self, message: &Message) {
        match protocol::frame(message) {
            Ok(frame) => self.outgoing.extend_from_slice(&frame),
            Err(error) => eprintln!("shim: encoding an answer: {error}"),
        }
        self.flush();
        // A client that does not read gets no endless buffer.
        if self.outgoing.len() > protocol::LARGEST_FRAME {
            self.closed = true;
        }
    }

    pub fn flush(&mut self) {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(0) => break,
                Ok(length) => {
                    self.outgoing.drain(..length);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.closed = true;
                    return;
                }
            }
        }
        self.outgoing.shrink_to(4096);
    }
}
