//! What calls cost: before they run, from what is known of the sizes of their arguments, and when
//! they have run. All numbers are those of Kubernetes' estimator and of the language's extension
//! libraries, because the estimate decides which rules may be stored and the count which may finish.

mod actual;
mod estimate;

pub use self::actual::actual;
pub use self::estimate::estimate;

/// Per character of a text that is read or written.
const TEXT: f64 = 0.1;
/// Per character of a regular expression.
const PATTERN: f64 = 0.25;
const LIST_CREATION: u64 = 10;
const STRUCT_CREATION: u64 = 40;
/// An authorization check; two of them fit into an expression.
const CHECK: u64 = 350_000;
/// The size of the largest regular expression of a named format, for estimates.
const FORMAT_PATTERN: f64 = 128.0;
/// The longest name of a named format.
const FORMAT_NAME: u64 = 64;
/// A requirement of a selector is at least two characters long.
const REQUIREMENTS_PER_CHARACTER: f64 = 0.5;
const PER_REQUIREMENT: f64 = (LIST_CREATION + STRUCT_CREATION) as f64;

/// The types of items that lists can be ordered by, as the overloads are named.
const COMPARABLE: [&str; 8] = [
    "int",
    "uint",
    "double",
    "bool",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "string",
    "bytes",
];

/// The item type of an overload such as `list_string_sort`.
fn sorted_item(overload: &str) -> Option<(&'static str, SortedBy)> {
    let name = overload.strip_prefix("list_")?;
    let (name, by) = match name.strip_suffix("_sortByAssociatedKeys") {
        Some(name) => (name, SortedBy::Keys),
        None => (name.strip_suffix("_sort")?, SortedBy::Items),
    };
    let item = COMPARABLE.iter().find(|item| **item == name)?;
    Some((item, by))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SortedBy {
    Items,
    Keys,
}
