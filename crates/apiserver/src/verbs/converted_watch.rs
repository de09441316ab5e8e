//! A watch of a custom kind that a webhook converts: what the cache sends goes through the hook before
//! it is written.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{Resource, Status};
use tokio::sync::mpsc;

use super::selection::Selection;
use crate::cache::{Change, Initial, Snapshot, Watch};
use crate::context::Context;
use crate::converted;
use crate::server::Server;

/// Changes that are converted and not yet taken.
const AHEAD: usize = 16;
/// Changes that the hook is asked about together.
const TOGETHER: usize = 64;

/// Puts the hook between the cache and the watch. The first state is converted before this returns.
pub(super) async fn convert(
    context: &Arc<Context>,
    resource: &Arc<Resource>,
    selection: &Selection,
    watch: &mut Watch,
) -> Result<(), Status> {
    let server = &context.server;
    let none = Initial::Changes(VecDeque::new());
    watch.subscription.initial = match std::mem::replace(&mut watch.subscription.initial, none) {
        Initial::State(snapshot) => {
            let entries = snapshot.range(&selection.prefix, "");
            let entries = entries.filter(|entry| selection.matches(entry));
            let entries = entries.cloned().collect();
            let shown = converted::as_shown(server, resource, entries).await?;
            Initial::State(Snapshot::of(shown, snapshot.revision))
        }
        Initial::Changes(changes) => {
            let changes = Vec::from(changes);
            Initial::Changes(all(server, resource, changes).await?.into())
        }
    };
    let (sender, receiver) = mpsc::channel(AHEAD);
    let changes = std::mem::replace(&mut watch.subscription.changes, receiver);
    // Ends with the watch, which takes its place in the cache with it.
    tokio::spawn(follow(server.clone(), resource.clone(), changes, sender));
    Ok(())
}

/// Ends the watch when the hook fails: its client asks again.
async fn follow(
    server: Arc<Server>,
    resource: Arc<Resource>,
    mut changes: mpsc::Receiver<Arc<Change>>,
    sender: mpsc::Sender<Arc<Change>>,
) {
    let mut together = Vec::new();
    while changes.recv_many(&mut together, TOGETHER).await > 0 {
        let converted = match all(&server, &resource, std::mem::take(&mut together)).await {
            Ok(converted) => converted,
            Err(status) => {
                tracing::warn!(?resource, %status, "a watch ends: its objects are not converted");
                return;
            }
        };
        for change in converted {
            if sender.send(change).await.is_err() {
                return;
            }
        }
    }
}

async fn all(
    server: &Server,
    resource: &Arc<Resource>,
    changes: Vec<Arc<Change>>,
) -> Result<Vec<Arc<Change>>, Status> {
    let entries = changes
        .iter()
        .flat_map(|change| [&change.current, &change.previous]);
    let entries = entries.flatten().cloned().collect();
    let mut shown = converted::as_shown(server, resource, entries)
        .await?
        .into_iter();
    let mut take = |entry: &Option<_>| entry.as_ref().and_then(|_| shown.next());
    let converted = changes.iter().map(|change| {
        let (current, previous) = (take(&change.current), take(&change.previous));
        Arc::new(Change::new(change.revision, current, previous))
    });
    Ok(converted.collect())
}
