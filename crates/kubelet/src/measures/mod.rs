//! Counts and times the kubelet's own work, for `/metrics`. A series is found by comparing
//! its labels in place, so that a known one costs a lock and no allocation. Rendering is the
//! server's.
//!
//! It is our own because the metrics crates keep a global registry and allocate the labels of every
//! call; here each kubelet has its own series (tests run several), and their number is bounded.

mod families;
mod runtime_calls;

use std::time::Duration;

use parking_lot::Mutex;

pub use self::families::{Counter, Histogram};

/// Series of one family; what comes after them is not kept.
const MOST_SERIES: usize = 512;

/// A family's name, labels and meaning.
#[derive(Debug)]
pub struct Description {
    pub name: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
    /// Upper bounds, rising; empty for counters.
    pub buckets: &'static [f64],
}

#[derive(Default)]
pub struct Measures {
    counters: [Series<u64>; families::COUNTERS.len()],
    histograms: [Series<Observations>; families::HISTOGRAMS.len()],
}

/// The values of a family by those of its labels.
type Series<T> = Mutex<Vec<(Box<[Box<str>]>, T)>>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observations {
    /// How many fell into each bucket, the one above the last bound included.
    pub buckets: Box<[u64]>,
    pub sum: f64,
}

impl Observations {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// One family with its present values.
pub struct Family<T> {
    pub description: &'static Description,
    pub series: Vec<(Box<[Box<str>]>, T)>,
}

impl Measures {
    /// Adds one. `labels` are as many values as the family has labels.
    pub fn count(&self, counter: Counter, labels: &[&str]) {
        change(&self.counters[counter as usize], labels, |count| {
            *count += 1;
        });
    }

    pub fn observe(&self, histogram: Histogram, labels: &[&str], value: f64) {
        let bounds = families::HISTOGRAMS[histogram as usize].buckets;
        change(&self.histograms[histogram as usize], labels, |seen| {
            if seen.buckets.is_empty() {
                seen.buckets = vec![0; bounds.len() + 1].into();
            }
            let place = bounds.partition_point(|bound| *bound < value);
            seen.buckets[place] += 1;
            seen.sum += value;
        });
    }

    pub fn time(&self, histogram: Histogram, labels: &[&str], took: Duration) {
        self.observe(histogram, labels, took.as_secs_f64());
    }

    /// The time between two readings of the wall clock, in microseconds.
    pub fn span(&self, histogram: Histogram, labels: &[&str], from: i64, to: i64) {
        self.observe(histogram, labels, (to - from).max(0) as f64 / 1e6);
    }

    pub fn counters(&self) -> Vec<Family<u64>> {
        read(&families::COUNTERS, &self.counters, || 0)
    }

    pub fn histograms(&self) -> Vec<Family<Observations>> {
        read(
            &families::HISTOGRAMS,
            &self.histograms,
            Observations::default,
        )
    }
}

fn change<T: Default>(series: &Series<T>, labels: &[&str], change: impl FnOnce(&mut T)) {
    let mut series = series.lock();
    let known = series.iter_mut().find(|(known, _)| {
        known.len() == labels.len() && known.iter().zip(labels).all(|(a, b)| &**a == *b)
    });
    if let Some((_, value)) = known {
        return change(value);
    }
    if series.len() < MOST_SERIES {
        let mut value = T::default();
        change(&mut value);
        let labels = labels.iter().map(|label| (*label).into()).collect();
        series.push((labels, value));
    }
}

fn read<T: Clone>(
    descriptions: &'static [Description],
    all: &[Series<T>],
    nothing: impl Fn() -> T,
) -> Vec<Family<T>> {
    let pairs = descriptions.iter().zip(all);
    pairs
        .map(|(description, series)| {
            let mut series = series.lock().clone();
            // A family without labels is there from the beginning.
            if description.labels.is_empty() && series.is_empty() {
                series.push((Box::default(), nothing()));
            }
            series.sort_by(|(a, _), (b, _)| a.cmp(b));
            Family {
                description,
                series,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_in_the_first_bucket_whose_bound_they_do_not_exceed() {
        let measures = Measures::default();
        let bounds = families::HISTOGRAMS[Histogram::PodWorkerDuration as usize].buckets;
        for value in [bounds[0], bounds[0] + 0.001, 1e9] {
            measures.observe(Histogram::PodWorkerDuration, &["create"], value);
        }
        let families = measures.histograms();
        let family = &families[Histogram::PodWorkerDuration as usize];
        let (labels, seen) = &family.series[0];
        assert_eq!(&*labels[0], "create");
        assert_eq!((seen.buckets[0], seen.buckets[1]), (1, 1));
        assert_eq!(seen.buckets.last(), Some(&1));
        assert_eq!(seen.count(), 3);
    }

    #[test]
    fn series_differ_by_labels_and_their_number_is_bounded() {
        let measures = Measures::default();
        for _ in 0..2 {
            measures.count(Counter::StartedContainersErrors, &["container", "a"]);
        }
        for code in 0..2 * MOST_SERIES {
            let code = code.to_string();
            measures.count(Counter::StartedContainersErrors, &["container", &code]);
        }
        let families = measures.counters();
        let series = &families[Counter::StartedContainersErrors as usize].series;
        assert_eq!(series.len(), MOST_SERIES);
        let twice = series.iter().find(|(labels, _)| &*labels[1] == "a");
        assert_eq!(twice.map(|(_, count)| *count), Some(2));
    }

    #[test]
    fn bounds_rise_and_labels_are_complete() {
        for description in &families::HISTOGRAMS {
            assert!(!description.buckets.is_empty(), "{}", description.name);
            assert!(
                description.buckets.is_sorted_by(|a, b| a < b),
                "{}",
                description.name
            );
        }
        assert!(families::COUNTERS.iter().all(|one| one.buckets.is_empty()));
    }
}
