//! Estimates of cost.
