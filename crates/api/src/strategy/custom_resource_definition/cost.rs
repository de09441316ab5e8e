//! How dear the rules of a schema can become: the cost of one evaluation times how often its value
//! can be in an object.

use crate::custom::Props;
use crate::field::{FieldError, Path};

/// The most that one rule may be estimated at, and all rules of a version together.
pub const MOST_PER_RULE: u64 = 10_000_000;
pub const MOST_IN_ALL: u64 = 100_000_000;

/// How many values of a place there can be in an object; without a bound where a list or map above
/// has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cardinality(Option<u64>);

impl Cardinality {
    pub const ONE: Cardinality = Cardinality(Some(1));

    /// Of what stands in `schema`, of which there are so many.
    pub fn below(self, schema: Props<'_>) -> Cardinality {
        let most = |name: &str| schema.whole(name).map(|most| most.max(0).unsigned_abs());
        let factor = match schema.kind() {
            "object" if schema.additional().is_some() => most("maxProperties"),
            "array" => most("maxItems"),
            _ => Some(1),
        };
        match (self.0, factor) {
            (Some(number), Some(factor)) => Cardinality(Some(times(number, factor))),
            _ => Cardinality(None),
        }
    }

    /// The cost of a rule here. `unbounded` is how often the smallest value fits into a request.
    pub fn cost(self, once: u64, unbounded: u64) -> u64 {
        times(once, self.0.unwrap_or(unbounded))
    }
}

fn times(number: u64, factor: u64) -> u64 {
    number.saturating_mul(factor)
}

/// The cost of all rules of a schema, and the dearest of them.
#[derive(Debug, Default)]
pub struct TotalCost {
    total: u64,
    dearest: Vec<(Path, u64)>,
}

impl TotalCost {
    const SHOWN: usize = 4;

    pub fn add(&mut self, path: Path, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost >= MOST_IN_ALL / 100 {
            self.dearest.push((path, cost));
            self.dearest
                .sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.dearest.truncate(TotalCost::SHOWN);
        }
    }

    /// The errors of a schema whose rules are too dear together.
    pub fn errors(&self, path: &Path) -> Vec<FieldError> {
        if self.total <= MOST_IN_ALL {
            return Vec::new();
        }
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire \
                      OpenAPIv3 schema";
        let dearest = self.dearest.iter();
        let mut errors: Vec<FieldError> = dearest
            .map(|(path, _)| FieldError::forbidden(path, detail))
            .collect();
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(
            path,
            exceeded(name, self.total, MOST_IN_ALL),
        ));
        errors
    }
}

/// Says by how much a cost is above its limit.
pub fn exceeded(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_string()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, \
         maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
