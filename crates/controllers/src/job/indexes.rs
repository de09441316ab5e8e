//! Sets of completion indexes as intervals, written as `1,3-5,7`: a Job may have a hundred thousand
//! of them. Pure.

use std::fmt;

/// Ordered, disjoint, not touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes {
    intervals: Vec<(i32, i32)>,
}

impl Indexes {
    /// Reads what a status says; what is not below `completions` is left out.
    pub fn parse(text: &str, completions: i32) -> Indexes {
        let mut indexes = Indexes::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<i32>()) {
                indexes.add(first, last.min(completions - 1));
            }
        }
        indexes
    }

    pub fn insert(&mut self, index: i32) {
        self.add(index, index);
    }

    pub fn with(mut self, indexes: impl IntoIterator<Item = i32>) -> Indexes {
        for index in indexes {
            self.insert(index);
        }
        self
    }

    pub fn union(mut self, other: &Indexes) -> Indexes {
        for (first, last) in &other.intervals {
            self.add(*first, *last);
        }
        self
    }

    pub fn contains(&self, index: i32) -> bool {
        let position = self.intervals.partition_point(|(_, last)| *last < index);
        let interval = self.intervals.get(position);
        interval.is_some_and(|(first, _)| *first <= index)
    }

    pub fn total(&self) -> i32 {
        let lengths = self.intervals.iter().map(|(first, last)| last - first + 1);
        lengths.sum()
    }

    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// How many are in both.
    pub fn common(&self, other: &Indexes) -> i32 {
        let mut count = 0;
        for (first, last) in &self.intervals {
            for (other_first, other_last) in &other.intervals {
                count += (last.min(other_last) - first.max(other_first) + 1).max(0);
            }
        }
        count
    }

    /// The first `count` below `completions` that are not in the set.
    pub fn first_missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let mut missing = Vec::new();
        let mut candidate = 0;
        let end = [(completions, completions)];
        for (first, last) in self.intervals.iter().chain(&end) {
            while candidate < (*first).min(completions) {
                if missing.len() == count {
                    return missing;
                }
                missing.push(candidate);
                candidate += 1;
            }
            candidate = candidate.max(last.saturating_add(1));
        }
        missing
    }

    fn add(&mut self, first: i32, last: i32) {
        if first > last || first < 0 {
            return;
        }
        // Those that overlap or touch melt into one.
        let start = self
            .intervals
            .partition_point(|(_, end)| *end < first.saturating_sub(1));
        let end = self
            .intervals
            .partition_point(|(begin, _)| *begin <= last.saturating_add(1));
        let merged = self.intervals[start..end].iter().fold(
            (first, last),
            |(first, last), (other_first, other_last)| {
                (first.min(*other_first), last.max(*other_last))
            },
        );
        self.intervals.splice(start..end, [merged]);
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.intervals.iter().enumerate() {
            if position > 0 {
                formatter.write_str(",")?;
            }
            match last - first {
                0 => write!(formatter, "{first}")?,
                1 => write!(formatter, "{first},{last}")?,
                _ => write!(formatter, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn text_round_trips_and_is_as_short_as_upstreams() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7", "1,2,4,5"] {
            assert_eq!(Indexes::parse(text, 100).to_string(), text);
        }
        assert_eq!(Indexes::parse("0-9,20", 5).to_string(), "0-4");
        assert_eq!(Indexes::parse("3,4,5,x,9-8", 100).to_string(), "3-5");
    }

    /// In every order of insertions the set behaves like a plain set.
    #[test]
    fn indexes_form_a_set() {
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut model = BTreeSet::new();
            let mut indexes = Indexes::default();
            for _ in 0..random.random_range(0..40) {
                let index = random.random_range(0..30);
                model.insert(index);
                indexes.insert(index);
            }
            assert_eq!(indexes.total() as usize, model.len());
            for index in 0..30 {
                assert_eq!(indexes.contains(index), model.contains(&index));
            }
            assert_eq!(Indexes::parse(&indexes.to_string(), 30), indexes);
            let missing: Vec<i32> = (0..30).filter(|index| !model.contains(index)).collect();
            for count in [0, 1, 3, 30] {
                let expected: Vec<i32> = missing.iter().copied().take(count).collect();
                assert_eq!(indexes.first_missing(count, 30), expected);
            }
            let other = Indexes::default().with((0..30).filter(|_| random.random()));
            let common = (0..30).filter(|index| model.contains(index) && other.contains(*index));
            assert_eq!(indexes.common(&other) as usize, common.count());
        }
    }
}
