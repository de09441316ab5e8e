//! Exact amounts of resources by name, as sums over containers are made of them.
//!
//! Names are borrowed from the object and the usual three have a place of their own, so that a sum
//! needs no memory for ordinary pods.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

/// A list of amounts as objects have it.
pub type ResourceList = BTreeMap<String, QuantityText>;

/// Amounts by resource name; a resource may be absent, which is not the same as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts<'a> {
    pub cpu: Option<Quantity>,
    pub memory: Option<Quantity>,
    pub ephemeral_storage: Option<Quantity>,
    /// Every other resource: huge pages, extended resources.
    pub others: BTreeMap<&'a str, Quantity>,
}

impl<'a> Amounts<'a> {
    /// The amounts of a list. A text that is no quantity is left out: the API server refuses it.
    pub fn of(list: Option<&'a ResourceList>) -> Amounts<'a> {
        let mut amounts = Amounts::default();
        for (name, text) in list.into_iter().flatten() {
            if let Ok(quantity) = Quantity::parse(&text.0) {
                amounts.set(name, quantity);
            }
        }
        amounts
    }

    /// The amount of the resource of that name.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        match name {
            "cpu" => self.cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            _ => self.others.get(name).copied(),
        }
    }

    pub fn set(&mut self, name: &'a str, quantity: Quantity) {
        match name {
            "cpu" => self.cpu = Some(quantity),
            "memory" => self.memory = Some(quantity),
            "ephemeral-storage" => self.ephemeral_storage = Some(quantity),
            _ => {
                self.others.insert(name, quantity);
            }
        }
    }

    /// All amounts with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Quantity)> {
        let usual = [
            ("cpu", self.cpu),
            ("memory", self.memory),
            ("ephemeral-storage", self.ephemeral_storage),
        ];
        let usual = usual.into_iter();
        let usual = usual.filter_map(|(name, quantity)| Some((name, quantity?)));
        let others = self
            .others
            .iter()
            .map(|(name, quantity)| (*name, *quantity));
        usual.chain(others)
    }

    /// Adds each of the other's amounts.
    pub fn add(&mut self, other: &Amounts<'a>) {
        self.combine(other, |mine, more| mine + more);
    }

    /// Raises each amount to at least the other's.
    pub fn raise_to(&mut self, other: &Amounts<'a>) {
        self.combine(other, |mine, least| match least > mine {
            true => least,
            false => mine,
        });
    }

    /// Sets what is absent.
    pub fn fill(&mut self, other: &Amounts<'a>) {
        self.combine(other, |mine, _| mine);
    }

    fn combine(&mut self, other: &Amounts<'a>, operation: fn(Quantity, Quantity) -> Quantity) {
        let combined = |mine: Option<Quantity>, other: Option<Quantity>| match (mine, other) {
            (Some(mine), Some(other)) => Some(operation(mine, other)),
            (mine, other) => mine.or(other),
        };
        self.cpu = combined(self.cpu, other.cpu);
        self.memory = combined(self.memory, other.memory);
        self.ephemeral_storage = combined(self.ephemeral_storage, other.ephemeral_storage);
        for (name, quantity) in &other.others {
            let entry = self.others.entry(name);
            entry
                .and_modify(|mine| *mine = operation(*mine, *quantity))
                .or_insert(*quantity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(amounts: &[(&str, &str)]) -> ResourceList {
        let amounts = amounts.iter();
        amounts
            .map(|(name, text)| (name.to_string(), QuantityText(text.to_string())))
            .collect()
    }

    #[test]
    fn sums_are_exact_and_absent_is_not_zero() {
        let one = list(&[("cpu", "0.5m"), ("example.com/gpu", "1"), ("bad", "lots")]);
        let other = list(&[("cpu", "0.5m"), ("memory", "0")]);
        let mut sum = Amounts::of(Some(&one));
        sum.add(&Amounts::of(Some(&other)));
        assert_eq!(sum.get("cpu").map(Quantity::milli), Some(1));
        assert_eq!(sum.get("memory").map(Quantity::value), Some(0));
        assert_eq!(sum.get("ephemeral-storage"), None);
        assert_eq!(sum.get("bad"), None);
        let names: Vec<&str> = sum.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["cpu", "memory", "example.com/gpu"]);
    }

    #[test]
    fn amounts_are_raised_and_filled_by_name() {
        let (one, other) = (
            list(&[("cpu", "1"), ("memory", "1Gi")]),
            list(&[("cpu", "2"), ("memory", "1Mi"), ("hugepages-2Mi", "4Mi")]),
        );
        let (one, other) = (Amounts::of(Some(&one)), Amounts::of(Some(&other)));
        let mut raised = one.clone();
        raised.raise_to(&other);
        assert_eq!(raised.get("cpu").map(Quantity::value), Some(2));
        assert_eq!(raised.get("memory").map(Quantity::value), Some(1 << 30));
        let mut filled = one;
        filled.fill(&other);
        assert_eq!(filled.get("cpu").map(Quantity::value), Some(1));
        assert_eq!(
            filled.get("hugepages-2Mi").map(Quantity::value),
            Some(4 << 20)
        );
    }
}
