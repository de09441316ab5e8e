//! The disk usage of parts of a pod, and sums of them.

use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    /// `None` if they are not counted.
    pub inodes: Option<u64>,
}

impl Usage {
    pub const ZERO: Usage = Usage {
        bytes: 0,
        inodes: Some(0),
    };

    /// The sum, which is unknown if one of them is.
    pub fn sum(all: impl IntoIterator<Item = Option<Usage>>) -> Option<Usage> {
        let mut total = Usage::ZERO;
        for usage in all {
            total.add(usage?);
        }
        Some(total)
    }

    /// The sum of what is known, which is the least it can be; `None` if nothing is known.
    pub fn at_least(all: impl IntoIterator<Item = Option<Usage>>) -> Option<Usage> {
        let mut known = all.into_iter().flatten().peekable();
        known.peek()?;
        Usage::sum(known.map(Some))
    }

    fn add(&mut self, other: Usage) {
        self.bytes += other.bytes;
        let inodes = self.inodes.zip(other.inodes);
        self.inodes = inodes.map(|(own, more)| own + more);
    }
}

/// What is at and below `path`; `None` if it could not be read. Blocking.
pub fn usage(path: &Path) -> Option<Usage> {
    let (bytes, inodes) = files::disk_usage::usage(path)?;
    Some(Usage {
        bytes,
        inodes: Some(inodes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_unknown_if_a_part_is_and_at_least_the_known_parts() {
        let one = Usage {
            bytes: 5,
            inodes: None,
        };
        assert_eq!(Usage::sum([Some(one), None]), None);
        assert_eq!(Usage::at_least([Some(one), None]), Some(one));
        assert_eq!(Usage::at_least([None]), None);
        let sum = Usage::sum([Some(one), Some(Usage::ZERO)]).expect("a sum");
        assert_eq!((sum.bytes, sum.inodes), (5, None));
    }
}
