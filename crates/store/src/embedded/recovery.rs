//! Brings the engine's state back from its files: the newest checkpoint, then every log from that
//! one on. A torn end of the last log is cut off; any other damage is an error.

use std::sync::Arc;

use super::files::{Files, FramedFile, Name, is_temporary};
use super::frame::{self, Kind, corrupt};
use super::history::{History, Window};
use super::record::Record;
use super::state::{FIRST_REVISION, State};
use crate::Error;

/// What recovery found, with the log that goes on.
pub struct Recovered {
    pub state: State,
    pub history: History,
    pub log: FramedFile,
    pub log_number: u64,
    pub checkpoint_bytes: u64,
}

/// 1. Remove files that were not finished.
/// 2. Find the newest checkpoint; older files are left over from a crash after it was finished.
/// 3. Restore it, or begin with the empty state.
/// 4. Replay the logs from its number on, which must follow each other without a gap.
/// 5. Cut the last log after its last whole frame and sync it: bytes that a killed process left
///    only in the page cache become durable before anybody sees them.
/// 6. Remove what is left over.
pub async fn recover(files: &Files, window: Window, salt: u64) -> Result<Recovered, Error> {
    let names = files.disk.list().await.map_err(files.failed(""))?;
    for name in names.iter().filter(|name| is_temporary(name)) {
        files.remove(name).await?;
    }
    let parsed: Vec<Name> = names.iter().filter_map(|name| Name::parse(name)).collect();
    let checkpoint = parsed
        .iter()
        .filter_map(|name| match name {
            Name::Checkpoint(number) => Some(*number),
            Name::Log(_) => None,
        })
        .max();
    let first_log = checkpoint.unwrap_or(1);
    let mut logs: Vec<u64> = parsed
        .iter()
        .filter_map(|name| match name {
            Name::Log(number) if *number >= first_log => Some(*number),
            _ => None,
        })
        .collect();
    logs.sort_unstable();

    let mut replay = Replay {
        state: State::new(FIRST_REVISION),
        history: History::default(),
        window,
        ended: false,
    };
    let mut checkpoint_bytes = 0;
    if let Some(number) = checkpoint {
        let bytes = files.read(Name::Checkpoint(number)).await?;
        checkpoint_bytes = bytes.len() as u64;
        let path = files.disk.describe(&Name::Checkpoint(number).text());
        replay.checkpoint(&path, &bytes)?;
    }

    let log_number;
    let log = match logs.last() {
        None if checkpoint.is_none() => {
            log_number = first_log;
            files.create_log(first_log, salt).await?
        }
        None => {
            let path = files.disk.describe(&Name::Log(first_log).text());
            return Err(corrupt(&path, "the log after the checkpoint is missing"));
        }
        Some(&last) => {
            log_number = last;
            let mut resumed = None;
            for (number, expected) in logs.iter().copied().zip(first_log..) {
                if number != expected {
                    let path = files.disk.describe(&Name::Log(expected).text());
                    return Err(corrupt(&path, "missing"));
                }
                let path = files.disk.describe(&Name::Log(number).text());
                let bytes = files.read(Name::Log(number)).await?;
                let frames = frame::read(&path, Kind::Log, &bytes)?;
                if frames.valid_length < bytes.len() {
                    if number != last {
                        return Err(corrupt(&path, "damaged end, but a later log exists"));
                    }
                    tracing::warn!(
                        file = path,
                        bytes = bytes.len() - frames.valid_length,
                        "cut off an unfinished write"
                    );
                }
                for payload in &frames.payloads {
                    replay.frame(&path, payload)?;
                }
                if number == last {
                    resumed = Some((frames.writer(), frames.valid_length));
                }
            }
            let Some((writer, length)) = resumed else {
                return Err(corrupt(&Name::Log(last).text(), "missing"));
            };
            files.resume_log(last, writer, length).await?
        }
    };
    files.sync_directory().await?;

    for name in &names {
        let left_over = match Name::parse(name) {
            Some(Name::Log(number)) => number < first_log,
            Some(Name::Checkpoint(number)) => Some(number) != checkpoint,
            None => false,
        };
        if left_over {
            files.remove(name).await?;
        }
    }
    Ok(Recovered {
        state: replay.state,
        history: replay.history,
        log,
        log_number,
        checkpoint_bytes,
    })
}

struct Replay {
    state: State,
    history: History,
    window: Window,
    ended: bool,
}

impl Replay {
    fn checkpoint(&mut self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        let frames = frame::read(path, Kind::Checkpoint, bytes)?;
        for payload in &frames.payloads {
            self.frame(path, payload)?;
        }
        if frames.valid_length != bytes.len() || !self.ended {
            return Err(corrupt(path, "the checkpoint is not whole"));
        }
        Ok(())
    }

    fn frame(&mut self, path: &str, payload: &[u8]) -> Result<(), Error> {
        let records = Record::decode_all(payload)
            .ok_or_else(|| corrupt(path, "a frame holds unknown records"))?;
        records
            .into_iter()
            .try_for_each(|record| self.record(record).map_err(|reason| corrupt(path, reason)))
    }

    fn record(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Transaction {
                revision,
                operations,
            } => {
                let expected = self.state.revision + 1;
                if revision != expected {
                    return Err(format!("revision {revision} follows {}", expected - 1));
                }
                let committed = self
                    .state
                    .apply(operations)
                    .ok_or_else(|| format!("revision {revision} changes nothing"))?;
                self.history.push(Arc::new(committed));
                self.history.trim(self.window);
            }
            Record::Compact { revision } => self.history.compact(revision),
            Record::Grant { lease, seconds } => {
                self.state.leases.insert(lease, seconds);
            }
            Record::EndLease { lease } => {
                self.state.leases.remove(&lease);
            }
            Record::Base { revision, oldest } => {
                self.state.revision = revision;
                self.history = History::new(oldest);
            }
            Record::Item(item) => self.state.restore(item),
            Record::End => self.ended = true,
        }
        Ok(())
    }
}
