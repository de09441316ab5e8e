//! The timelines in memory, bounded: the oldest pod makes room for a new one; of what is done again
//! and again the first time and the last ones are kept; and a pod that has too many spans all the
//! same keeps its first ones, since those show its birth.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

use crate::{Failure, Hop, Span, Timeline};

pub const MAX_TIMELINES: usize = 1_000;
pub const MAX_SPANS: usize = 100;
/// Spans of one pod with the same hop, name and component: restarts, and attempts that fail.
pub const MAX_REPEATS: usize = 10;

#[derive(Default)]
pub struct Table {
    /// By UID. Never iterated: the order of a hash would not repeat itself.
    timelines: HashMap<String, Timeline, BuildHasherDefault<DefaultHasher>>,
    /// UIDs by age.
    order: BTreeMap<u64, String>,
    /// The newest UID of each namespace and name.
    names: BTreeMap<(String, String), String>,
    next: u64,
}

impl Table {
    /// Links a name to a UID.
    pub fn begin(&mut self, uid: &str, namespace: &str, name: &str) {
        let timeline = self.timeline(uid);
        namespace.clone_into(&mut timeline.namespace);
        name.clone_into(&mut timeline.name);
        let key = (namespace.to_owned(), name.to_owned());
        self.names.insert(key, uid.to_owned());
    }

    /// Adds a span; `false` when the pod has too many.
    pub fn record(&mut self, uid: &str, mut span: Span) -> bool {
        // Other processes report spans too.
        span.failure = span
            .failure
            .map(|failure| Failure::new(&failure.error, failure.attempt, failure.retry));
        let timeline = self.timeline(uid);
        // Work that is still going on is recorded again and again; the newest span replaces the older.
        let same = |known: &&mut Span| {
            (known.hop, known.start) == (span.hop, span.start)
                && (&known.name, &known.component) == (&span.name, &span.component)
        };
        if let Some(known) = timeline.spans.iter_mut().find(same) {
            *known = span;
            return true;
        }
        let repeated = |known: &Span| {
            (known.hop, &known.name, &known.component) == (span.hop, &span.name, &span.component)
        };
        let repeats = timeline.spans.iter().enumerate();
        let mut repeats = repeats.filter(|(_, known)| repeated(known));
        let second = repeats.nth(1).map(|(index, _)| index);
        if let Some(second) = second.filter(|_| repeats.count() + 2 >= MAX_REPEATS) {
            timeline.spans.remove(second);
        }
        let room = timeline.spans.len() < MAX_SPANS;
        if room {
            timeline.spans.push(span);
        }
        room
    }

    pub fn get(&self, uid: &str) -> Option<Timeline> {
        let mut timeline = self.timelines.get(uid)?.clone();
        complete(&mut timeline.spans);
        Some(timeline)
    }

    pub fn find(&self, namespace: &str, name: &str) -> Option<Timeline> {
        let key = (namespace.to_owned(), name.to_owned());
        self.get(self.names.get(&key)?)
    }

    /// Every timeline as recorded, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Timeline> {
        self.order
            .values()
            .filter_map(|uid| self.timelines.get(uid))
    }

    fn timeline(&mut self, uid: &str) -> &mut Timeline {
        if !self.timelines.contains_key(uid) {
            while self.timelines.len() >= MAX_TIMELINES {
                self.drop_oldest();
            }
            self.order.insert(self.next, uid.to_owned());
            self.next += 1;
            let timeline = Timeline {
                uid: uid.to_owned(),
                ..Timeline::default()
            };
            self.timelines.insert(uid.to_owned(), timeline);
        }
        self.timelines
            .get_mut(uid)
            .expect("was there or was just inserted")
    }

    fn drop_oldest(&mut self) {
        let Some((_, uid)) = self.order.pop_first() else {
            return;
        };
        if let Some(timeline) = self.timelines.remove(&uid) {
            let key = (timeline.namespace, timeline.name);
            if self.names.get(&key) == Some(&uid) {
                self.names.remove(&key);
            }
        }
    }
}

/// Sorts spans by hop and start, and fills in how long the watches took: nobody can measure that
/// at one end, so it is the time between the hop before and the receipt.
fn complete(spans: &mut [Span]) {
    spans.sort_by_key(|span| (span.hop, span.start));
    for index in 0..spans.len() {
        let span = &spans[index];
        if !matches!(span.hop, Hop::WatchScheduler | Hop::WatchNode) || span.queue_us != 0 {
            continue;
        }
        let before = spans[..index]
            .iter()
            .filter(|earlier| earlier.hop < span.hop)
            .max_by_key(|earlier| (earlier.hop, earlier.end()));
        if let Some(before) = before {
            spans[index].queue_us = u64::try_from(span.start - before.end()).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(hop: Hop, start: i64, work_us: u64) -> Span {
        Span {
            hop,
            name: "step".into(),
            component: "part".into(),
            start,
            queue_us: 0,
            work_us,
            bytes: 0,
            failure: None,
        }
    }

    #[test]
    fn spans_come_back_sorted_with_watch_queues() {
        let mut table = Table::default();
        table.begin("u", "ns", "pod");
        for (hop, start, work) in [
            (Hop::WatchNode, 900, 5),
            (Hop::Bind, 500, 100),
            (Hop::Created, 100, 50),
            (Hop::WatchScheduler, 120, 5),
            (Hop::Bind, 400, 20),
        ] {
            assert!(table.record("u", span(hop, start, work)));
        }
        let spans = table.find("ns", "pod").expect("known").spans;
        let shown: Vec<_> = spans
            .iter()
            .map(|span| (span.hop as u8, span.start, span.queue_us))
            .collect();
        assert_eq!(
            shown,
            [
                (5, 100, 0),
                // Delivered before the creator had its answer: no queue.
                (6, 120, 0),
                (8, 400, 0),
                (8, 500, 0),
                (9, 900, 300),
            ]
        );
    }

    #[test]
    fn the_newest_pod_of_a_name_is_found() {
        let mut table = Table::default();
        table.begin("old", "ns", "pod");
        table.begin("new", "ns", "pod");
        assert_eq!(table.find("ns", "pod").expect("known").uid, "new");
        assert_eq!(table.get("old").expect("known").uid, "old");
        assert_eq!(table.find("other", "pod"), None);
    }

    #[test]
    fn a_span_that_is_recorded_again_grows() {
        let mut table = Table::default();
        table.begin("u", "ns", "pod");
        for work in [1, 2, 3] {
            assert!(table.record("u", span(Hop::Node, 5, work)));
        }
        let spans = table.get("u").expect("known").spans;
        assert_eq!((spans.len(), spans[0].work_us), (1, 3));
    }

    #[test]
    fn pods_and_spans_per_pod_are_bounded() {
        let mut table = Table::default();
        for number in 0..MAX_TIMELINES + 10 {
            table.begin(&format!("u{number}"), "ns", &format!("pod{number}"));
        }
        assert_eq!(table.iter().count(), MAX_TIMELINES);
        assert_eq!(table.find("ns", "pod9"), None);
        assert!(table.find("ns", "pod10").is_some());
        let recorded = (0..MAX_SPANS + 10)
            .filter(|number| {
                let name = format!("step {number}");
                let span = span(Hop::After, *number as i64, 1);
                table.record("u100", Span { name, ..span })
            })
            .count();
        assert_eq!(recorded, MAX_SPANS);
    }

    #[test]
    fn of_many_attempts_the_first_and_the_last_are_kept() {
        let mut table = Table::default();
        table.begin("u", "ns", "pod");
        assert!(table.record("u", span(Hop::Created, 0, 1)));
        for number in 1..=1000_u32 {
            let error = "x".repeat(10_000);
            let failure = Some(Failure {
                error,
                attempt: number,
                retry: None,
            });
            let span = span(Hop::Node, number.into(), 1);
            assert!(table.record("u", Span { failure, ..span }));
        }
        let spans = table.get("u").expect("known").spans;
        assert_eq!(spans.len(), 1 + MAX_REPEATS);
        let failures = spans.iter().filter_map(|span| span.failure.as_ref());
        let attempts: Vec<u32> = failures.clone().map(|failure| failure.attempt).collect();
        assert_eq!(attempts[0], 1);
        assert_eq!(
            attempts[1..],
            [992, 993, 994, 995, 996, 997, 998, 999, 1000]
        );
        assert!(
            failures
                .into_iter()
                .all(|failure| failure.error.len() < 500)
        );
    }
}
