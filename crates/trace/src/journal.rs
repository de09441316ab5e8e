//! The timelines' file: JSON lines, appended by a thread of its own so that recording never waits
//! for a disk, and written anew from memory when it has grown too long. Not synced: a timeline
//! survives the process, not a power failure.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use files::atomic_file::{self, Options};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::table::Table;
use crate::{Error, Span};

const FILE: &str = "timelines.jsonl";
/// Lines waiting for the writer; when a stalled disk lets more pile up, they are not persisted.
const QUEUE: usize = 8_192;
/// How long lines are gathered before they are written: waking the writer for each of them costs
/// more than writing it.
const GATHER: Duration = Duration::from_millis(20);
/// The file is written anew when it has grown by this much.
const REWRITE_BYTES: u64 = 16 << 20;

/// One line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    Begin {
        uid: String,
        namespace: String,
        name: String,
    },
    Span {
        uid: String,
        span: Span,
    },
}

/// The writer's handle. Dropping it waits until everything is written.
pub struct Journal {
    lines: Option<SyncSender<Line>>,
    /// Says nothing; its end ends the gathering.
    open: Option<Sender<()>>,
    writer: Option<JoinHandle<()>>,
}

impl Journal {
    /// Reads what is there into `table`, writes it back without what no longer counts, and starts
    /// the writer.
    pub fn open(directory: &Path, table: &Arc<Mutex<Table>>) -> Result<Journal, Error> {
        let path = directory.join(FILE);
        let failed = |source| Error::Io {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(directory).map_err(failed)?;
        read(&path, &mut table.lock()).map_err(failed)?;
        let lines = all_lines(&table.lock()).map_err(failed)?;
        let file = replace(&path, &lines).map_err(failed)?;
        let (lines, queue) = sync_channel(QUEUE);
        let (open, closed) = channel();
        let table = Arc::downgrade(table);
        let writer = std::thread::Builder::new()
            .name("timelines".into())
            .spawn({
                let path = path.clone();
                move || {
                    if let Err(error) = write(file, &path, &queue, &closed, &table) {
                        tracing::warn!(file = %path.display(), %error, "timelines are no longer kept");
                    }
                }
            })
            .map_err(failed)?;
        Ok(Journal {
            lines: Some(lines),
            open: Some(open),
            writer: Some(writer),
        })
    }

    /// Hands a line to the writer without ever waiting for it.
    pub fn append(&self, line: Line) {
        if let Some(lines) = &self.lines
            && let Err(TrySendError::Full(_)) = lines.try_send(line)
        {
            tracing::debug!("a span was not persisted, the disk is slow");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.lines = None;
        self.open = None;
        if let Some(writer) = self.writer.take() {
            // The failure has been logged there.
            let _ = writer.join();
        }
    }
}

/// Lines that make no sense (the last may be cut off) are skipped.
fn read(path: &Path, table: &mut Table) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for line in BufReader::new(file).split(b'\n') {
        match serde_json::from_slice(&line?) {
            Ok(Line::Begin {
                uid,
                namespace,
                name,
            }) => table.begin(&uid, &namespace, &name),
            Ok(Line::Span { uid, span }) => {
                table.record(&uid, span);
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Everything in memory in the file's form. Touches no disk: recorders wait for the table.
fn all_lines(table: &Table) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for timeline in table.iter() {
        let begin = Line::Begin {
            uid: timeline.uid.clone(),
            namespace: timeline.namespace.clone(),
            name: timeline.name.clone(),
        };
        write_line(&mut lines, &begin)?;
        for span in &timeline.spans {
            let uid = timeline.uid.clone();
            let span = span.clone();
            write_line(&mut lines, &Line::Span { uid, span })?;
        }
    }
    Ok(lines)
}

/// Puts a new file in the old one's place and returns it for appending.
fn replace(path: &Path, lines: &[u8]) -> io::Result<BufWriter<File>> {
    let file = atomic_file::stage(path, lines, Options::private())?.commit()?;
    Ok(BufWriter::new(file))
}

fn write(
    mut output: BufWriter<File>,
    path: &Path,
    queue: &Receiver<Line>,
    closed: &Receiver<()>,
    table: &Weak<Mutex<Table>>,
) -> io::Result<()> {
    let mut written = 0;
    while let Ok(line) = queue.recv() {
        written += write_line(&mut output, &line)?;
        let _ = closed.recv_timeout(GATHER);
        while let Ok(line) = queue.try_recv() {
            written += write_line(&mut output, &line)?;
        }
        output.flush()?;
        if written > REWRITE_BYTES
            && let Some(table) = table.upgrade()
        {
            // Lines are queued with the table locked: what is queued now is in it already.
            let lines = {
                let table = table.lock();
                while queue.try_recv().is_ok() {}
                all_lines(&table)?
            };
            output = replace(path, &lines)?;
            written = 0;
        }
    }
    Ok(())
}

fn write_line(output: &mut impl Write, line: &Line) -> io::Result<u64> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    output.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}
