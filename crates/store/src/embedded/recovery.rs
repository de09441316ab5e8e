//! Brings the engine's state back from its files: the newest checkpoint, then every log from that
//! one on. A torn end of the last log is cut off; any other damage is an error.

use std::sync::Arc;

use environment::Environment;

use super::checkpoint;
use super::files::{Files, FramedFile, Name, backup, is_temporary};
use super::frame::{self, FORMAT, Frames, Kind, corrupt};
use super::history::{History, Window};
use super::record::Record;
use super::state::{FIRST_REVISION, State};
use crate::Error;

/// What recovery found, with the log that is continued.
pub struct Recovered {
    pub state: State,
    pub history: History,
    pub log: FramedFile,
    pub log_number: u64,
    pub checkpoint_bytes: u64,
    /// Whether some of it was in an older format: the log must not be continued.
    pub is_outdated: bool,
}

/// 1. Remove files that were not finished.
/// 2. Find the newest checkpoint; older files are left over from a crash after it was finished.
/// 3. Restore it, or begin with the empty state.
/// 4. Replay the logs from its number on, which must follow each other without a gap.
/// 5. Copy files of an older format aside before anything is changed.
/// 6. Cut the last log after its last whole frame and sync it: bytes that a killed process left
///    only in the page cache become durable before anybody sees them.
/// 7. Remove what is left over.
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

    let mut replay = Replay::new(window);
    let mut outdated = Vec::new();
    let mut checkpoint_bytes = 0;
    if let Some(number) = checkpoint {
        let bytes = files.read(Name::Checkpoint(number)).await?;
        checkpoint_bytes = bytes.len() as u64;
        let path = files.disk.describe(&Name::Checkpoint(number).text());
        let frames = frame::read(&path, Kind::Checkpoint, &bytes)?;
        if frames.format < FORMAT {
            outdated.push((frames.format, Name::Checkpoint(number)));
        }
        replay.whole(&path, &bytes, &frames)?;
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
                if frames.format < FORMAT {
                    outdated.push((frames.format, Name::Log(number)));
                }
                replay.frames(&path, &frames)?;
                if number == last {
                    resumed = Some((frames.writer(), frames.valid_length));
                }
            }
            let Some((writer, length)) = resumed else {
                return Err(corrupt(&Name::Log(last).text(), "missing"));
            };
            for (format, name) in &outdated {
                files.copy(*name, &backup(*format, *name)).await?;
            }
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
        is_outdated: !outdated.is_empty(),
    })
}

/// Brings what was read from an older format to this one: turns to a new log and writes all that was
/// before into a checkpoint, as at any other time. Until that has its name, the older files count.
pub async fn migrate(
    files: &Files,
    recovered: Recovered,
    environment: &Environment,
) -> Result<Recovered, Error> {
    let log_number = recovered.log_number + 1;
    let log = files
        .create_log(log_number, environment.random_u64())
        .await?;
    let checkpoint_bytes = checkpoint::write(
        files.clone(),
        log_number,
        environment.random_u64(),
        recovered.state.clone(),
        recovered.history.clone(),
    )
    .await?;
    files.sync_directory().await?;
    let place = files.disk.describe("");
    tracing::info!(
        place,
        format = FORMAT,
        "the store was brought to the present format"
    );
    Ok(Recovered {
        log,
        log_number,
        checkpoint_bytes,
        is_outdated: false,
        ..recovered
    })
}

/// Reads a snapshot and nothing but a whole one.
pub fn read_snapshot(path: &str, bytes: &[u8]) -> Result<State, Error> {
    let frames = frame::read(path, Kind::Snapshot, bytes)?;
    let mut replay = Replay::new(Window {
        revisions: 1,
        bytes: 0,
    });
    replay.whole(path, bytes, &frames)?;
    Ok(replay.state)
}

struct Replay {
    state: State,
    history: History,
    window: Window,
    records: u64,
    ended: bool,
}

impl Replay {
    fn new(window: Window) -> Replay {
        Replay {
            state: State::new(FIRST_REVISION),
            history: History::default(),
            window,
            records: 0,
            ended: false,
        }
    }

    /// A checkpoint or snapshot, which is worth nothing if it has no end.
    fn whole(&mut self, path: &str, bytes: &[u8], frames: &Frames<'_>) -> Result<(), Error> {
        self.frames(path, frames)?;
        if frames.valid_length != bytes.len() || !self.ended {
            return Err(corrupt(path, "it is not whole"));
        }
        Ok(())
    }

    fn frames(&mut self, path: &str, frames: &Frames<'_>) -> Result<(), Error> {
        for payload in &frames.payloads {
            let records = Record::decode_all(frames.format, payload)
                .ok_or_else(|| corrupt(path, "a frame holds unknown records"))?;
            for record in records {
                self.record(record)
                    .map_err(|reason| corrupt(path, reason))?;
                self.records += 1;
            }
        }
        Ok(())
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
            Record::End { records } => {
                if let Some(records) = records
                    && records != self.records
                {
                    return Err(format!("{} of {records} records", self.records));
                }
                self.ended = true;
            }
        }
        Ok(())
    }
}
