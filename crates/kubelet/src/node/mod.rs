//! The Node object: how it is registered and kept current ([`registration`]), and the lease that
//! shows that the node is alive ([`lease`]).

pub mod lease;
pub mod registration;
mod transitions;
