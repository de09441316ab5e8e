//! Moments from year 1 to 9999 to the nanosecond. Unlike jiff's, they reach the end of 9999 and
//! remember the offset that they were written with, because `string()` shows it.

/// The first and last second that cel-go allows, from the Unix epoch.
pub const MIN_SECONDS: i64 = -62_135_596_800;
pub const MAX_SECONDS: i64 = 253_402_300_799;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// From the Unix epoch.
    pub seconds: i64,
    pub nanoseconds: u32,
    /// East of UTC, in seconds. It takes no part in comparisons of the language.
    pub offset: i32,
}
