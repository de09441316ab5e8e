//! Rotates container logs: a log that has grown past its limit is renamed and a new one is begun; of
//! the renamed ones only the newest are kept. The choice is pure.

use std::path::{Path, PathBuf};

use cri::v1;
use environment::Environment;
use tokio_util::sync::CancellationToken;

use crate::{configuration::Configuration, runtime::observe};

/// Looks every ten seconds, by default, until `shutdown`.
pub async fn run(
    cri: cri::Client,
    environment: Environment,
    configuration: &Configuration,
    shutdown: CancellationToken,
) {
    let Some(limit) = configuration.log_max_size().filter(|limit| *limit > 0) else {
        return;
    };
    let files = configuration.container_log_max_files;
    let mut ticks = tokio::time::interval(configuration.log_monitor_interval());
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match running(&cri).await {
            Ok(containers) => {
                for container in containers {
                    rotate_if_large(&cri, &environment, container, limit, files).await;
                }
            }
            Err(status) => tracing::debug!(%status, "containers could not be listed"),
        }
    }
}

async fn running(cri: &cri::Client) -> Result<Vec<(String, String)>, tonic::Status> {
    let request = v1::ListContainersRequest {
        filter: Some(v1::ContainerFilter {
            state: Some(v1::ContainerStateValue {
                state: v1::ContainerState::ContainerRunning as i32,
            }),
            ..Default::default()
        }),
    };
    let response = cri.runtime.clone().list_containers(request).await?;
    Ok(response
        .into_inner()
        .containers
        .into_iter()
        .map(|container| (container.id, container.pod_sandbox_id))
        .collect())
}

async fn rotate_if_large(
    cri: &cri::Client,
    environment: &Environment,
    (id, sandbox): (String, String),
    limit: u64,
    files: usize,
) {
    let Ok(Some(record)) = observe::container(cri, id.clone(), sandbox).await else {
        return;
    };
    let path = PathBuf::from(&record.log_path);
    let size = match tokio::fs::metadata(&path).await {
        Ok(metadata) => metadata.len(),
        // Moved away by a rotation that was not finished: the runtime still writes to where it went.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            reopen(cri, id, &path).await;
            return;
        }
        Err(_) => return,
    };
    if size < limit {
        return;
    }
    let stamp = environment.now().strftime("%Y%m%d-%H%M%S").to_string();
    let aside = PathBuf::from(format!("{}.{stamp}", path.display()));
    let (moved, to) = (path.clone(), aside.clone());
    let result = tokio::task::spawn_blocking(move || put_aside(&moved, &to, files)).await;
    if let Ok(Err(error)) = result {
        tracing::warn!(path = %path.display(), %error, "a log could not be rotated");
        return;
    }
    // Put back, it is tried again; what was written meanwhile is in it.
    if !reopen(cri, id, &path).await
        && !tokio::fs::try_exists(&path).await.unwrap_or(true)
        && let Err(error) = tokio::fs::rename(&aside, &path).await
    {
        tracing::warn!(path = %path.display(), %error, "a log could not be put back");
    }
}

async fn reopen(cri: &cri::Client, id: String, path: &Path) -> bool {
    let request = v1::ReopenContainerLogRequest { container_id: id };
    let answer = cri.runtime.clone().reopen_container_log(request).await;
    if let Err(status) = &answer {
        tracing::warn!(path = %path.display(), %status, "the runtime did not reopen a rotated log");
    }
    answer.is_ok()
}

/// A failure after the move is only logged: the runtime must begin a new log in any case.
fn put_aside(path: &Path, aside: &Path, files: usize) -> std::io::Result<()> {
    std::fs::rename(path, aside)?;
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let entries: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    for old in surplus(entries, &name.to_string_lossy(), files) {
        if let Err(error) = std::fs::remove_file(directory.join(&old)) {
            tracing::warn!(old, %error, "an old log could not be removed");
        }
    }
    Ok(())
}

/// The rotated files that are too many. `files` counts the one that is being written too.
fn surplus(mut entries: Vec<String>, log: &str, files: usize) -> Vec<String> {
    let prefix = format!("{log}.");
    entries.retain(|entry| entry.starts_with(&prefix));
    // The time is in the name: the order of names is the order of age.
    entries.sort();
    let keep = files.saturating_sub(1);
    let count = entries.len().saturating_sub(keep);
    entries.truncate(count);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_rotated_logs_are_kept() {
        let entries = ["0.log", "0.log.3", "0.log.1", "0.log.2", "1.log.0"];
        let entries: Vec<String> = entries.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(surplus(entries.clone(), "0.log", 3), ["0.log.1"]);
        assert!(surplus(entries, "0.log", 5).is_empty());
    }

    #[test]
    fn a_log_is_moved_and_the_oldest_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("0.log");
        for stamp in ["1", "2", "3"] {
            std::fs::write(&log, stamp).expect("written");
            put_aside(&log, &directory.path().join(format!("0.log.{stamp}")), 3).expect("moved");
        }
        let mut left: Vec<String> = std::fs::read_dir(directory.path())
            .expect("read")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(left, ["0.log.2", "0.log.3"]);
    }
}
