//! End-to-end tests: the real binary, real containers, a stock kubectl. Each test has a cluster of
//! its own, so that several run at once on one machine (see `slots`), and checks that nothing of it
//! is left behind.

mod addresses;
mod away;
mod bad_input;
mod cluster;
mod commands;
mod connections;
mod containerd;
mod crash;
mod devices;
mod etcd;
mod exposure;
mod histories;
mod kubectl;
mod lifecycle;
mod pods;
mod registry;
mod room;
mod services;
mod signatures;
mod simulate;
mod slots;
mod stores;
mod streams;
mod tracing;
mod two_nodes;
mod usage;
