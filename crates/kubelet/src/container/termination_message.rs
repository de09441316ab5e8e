//! The termination message of a container: the file at its terminationMessagePath, or the end
//! of its log when it failed without one and the policy asks for that.

use std::path::Path;

use k8s_openapi::api::core::v1::Container;

use crate::log_format;

const MAX_FILE: usize = 4096;
const MAX_LOG: usize = 2048;
const MAX_LOG_LINES: usize = 80;
/// How much of a log's end is read to find its last lines.
const LOG_WINDOW: u64 = 16 * 1024;

/// `file`: the file mounted at the container's terminationMessagePath.
pub async fn read(container: &Container, file: &Path, log: &Path, exit_code: i32) -> String {
    let text = match tail(file, MAX_FILE as u64).await {
        Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        None => String::new(),
    };
    let fall_back =
        container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    if !text.is_empty() || exit_code == 0 || !fall_back {
        return text;
    }
    let Some(bytes) = tail(log, LOG_WINDOW).await else {
        return String::new();
    };
    last_lines(&bytes)
}

fn last_lines(log: &[u8]) -> String {
    let mut text = Vec::new();
    let lines: Vec<&[u8]> = log.split(|byte| *byte == b'\n').collect();
    let records: Vec<_> = lines.into_iter().filter_map(log_format::parse).collect();
    let skipped = records.len().saturating_sub(MAX_LOG_LINES);
    for record in records.into_iter().skip(skipped) {
        text.extend_from_slice(record.text);
        if !record.partial {
            text.push(b'\n');
        }
    }
    let start = text.len().saturating_sub(MAX_LOG);
    String::from_utf8_lossy(&text[start..]).into_owned()
}

/// The last `limit` bytes of a file.
async fn tail(path: &Path, limit: u64) -> Option<Vec<u8>> {
    use tokio::io::{AsyncReadExt, AsyncSeekExt};
    let mut file = tokio::fs::File::open(path).await.ok()?;
    let length = file.metadata().await.ok()?.len();
    if length > limit {
        file.seek(std::io::SeekFrom::Start(length - limit))
            .await
            .ok()?;
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).await.ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_its_last_whole_lines() {
        let log = b"cut off\n2026-01-01T00:00:00Z stderr P ab\n2026-01-01T00:00:00Z stderr F c\n2026-01-01T00:00:00Z stdout F d\n";
        assert_eq!(last_lines(log), "abc\nd\n");
    }
}
