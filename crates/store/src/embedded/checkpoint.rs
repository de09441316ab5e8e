//! Writes a checkpoint: the keys as they were before the kept history, then that history, so that
//! watches and reads in the past survive a restart. It runs in parallel with the committer, on a copy.

use super::files::{Files, FramedFile, Name, add};
use super::frame::FrameWriter;
use super::history::{History, rewind};
use super::record::Record;
use super::state::State;
use crate::Error;

/// Bytes per frame, so that encoding never holds the thread for long.
pub const CHUNK: usize = 128 * 1024;

/// Writes checkpoint `number`, then removes the files it replaces. Returns its size.
pub async fn write(
    files: Files,
    number: u64,
    salt: u64,
    state: State,
    history: History,
) -> Result<u64, Error> {
    let entries = history.from(0, usize::MAX);
    let mut output = Output {
        file: files.begin(Name::Checkpoint(number), salt).await?,
        frame: FrameWriter::buffer(),
        records: 0,
    };
    let base = Record::Base {
        revision: history.base_revision(state.revision),
        oldest: history.oldest,
    };
    output.record(base).await?;
    for (lease, seconds) in &state.leases {
        let (lease, seconds) = (*lease, *seconds);
        output.record(Record::Grant { lease, seconds }).await?;
    }
    let items = rewind(&state.items, &entries);
    for item in items.values() {
        output.record(Record::Item((**item).clone())).await?;
    }
    for entry in entries {
        let transaction = Record::Transaction {
            revision: entry.revision,
            operations: entry.operations(),
        };
        output.record(transaction).await?;
    }
    let records = Some(output.records);
    output.record(Record::End { records }).await?;
    output.file.append_frame(output.frame).await?;
    files
        .finish(&mut output.file, Name::Checkpoint(number))
        .await?;
    add(&files.counters.checkpoints, 1);

    for name in files.disk.list().await.map_err(files.failed(""))? {
        if let Some(Name::Log(older) | Name::Checkpoint(older)) = Name::parse(&name)
            && older < number
        {
            files.remove(&name).await?;
        }
    }
    Ok(output.file.length)
}

struct Output {
    file: FramedFile,
    frame: Vec<u8>,
    records: u64,
}

impl Output {
    async fn record(&mut self, record: Record) -> Result<(), Error> {
        record.encode(&mut self.frame);
        self.records += 1;
        if self.frame.len() >= CHUNK {
            let full = std::mem::replace(&mut self.frame, FrameWriter::buffer());
            self.file.append_frame(full).await?;
        }
        Ok(())
    }
}
