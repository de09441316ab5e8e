//! Decides whether an observed Event is created, increases the count of an existing one, or is
//! dropped.
//!
//! Without I/O. Three steps with upstream's numbers: a token bucket per object against floods,
//! combining ten different messages with one reason within ten minutes, and counting equal ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};

const ENTRIES: usize = 4096;
const SPAM_BURST: f64 = 25.0;
const SPAM_REFILL_MICROS: f64 = 300e6;
const SIMILAR: usize = 10;
const SIMILAR_WITHIN_MICROS: i64 = 600_000_000;

/// An Event to write: to create, or to patch onto the existing one of its name.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) event: Event,
    pub(super) repeat: bool,
}

pub(super) struct Correlator {
    buckets: Recent<Bucket>,
    similar: Recent<Similar>,
    counted: Recent<Counted>,
}

struct Bucket {
    tokens: f64,
    filled_micros: i64,
}

struct Similar {
    messages: BTreeSet<String>,
    last_micros: i64,
}

struct Counted {
    name: String,
    count: i32,
    first: Option<Time>,
}

impl Correlator {
    pub(super) fn new() -> Correlator {
        Correlator {
            buckets: Recent::new(),
            similar: Recent::new(),
            counted: Recent::new(),
        }
    }

    pub(super) fn correlate(&mut self, mut event: Event, now_micros: i64) -> Option<Write> {
        let object = object_key(&event);
        let reason = format!("{object}\0{}", text(&event.reason));
        let message = text(&event.message).to_owned();

        let similar = self.similar.get_or_insert(&reason, || Similar {
            messages: BTreeSet::new(),
            last_micros: now_micros,
        });
        if now_micros - similar.last_micros > SIMILAR_WITHIN_MICROS {
            similar.messages.clear();
        }
        similar.last_micros = now_micros;
        similar.messages.insert(message.clone());
        let key = if similar.messages.len() < SIMILAR {
            format!(
                "{reason}\0{}\0{message}",
                text(&event.involved_object.field_path)
            )
        } else {
            similar.messages.pop_first();
            event.message = Some(format!("(combined from similar events): {message}"));
            reason
        };

        let repeat = match self.counted.get(&key) {
            Some(counted) => {
                counted.count += 1;
                event.metadata.name = Some(counted.name.clone());
                event.count = Some(counted.count);
                event.first_timestamp = counted.first.clone();
                true
            }
            None => {
                let name = event.metadata.name.clone().unwrap_or_default();
                let first = event.first_timestamp.clone();
                self.counted.get_or_insert(&key, || Counted {
                    name,
                    count: 1,
                    first,
                });
                false
            }
        };

        let bucket = self.buckets.get_or_insert(&object, || Bucket {
            tokens: SPAM_BURST,
            filled_micros: now_micros,
        });
        let elapsed = (now_micros - bucket.filled_micros).max(0) as f64;
        bucket.tokens = (bucket.tokens + elapsed / SPAM_REFILL_MICROS).min(SPAM_BURST);
        bucket.filled_micros = now_micros;
        if bucket.tokens < 1.0 {
            return None;
        }
        bucket.tokens -= 1.0;
        Some(Write { event, repeat })
    }
}

fn object_key(event: &Event) -> String {
    let object = &event.involved_object;
    [
        text(&object.kind),
        text(&object.namespace),
        text(&object.name),
        text(&object.uid),
        text(&object.api_version),
        text(&event.type_),
    ]
    .join("\0")
}

fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

/// A map that drops its least recently used key when it is full.
struct Recent<V> {
    entries: BTreeMap<Arc<str>, (u64, V)>,
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
}

impl<V> Recent<V> {
    fn new() -> Recent<V> {
        Recent {
            entries: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    fn get(&mut self, key: &str) -> Option<&mut V> {
        let (key, _) = self.entries.get_key_value(key)?;
        let key = key.clone();
        self.uses += 1;
        let (used, value) = self.entries.get_mut(&key)?;
        self.by_use.remove(used);
        *used = self.uses;
        self.by_use.insert(self.uses, key);
        Some(value)
    }

    fn get_or_insert(&mut self, key: &str, make: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(key) {
            if self.entries.len() >= ENTRIES
                && let Some((_, oldest)) = self.by_use.pop_first()
            {
                self.entries.remove(&oldest);
            }
            self.uses += 1;
            let key: Arc<str> = key.into();
            self.by_use.insert(self.uses, key.clone());
            self.entries.insert(key, (self.uses, make()));
        }
        self.get(key).expect("inserted when it was absent")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, object: &str, reason: &str, message: &str) -> Event {
        let mut event = Event::default();
        event.metadata.name = Some(name.to_owned());
        event.involved_object.name = Some(object.to_owned());
        event.reason = Some(reason.to_owned());
        event.message = Some(message.to_owned());
        event.count = Some(1);
        event
    }

    #[test]
    fn equal_events_increase_the_count_of_the_first() {
        let mut correlator = Correlator::new();
        for expected in 1..=3 {
            let name = format!("name-{expected}");
            let write = correlator
                .correlate(event(&name, "web", "Failed", "no"), expected)
                .expect("written");
            assert_eq!(write.event.metadata.name.as_deref(), Some("name-1"));
            assert_eq!(write.event.count, Some(expected as i32));
            assert_eq!(write.repeat, expected > 1);
        }
        let other = correlator.correlate(event("b", "db", "Failed", "no"), 9);
        assert!(!other.expect("written").repeat);
    }

    #[test]
    fn the_tenth_different_message_creates_a_combined_event() {
        let mut correlator = Correlator::new();
        for number in 1..=12 {
            let message = format!("message {number:02}");
            let name = format!("name-{number}");
            let write = correlator
                .correlate(event(&name, "web", "Failed", &message), number)
                .expect("written");
            let combined = format!("(combined from similar events): {message}");
            assert_eq!(write.event.message == Some(combined), number >= 10);
            assert_eq!(write.repeat, number > 10);
        }
        let much_later = SIMILAR_WITHIN_MICROS + 100;
        let write = correlator.correlate(event("z", "web", "Failed", "fresh"), much_later);
        assert_eq!(
            write.expect("written").event.message.as_deref(),
            Some("fresh")
        );
    }

    #[test]
    fn floods_of_events_about_one_object_are_rate_limited() {
        let mut correlator = Correlator::new();
        let mut written = 0;
        for number in 0..100 {
            let reason = format!("Reason{number}");
            let write = correlator.correlate(event("n", "web", &reason, "m"), number);
            written += usize::from(write.is_some());
        }
        assert_eq!(written, 25);
        let recovered = correlator.correlate(event("n", "web", "Later", "m"), 400_000_000);
        assert!(recovered.is_some());
    }

    #[test]
    fn the_memory_of_the_correlator_is_bounded() {
        let mut recent = Recent::new();
        for number in 0..ENTRIES + 100 {
            recent.get_or_insert(&number.to_string(), || ());
            recent.get("0");
        }
        assert_eq!(recent.entries.len(), ENTRIES);
        assert_eq!(recent.by_use.len(), ENTRIES);
        assert!(recent.get("0").is_some(), "in use");
        assert!(recent.get("1").is_none(), "forgotten");
    }
}
