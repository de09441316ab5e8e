//! A small nf_tables codec over netlink: tables, chains, sets, maps, elements and rules written in
//! atomic batches, and the listings needed to find our own things again.
//!
//! It is not a rule compiler: rules are lists of [`Expression`]s working on registers, as the
//! kernel's virtual machine runs them. It is our own because the crates of the field either call the
//! `nft` command, link C libraries or are under the GPL.

mod batch;
mod expression;
mod listing;
mod object;

pub use batch::{Batch, Transaction};
pub use expression::{
    Comparison, CtDirection, CtKey, Expression, FibAddress, Header, MetaKey, Register, RuleVerdict,
    nat, reject,
};
pub use listing::{
    ListedChain, ListedRule, ListedTable, chains, elements, generation, rules, tables,
};
pub use object::{Chain, Data, Datatype, Element, Family, Hook, HookPoint, Policy, Rule, Set};

/// What can go wrong with a batch.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Netlink(#[from] crate::netlink::Error),
    /// `what` names the first operation the kernel refused; nothing of the batch took effect.
    #[error("nf_tables refused to {what}: {}", std::io::Error::from_raw_os_error(*errno))]
    Refused { what: String, errno: i32 },
    #[error("nf_tables gave no answer to a batch")]
    NoAnswer,
}

impl Error {
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Refused { errno, .. } => Some(*errno),
            Error::Netlink(error) => error.errno(),
            Error::NoAnswer => None,
        }
    }
}
