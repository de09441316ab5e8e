//! One client of the shim: bytes in, bytes out, never blocking the loop.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use super::protocol::{self, Message};

pub struct Connection {
    stream: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
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
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    self.closed = true;
                    break;
                }
                Ok(length) => self.incoming.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
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
