//! The cost sheet as a table, and the check of each row against its bounds.

use crate::meter::Cost;

/// The most a row may cost.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub fsyncs: u64,
    pub transactions: u64,
    pub disk_bytes: u64,
    pub allocations: u64,
}

pub struct Row {
    pub hops: &'static str,
    pub what: &'static str,
    pub cost: Cost,
    /// Bytes on the wire.
    pub wire: u64,
    pub bound: Bound,
}

/// Prints the sheet, then fails on the rows that cost more than they may.
pub fn check(rows: &[Row]) {
    println!(
        "| hops | what | fsyncs | transactions | bytes to disk | bytes on the wire | allocations (bound) | bytes allocated |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for Row {
        hops,
        what,
        cost,
        wire,
        bound,
    } in rows
    {
        println!(
            "| {hops} | {what} | {} | {} | {} | {wire} | {} ({}) | {} |",
            cost.fsyncs,
            cost.transactions,
            cost.disk_bytes,
            cost.allocations,
            bound.allocations,
            cost.allocated_bytes,
        );
    }
    for Row {
        what, cost, bound, ..
    } in rows
    {
        // Syncs and transactions are exact: fewer would mean that something is not written.
        assert_eq!(cost.fsyncs, bound.fsyncs, "fsyncs of {what}");
        assert_eq!(
            cost.transactions, bound.transactions,
            "transactions of {what}"
        );
        assert!(
            cost.disk_bytes <= bound.disk_bytes,
            "{what}: {cost:?} over {bound:?}"
        );
        assert!(
            cost.allocations <= bound.allocations,
            "{what}: {cost:?} over {bound:?}"
        );
    }
}
