//! Sets of fields of one object, as `managedFields` records them: a tree whose edges are path elements
//! in their written form (see `element`), and whose nodes may be members.
//!
//! Example: `{"f:data":{".":{},"f:a":{}}}` has the members `.data` and `.data.a`.

use super::element;
use crate::document::{Object, Value};
use crate::steps;

/// A set of fields. Edges are sorted; a node is a member or has members below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(Vec<(String, Node)>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    below: FieldSet,
}

/// What cannot be read as a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a set of fields must be an object")]
    NotAnObject,
    #[error(transparent)]
    Element(#[from] element::Error),
}

impl FieldSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A set of steps in any order; of a repeated one the last counts.
    fn from_steps(mut fields: Vec<(String, Node)>) -> FieldSet {
        if !fields.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            fields.sort_by(|(left, _), (right, _)| {
                steps::count(1);
                left.cmp(right)
            });
            fields.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    std::mem::swap(later, kept);
                }
                same
            });
        }
        FieldSet(fields)
    }

    /// The members of any of the sets. Two and two are united, and then their unions, so that no
    /// set is gone through once for every other.
    pub fn union_of(mut sets: Vec<FieldSet>) -> FieldSet {
        while sets.len() > 1 {
            let mut rest = sets.into_iter();
            let mut united = Vec::with_capacity(rest.len().div_ceil(2));
            while let Some(first) = rest.next() {
                united.push(match rest.next() {
                    Some(second) => first.union(second),
                    None => first,
                });
            }
            sets = united;
        }
        sets.pop().unwrap_or_default()
    }

    /// Adds the field at the end of `path`, not those on the way. The whole object is no field.
    pub fn insert<S: AsRef<str>>(&mut self, path: &[S]) {
        let Some((last, parents)) = path.split_last() else {
            return;
        };
        let mut set = self;
        for step in parents {
            set = &mut set.node(step.as_ref()).below;
        }
        set.node(last.as_ref()).member = true;
    }

    pub fn contains<S: AsRef<str>>(&self, path: &[S]) -> bool {
        let Some((last, parents)) = path.split_last() else {
            return false;
        };
        parents
            .iter()
            .try_fold(self, |set, step| set.below(step.as_ref()))
            .is_some_and(|set| set.has(last.as_ref()))
    }

    /// Whether the element itself is a member.
    pub fn has(&self, step: &str) -> bool {
        self.position(step)
            .is_ok_and(|index| self.0[index].1.member)
    }

    /// The fields below an element, if there are any.
    pub fn below(&self, step: &str) -> Option<&FieldSet> {
        let index = self.position(step).ok()?;
        let below = &self.0[index].1.below;
        (!below.is_empty()).then_some(below)
    }

    /// The elements at this level with whether they are members and what is below them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, bool, &FieldSet)> {
        self.0
            .iter()
            .map(|(step, node)| (step.as_str(), node.member, &node.below))
    }

    /// The members of either.
    pub fn union(self, other: FieldSet) -> FieldSet {
        if self.is_empty() || other.is_empty() {
            return if self.is_empty() { other } else { self };
        }
        steps::count(self.0.len() + other.0.len());
        let mut result = Vec::with_capacity(self.0.len().max(other.0.len()));
        let mut left = self.0.into_iter().peekable();
        for (step, theirs) in other.0 {
            while let Some(mine) = left.next_if(|(mine, _)| *mine < step) {
                result.push(mine);
            }
            let node = match left.next_if(|(mine, _)| *mine == step) {
                Some((_, mine)) => Node {
                    member: mine.member || theirs.member,
                    below: mine.below.union(theirs.below),
                },
                None => theirs,
            };
            result.push((step, node));
        }
        result.extend(left);
        FieldSet(result)
    }

    /// The members of both.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let shared = self.0.iter().filter_map(|(step, mine)| {
            let theirs = &other.0[other.position(step).ok()?].1;
            let node = Node {
                member: mine.member && theirs.member,
                below: mine.below.intersection(&theirs.below),
            };
            node.is_something().then(|| (step.clone(), node))
        });
        FieldSet(shared.collect())
    }

    /// The members that `other` does not have. What is below a member of `other` stays.
    pub fn difference(mut self, other: &FieldSet) -> FieldSet {
        self.subtract(other, false);
        self
    }

    /// Removes the members of `other` and all that is below them.
    pub fn recursive_difference(mut self, other: &FieldSet) -> FieldSet {
        self.subtract(other, true);
        self
    }

    fn subtract(&mut self, other: &FieldSet, recursive: bool) {
        if other.is_empty() {
            return;
        }
        self.0.retain_mut(|(step, node)| {
            if let Ok(index) = other.position(step) {
                let theirs = &other.0[index].1;
                if theirs.member && recursive {
                    return false;
                }
                node.member &= !theirs.member;
                node.below.subtract(&theirs.below, recursive);
            }
            node.is_something()
        });
    }

    /// Whether the two have a member in common.
    pub fn intersects(&self, other: &FieldSet) -> bool {
        self.0.iter().any(|(step, node)| {
            other.position(step).is_ok_and(|index| {
                let found = &other.0[index].1;
                (node.member && found.member) || node.below.intersects(&found.below)
            })
        })
    }

    /// All members as paths of written elements: at each level first its members, then what is
    /// below them.
    pub fn paths(&self) -> Vec<Vec<&str>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect<'a>(&'a self, path: &mut Vec<&'a str>, paths: &mut Vec<Vec<&'a str>>) {
        for (step, _) in self.0.iter().filter(|(_, node)| node.member) {
            let mut member = path.clone();
            member.push(step);
            paths.push(member);
        }
        for (step, node) in &self.0 {
            path.push(step);
            node.below.collect(path, paths);
            path.pop();
        }
    }

    /// Reads the `fieldsV1` of an entry. Kinds of elements that are not known are left out.
    pub fn from_fields(fields: Value) -> Result<FieldSet, Error> {
        Ok(read(fields)?.below)
    }

    /// The `fieldsV1` form.
    pub fn into_fields(self) -> Value {
        Value::Object(self.into_object(false))
    }

    fn into_object(self, is_member: bool) -> Object {
        // "." sorts before all elements.
        let own = (is_member && !self.is_empty()).then(|| (".".to_string(), Value::object()));
        let below = self
            .0
            .into_iter()
            .map(|(step, node)| (step, Value::Object(node.below.into_object(node.member))));
        own.into_iter().chain(below).collect()
    }

    fn node(&mut self, step: &str) -> &mut Node {
        let index = match self.position(step) {
            Ok(index) => index,
            Err(index) => {
                steps::count(self.0.len() - index);
                self.0.insert(index, (step.to_string(), Node::default()));
                index
            }
        };
        &mut self.0[index].1
    }

    fn position(&self, step: &str) -> Result<usize, usize> {
        // Fields are mostly visited in order: the last one is asked first.
        match self.0.last() {
            Some((last, _)) if last.as_str() < step => Err(self.0.len()),
            Some((last, _)) if last == step => Ok(self.0.len() - 1),
            _ => self
                .0
                .binary_search_by(|(known, _)| known.as_str().cmp(step)),
        }
    }
}

impl Node {
    fn is_something(&self) -> bool {
        self.member || !self.below.is_empty()
    }
}

/// A node without anything below it is a member, and so is one that says so with ".".
fn read(fields: Value) -> Result<Node, Error> {
    let object = match fields {
        Value::Object(object) => object,
        Value::Null => Object::default(),
        _ => return Err(Error::NotAnObject),
    };
    let mut node = Node::default();
    let mut below = Vec::with_capacity(object.len());
    for (key, value) in object {
        if key == "." {
            node.member = true;
            continue;
        }
        let Some(step) = element::canonical(key)? else {
            continue;
        };
        below.push((step, read(value)?));
    }
    node.below = FieldSet::from_steps(below);
    node.member |= node.below.is_empty();
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    fn set(fields: Value) -> FieldSet {
        FieldSet::from_fields(fields).unwrap()
    }

    #[test]
    fn a_set_is_read_and_written() {
        let fields = document!({"f:data": {".": {}, "f:a": {}}, "f:spec": {"f:x": {}}});
        let read = set(fields.clone());
        assert_eq!(
            read.paths(),
            [vec!["f:data"], vec!["f:data", "f:a"], vec!["f:spec", "f:x"]]
        );
        assert_eq!(read.into_fields(), fields);
        assert_eq!(set(document!({"x:future": {}, "f:a": {}})).paths().len(), 1);
        assert!(FieldSet::from_fields(document!([1])).is_err());
    }

    #[test]
    fn keys_are_made_canonical() {
        let read = set(document!({"k:{ \"b\": 1.0, \"a\": \"x\" }": {}}));
        assert_eq!(read.paths(), [["k:{\"a\":\"x\",\"b\":1}"]]);
    }

    #[test]
    fn reading_and_uniting_many_fields_costs_n_log_n() {
        steps::assert_n_log_n(|count| {
            // In the order of their texts, but not of what they mean.
            let step =
                |item: usize| format!("k:{{{}\"n\":{}}}", " ".repeat(item % 5), 900_000 - item);
            let fields: Object = (0..count)
                .map(|item| (step(item), Value::object()))
                .collect();
            steps::of(|| {
                let read = set(Value::Object(fields));
                assert_eq!(read.paths().len(), count);
            })
        });
        steps::assert_n_log_n(|count| {
            let one = |field: usize| set(document!({(format!("f:{field:06}")): {}}));
            let sets: Vec<FieldSet> = (0..count).map(one).collect();
            steps::of(|| assert_eq!(FieldSet::union_of(sets).paths().len(), count))
        });
    }

    #[test]
    fn operations_work_on_members() {
        let one = set(document!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
        let two = set(document!({"f:a": {"f:b": {}}, "f:e": {}}));
        assert_eq!(
            one.intersection(&two).into_fields(),
            document!({"f:a": {"f:b": {}}})
        );
        assert!(one.intersects(&two));
        assert!(!set(document!({"f:a": {}})).intersects(&two));
        assert_eq!(
            one.clone().difference(&two).into_fields(),
            document!({"f:a": {".": {}, "f:c": {}}, "f:d": {}})
        );
        assert_eq!(
            one.clone().union(two).into_fields(),
            document!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {}})
        );
        // A parent taken away leaves its children, unless it is taken away recursively.
        let parent = set(document!({"f:a": {}}));
        assert_eq!(
            one.clone().difference(&parent).into_fields(),
            document!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}})
        );
        assert_eq!(
            one.recursive_difference(&parent).into_fields(),
            document!({"f:d": {}})
        );
    }
}
