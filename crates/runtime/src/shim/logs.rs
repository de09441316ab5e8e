//! Container output to a file in CRI form: `<time> <stream> F|P <text>`.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Longer lines are written in parts marked `P`.
const LONGEST_LINE: usize = 16 * 1024;

/// The file of one container; both of its streams write to it.
pub struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    pub fn open(path: &Path) -> io::Result<LogFile> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o640)
            .open(path)?;
        Ok(LogFile {
            path: path.to_owned(),
            file,
        })
    }

    /// Starts anew at the same path, after the kubelet moved the old file away.
    pub fn reopen(&mut self) -> io::Result<()> {
        *self = LogFile::open(&self.path)?;
        Ok(())
    }
}

/// One stream's unfinished line.
pub struct LineBuffer {
    stream: &'static str,
    line: Vec<u8>,
}

impl LineBuffer {
    pub fn new(stream: &'static str) -> LineBuffer {
        LineBuffer {
            stream,
            line: Vec::new(),
        }
    }

    /// Writes what `bytes` completes. A disk that refuses must not stop the container.
    pub fn write(&mut self, bytes: &[u8], nanos: i64, log: Option<&mut LogFile>) {
        let Some(log) = log else {
            return;
        };
        let mut out = Vec::with_capacity(bytes.len() + 64);
        for chunk in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (mut text, ended) = match chunk.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (chunk, false),
            };
            while self.line.len() + text.len() > LONGEST_LINE {
                let (now, later) = text.split_at(LONGEST_LINE - self.line.len());
                self.line.extend_from_slice(now);
                self.emit(&mut out, nanos, b'P');
                text = later;
            }
            self.line.extend_from_slice(text);
            if ended {
                self.emit(&mut out, nanos, b'F');
            }
        }
        if !out.is_empty() {
            let _ = log.file.write_all(&out);
        }
    }

    /// The stream has ended: a line without its newline is a part that nothing follows.
    pub fn finish(&mut self, nanos: i64, log: Option<&mut LogFile>) {
        if self.line.is_empty() {
            return;
        }
        let mut out = Vec::new();
        self.emit(&mut out, nanos, b'P');
        if let Some(log) = log {
            let _ = log.file.write_all(&out);
        }
    }

    fn emit(&mut self, out: &mut Vec<u8>, nanos: i64, tag: u8) {
        write_time(out, nanos);
        out.push(b' ');
        out.extend_from_slice(self.stream.as_bytes());
        out.extend_from_slice(&[b' ', tag, b' ']);
        out.append(&mut self.line);
        out.push(b'\n');
    }
}

/// RFC 3339 in UTC with nine decimals.
fn write_time(out: &mut Vec<u8>, nanos: i64) {
    let (seconds, fraction) = (
        nanos.div_euclid(1_000_000_000),
        nanos.rem_euclid(1_000_000_000),
    );
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let _ = write!(
        out,
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{fraction:09}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    );
}

/// Year, month and day of a day number since 1970, by counting in 400-year cycles that start in
/// March (so that the leap day comes last).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(writes: &[&[u8]]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let mut log = LogFile::open(&path).unwrap();
        let mut buffer = LineBuffer::new("stdout");
        for bytes in writes {
            buffer.write(bytes, 1_700_000_000_000_000_001, Some(&mut log));
        }
        buffer.finish(1_700_000_000_000_000_001, Some(&mut log));
        fs::read_to_string(path)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn every_line_is_written_whole_with_time_and_stream() {
        assert_eq!(
            lines(&[b"one\ntw", b"o\n\n", b"rest"]),
            [
                "2023-11-14T22:13:20.000000001Z stdout F one",
                "2023-11-14T22:13:20.000000001Z stdout F two",
                "2023-11-14T22:13:20.000000001Z stdout F ",
                "2023-11-14T22:13:20.000000001Z stdout P rest",
            ]
        );
    }

    #[test]
    fn long_lines_are_written_in_parts() {
        let long = [vec![b'x'; LONGEST_LINE + 10], b"\n".to_vec()].concat();
        let written = lines(&[&long]);
        assert_eq!(written.len(), 2);
        assert!(written[0].contains(" stdout P x"));
        assert!(written[1].ends_with(" stdout F xxxxxxxxxx"));
    }

    #[test]
    fn day_numbers_become_calendar_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(11_016), (2000, 2, 29));
    }
}
