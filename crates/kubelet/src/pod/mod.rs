//! One pod on this node: its worker ([`worker`]), what to do next ([`plan`]), how it is done
//! ([`tasks`]), and what is told about it ([`status`], [`conditions`], [`phase`]).

pub mod conditions;
pub mod mailbox;
mod measuring;
pub mod objects;
mod overwritten;
pub mod phase;
pub mod plan;
pub mod resize;
pub mod services;
pub mod status;
mod status_writer;
pub mod tasks;
pub mod termination;
pub mod worker;

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod status_tests;
