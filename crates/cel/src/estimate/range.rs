//! Costs and sizes from a smallest to a largest, whose arithmetic stops at the largest number.

use crate::function::SizeEstimate;

/// Between which numbers of units the evaluation of an expression costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    pub min: u64,
    pub max: u64,
}

impl Estimate {
    pub const fn exactly(units: u64) -> Estimate {
        Estimate {
            min: units,
            max: units,
        }
    }

    pub(super) fn add(self, other: Estimate) -> Estimate {
        Estimate {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(super) fn multiply(self, other: Estimate) -> Estimate {
        Estimate {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(super) fn scale(self, factor: f64) -> Estimate {
        Estimate {
            min: scaled(self.min, factor),
            max: scaled(self.max, factor),
        }
    }

    pub(super) fn union(self, other: Estimate) -> Estimate {
        Estimate {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

pub(super) const UNKNOWN: SizeEstimate = SizeEstimate {
    min: 0,
    max: u64::MAX,
};

/// Before the first member of a union.
pub(super) const NOTHING: SizeEstimate = SizeEstimate {
    min: u64::MAX,
    max: 0,
};

pub(super) fn exact_size(size: u64) -> SizeEstimate {
    SizeEstimate {
        min: size,
        max: size,
    }
}

pub(super) fn add_sizes(left: SizeEstimate, right: SizeEstimate) -> SizeEstimate {
    SizeEstimate {
        min: left.min.saturating_add(right.min),
        max: left.max.saturating_add(right.max),
    }
}

pub(super) fn unite_sizes(left: SizeEstimate, right: SizeEstimate) -> SizeEstimate {
    SizeEstimate {
        min: left.min.min(right.min),
        max: left.max.max(right.max),
    }
}

/// The cost of so many units for each element.
pub(super) fn per_element(size: SizeEstimate, factor: f64) -> Estimate {
    Estimate {
        min: size.min,
        max: size.max,
    }
    .scale(factor)
}

/// A product rounded up.
fn scaled(number: u64, factor: f64) -> u64 {
    let number = number as f64;
    if number > 0.0 && factor > 0.0 && number > u64::MAX as f64 / factor {
        return u64::MAX;
    }
    // The conversion stops at the largest number by itself.
    (number * factor).ceil() as u64
}
