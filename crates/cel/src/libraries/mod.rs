//! The libraries of functions that Kubernetes adds to the language, one file for each: a list of
//! overloads with what they compute. What they cost is in `cost`, since when they exist in `versions`.

pub mod authorizer;
mod bounds;
pub mod cost;
mod declare;
pub mod format;
pub mod jsonpatch;
pub mod lists;
pub mod maps;
mod names;
pub mod net;
pub mod optionals;
pub mod quantity;
mod quote;
pub mod regex;
pub mod semver;
pub mod sets;
pub mod strings;
pub mod url;
pub mod versions;
