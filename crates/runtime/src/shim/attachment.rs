//! A client that is attached to a container's output. Bytes are handed on without waiting. A client
//! that does not read them delays the container for a while, as a full terminal would, and is then
//! disconnected.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys;

/// How long a client may read nothing before it is disconnected, in milliseconds.
const READ_TIMEOUT_MILLIS: i64 = 10_000;

pub struct Attachment {
    file: File,
    pending: Vec<u8>,
    /// When something was last taken, while bytes are pending.
    progress: i64,
    pub gone: bool,
}

impl Attachment {
    pub fn new(descriptor: OwnedFd) -> io::Result<Attachment> {
        sys::set_nonblocking(descriptor.as_fd())?;
        Ok(Attachment {
            file: File::from(descriptor),
            pending: Vec::new(),
            progress: 0,
            gone: false,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn waits(&self) -> bool {
        !self.gone && !self.pending.is_empty()
    }

    /// When the client is disconnected if it reads nothing until then.
    pub fn deadline(&self) -> Option<i64> {
        self.waits().then_some(self.progress + READ_TIMEOUT_MILLIS)
    }

    pub fn write(&mut self, bytes: &[u8]) {
        if self.gone {
            return;
        }
        if self.pending.is_empty() {
            self.progress = sys::monotonic_millis();
        }
        self.pending.extend_from_slice(bytes);
        self.flush();
    }

    /// Writes what is pending, and notices that the reader is gone.
    pub fn flush(&mut self) {
        let mut ends = [PollFd::new(self.file.as_fd(), PollFlags::empty())];
        if poll(&mut ends, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
            self.gone = true;
            return;
        }
        let mut taken = 0;
        while taken < self.pending.len() {
            match self.file.write(&self.pending[taken..]) {
                Ok(length @ 1..) => taken += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => {
                    self.gone = true;
                    break;
                }
            }
        }
        if taken > 0 {
            self.pending.drain(..taken);
            self.pending.shrink_to(4096);
            self.progress = sys::monotonic_millis();
        }
    }

    pub fn enforce_deadline(&mut self, now: i64) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.gone = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_slow_reader_gets_every_byte_and_a_closed_one_delays_no_other() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut attachment = Attachment::new(writer.into()).unwrap();
        let sent = vec![b'x'; 200_000];
        attachment.write(&sent);
        assert!(attachment.waits());
        let mut received = Vec::new();
        while attachment.waits() {
            let mut chunk = [0; 65_536];
            let count = reader.read(&mut chunk).unwrap();
            received.extend_from_slice(&chunk[..count]);
            attachment.flush();
        }
        attachment.write(&[b'y'; 100_000]);
        attachment.enforce_deadline(i64::MAX);
        assert!(attachment.gone && !attachment.waits());
        drop(attachment);
        reader.read_to_end(&mut received).unwrap();
        assert_eq!(&received[..sent.len()], sent);

        let (reader, writer) = io::pipe().unwrap();
        let mut attachment = Attachment::new(writer.into()).unwrap();
        drop(reader);
        attachment.flush();
        assert!(attachment.gone);
    }
}
