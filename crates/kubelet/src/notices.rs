//! Notices of the kernel that a file or directory changes. One notice is as good as many: they say
//! that it is time to look again, not what happened.

use std::{io, os::fd::AsFd as _, path::Path};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::net::unix::pipe;

pub struct Notices {
    /// Keeps the watch alive; the notices are read through `source`.
    _inotify: Inotify,
    source: pipe::Receiver,
}

impl Notices {
    pub fn watch(path: &Path, what: AddWatchFlags) -> io::Result<Notices> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        inotify.add_watch(path, what)?;
        // An inotify descriptor is read like a pipe, and tokio knows pipes.
        let descriptor = inotify.as_fd().try_clone_to_owned()?;
        Ok(Notices {
            _inotify: inotify,
            source: pipe::Receiver::from_owned_fd_unchecked(descriptor)?,
        })
    }

    /// Waits for the next notice and takes all that have come.
    pub async fn wait(&self) -> io::Result<()> {
        self.source.readable().await?;
        let mut buffer = [0; 4096];
        while self
            .source
            .try_read(&mut buffer)
            .is_ok_and(|count| count > 0)
        {}
        Ok(())
    }
}
