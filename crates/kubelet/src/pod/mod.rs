//! One pod on this node: where it is in its life ([`lifecycle`]), its worker ([`worker`]), what the
//! worker is to do next ([`plan`]), and what is reported about the pod ([`status`], [`conditions`],
//! [`phase`]).

pub mod conditions;
pub mod lifecycle;
pub mod mailbox;
mod measuring;
pub mod objects;
mod overwritten;
pub mod phase;
pub mod plan;
pub mod resize;
pub mod restarts;
pub mod services;
pub mod status;
mod status_writer;
pub mod termination;
pub mod worker;

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod status_tests;
