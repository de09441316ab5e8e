//! The libraries of functions that Kubernetes adds to the language, one file for each: a list of
//! overloads with what they compute. What they cost is in `cost`, since when they exist in `versions`.

pub mod cost;
mod declare;
pub mod regex;
