//! What is done to etcd as a whole: compaction in turn with all who share it, and its snapshot.

use futures::StreamExt;

use super::client::{self, Client, Headed, MESSAGE_BYTES, Repeat};
use super::failure::Failure;
use super::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use super::wire::kv_client::KvClient;
use super::wire::maintenance_client::MaintenanceClient;
use super::wire::request_op::Request;
use super::wire::response_op::Response;
use super::wire::{self, RequestOp, TxnRequest, TxnResponse};
use crate::{CompactionTurn, Error, Revision, SnapshotStream};

/// The key by which API servers agree who compacts. It lies outside every prefix and is the same for
/// kube-apiserver, with which an etcd may be shared.
const TURN_KEY: &[u8] = b"compact_rev_key";

/// What came of asking for a turn.
pub enum Asked {
    /// It is ours: compact to this revision (0: nothing yet), then keep the turn.
    Ours(Revision, CompactionTurn),
    /// Another server had it meanwhile.
    Theirs(CompactionTurn),
}

pub async fn ask_turn(client: &Client, turn: CompactionTurn) -> Result<Asked, Failure> {
    let key = || TURN_KEY.to_vec();
    let request = TxnRequest {
        compare: vec![wire::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Version.into(),
            key: key(),
            target_union: Some(TargetUnion::Version(turn.count as i64)),
        }],
        success: vec![RequestOp {
            request: Some(Request::RequestPut(wire::PutRequest {
                key: key(),
                value: turn.revision.to_string().into(),
                ..Default::default()
            })),
        }],
        failure: vec![RequestOp {
            request: Some(Request::RequestRange(wire::RangeRequest {
                key: key(),
                ..Default::default()
            })),
        }],
    };
    let answer: TxnResponse = client
        .call(Repeat::IfNotDone, |wire| {
            let request = request.clone();
            async move { KvClient::new(wire).txn(request).await }
        })
        .await?;
    let revision = client::revision(answer.header());
    if answer.succeeded {
        let count = turn.count + 1;
        return Ok(Asked::Ours(
            turn.revision,
            CompactionTurn { count, revision },
        ));
    }
    let found = answer.responses.into_iter().find_map(|response| {
        let Response::ResponseRange(range) = response.response? else {
            return None;
        };
        range.kvs.into_iter().next()
    });
    let count = found.map_or(0, |item| item.version as u64);
    Ok(Asked::Theirs(CompactionTurn { count, revision }))
}

/// etcd's own snapshot of the member that is preferred now, which has first caught up with all that
/// was acknowledged. etcd's tools read and restore it.
pub async fn snapshot(client: &Client) -> Result<SnapshotStream, Error> {
    client.revision().await.map_err(Failure::into_error)?;
    let unavailable = |status: tonic::Status| match Failure::of(&status) {
        Failure::Lost(reason) => Error::Unavailable(reason),
        failure => failure.into_error(),
    };
    let wire = client.wire(client.preferred()).await;
    let parts = MaintenanceClient::new(wire.map_err(unavailable)?)
        .max_decoding_message_size(MESSAGE_BYTES)
        .snapshot(wire::SnapshotRequest {})
        .await
        .map_err(unavailable)?
        .into_inner();
    Ok(parts
        .map(move |part| match part {
            Ok(part) => Ok(part.blob.into()),
            Err(status) => Err(unavailable(status)),
        })
        .boxed())
}
