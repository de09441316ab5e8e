//! What occurs more than once, found in n log n. Lists and maps of user data are checked with this
//! and never by looking through all that came before.

use std::borrow::Borrow;
use std::collections::BTreeSet;

use crate::steps;

/// The indices of the items that equal an earlier one, ascending.
pub(crate) fn repeats<T: Ord>(items: &[T]) -> Vec<usize> {
    // Most lists are short or in order.
    if items.windows(2).all(|pair| pair[0] < pair[1]) {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|left, right| {
        steps::count(1);
        items[*left].cmp(&items[*right])
    });
    let mut again: Vec<usize> = order
        .windows(2)
        .filter(|pair| items[pair[0]] == items[pair[1]])
        .map(|pair| pair[1])
        .collect();
    again.sort_unstable();
    again
}

/// What has been seen so far.
#[derive(Clone, Debug)]
pub(crate) struct Seen<T>(BTreeSet<T>);

impl<T: Ord> Seen<T> {
    pub fn new() -> Seen<T> {
        Seen(BTreeSet::new())
    }

    /// Adds an item; whether it is there for the first time.
    pub fn insert(&mut self, item: T) -> bool {
        steps::count(1);
        self.0.insert(item)
    }

    pub fn contains<Item>(&self, item: &Item) -> bool
    where
        T: Borrow<Item>,
        Item: Ord + ?Sized,
    {
        steps::count(1);
        self.0.contains(item)
    }
}

impl<T: Ord> FromIterator<T> for Seen<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Seen<T> {
        Seen(items.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_items_are_found() {
        assert!(repeats(&["a", "b", "c"]).is_empty());
        assert_eq!(repeats(&["b", "a", "b", "c", "a", "b"]), [2, 4, 5]);
        let mut seen = Seen::new();
        assert!(seen.insert("a") && seen.insert("b") && !seen.insert("a"));
        assert!(seen.contains(&"b") && !seen.contains(&"c"));
    }

    #[test]
    fn finding_repeats_costs_n_log_n() {
        steps::assert_n_log_n(|items| {
            let items: Vec<usize> = (0..items).rev().collect();
            steps::of(|| drop(repeats(&items)))
        });
    }
}
