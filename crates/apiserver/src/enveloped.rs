//! A store whose values are upstream's: protobuf in its envelope, so that a kube-apiserver can serve
//! the same etcd. The rest of this crate goes on seeing canonical JSON.
//!
//! What has no protobuf form (custom resources) is kept as JSON, as upstream keeps it. Values that
//! cannot be read (encrypted ones) are handed on as they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Value, catalogue, conversion, protobuf};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use store::{
    CompactionTurn, Error, Event, KeyRange, KeyValue, LeaseId, Operation, RangeRequest,
    RangeResult, Revision, SnapshotStream, Store, Transaction, TransactionResult, WatchItem,
    WatchStream,
};

/// More than are ever under way at once; beyond it everything is forgotten.
const MOST: usize = 4096;

/// The store below, seen as one of canonical JSON.
pub struct Enveloped {
    store: Arc<dyn Store>,
    written: Arc<Written>,
}

impl Enveloped {
    pub fn new(store: Arc<dyn Store>) -> Enveloped {
        Enveloped {
            store,
            written: Arc::default(),
        }
    }
}

/// What this process has put and not yet met again in its watch: there, the writer's own bytes are
/// handed out and nothing is decoded. A hint only.
#[derive(Default)]
struct Written(Mutex<BTreeMap<Bytes, Forms>>);

/// One value in both forms.
struct Forms {
    stored: Bytes,
    json: Bytes,
}

impl Written {
    fn offer(&self, key: Bytes, forms: Forms) {
        let mut written = self.0.lock();
        if written.len() >= MOST {
            written.clear();
        }
        written.insert(key, forms);
    }

    /// The JSON of exactly this value.
    fn take(&self, key: &Bytes, stored: &Bytes) -> Option<Bytes> {
        let mut written = self.0.lock();
        let forms = written.get(key)?;
        if forms.stored != *stored {
            return None;
        }
        written.remove(key).map(|forms| forms.json)
    }

    fn event(&self, event: Event) -> Event {
        match event {
            Event::Put { item, previous } => Event::Put {
                item: match self.take(&item.key, &item.value) {
                    Some(value) => KeyValue { value, ..item },
                    None => opened(item),
                },
                previous: previous.map(opened),
            },
            Event::Delete {
                key,
                revision,
                previous,
            } => Event::Delete {
                key,
                revision,
                previous: previous.map(opened),
            },
        }
    }
}

#[async_trait]
impl Store for Enveloped {
    async fn revision(&self) -> Result<Revision, Error> {
        self.store.revision().await
    }

    async fn transact(&self, mut transaction: Transaction) -> Result<TransactionResult, Error> {
        let mut puts = Vec::new();
        for operation in &mut transaction.then {
            if let Operation::Put { key, value, .. } = operation
                && let Some(stored) = closed(value)
            {
                let json = std::mem::replace(value, stored.clone());
                puts.push((key.clone(), stored.clone()));
                self.written.offer(key.clone(), Forms { stored, json });
            }
        }
        let result = self.store.transact(transaction).await;
        if !matches!(result, Ok(TransactionResult::Committed { .. })) {
            for (key, stored) in &puts {
                self.written.take(key, stored);
            }
        }
        let all = |items: Vec<Option<KeyValue>>| {
            let items = items.into_iter().map(|item| item.map(opened));
            items.collect()
        };
        Ok(match result? {
            TransactionResult::Committed { revision, previous } => TransactionResult::Committed {
                revision,
                previous: all(previous),
            },
            TransactionResult::Failed { revision, current } => TransactionResult::Failed {
                revision,
                current: all(current),
            },
        })
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResult, Error> {
        let mut result = self.store.range(request).await?;
        result.items = result.items.into_iter().map(opened).collect();
        Ok(result)
    }

    async fn watch(&self, range: KeyRange, from: Revision) -> Result<WatchStream, Error> {
        let written = self.written.clone();
        let stream = self.store.watch(range, from).await?;
        let open = move |item| match item {
            Ok(WatchItem::Events { revision, events }) => Ok(WatchItem::Events {
                revision,
                events: events
                    .into_iter()
                    .map(|event| written.event(event))
                    .collect(),
            }),
            other => other,
        };
        Ok(stream.map(open).boxed())
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.store.compact(revision).await
    }

    async fn compact_in_turn(&self, turn: CompactionTurn) -> Result<CompactionTurn, Error> {
        self.store.compact_in_turn(turn).await
    }

    async fn snapshot(&self) -> Result<SnapshotStream, Error> {
        self.store.snapshot().await
    }

    async fn grant_lease(&self, seconds: u64) -> Result<LeaseId, Error> {
        self.store.grant_lease(seconds).await
    }

    async fn keep_lease_alive(&self, lease: LeaseId) -> Result<(), Error> {
        self.store.keep_lease_alive(lease).await
    }
}

/// The envelope around an object; `None` for what has no protobuf form.
fn closed(json: &[u8]) -> Option<Bytes> {
    let object = Value::from_json(json).ok()?;
    protobuf::encode_object(&object).ok().map(Bytes::from)
}

/// As we would have stored it. An older server may have stored a version that is now only served,
/// and what has a default need not be in what another server stored.
fn settled(object: Value) -> Value {
    let (group, version) = api::resource::split_api_version(object.str_at(&["apiVersion"]));
    let kind = object.str_at(&["kind"]);
    let Some(resource) = catalogue::built_in().find_kind(group, version, kind) else {
        return object;
    };
    let mut object = conversion::to_storage(resource, object);
    let stored = conversion::storage_of(resource);
    api::schema::defaults(stored, &mut object);
    stored.strategy().default(&mut object);
    object
}

/// The item with its value as JSON.
fn opened(item: KeyValue) -> KeyValue {
    if !item.value.starts_with(protobuf::MAGIC) {
        return item;
    }
    match protobuf::decode(&item.value) {
        Ok(object) => KeyValue {
            value: settled(object).to_json().into(),
            ..item
        },
        Err(problem) => {
            let key = String::from_utf8_lossy(&item.key);
            tracing::debug!(%key, %problem, "a stored value is left as it is");
            item
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use environment::Environment;
    use store::disk::SimulatedDisk;
    use store::embedded::{Embedded, Options};

    const OBJECT: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default","uid":"u","creationTimestamp":"2026-01-02T03:04:05Z"},"data":{"k":"v"}}"#;
    const CUSTOM: &str =
        r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t"}}"#;

    fn put(key: &'static str, value: &Bytes) -> Transaction {
        Transaction {
            compare: Vec::new(),
            then: vec![Operation::Put {
                key: key.into(),
                value: value.clone(),
                lease: None,
            }],
        }
    }

    async fn values(store: &dyn Store) -> Vec<Bytes> {
        let request = RangeRequest {
            range: KeyRange::prefix("/"),
            revision: None,
            limit: 0,
        };
        let items = store.range(request).await.expect("range").items;
        items.into_iter().map(|item| item.value).collect()
    }

    #[tokio::test]
    async fn values_are_protobuf_below_and_json_above() {
        let disk = SimulatedDisk::new(1).mount();
        let below: Arc<dyn Store> =
            Embedded::open(disk, Environment::simulated(1, 0), Options::default())
                .await
                .expect("open");
        let above = Enveloped::new(below.clone());
        let from = above.revision().await.expect("revision") + 1;
        let object = Value::from_json(OBJECT.as_bytes()).expect("object");
        let json = Bytes::from(object.to_json());
        let custom = Bytes::from(CUSTOM);
        let mut watch = above
            .watch(KeyRange::prefix("/"), from)
            .await
            .expect("watch");
        above.transact(put("/a", &json)).await.expect("put");
        above.transact(put("/b", &custom)).await.expect("put");

        let stored = values(&*below).await;
        assert!(stored[0].starts_with(b"k8s\0"), "{:?}", stored[0]);
        assert_eq!(stored[1], custom);
        assert_eq!(values(&above).await, [json.clone(), custom]);
        match watch.next().await {
            Some(Ok(WatchItem::Events { events, .. })) => match &events[..] {
                [Event::Put { item, .. }] => {
                    assert_eq!(item.value.as_ptr(), json.as_ptr(), "the writer's own bytes");
                }
                other => panic!("no put: {other:?}"),
            },
            other => panic!("no event: {other:?}"),
        }
        let mut again = above
            .watch(KeyRange::prefix("/"), from)
            .await
            .expect("watch");
        match again.next().await {
            Some(Ok(WatchItem::Events { events, .. })) => match &events[..] {
                [Event::Put { item, .. }] => assert_eq!(item.value, json, "decoded"),
                other => panic!("no put: {other:?}"),
            },
            other => panic!("no event: {other:?}"),
        }
    }
}
