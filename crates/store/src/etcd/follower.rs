//! Keeps the window up to date from one feed, opened again from the last revision when it breaks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::client::{Client, Pause};
use super::feed::{End, Feed, Item};
use super::window::Window;

/// A change that is on its way gets here within this time; only then is etcd asked for progress.
const UNDER_WAY: Duration = Duration::from_millis(2);
/// An unanswered question is repeated after this: etcd drops it while it is still catching up.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Runs until it is aborted.
pub async fn follow(client: Arc<Client>, window: Arc<Window>) {
    let mut pause = Pause::default();
    loop {
        let end = match Feed::open(client.clone(), window.head() + 1).await {
            Ok(feed) => {
                debug!("the watch on etcd begins");
                let before = window.head();
                let end = copy(feed, &window).await;
                if window.head() > before {
                    pause = Pause::default();
                }
                end
            }
            Err(end) => end,
        };
        match end {
            End::Compacted => match client.revision().await {
                Ok(revision) => {
                    warn!(
                        revision,
                        "etcd has forgotten what was missed; going on from here"
                    );
                    window.reset(revision);
                    continue;
                }
                Err(failure) => warn!(?failure, "etcd's revision cannot be read"),
            },
            End::Lost(reason) => warn!(reason, "the watch on etcd is broken; opening it again"),
        }
        pause.rest().await;
    }
}

async fn copy(mut feed: Feed, window: &Window) -> End {
    let mut wanted = window.wanted();
    let mut ask = Instant::now() + UNDER_WAY;
    loop {
        let behind = *wanted.borrow_and_update() > window.head();
        tokio::select! {
            biased;
            item = feed.next() => match item {
                Ok(Item::Changes(committed)) => window.push(committed),
                Ok(Item::Reached(revision)) => window.reached(revision),
                Err(end) => return end,
            },
            () = tokio::time::sleep_until(ask), if behind && feed.reports_progress() => {
                feed.ask_progress();
                ask = Instant::now() + ASK_AGAIN;
            }
            changed = wanted.changed() => {
                if changed.is_err() {
                    return End::Lost("the window is gone".to_owned());
                }
                if !behind {
                    ask = Instant::now() + UNDER_WAY;
                }
            }
        }
    }
}
