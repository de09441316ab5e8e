//! Files of the format before this one, written here as that version wrote them: they are read,
//! brought to this format in one step, and kept. Newer and older ones are refused.

use super::super::files::Name;
use super::super::frame::{FORMAT, FrameWriter, Kind, OLDEST_READABLE};
use super::super::record::Record;
use super::*;
use crate::{Event, KeyValue, WatchItem};

/// A file of `format` with one frame per list of records.
fn file(format: u32, kind: Kind, frames: &[Vec<Record>]) -> Vec<u8> {
    let mut writer = FrameWriter::new(77);
    let mut bytes = writer.header(kind);
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..24]);
    bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
    for records in frames {
        let mut frame = FrameWriter::buffer();
        for record in records {
            record.encode(&mut frame);
        }
        writer.seal(&mut frame);
        bytes.extend_from_slice(&frame);
    }
    bytes
}

fn put(revision: Revision, key: &'static str) -> Record {
    Record::Transaction {
        revision,
        operations: vec![Operation::Put {
            key: key.into(),
            value: "v".into(),
            lease: None,
        }],
    }
}

/// A checkpoint with one key at revision 7 and a revision of history, then a log with two more
/// revisions and a lease, and the torn beginning of another frame.
fn older_disk(seed: u64) -> (SimulatedDisk, Vec<(Name, Vec<u8>)>) {
    let item = Record::Item(KeyValue {
        key: "old".into(),
        value: "v".into(),
        create_revision: 3,
        mod_revision: 7,
        version: 4,
        lease: None,
    });
    let base = Record::Base {
        revision: 7,
        oldest: 8,
    };
    // Format 1 did not count.
    let end = Record::End { records: None };
    let checkpoint = file(
        OLDEST_READABLE,
        Kind::Checkpoint,
        &[vec![base, item], vec![put(8, "kept"), end]],
    );
    let grant = Record::Grant {
        lease: 5,
        seconds: 60,
    };
    let mut log = file(
        OLDEST_READABLE,
        Kind::Log,
        &[vec![put(9, "a"), grant], vec![put(10, "b")]],
    );
    log.extend_from_slice(&[0xc0, 0x7a, 0xc1]);
    let files = vec![(Name::Checkpoint(4), checkpoint), (Name::Log(4), log)];
    let disk = SimulatedDisk::new(seed);
    for (name, bytes) in &files {
        disk.overwrite(&name.text(), bytes.clone());
    }
    (disk, files)
}

async fn check_contents(store: &Embedded) {
    assert_eq!(store.revision().await.expect("revision"), 10);
    let request = RangeRequest {
        range: KeyRange::prefix(""),
        revision: None,
        limit: 0,
    };
    let items = store.range(request).await.expect("range").items;
    let seen: Vec<_> = items
        .iter()
        .map(|item| (&item.key[..], item.create_revision, item.mod_revision))
        .collect();
    let expected: [(&[u8], _, _); 4] = [
        (b"a", 9, 9),
        (b"b", 10, 10),
        (b"kept", 8, 8),
        (b"old", 3, 7),
    ];
    assert_eq!(seen, expected);
    let mut watch = store
        .watch(KeyRange::prefix(""), 8)
        .await
        .expect("history is kept");
    for revision in 8..=10 {
        match watch.next().await {
            Some(Ok(WatchItem::Events {
                revision: at,
                events,
            })) => {
                assert_eq!(at, revision);
                assert!(matches!(&events[..], [Event::Put { .. }]));
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    store.keep_lease_alive(5).await.expect("the lease is there");
}

#[tokio::test(start_paused = true)]
async fn a_store_of_the_format_before_is_brought_to_this_one_and_kept() {
    let (disk, files) = older_disk(1);
    let store = open(&disk, Options::default()).await.expect("open");
    check_contents(&store).await;
    assert_eq!(write(&store, "c", "v").await.expect("write"), 11);
    store.close().await.expect("close");
    for (name, bytes) in files {
        let backup = format!("backup-format-1-{}", name.text());
        assert_eq!(disk.contents(&backup).expect("backup"), bytes, "{backup}");
        assert!(disk.contents(&name.text()).is_err(), "{name:?} is replaced");
    }
    let present: Vec<String> = disk.names();
    for name in present.iter().filter(|name| Name::parse(name).is_some()) {
        let bytes = disk.contents(name).expect("file");
        assert_eq!(bytes[8..12], FORMAT.to_le_bytes(), "{name}");
    }
    disk.kill();
    let store = open(&disk, Options::default()).await.expect("open again");
    assert_eq!(store.revision().await.expect("revision"), 11);
    store.close().await.expect("close");
    assert_eq!(disk.names(), present, "it happens once");
}

#[tokio::test(start_paused = true)]
async fn a_migration_may_fail_anywhere_and_loses_nothing() {
    let mut failures = 0;
    for seed in 0..40 {
        for successes in 0..12 {
            let (disk, files) = older_disk(seed);
            disk.fail_sync_after(successes);
            match open(&disk, Options::default()).await {
                Ok(store) => drop(store.close().await),
                Err(error) => {
                    assert!(matches!(error, Error::Io { .. }), "{error}");
                    failures += 1;
                }
            }
            disk.crash();
            let store = open(&disk, Options::default()).await.expect("after it");
            check_contents(&store).await;
            store.close().await.expect("close");
            for (name, bytes) in files {
                let backup = format!("backup-format-1-{}", name.text());
                let kept = disk.contents(&backup).expect("backup");
                // A first try may have cut off the torn end before it failed.
                assert!(bytes.starts_with(&kept) && kept.len() + 3 >= bytes.len());
            }
        }
    }
    assert!(failures > 100, "{failures}");
}

#[tokio::test(start_paused = true)]
async fn formats_of_the_future_and_of_long_ago_are_refused_and_untouched() {
    for (format, words) in [
        (FORMAT + 1, "has format 3, this version reads up to 2"),
        (OLDEST_READABLE - 1, "format 0 is too old"),
    ] {
        let disk = SimulatedDisk::new(3);
        let bytes = file(format, Kind::Log, &[vec![put(2, "a")]]);
        disk.overwrite(&Name::Log(1).text(), bytes.clone());
        let error = open(&disk, Options::default()).await.err();
        let error = error.expect("it is refused").to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(disk.names(), [Name::Log(1).text()]);
        assert_eq!(disk.contents(&Name::Log(1).text()).expect("log"), bytes);
    }
}
