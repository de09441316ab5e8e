//! The parts of the cluster's pod range that nodes can get, and which of them are free; kept up to
//! date with each node and each range of Services. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// How large a node's part is.
pub const NODE_BITS: u8 = 24;

pub struct Pool {
    range: Ipv4Net,
    /// The numbers of the parts that are free.
    free: BTreeSet<u32>,
    /// How many holders each other part has.
    users: BTreeMap<u32, usize>,
    /// What each holder has.
    held: BTreeMap<Holder, Vec<Ipv4Net>>,
}

/// Who has a range, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    Node(String),
    /// It was given to the node in this life; the cache may not show it yet.
    Promised(String),
    /// The node was invited with it and may not have joined yet.
    Invited(String),
    Services(String),
}

impl Pool {
    /// `range` is at least as large as one part.
    pub fn new(range: Ipv4Net) -> Pool {
        Pool {
            range,
            free: (0..1 << (NODE_BITS - range.prefix_len())).collect(),
            users: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// The holder has these ranges, and no others any more.
    pub fn set(&mut self, holder: Holder, ranges: Vec<Ipv4Net>) {
        if self.held.get(&holder).is_some_and(|held| *held == ranges) {
            return;
        }
        self.remove(&holder);
        for range in &ranges {
            for part in self.parts(*range) {
                *self.users.entry(part).or_default() += 1;
                self.free.remove(&part);
            }
        }
        if !ranges.is_empty() {
            self.held.insert(holder, ranges);
        }
    }

    pub fn remove(&mut self, holder: &Holder) {
        for range in self.held.remove(holder).unwrap_or_default() {
            for part in self.parts(range) {
                if let Some(users) = self.users.get_mut(&part) {
                    *users -= 1;
                    if *users == 0 {
                        self.users.remove(&part);
                        self.free.insert(part);
                    }
                }
            }
        }
    }

    /// The range of the node's invitation, or else the first part that is neither taken nor of an
    /// invitation to another node.
    pub fn give(&mut self, node: &str, invitations: &[(String, Ipv4Net)]) -> Option<Ipv4Net> {
        if let Some((_, own)) = invitations.iter().find(|(invited, _)| invited == node) {
            return Some(*own);
        }
        for (invited, range) in invitations {
            self.set(Holder::Invited(invited.clone()), vec![*range]);
        }
        self.first_free()
    }

    /// The first part that overlaps no range in use.
    fn first_free(&self) -> Option<Ipv4Net> {
        let part = *self.free.first()?;
        let address = u32::from(self.range.network()) + part * (1 << (32 - NODE_BITS));
        Ipv4Net::new(Ipv4Addr::from(address), NODE_BITS).ok()
    }

    /// The numbers of the parts that overlap `range`.
    fn parts(&self, range: Ipv4Net) -> std::ops::Range<u32> {
        let within = |range: Ipv4Net| -> (u64, u64) {
            let end = |address: Ipv4Addr| u64::from(u32::from(address));
            (end(range.network()), end(range.broadcast()) + 1)
        };
        let (own, other) = (within(self.range), within(range));
        let (start, end) = (own.0.max(other.0), own.1.min(other.1));
        if start >= end {
            return 0..0;
        }
        let step = 1_u64 << (32 - NODE_BITS);
        let first = (start - own.0) / step;
        let last = (end - own.0).div_ceil(step);
        first as u32..last as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Option<Ipv4Net> {
        text.parse().ok()
    }

    fn free(pool: &Pool) -> Option<String> {
        pool.first_free().map(|range| range.addr().to_string())
    }

    #[test]
    fn a_node_gets_the_first_pod_cidr_that_overlaps_no_other() {
        let check = |taken: &[&str], expected: Option<&str>| {
            let mut pool = Pool::new(range("10.244.0.0/16").unwrap());
            for text in taken {
                pool.set(Holder::Node(text.to_string()), vec![range(text).unwrap()]);
            }
            assert_eq!(free(&pool).as_deref(), expected, "{taken:?}");
        };
        check(&[], Some("10.244.0.0"));
        check(&["10.244.0.0/24", "10.244.2.0/24"], Some("10.244.1.0"));
        check(&["10.244.0.0/23"], Some("10.244.2.0"));
        check(&["10.244.1.128/25", "10.244.0.0/24"], Some("10.244.2.0"));
        check(&["10.245.0.0/16", "10.96.0.0/12"], Some("10.244.0.0"));
        check(&["10.244.0.0/16"], None);
        check(&["10.0.0.0/8"], None);
        check(&["0.0.0.0/0"], None);
    }

    #[test]
    fn a_range_reserved_for_an_invited_node_is_not_given_to_another() {
        let mut pool = Pool::new(range("10.244.0.0/16").unwrap());
        let promised = |text: &str, node: &str| (node.to_string(), range(text).unwrap());
        let invitations = [
            promised("10.244.0.0/24", "server"),
            promised("10.244.1.0/24", "invited"),
        ];
        pool.set(
            Holder::Node("old".to_owned()),
            vec![range("10.244.2.0/24").unwrap()],
        );
        let mut give = |name: &str| {
            let given = pool.give(name, &invitations);
            given.map(|range| range.addr().to_string())
        };
        assert_eq!(give("another").as_deref(), Some("10.244.3.0"));
        assert_eq!(give("invited").as_deref(), Some("10.244.1.0"));
    }

    #[test]
    fn a_range_is_free_again_when_its_last_holder_releases_it() {
        let mut pool = Pool::new(range("10.244.0.0/23").unwrap());
        let (node, promised) = (
            Holder::Node("a".to_owned()),
            Holder::Promised("a".to_owned()),
        );
        let first = pool.first_free().unwrap();
        pool.set(promised.clone(), vec![first]);
        pool.set(node.clone(), vec![first]);
        pool.set(node.clone(), vec![first]);
        assert_eq!(free(&pool).as_deref(), Some("10.244.1.0"));
        pool.remove(&promised);
        assert_eq!(free(&pool).as_deref(), Some("10.244.1.0"));
        pool.set(node, Vec::new());
        assert_eq!(free(&pool).as_deref(), Some("10.244.0.0"));
        assert!(pool.users.is_empty() && pool.held.is_empty());
    }
}
