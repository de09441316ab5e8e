//! A transaction in etcd's terms, and its outcome back in ours.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::client::{self, Client, MESSAGE_BYTES, Repeat};
use super::failure::Failure;
use super::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use super::wire::kv_client::KvClient;
use super::wire::request_op::Request;
use super::wire::response_op::Response;
use super::wire::{self, RequestOp, TxnRequest, TxnResponse};
use crate::{Compare, Error, KeyValue, Operation, Transaction, TransactionResult};

pub async fn transact(
    client: &Client,
    transaction: Transaction,
) -> Result<TransactionResult, Error> {
    let mut changed = BTreeSet::new();
    if !transaction
        .then
        .iter()
        .all(|then| changed.insert(then.key()))
    {
        return Err(Error::DuplicateKey);
    }
    let request = encode(client, &transaction)?;
    let answer = client
        .call(Repeat::IfNotDone, |wire| {
            let request = request.clone();
            async move {
                KvClient::new(wire)
                    .max_decoding_message_size(MESSAGE_BYTES)
                    .txn(request)
                    .await
            }
        })
        .await;
    match answer {
        Ok(answer) => decode(client, &transaction, answer),
        Err(Failure::LeaseNotFound) => {
            let lease = transaction.then.iter().find_map(|then| match then {
                Operation::Put { lease, .. } => *lease,
                Operation::Delete { .. } => None,
            });
            Err(Error::LeaseNotFound(lease.unwrap_or(0)))
        }
        // The write is done, but its answer cannot be read.
        Err(Failure::TooLarge) => Err(Error::OutcomeUnknown(
            "the previous values are too large to be answered".to_owned(),
        )),
        Err(failure) => Err(failure.into_error()),
    }
}

fn encode(client: &Client, transaction: &Transaction) -> Result<TxnRequest, Error> {
    let outward = |key: &Bytes| {
        let outside = || Error::Refused(format!("key {key:?} is outside the store's root"));
        client.keys.outward(key).ok_or_else(outside)
    };
    let mut request = TxnRequest::default();
    for Compare::ModRevision { key, revision } in &transaction.compare {
        let key = outward(key)?;
        request.failure.push(RequestOp {
            request: Some(Request::RequestRange(wire::RangeRequest {
                key: key.clone(),
                ..Default::default()
            })),
        });
        request.compare.push(wire::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key,
            target_union: Some(TargetUnion::ModRevision(*revision as i64)),
        });
    }
    for operation in &transaction.then {
        let change = match operation {
            Operation::Put { key, value, lease } => Request::RequestPut(wire::PutRequest {
                key: outward(key)?,
                value: value.to_vec(),
                lease: lease.unwrap_or(0) as i64,
                prev_kv: true,
            }),
            Operation::Delete { key } => Request::RequestDeleteRange(wire::DeleteRangeRequest {
                key: outward(key)?,
                range_end: Vec::new(),
                prev_kv: true,
            }),
        };
        request.success.push(RequestOp {
            request: Some(change),
        });
    }
    Ok(request)
}

fn decode(
    client: &Client,
    transaction: &Transaction,
    answer: TxnResponse,
) -> Result<TransactionResult, Error> {
    let revision = client::revision(answer.header.as_ref());
    let expected = match answer.succeeded {
        true => transaction.then.len(),
        false => transaction.compare.len(),
    };
    let items: Vec<Option<KeyValue>> = answer
        .responses
        .into_iter()
        .map(|response| {
            let item = match response.response? {
                Response::ResponseRange(range) => range.kvs.into_iter().next(),
                Response::ResponsePut(put) => put.prev_kv,
                Response::ResponseDeleteRange(delete) => delete.prev_kvs.into_iter().next(),
            };
            client.keys.item(item?)
        })
        .collect();
    if items.len() != expected {
        return Err(Error::OutcomeUnknown(format!(
            "etcd answered {} of {expected} operations",
            items.len()
        )));
    }
    Ok(match answer.succeeded {
        true => TransactionResult::Committed {
            revision,
            previous: items,
        },
        false => TransactionResult::Failed {
            revision,
            current: items,
        },
    })
}
