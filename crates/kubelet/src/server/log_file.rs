//! Reads one container's log file in CRI format: from the end if asked, filtered by time, and on
//! as it grows, until the container has ended.

use std::{future::Future, io, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use nix::sys::inotify::AddWatchFlags;
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
    sync::{Notify, mpsc},
};

use super::log_options::LogOptions;
use crate::{log_format, notices::Notices};

const BLOCK: usize = 32 * 1024;
/// How long a follower waits at most before it looks again, should a notice be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const GROWTH: AddWatchFlags = AddWatchFlags::IN_MODIFY.union(AddWatchFlags::IN_CLOSE_WRITE);

/// Sends the log's text. `running` returns whether the container may still write; `changed` wakes
/// when it may have ended.
pub async fn read<F: Future<Output = bool>>(
    path: &Path,
    options: &LogOptions,
    sender: &mpsc::Sender<Bytes>,
    running: impl Fn() -> F,
    changed: &Arc<Notify>,
) -> io::Result<()> {
    let mut file = match File::open(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    // Watched before it is read: what is written in between is not missed.
    let mut growth = if options.follow {
        Some(Notices::watch(path, GROWTH)?)
    } else {
        None
    };
    if let Some(lines) = options.tail_lines {
        let start = tail_start(&mut file, lines).await?;
        file.seek(io::SeekFrom::Start(start)).await?;
    }
    let mut output = Output {
        options,
        new_line: true,
        left: options.limit_bytes,
    };
    let mut pending: Vec<u8> = Vec::new();
    let mut block = vec![0; BLOCK];
    let mut last_round = growth.is_none();
    let mut rotated = false;
    loop {
        let count = file.read(&mut block).await?;
        if count > 0 {
            pending.extend_from_slice(&block[..count]);
            let Some(end) = pending.iter().rposition(|byte| *byte == b'\n') else {
                continue;
            };
            let rest = pending.split_off(end + 1);
            let text = output.format(&pending);
            pending = rest;
            if !text.is_empty() && sender.send(text.into()).await.is_err() {
                return Ok(());
            }
            if output.left == Some(0) {
                return Ok(());
            }
            continue;
        }
        if growth.is_some() && replaced(&file, path).await {
            // The log was put aside and begun anew; what was written in between is read first.
            if !rotated {
                rotated = true;
                continue;
            }
            rotated = false;
            file = File::open(path).await?;
            growth = Some(Notices::watch(path, GROWTH)?);
            continue;
        }
        if last_round {
            let text = output.format(&pending);
            if !text.is_empty() {
                let _ = sender.send(text.into()).await;
            }
            return Ok(());
        }
        // Asked before the wait: if it ends after this, a notice comes.
        let notified = changed.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if !running().await {
            // What it wrote last is read once more.
            last_round = true;
            continue;
        }
        let Some(growth) = &growth else { continue };
        tokio::select! {
            result = growth.wait() => result?,
            () = &mut notified => {}
            () = sender.closed() => return Ok(()),
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

/// Whether another file has taken the place of the one that is open.
async fn replaced(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(open), Ok(present)) = (file.metadata().await, tokio::fs::metadata(path).await) else {
        return false;
    };
    open.ino() != present.ino()
}

struct Output<'a> {
    options: &'a LogOptions,
    /// The next record begins a line (the one before was not a part).
    new_line: bool,
    left: Option<usize>,
}

impl Output<'_> {
    /// The text of whole records, as the client is to see it.
    fn format(&mut self, lines: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(lines.len());
        for line in lines.split(|byte| *byte == b'\n') {
            let Some(record) = log_format::parse(line) else {
                continue;
            };
            if let Some(since) = self.options.since {
                let time: Option<Timestamp> = record.time.parse().ok();
                if time.is_some_and(|time| time < since) {
                    continue;
                }
            }
            if self.options.timestamps && self.new_line {
                text.extend_from_slice(record.time.as_bytes());
                text.push(b' ');
            }
            text.extend_from_slice(record.text);
            self.new_line = !record.partial;
            if !record.partial {
                text.push(b'\n');
            }
        }
        if let Some(left) = &mut self.left {
            text.truncate(*left);
            *left -= text.len();
        }
        text
    }
}

/// Where the last `lines` lines begin, found by reading backwards.
async fn tail_start(file: &mut File, lines: usize) -> io::Result<u64> {
    let length = file.metadata().await?.len();
    let mut position = length;
    let mut found = 0;
    let mut block = vec![0; BLOCK];
    if lines == 0 {
        return Ok(length);
    }
    while position > 0 {
        let size = position.min(BLOCK as u64) as usize;
        position -= size as u64;
        file.seek(io::SeekFrom::Start(position)).await?;
        file.read_exact(&mut block[..size]).await?;
        for index in (0..size).rev() {
            let offset = position + index as u64;
            // The newline that ends the file ends its last line and begins none.
            if block[index] == b'\n' && offset + 1 != length {
                found += 1;
                if found == lines {
                    return Ok(offset + 1);
                }
            }
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const LOG: &str = "2026-01-01T00:00:00Z stdout F one\n\
                       2026-01-01T00:00:01Z stdout P tw\n\
                       2026-01-01T00:00:01Z stdout F o\n\
                       2026-01-01T00:00:02Z stderr F three\n";

    async fn check(options: LogOptions, expected: &str) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        std::fs::write(&path, LOG).expect("written");
        let (sender, mut receiver) = mpsc::channel(16);
        let changed = Arc::default();
        read(&path, &options, &sender, || async { false }, &changed)
            .await
            .expect("read");
        drop(sender);
        let mut text = Vec::new();
        while let Some(chunk) = receiver.recv().await {
            text.extend_from_slice(&chunk);
        }
        assert_eq!(String::from_utf8_lossy(&text), expected, "{options:?}");
    }

    #[tokio::test]
    async fn options_choose_what_is_read() {
        check(LogOptions::default(), "one\ntwo\nthree\n").await;
        let options = |change: fn(&mut LogOptions)| {
            let mut options = LogOptions::default();
            change(&mut options);
            options
        };
        check(options(|o| o.tail_lines = Some(1)), "three\n").await;
        check(options(|o| o.tail_lines = Some(0)), "").await;
        check(options(|o| o.tail_lines = Some(99)), "one\ntwo\nthree\n").await;
        check(options(|o| o.limit_bytes = Some(6)), "one\ntw").await;
        check(
            options(|o| o.since = "2026-01-01T00:00:02Z".parse().ok()),
            "three\n",
        )
        .await;
        check(
            options(|o| o.timestamps = true),
            "2026-01-01T00:00:00Z one\n2026-01-01T00:00:01Z two\n2026-01-01T00:00:02Z three\n",
        )
        .await;
    }

    #[tokio::test]
    async fn following_ends_with_the_container() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        std::fs::write(&path, LOG).expect("written");
        let running = Arc::new(AtomicBool::new(true));
        let changed: Arc<Notify> = Arc::default();
        let (sender, mut receiver) = mpsc::channel(16);
        let reader = {
            let (path, running, changed) = (path.clone(), running.clone(), changed.clone());
            tokio::spawn(async move {
                let options = LogOptions {
                    follow: true,
                    tail_lines: Some(0),
                    ..LogOptions::default()
                };
                let state = || {
                    let running = running.clone();
                    async move { running.load(Ordering::SeqCst) }
                };
                read(&path, &options, &sender, state, &changed).await
            })
        };
        // The reader stands at the end at some time; what is appended then arrives.
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("opened");
        use std::io::Write;
        let mut text = Vec::new();
        for _ in 0..1200 {
            log.write_all(b"2026-01-01T00:00:03Z stdout F four\n")
                .expect("appended");
            let soon = tokio::time::timeout(Duration::from_millis(100), receiver.recv()).await;
            if let Ok(chunk) = soon {
                text.extend_from_slice(&chunk.expect("the container runs"));
                break;
            }
        }
        assert!(text.starts_with(b"four\n"), "nothing arrived");
        // Put aside and begun anew: the reader goes on in the new file.
        std::fs::rename(&path, directory.path().join("0.log.old")).expect("moved");
        let mut log = std::fs::File::create(&path).expect("made");
        changed.notify_waiters();
        log.write_all(b"2026-01-01T00:00:04Z stdout F five\n")
            .expect("appended");
        running.store(false, Ordering::SeqCst);
        changed.notify_waiters();
        let rest = async {
            while let Some(chunk) = receiver.recv().await {
                text.extend_from_slice(&chunk);
            }
        };
        let patience = Duration::from_secs(120);
        let ended = tokio::time::timeout(patience, rest).await;
        let text = String::from_utf8(text).expect("text");
        assert!(ended.is_ok(), "{text}");
        assert_eq!(text.replace("four\n", ""), "five\n");
        reader.await.expect("joined").expect("read");
    }
}
