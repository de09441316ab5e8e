//! Compressed pieces of lists: a run of neighbouring objects, compressed when first asked for and
//! shared by every list they are part of, until one of them changes. All together are bounded.
//!
//! Where a piece begins depends on the names of the objects alone, so that a change spoils one
//! piece and no other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use api::Status;
use parking_lot::Mutex;

use super::cached_object::CachedObject;
use super::cached_object::Shape;
use crate::gzip::{Compressor, Part};

/// What all kept pieces may take together.
const BUDGET: usize = 32 * 1024 * 1024;
/// What keeping one costs in addition to its bytes and its members.
const OVERHEAD: usize = 256;
/// One name in so many begins a piece.
const USUAL: u64 = 64;
const MOST_MEMBERS: usize = 256;
const MOST_BYTES: usize = 256 * 1024;

/// Which text of its members a piece has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text {
    /// The address of the resource whose version is shown. Objects do not outlive a change of their
    /// kind, so that another resource at the same address has other members.
    pub shown_as: usize,
    pub shape: Shape,
    pub is_protobuf: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    text: Text,
    /// The address of its first member, which the piece keeps from being used again.
    first: usize,
    /// The first of a list has no comma in front of it.
    is_first: bool,
    /// It ends because the list does, not because another begins.
    is_end: bool,
}

struct Piece {
    /// Told apart by their addresses.
    members: Vec<Weak<CachedObject>>,
    /// Those who ask while it is being made wait for it.
    part: Mutex<Option<Part>>,
}

impl Piece {
    fn begins(&self, entries: &[&Arc<CachedObject>]) -> bool {
        self.members.len() <= entries.len()
            && self
                .members
                .iter()
                .zip(entries)
                .all(|(member, entry)| std::ptr::eq(member.as_ptr(), Arc::as_ptr(entry)))
    }

    /// The compressed piece, and whether it was not compressed before.
    fn part(&self, make: impl FnOnce() -> Result<Part, Status>) -> Result<(Part, bool), Status> {
        let mut part = self.part.lock();
        if let Some(part) = &*part {
            return Ok((part.clone(), false));
        }
        let made = make()?;
        *part = Some(made.clone());
        Ok((made, true))
    }
}

pub(crate) struct Pieces {
    budget: usize,
    /// Never taken with a piece's own lock held.
    kept: Mutex<Kept>,
    made: AtomicU64,
    bytes_in: AtomicU64,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    next: u64,
    pieces: BTreeMap<Key, (u64, usize, Arc<Piece>)>,
    /// In the order they were made; one that was replaced meanwhile has another number.
    order: VecDeque<(u64, Key)>,
}

impl Default for Pieces {
    fn default() -> Pieces {
        Pieces::within(BUDGET)
    }
}

impl Pieces {
    fn within(budget: usize) -> Pieces {
        Pieces {
            budget,
            kept: Mutex::default(),
            made: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
        }
    }

    /// How many pieces were compressed, and how many bytes went into them.
    pub fn made(&self) -> (u64, u64) {
        (
            self.made.load(Ordering::Relaxed),
            self.bytes_in.load(Ordering::Relaxed),
        )
    }

    /// The compressed text of all `entries`. `write` appends that of one of them, told whether it is
    /// the first of the list.
    pub async fn of(
        &self,
        text: Text,
        entries: &[&Arc<CachedObject>],
        write: impl Fn(&mut Vec<u8>, &Arc<CachedObject>, bool) -> Result<(), Status>,
    ) -> Result<Vec<Part>, Status> {
        let mut parts = Vec::with_capacity(entries.len() / USUAL as usize * 2 + 1);
        let mut position = 0;
        // Needed only when something is to be made.
        let mut tools: Option<(Vec<u8>, Compressor)> = None;
        while position < entries.len() {
            let rest = &entries[position..];
            let is_first = position == 0;
            let (key, piece) = self.find(text, rest, is_first);
            position += piece.members.len();
            let make = || {
                let (plain, compressor) =
                    tools.get_or_insert_with(|| (Vec::new(), Compressor::new()));
                plain.clear();
                for (index, entry) in rest[..piece.members.len()].iter().enumerate() {
                    write(plain, entry, is_first && index == 0)?;
                }
                self.made.fetch_add(1, Ordering::Relaxed);
                let length = plain.len() as u64;
                self.bytes_in.fetch_add(length, Ordering::Relaxed);
                Ok(compressor.part(plain))
            };
            let (part, is_new) = piece.part(make)?;
            parts.push(part.clone());
            if !is_new {
                continue;
            }
            self.weigh(&key, &piece, &part);
            // A long list is not made at the cost of everybody else.
            tokio::task::yield_now().await;
        }
        Ok(parts)
    }

    /// The kept piece that `entries` begin with, or a new one.
    fn find(
        &self,
        text: Text,
        entries: &[&Arc<CachedObject>],
        is_first: bool,
    ) -> (Key, Arc<Piece>) {
        let key = |is_end| Key {
            text,
            first: Arc::as_ptr(entries[0]) as usize,
            is_first,
            is_end,
        };
        let mut kept = self.kept.lock();
        for is_end in [false, true] {
            if let Some((_, _, piece)) = kept.pieces.get(&key(is_end))
                && piece.begins(entries)
                && (!is_end || piece.members.len() == entries.len())
            {
                return (key(is_end), piece.clone());
            }
        }
        let length = length(entries);
        let members = entries[..length].iter();
        let piece = Arc::new(Piece {
            members: members.map(|entry| Arc::downgrade(entry)).collect(),
            part: Mutex::default(),
        });
        let size = length * size_of::<Weak<CachedObject>>() + OVERHEAD;
        let key = key(length == entries.len());
        kept.insert(key, size, piece.clone());
        (key, piece)
    }

    /// Counts what a new piece has come to weigh, and gives up what must go for it.
    fn weigh(&self, key: &Key, piece: &Arc<Piece>, part: &Part) {
        let mut kept = self.kept.lock();
        let kept = &mut *kept;
        if let Some((_, size, found)) = kept.pieces.get_mut(key)
            && Arc::ptr_eq(found, piece)
        {
            *size += part.bytes.len();
            kept.bytes += part.bytes.len();
        }
        while kept.bytes > self.budget
            && let Some((number, oldest)) = kept.order.pop_front()
        {
            kept.remove(&oldest, number);
        }
    }
}

impl Kept {
    fn insert(&mut self, key: Key, size: usize, piece: Arc<Piece>) {
        let number = self.next;
        self.next += 1;
        self.bytes += size;
        self.order.push_back((number, key));
        if let Some((_, before, _)) = self.pieces.insert(key, (number, size, piece)) {
            self.bytes -= before;
        }
        // Names of what was replaced are not to pile up.
        if self.order.len() > 2 * self.pieces.len() + 64 {
            let pieces = &self.pieces;
            self.order
                .retain(|(number, key)| pieces.get(key).is_some_and(|(kept, ..)| kept == number));
        }
    }

    fn remove(&mut self, key: &Key, number: u64) {
        if self
            .pieces
            .get(key)
            .is_some_and(|(kept, ..)| *kept == number)
            && let Some((_, size, _)) = self.pieces.remove(key)
        {
            self.bytes -= size;
        }
    }
}

/// How many of `entries` make up the piece that begins with them.
fn length(entries: &[&Arc<CachedObject>]) -> usize {
    let mut bytes = 0;
    for (index, entry) in entries.iter().enumerate() {
        let is_full = index >= MOST_MEMBERS || bytes >= MOST_BYTES;
        if index > 0 && (is_full || begins(&entry.key)) {
            return index;
        }
        bytes += entry.bytes.len();
    }
    entries.len()
}

fn begins(key: &str) -> bool {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // Mixed once more: names that differ in their last letter only must not all be alike.
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> 32) % USUAL == 0
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const TEXT: Text = Text {
        shown_as: 1,
        shape: Shape::Object,
        is_protobuf: false,
    };

    fn entry(number: usize, revision: u64) -> Arc<CachedObject> {
        let resource = api::catalogue::built_in()
            .find("", "v1", "configmaps")
            .unwrap();
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"map-{number:05}","namespace":"a","uid":"u"}}}}"#
        );
        let key = format!("a/map-{number:05}");
        CachedObject::decode(resource, &key, json.into(), revision)
            .unwrap()
            .into_shared()
    }

    fn write(out: &mut Vec<u8>, entry: &Arc<CachedObject>, is_first: bool) -> Result<(), Status> {
        let comma = if is_first { "" } else { "," };
        out.extend_from_slice(format!("{comma}{}@{}", entry.key, entry.revision).as_bytes());
        Ok(())
    }

    fn list(pieces: &Pieces, entries: &[Arc<CachedObject>]) -> String {
        let borrowed: Vec<&Arc<CachedObject>> = entries.iter().collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let parts = runtime.block_on(pieces.of(TEXT, &borrowed, write)).unwrap();
        let file = crate::gzip::join(&parts).concat();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&file[..])
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    fn expected(entries: &[Arc<CachedObject>]) -> String {
        let texts: Vec<String> = entries
            .iter()
            .map(|entry| format!("{}@{}", entry.key, entry.revision))
            .collect();
        texts.join(",")
    }

    #[test]
    fn a_change_replaces_one_piece_and_lists_stay_correct() {
        let pieces = Pieces::default();
        let mut entries: Vec<_> = (0..2000).map(|number| entry(number, 1)).collect();
        assert_eq!(list(&pieces, &entries), expected(&entries));
        let (first, _) = pieces.made();
        assert!(first > 10, "{first} pieces");
        assert_eq!(list(&pieces, &entries), expected(&entries));
        assert_eq!(pieces.made().0, first, "the second time makes nothing");

        entries[1000] = entry(1000, 2);
        assert_eq!(list(&pieces, &entries), expected(&entries));
        assert_eq!(pieces.made().0, first + 1);
        entries.remove(700);
        assert_eq!(list(&pieces, &entries), expected(&entries));
        assert!(pieces.made().0 <= first + 3);

        // A part of the list: its ends are its own, and do not drive out those of the whole.
        let before = pieces.made().0;
        for _ in 0..3 {
            assert_eq!(list(&pieces, &entries[..500]), expected(&entries[..500]));
            assert_eq!(list(&pieces, &entries), expected(&entries));
        }
        assert!(pieces.made().0 <= before + 1);
        assert_eq!(list(&pieces, &[]), "");
    }

    #[test]
    fn pieces_together_stay_within_their_budget() {
        let pieces = Pieces::within(16 * 1024);
        for revision in 1..20 {
            let entries: Vec<_> = (0..1000).map(|number| entry(number, revision)).collect();
            assert_eq!(list(&pieces, &entries), expected(&entries));
            let kept = pieces.kept.lock();
            assert!(kept.bytes <= 16 * 1024, "{} bytes", kept.bytes);
            let sum: usize = kept.pieces.values().map(|(_, size, _)| size).sum();
            assert_eq!(kept.bytes, sum);
            assert!(kept.order.len() <= 2 * kept.pieces.len() + 65);
        }
    }
}
