//! Pods leave when the node runs short: when that is ([`thresholds`]).

pub mod thresholds;
