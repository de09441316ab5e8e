//! One watch on etcd as an ordered, complete sequence of revisions.
//!
//! A revision that touches none of our keys is also of interest: whoever read it waits for the watch
//! to get there. An etcd of 3.4.31, 3.5.13 or later is asked for its progress; older ones may answer
//! that too early, so there the watch covers all of etcd, where every revision is an event.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::client::{Client, Headed, MESSAGE_BYTES, Wire};
use super::failure::Failure;
use super::keys::{Keys, WireRange};
use super::window::Committed;
use super::wire::kv_client::KvClient;
use super::wire::maintenance_client::MaintenanceClient;
use super::wire::watch_client::WatchClient;
use super::wire::watch_request::RequestUnion;
use super::wire::{self, WatchRequest, WatchResponse};
use crate::{Event, Revision};

const OPEN: Duration = Duration::from_secs(5);

/// What the feed yields, in order of revision.
pub enum Item {
    Changes(Arc<Committed>),
    /// Everything up to here has been yielded.
    Reached(Revision),
}

/// Why a feed could not begin or ended.
#[derive(Debug)]
pub enum End {
    /// History before its next revision is gone.
    Compacted,
    Lost(String),
}

pub struct Feed {
    client: Arc<Client>,
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    /// Whether this version of etcd reports its progress correctly when asked.
    progress: bool,
    /// The first revision not yet yielded.
    next: Revision,
    /// The last revision of a fragment: more of it may follow.
    pending: Option<(Revision, Vec<Event>)>,
    ready: VecDeque<Item>,
}

impl Feed {
    /// Watches from `from` on, at the preferred member; leaves that member when it fails.
    pub async fn open(client: Arc<Client>, from: Revision) -> Result<Feed, End> {
        let member = client.preferred();
        let opened = tokio::time::timeout(OPEN, Feed::open_at(client.clone(), member, from)).await;
        let failure = match opened {
            Ok(Ok(feed)) => return Ok(feed),
            Ok(Err(Failure::Compacted)) => return Err(End::Compacted),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Lost(format!("no answer in {} s", OPEN.as_secs())),
        };
        client.leave(member);
        if let Failure::Token(_) = failure {
            client.forget_token().await;
        }
        Err(End::Lost(failure.into_error().to_string()))
    }

    async fn open_at(client: Arc<Client>, member: usize, from: Revision) -> Result<Feed, Failure> {
        let wire = client
            .wire(member)
            .await
            .map_err(|status| Failure::of(&status))?;
        let status = MaintenanceClient::new(wire.clone())
            .status(wire::StatusRequest {})
            .await
            .map_err(|status| Failure::of(&status))?
            .into_inner();
        client.check_cluster(status.header())?;
        let progress = reports_progress(&status.version);
        let range = match progress {
            true => client.keys.everything(),
            false => Keys::whole_etcd(),
        };
        let (requests, outgoing) = mpsc::channel(4);
        let create = RequestUnion::CreateRequest(create(&range, from));
        // The channel is new and has room.
        let _ = requests.try_send(request(create));
        let responses = WatchClient::new(wire.clone())
            .max_decoding_message_size(MESSAGE_BYTES)
            .watch(ReceiverStream::new(outgoing))
            .await
            .map_err(|status| Failure::of(&status))?
            .into_inner();
        let mut feed = Feed {
            client,
            requests,
            responses,
            progress,
            next: from,
            pending: None,
            ready: VecDeque::new(),
        };
        let created = feed.responses.message().await;
        let created = created.map_err(|status| Failure::of(&status))?;
        match created {
            Some(response) if response.created && !response.canceled => {}
            Some(response) if response.compact_revision > 0 => return Err(Failure::Compacted),
            Some(response) => return Err(Failure::Refused(response.cancel_reason)),
            None => return Err(Failure::Lost("the watch ended".to_owned())),
        }
        check_history(wire, &range, from).await?;
        Ok(feed)
    }

    /// The next item. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Item, End> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(item);
            }
            match self.responses.message().await {
                Ok(Some(response)) => self.accept(response)?,
                Ok(None) => return Err(End::Lost("the watch ended".to_owned())),
                Err(status) => return Err(self.lost(&status).await),
            }
        }
    }

    pub fn reports_progress(&self) -> bool {
        self.progress
    }

    /// Asks for a `Reached`, which comes when etcd has sent everything before. etcd may ignore it.
    pub fn ask_progress(&self) {
        let ask = RequestUnion::ProgressRequest(wire::WatchProgressRequest {});
        // A full channel means that enough is being asked.
        let _ = self.requests.try_send(request(ask));
    }

    async fn lost(&self, status: &Status) -> End {
        let failure = Failure::of(status);
        if let Failure::Token(_) = failure {
            self.client.forget_token().await;
        }
        End::Lost(failure.into_error().to_string())
    }

    fn accept(&mut self, response: WatchResponse) -> Result<(), End> {
        if response.compact_revision > 0 {
            return Err(End::Compacted);
        }
        if response.canceled {
            return Err(End::Lost(response.cancel_reason));
        }
        let is_progress = response.events.is_empty() && !response.created && !response.fragment;
        for event in response.events {
            let Some(revision) = event.kv.as_ref().map(|item| item.mod_revision as u64) else {
                continue;
            };
            // Never again what was yielded before.
            if revision < self.next {
                continue;
            }
            if self
                .pending
                .as_ref()
                .is_none_or(|(last, _)| *last != revision)
            {
                self.complete();
                self.pending = Some((revision, Vec::new()));
            }
            if let (Some((_, events)), Some(event)) =
                (&mut self.pending, self.client.keys.event(event))
            {
                events.push(event);
            }
        }
        if !response.fragment {
            self.complete();
        }
        if let Some(header) = response.header
            && is_progress
            && self.progress
            && header.revision as u64 >= self.next
        {
            self.next = header.revision as u64 + 1;
            self.ready.push_back(Item::Reached(header.revision as u64));
        }
        Ok(())
    }

    /// The pending revision has no more events.
    fn complete(&mut self) {
        if let Some((revision, events)) = self.pending.take() {
            self.next = revision + 1;
            self.ready.push_back(match events.is_empty() {
                true => Item::Reached(revision),
                false => Item::Changes(Arc::new(Committed { revision, events })),
            });
        }
    }
}

/// A watch may begin where etcd has just compacted, but a deletion at that very revision is then
/// missing. So the revision before must still be there too.
async fn check_history(wire: Wire, range: &WireRange, from: Revision) -> Result<(), Failure> {
    if from <= 1 {
        return Ok(());
    }
    let request = wire::RangeRequest {
        key: range.key.clone(),
        limit: 1,
        revision: from as i64 - 1,
        serializable: true,
        count_only: true,
        ..Default::default()
    };
    match KvClient::new(wire).range(request).await {
        Ok(_) => Ok(()),
        Err(status) => match Failure::of(&status) {
            // The member has not got there yet.
            Failure::Future => Ok(()),
            failure => Err(failure),
        },
    }
}

fn create(range: &WireRange, from: Revision) -> wire::WatchCreateRequest {
    wire::WatchCreateRequest {
        key: range.key.clone(),
        range_end: range.range_end.clone(),
        start_revision: from as i64,
        progress_notify: false,
        prev_kv: true,
        fragment: true,
    }
}

fn request(union: RequestUnion) -> WatchRequest {
    WatchRequest {
        request_union: Some(union),
    }
}

/// Whether progress answers of this version are never ahead of the events.
fn reports_progress(version: &str) -> bool {
    let release = version.split('-').next().unwrap_or_default();
    let numbers: Option<Vec<u32>> = release.split('.').map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some([3, 4, patch]) => *patch >= 31,
        Some([3, 5, patch]) => *patch >= 13,
        Some([3, minor, _]) => *minor >= 6,
        Some([major, ..]) => *major > 3,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::reports_progress;

    #[test]
    fn progress_is_requested_only_from_versions_that_report_it_correctly() {
        for (version, expected) in [
            ("3.4.23", false),
            ("3.4.31", true),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0-rc.1", true),
            ("4.0.0", true),
            ("3.3.9", false),
            ("unknown", false),
        ] {
            assert_eq!(reports_progress(version), expected, "{version}");
        }
    }
}
