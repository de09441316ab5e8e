//! The fields of an object: a sorted vector, which is small, and which is built and changed in bulk
//! without moving what is there once per field.

use super::Value;
use crate::steps;

/// An object's fields, kept sorted by name.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Object {
    fields: Vec<(String, Value)>,
}

impl Object {
    /// An object of fields in any order. Of a repeated name the last one counts.
    pub fn from_fields(mut fields: Vec<(String, Value)>) -> Object {
        if !is_ascending(&fields) {
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
        Object { fields }
    }

    /// Changes many fields in one pass. `changes` are sorted by name; for each, `change` gets what
    /// is there now and says what shall be there.
    pub fn changed<Name, Change, Error>(
        self,
        changes: impl IntoIterator<Item = (Name, Change)>,
        mut change: impl FnMut(&str, Option<Value>, Change) -> Result<Option<Value>, Error>,
    ) -> Result<Object, Error>
    where
        Name: AsRef<str> + Into<String>,
    {
        let mut changes = changes.into_iter();
        let Some(first) = changes.next() else {
            return Ok(self);
        };
        let mut fields = Vec::with_capacity(self.fields.len() + 1 + changes.size_hint().0);
        let mut left = Some(first);
        let mut current = self.fields.into_iter().peekable();
        while let Some((name, wanted)) = left {
            while let Some(field) = current.next_if(|(known, _)| known.as_str() < name.as_ref()) {
                steps::count(1);
                fields.push(field);
            }
            steps::count(1);
            let before = current.next_if(|(known, _)| known == name.as_ref());
            let (name, before) = match before {
                Some((name, value)) => (name, Some(value)),
                None => (name.into(), None),
            };
            if let Some(value) = change(&name, before, wanted)? {
                fields.push((name, value));
            }
            left = changes.next();
        }
        fields.extend(current);
        debug_assert!(is_ascending(&fields), "changes are sorted");
        Ok(Object { fields })
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        let index = self.position(name).ok()?;
        Some(&self.fields[index].1)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let index = self.position(name).ok()?;
        Some(&mut self.fields[index].1)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.position(name).is_ok()
    }

    /// Puts a field and returns what it replaced.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (name, value) = (name.into(), value.into());
        match self.position(&name) {
            Ok(index) => Some(std::mem::replace(&mut self.fields[index].1, value)),
            Err(index) => {
                steps::count(self.fields.len() - index);
                self.fields.insert(index, (name, value));
                None
            }
        }
    }

    /// The field, made `Null` first when missing.
    pub fn entry(&mut self, name: &str) -> &mut Value {
        let index = match self.position(name) {
            Ok(index) => index,
            Err(index) => {
                steps::count(self.fields.len() - index);
                self.fields.insert(index, (name.to_string(), Value::Null));
                index
            }
        };
        &mut self.fields[index].1
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.position(name).ok()?;
        steps::count(self.fields.len() - index);
        Some(self.fields.remove(index).1)
    }

    /// How many fields come at or after the place of `name`: those that inserting or removing it
    /// moves.
    pub fn after(&self, name: &str) -> usize {
        let (Ok(index) | Err(index)) = self.position(name);
        self.fields.len() - index
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.fields.retain_mut(|(name, value)| keep(name, value));
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&str, &mut Value)> {
        self.fields
            .iter_mut()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// The field at a place in the order of names.
    pub fn at(&self, index: usize) -> Option<(&str, &Value)> {
        let (name, value) = self.fields.get(index)?;
        Some((name, value))
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        // Parsed canonical documents arrive in order: appending must not search.
        match self.fields.last() {
            Some((last, _)) if last.as_str() < name => Err(self.fields.len()),
            _ => self
                .fields
                .binary_search_by(|(field, _)| field.as_str().cmp(name)),
        }
    }
}

impl FromIterator<(String, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Object {
        Object::from_fields(fields.into_iter().collect())
    }
}

impl IntoIterator for Object {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.fields.into_iter()
    }
}

/// Whether the names ascend, each being there once.
fn is_ascending(fields: &[(String, Value)]) -> bool {
    fields.windows(2).all(|pair| pair[0].0 < pair[1].0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn fields_in_any_order_are_sorted_and_the_last_of_a_name_counts() {
        let fields = [("b", 1), ("a", 2), ("b", 3), ("c", 4), ("a", 5), ("b", 6)];
        let fields = fields.map(|(name, value)| (name.to_string(), Value::from(value)));
        assert_eq!(
            Value::Object(Object::from_fields(fields.to_vec())),
            document!({"a": 5, "b": 6, "c": 4})
        );
    }

    #[test]
    fn many_fields_are_changed_in_one_pass() {
        let Value::Object(object) = document!({"a": 1, "c": 3, "e": 5}) else {
            unreachable!("an object")
        };
        let changes = [("b", Some(2)), ("c", None), ("e", Some(6)), ("f", Some(7))];
        let changed = object.changed(changes, |name, before, change| {
            assert_eq!(before.is_some(), matches!(name, "c" | "e"));
            Ok::<_, ()>(change.map(Value::from))
        });
        assert_eq!(
            changed.map(Value::Object),
            Ok(document!({"a": 1, "b": 2, "e": 6, "f": 7}))
        );
    }

    #[test]
    fn reading_keys_in_descending_order_costs_n_log_n() {
        let cost = |keys: usize| {
            let keys: Vec<String> = (0..keys)
                .rev()
                .map(|key| format!("\"{key:07}\":1"))
                .collect();
            let json = format!("{{{}}}", keys.join(","));
            steps::of(|| {
                let value = Value::from_json(json.as_bytes()).expect("JSON");
                assert_eq!(value.as_object().map(Object::len), Some(keys.len()));
            })
        };
        steps::assert_n_log_n(cost);
    }
}
