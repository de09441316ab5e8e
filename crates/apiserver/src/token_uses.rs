//! Writes down in Secrets that their tokens are used.

use std::sync::{Arc, Weak};

use api::Status;
use tokio::sync::mpsc;

use crate::authentication::{LAST_USED, Use};
use crate::context::Context;
use crate::registry::{Target, update};
use crate::server::Server;

/// Writes uses down until the server is gone.
pub(crate) async fn note(server: Weak<Server>, mut uses: mpsc::Receiver<Use>) {
    while let Some(used) = uses.recv().await {
        let Some(server) = server.upgrade() else {
            return;
        };
        if let Err(problem) = write(&server, &used).await {
            let Use {
                namespace, name, ..
            } = used;
            tracing::warn!(%namespace, %name, %problem, "the use of a token could not be noted");
        }
    }
}

async fn write(server: &Arc<Server>, used: &Use) -> Result<(), Status> {
    let resource = &server.cache.resource("", "secrets");
    let target = Target {
        is_owned: false,
        ..Target::internal(resource, &used.namespace, &used.name, "")
    };
    update(&Context::internal(server), &target, false, |old| {
        let mut new = old.clone();
        if new.str_at(&["metadata", "uid"]) == used.uid {
            new.set(&["metadata", "labels", LAST_USED], used.day.as_str());
        }
        Ok(new)
    })
    .await
    .map(drop)
}
