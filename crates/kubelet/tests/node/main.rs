//! The kubelet against a real API server in this process and a scripted runtime that speaks real
//! CRI over a Unix socket: what the kubelet asks of the runtime, and what it writes to the API.

mod asking;
mod block_volumes;
mod faults;
mod harness;
mod hooks;
mod immutable;
mod lifecycle;
mod measures;
mod pressure;
mod providers;
mod pulls;
mod recovery;
mod refusals;
mod requests;
mod restarts;
mod runtime;
mod secrets;
mod shutdown;
mod static_pods;
mod trace;
