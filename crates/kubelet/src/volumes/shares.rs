//! Which volumes that must not reach a disk lie in the memory that all pods share, and which have a
//! tmpfs of their own.
//!
//! A mount and its removal cost more than everything else a small volume costs, so small volumes
//! share one tmpfs. Every pod may take so much of it that all pods of the node together cannot fill
//! it: no pod can keep another one from its Secrets. What does not fit into a pod's share gets a
//! tmpfs of its own, and a pod's volumes in memory are bounded altogether.

use std::{collections::BTreeMap, path::Path};

use parking_lot::Mutex;

use super::{Error, Payload, atomic_writer::File};

const PAGE: u64 = 4096;
/// A volume that is brought up to date is there twice for a moment.
const GENERATIONS: u64 = 2;
/// What of its share a pod may fill to begin with: the rest is for volumes that grow, which cannot
/// move any more.
const AT_FIRST: u64 = 4;

/// The file system that a volume is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Shared,
    OwnTmpfs,
}

/// How much memory the volumes of each pod take.
#[derive(Debug, Default)]
pub struct Shares {
    /// Bytes that one pod may have of the shared memory; 0 where there is none.
    share: u64,
    pods: Mutex<BTreeMap<String, BTreeMap<String, Holding>>>,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    bytes: u64,
    place: Place,
}

/// A volume that is to be written.
pub struct Wanted<'a> {
    pub uid: &'a str,
    pub volume: &'a str,
    pub bytes: u64,
    /// Where the volume is, if it is set up already: containers use it, so it cannot be moved.
    pub present: Option<Place>,
    /// How much memory the pod's volumes may take altogether.
    pub most: u64,
}

impl Shares {
    /// Shares of the tmpfs at `root` for `pods` pods.
    pub fn of(root: Option<&Path>, pods: i64) -> Shares {
        let size = root.and_then(files::disk_space::space);
        let pods = u64::try_from(pods).unwrap_or(0).max(1);
        Shares {
            share: size.map_or(0, |size| size.capacity / pods),
            ..Shares::default()
        }
    }

    /// Decides where the volume is written, or that its pod has too much in memory.
    pub fn place(&self, wanted: &Wanted<'_>) -> Result<Place, Error> {
        let mut pods = self.pods.lock();
        let held = pods.entry(wanted.uid.to_owned()).or_default();
        let others = held.iter().filter(|(name, _)| *name != wanted.volume);
        let (mut shared, mut all) = (wanted.bytes, wanted.bytes);
        for (_, holding) in others {
            all += holding.bytes;
            if holding.place == Place::Shared {
                shared += holding.bytes;
            }
        }
        if all > wanted.most {
            return Err(Error::Medium(format!(
                "volumes in memory need {all} bytes, more than the {} that one pod may have on this node",
                wanted.most
            )));
        }
        let fits = |share: u64| shared * GENERATIONS <= share;
        let place = match wanted.present {
            Some(Place::Shared) if !fits(self.share) => {
                return Err(Error::Medium(format!(
                    "the volume has grown to {} bytes, for which there is no room in the pod's share of memory: it keeps its content until the pod is replaced",
                    wanted.bytes
                )));
            }
            Some(present) => present,
            None if fits(self.share / AT_FIRST) => Place::Shared,
            None => Place::OwnTmpfs,
        };
        let holding = Holding {
            bytes: wanted.bytes,
            place,
        };
        held.insert(wanted.volume.to_owned(), holding);
        Ok(place)
    }

    pub fn forget(&self, uid: &str) {
        self.pods.lock().remove(uid);
    }
}

/// What the payload takes of a tmpfs: whole pages, and about one more for what the kernel keeps of
/// each file.
pub fn size(payload: &Payload) -> u64 {
    let of = |file: &File| (file.content.len() as u64).div_ceil(PAGE) * PAGE + PAGE;
    payload.values().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn shares(share: u64) -> Shares {
        Shares {
            share,
            ..Shares::default()
        }
    }

    fn wanted<'a>(uid: &'a str, volume: &'a str, bytes: u64) -> Wanted<'a> {
        Wanted {
            uid,
            volume,
            bytes,
            present: None,
            most: 100 * MIB,
        }
    }

    #[test]
    fn a_pod_with_much_gets_memory_of_its_own_and_never_more_than_its_share() {
        let shares = shares(8 * MIB);
        let place =
            |uid, volume, bytes| shares.place(&wanted(uid, volume, bytes)).expect("a place");
        assert_eq!(place("a", "token", 24 << 10), Place::Shared);
        assert_eq!(place("a", "large", 2 * MIB), Place::OwnTmpfs);
        // However many there are, those of one pod fill no more than its share.
        let names: Vec<String> = (0..1000).map(|number| format!("v{number}")).collect();
        let places = names.iter().map(|name| place("a", name, 64 << 10));
        let shared = places.filter(|place| *place == Place::Shared).count() as u64;
        assert!(
            shared > 0 && shared * (64 << 10) * GENERATIONS <= 8 * MIB,
            "{shared}"
        );
        assert_eq!(place("b", "token", 24 << 10), Place::Shared, "another pod");
        shares.forget("a");
        assert_eq!(place("a", "token", 24 << 10), Place::Shared);
    }

    #[test]
    fn a_volume_grows_within_the_share_and_is_never_moved() {
        let shares = shares(8 * MIB);
        let grow = |bytes, present| {
            let present = Some(present);
            shares.place(&Wanted {
                present,
                ..wanted("a", "v", bytes)
            })
        };
        let place = shares.place(&wanted("a", "v", 4096)).expect("a place");
        assert_eq!(place, Place::Shared);
        assert_eq!(
            grow(3 * MIB, Place::Shared).expect("a place"),
            Place::Shared
        );
        assert!(grow(5 * MIB, Place::Shared).is_err());
        assert_eq!(
            grow(5 * MIB, Place::OwnTmpfs).expect("a place"),
            Place::OwnTmpfs
        );
    }

    #[test]
    fn one_pod_cannot_take_all_memory() {
        let shares = shares(8 * MIB);
        let names: Vec<String> = (0..1000).map(|number| format!("v{number}")).collect();
        let placed = names
            .iter()
            .map(|name| shares.place(&wanted("a", name, MIB)));
        assert_eq!(placed.filter(Result::is_ok).count(), 100);
        assert!(shares.place(&wanted("b", "v", MIB)).is_ok());
    }

    #[test]
    fn small_files_count_as_the_pages_they_take() {
        let file = |bytes: usize| File::new(&vec![1; bytes], 0o644);
        let payload = Payload::from([
            ("a".to_owned(), file(1)),
            ("b".to_owned(), file(5000)),
            ("c".to_owned(), file(0)),
        ]);
        assert_eq!(size(&payload), (2 + 3 + 1) * PAGE);
    }

    #[test]
    fn without_shared_memory_every_volume_has_its_own() {
        let shares = Shares::of(None, 110);
        let place = shares.place(&wanted("a", "v", 4096)).expect("a place");
        assert_eq!(place, Place::OwnTmpfs);
    }
}
