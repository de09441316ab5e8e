//! A snapshot: one file with everything a store holds at one revision, to be kept elsewhere. The
//! inside is a checkpoint's without history; the outside is frames, so that damage shows.
//!
//! Restoring makes a new store of it whose revisions go on far beyond, and forgets all history:
//! a watcher of the lost store must list again, regardless of the revision that it had reached.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use environment::Environment;
use futures::StreamExt;

use super::checkpoint::{self, CHUNK};
use super::files::Files;
use super::frame::{FrameWriter, Kind};
use super::history::History;
use super::record::Record;
use super::recovery::read_snapshot;
use super::state::State;
use crate::disk::Disk;
use crate::{Error, Revision, SnapshotStream};

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    pub revision: Revision,
    pub keys: usize,
    pub bytes: usize,
}

/// The state's snapshot, encoded piece by piece as it is read.
pub fn stream(state: State, salt: u64) -> SnapshotStream {
    let writer = FrameWriter::new(salt);
    let mut ready = VecDeque::new();
    ready.push_back(Bytes::from(writer.header(Kind::Snapshot)));
    let base = Record::Base {
        revision: state.revision,
        oldest: state.revision,
    };
    let leases = state.leases.clone().into_iter();
    let grants = leases.map(|(lease, seconds)| Record::Grant { lease, seconds });
    let items = state.items.into_iter();
    let items = items.map(|(_, item)| Record::Item(Arc::unwrap_or_clone(item)));
    let records = std::iter::once(base).chain(grants).chain(items);
    let encoder = Encoder {
        writer,
        records: Box::new(records),
        count: 0,
        ended: false,
        ready,
    };
    futures::stream::iter(encoder.map(Ok)).boxed()
}

struct Encoder {
    writer: FrameWriter,
    records: Box<dyn Iterator<Item = Record> + Send>,
    count: u64,
    ended: bool,
    ready: VecDeque<Bytes>,
}

impl Iterator for Encoder {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(bytes) = self.ready.pop_front() {
            return Some(bytes);
        }
        let mut frame = FrameWriter::buffer();
        while !self.ended && frame.len() < CHUNK {
            let record = self.records.next().unwrap_or_else(|| {
                self.ended = true;
                let records = Some(self.count);
                Record::End { records }
            });
            record.encode(&mut frame);
            self.count += 1;
        }
        if FrameWriter::is_empty(&frame) {
            return None;
        }
        self.writer.seal(&mut frame);
        Some(frame.into())
    }
}

/// Checks every byte of a snapshot; `path` is for messages.
pub fn verify(path: &str, snapshot: &[u8]) -> Result<Contents, Error> {
    let state = read_snapshot(path, snapshot)?;
    Ok(contents(&state))
}

/// Makes a store on an empty `disk` of a snapshot. Its revision is `bump` above the snapshot's.
pub async fn restore(
    disk: Arc<dyn Disk>,
    environment: &Environment,
    path: &str,
    snapshot: &[u8],
    bump: Revision,
) -> Result<Contents, Error> {
    let mut state = read_snapshot(path, snapshot)?;
    let files = Files::new(disk);
    let names = files.disk.list().await.map_err(files.failed(""))?;
    if let Some(name) = names.first() {
        let place = files.disk.describe(name);
        return Err(Error::Refused(format!("there is a store already: {place}")));
    }
    state.revision = state
        .revision
        .checked_add(bump)
        .filter(|revision| i64::try_from(*revision).is_ok())
        .ok_or_else(|| Error::Refused(format!("revisions cannot be raised by {bump}")))?;
    let contents = contents(&state);
    let history = History::new(state.revision);
    // The checkpoint last: without it there is an empty store, not half of one.
    drop(files.create_log(1, environment.random_u64()).await?);
    checkpoint::write(files, 1, environment.random_u64(), state, history).await?;
    Ok(contents)
}

fn contents(state: &State) -> Contents {
    let size = |item: &super::state::Items| {
        item.values()
            .map(|item| item.key.len() + item.value.len())
            .sum()
    };
    Contents {
        revision: state.revision,
        keys: state.items.len(),
        bytes: size(&state.items),
    }
}
