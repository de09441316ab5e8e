//! A blocking netlink connection: requests with acknowledgements, dumps, and whole batches.
//!
//! The kernel handles a request inside the send call, so its answers are waiting when the call
//! returns and nothing here ever waits for long.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::{Socket, SocketAddr};

use super::Error;
use super::message::{Writer, messages, u32_at};

pub const NLM_F_REQUEST: u16 = 1;
pub const NLM_F_ACK: u16 = 4;
pub const NLM_F_DUMP_INTR: u16 = 0x10;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_EXCL: u16 = 0x200;
pub const NLM_F_REPLACE: u16 = 0x100;
pub const NLM_F_CREATE: u16 = 0x400;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Over this, a batch is refused instead of asking the kernel for ever larger buffers.
const LARGEST_BATCH: usize = 64 << 20;
/// The kernel's default send buffer is about 200 KiB; below this no buffer is asked for.
const SMALL_BATCH: usize = 128 << 10;
const DUMP_ATTEMPTS: usize = 10;
/// Requests of a pipeline that are sent before their answers are read.
const LARGEST_PART: usize = 64;

/// One request of a pipeline: what it does (for errors), its message, and the refusals it tolerates.
pub struct Request {
    pub what: String,
    pub kind: u16,
    pub flags: u16,
    pub body: Vec<u8>,
    pub tolerated: &'static [i32],
}

impl Request {
    pub fn new(
        what: impl Into<String>,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Writer),
    ) -> Request {
        let mut writer = Writer::new();
        body(&mut writer);
        Request {
            what: what.into(),
            kind,
            flags,
            body: writer.bytes().to_vec(),
            tolerated: &[],
        }
    }

    /// These error numbers count as success.
    pub fn tolerate(mut self, errnos: &'static [i32]) -> Request {
        self.tolerated = errnos;
        self
    }
}

/// A refusal or acknowledgement inside the answer to a batch. `errno` 0 is an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub sequence: u32,
    pub errno: i32,
}

/// A socket bound to the network namespace in which it was opened, also when its thread leaves it.
pub struct Connection {
    socket: Socket,
    sequence: u32,
    send_buffer: usize,
}

impl Connection {
    /// Links, addresses, routes, neighbours.
    pub fn route() -> Result<Connection, Error> {
        Connection::open(netlink_sys::protocols::NETLINK_ROUTE)
    }

    /// nf_tables and conntrack.
    pub fn netfilter() -> Result<Connection, Error> {
        Connection::open(netlink_sys::protocols::NETLINK_NETFILTER)
    }

    fn open(protocol: isize) -> Result<Connection, Error> {
        let mut socket = Socket::new(protocol).map_err(Error::Open)?;
        socket.bind_auto().map_err(Error::Open)?;
        socket
            .connect(&SocketAddr::new(0, 0))
            .map_err(Error::Open)?;
        // Errors then carry only the header of the refused message, so answers stay small.
        socket.set_cap_ack(true).map_err(Error::Open)?;
        let timeout = nix::sys::time::TimeVal::new(5, 0);
        nix::sys::socket::setsockopt(
            &borrow(&socket),
            nix::sys::socket::sockopt::ReceiveTimeout,
            &timeout,
        )
        .map_err(|errno| Error::Open(errno.into()))?;
        Ok(Connection {
            socket,
            sequence: 0,
            send_buffer: SMALL_BATCH,
        })
    }

    pub fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence
    }

    /// Sends one request and waits for its acknowledgement.
    pub fn request(&mut self, request: Request) -> Result<(), Error> {
        self.pipeline(vec![request])
    }

    /// Sends several requests in one call. The kernel carries them out in order and goes on after a
    /// refusal; the first refusal that is not tolerated is returned.
    pub fn pipeline(&mut self, requests: Vec<Request>) -> Result<(), Error> {
        if requests.is_empty() {
            return Ok(());
        }
        let mut writer = Writer::new();
        let first = self.sequence.wrapping_add(1).max(1);
        for request in &requests {
            let sequence = self.next_sequence();
            let flags = request.flags | NLM_F_REQUEST | NLM_F_ACK;
            writer.message(request.kind, flags, sequence, |body| {
                body.raw(&request.body)
            });
        }
        self.send(writer.bytes())?;
        let mut refused: Option<Error> = None;
        let mut answered = 0;
        while answered < requests.len() {
            let datagram = self.receive()?;
            for message in messages(&datagram) {
                if message.kind != NLMSG_ERROR {
                    continue;
                }
                let Some(request) = requests.get(message.sequence.wrapping_sub(first) as usize)
                else {
                    continue;
                };
                answered += 1;
                let errno = -(u32_at(message.payload, 0).unwrap_or(0) as i32);
                if errno != 0 && !request.tolerated.contains(&errno) && refused.is_none() {
                    refused = Some(Error::Refused {
                        what: request.what.clone(),
                        errno,
                    });
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Sends any number of requests, a few at a time: each is answered, and the answers must fit the
    /// receive buffer. Ends at the first part with a refusal.
    pub fn pipeline_in_parts(&mut self, requests: Vec<Request>) -> Result<(), Error> {
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            self.pipeline(requests.by_ref().take(LARGEST_PART).collect())?;
        }
        Ok(())
    }

    /// Asks for a listing and returns the payload of each entry. A listing the kernel marks as
    /// interrupted by a change is asked for again.
    pub fn dump(
        &mut self,
        what: &str,
        kind: u16,
        body: impl Fn(&mut Writer),
    ) -> Result<Vec<Vec<u8>>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            if let Some(entries) = self.dump_once(what, kind, NLM_F_DUMP, &body)? {
                return Ok(entries);
            }
        }
        Err(interrupted(what))
    }

    /// Asks for a listing and hands each entry's payload to `visit` without keeping it. Changes
    /// meanwhile may make entries appear twice or not at all.
    pub fn visit(
        &mut self,
        what: &str,
        kind: u16,
        body: impl Fn(&mut Writer),
        visit: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        self.visit_once(what, kind, NLM_F_DUMP, &body, visit)?;
        Ok(())
    }

    /// Asks for one object; `None` when it does not exist.
    pub fn get(
        &mut self,
        what: &str,
        kind: u16,
        body: impl Fn(&mut Writer),
    ) -> Result<Option<Vec<u8>>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            match self.dump_once(what, kind, NLM_F_ACK, &body) {
                Ok(Some(entries)) => return Ok(entries.into_iter().next()),
                // Interrupted: whether the object exists is unknown.
                Ok(None) => {}
                Err(Error::Refused {
                    errno: libc::ENODEV | libc::ENOENT,
                    ..
                }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Err(interrupted(what))
    }

    fn dump_once(
        &mut self,
        what: &str,
        kind: u16,
        flags: u16,
        body: &impl Fn(&mut Writer),
    ) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let mut entries = Vec::new();
        let complete = self.visit_once(what, kind, flags, body, |entry| {
            entries.push(entry.to_vec())
        })?;
        Ok(complete.then_some(entries))
    }

    /// False when the listing was interrupted by a change.
    fn visit_once(
        &mut self,
        what: &str,
        kind: u16,
        flags: u16,
        body: &impl Fn(&mut Writer),
        mut visit: impl FnMut(&[u8]),
    ) -> Result<bool, Error> {
        let sequence = self.next_sequence();
        let mut writer = Writer::new();
        writer.message(kind, NLM_F_REQUEST | flags, sequence, |writer| body(writer));
        self.send(writer.bytes())?;
        let mut interrupted = false;
        loop {
            let datagram = self.receive()?;
            for message in messages(&datagram).filter(|message| message.sequence == sequence) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                let code = || u32_at(message.payload, 0).map_or(0, |code| -(code as i32));
                match message.kind {
                    NLMSG_NOOP => {}
                    NLMSG_DONE | NLMSG_ERROR => {
                        return match code() {
                            0 => Ok(!interrupted),
                            libc::EINTR | libc::EAGAIN => Ok(false),
                            errno => Err(Error::Refused {
                                what: what.to_owned(),
                                errno,
                            }),
                        };
                    }
                    _ => visit(message.payload),
                }
            }
        }
    }

    /// Sends a prepared batch and returns every acknowledgement and refusal the kernel answers with.
    pub fn batch(&mut self, bytes: &[u8]) -> Result<Vec<Reply>, Error> {
        if bytes.len() > LARGEST_BATCH {
            return Err(Error::TooLarge { bytes: bytes.len() });
        }
        if bytes.len() > self.send_buffer {
            self.send_buffer = bytes.len() + 4096;
            nix::sys::socket::setsockopt(
                &borrow(&self.socket),
                nix::sys::socket::sockopt::SndBufForce,
                &self.send_buffer,
            )
            .map_err(|errno| Error::Transfer(errno.into()))?;
        }
        self.send(bytes)?;
        let mut replies = Vec::new();
        let mut buffer: Vec<u8> = Vec::with_capacity(64 << 10);
        loop {
            buffer.clear();
            match self.socket.recv(&mut buffer, libc::MSG_DONTWAIT) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(replies),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                // There were too many refusals to queue; the first ones were read and suffice.
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOBUFS) && !replies.is_empty() =>
                {
                    continue;
                }
                Err(error) => return Err(Error::Transfer(error)),
            }
            for message in messages(&buffer).filter(|message| message.kind == NLMSG_ERROR) {
                replies.push(Reply {
                    sequence: message.sequence,
                    errno: -(u32_at(message.payload, 0).unwrap_or(0) as i32),
                });
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        loop {
            match self.socket.send(bytes, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Transfer(error)),
            }
        }
    }

    fn receive(&self) -> Result<Vec<u8>, Error> {
        loop {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => return Ok(bytes),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Transfer(error)),
            }
        }
    }
}

fn interrupted(what: &str) -> Error {
    Error::Refused {
        what: what.to_owned(),
        errno: libc::EINTR,
    }
}

fn borrow(socket: &Socket) -> BorrowedFd<'_> {
    // SAFETY: the descriptor belongs to `socket`, which outlives the returned borrow.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        borrow(&self.socket)
    }
}
