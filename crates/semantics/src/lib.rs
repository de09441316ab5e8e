//! What Kubernetes means by its objects: each rule that more than one component follows, written
//! once, as a pure function over typed objects. One file per rule; each names the function of
//! upstream that decides in doubt. There is no I/O here, no clock and no component.
//!
//! The API server works on documents (`api::Value`), because it must keep fields that it does not
//! know. Where it needs one of these rules too, `api` has it for documents, and the tests of this
//! crate hold both against each other. Quantities, parsed label selectors and cron schedules are in
//! `api` alone: both sides use the same type.

pub mod amounts;
pub mod host_port;
pub mod label_selector;
pub mod node;
pub mod node_selector;
pub mod owner;
pub mod pod;
pub mod pod_claim;
pub mod pod_resources;
pub mod qos;
pub mod toleration;
pub mod volume;
