//! Aggregation: group versions that others serve, behind Services of the cluster, as if they were
//! ours.
//!
//! - `registration` keeps an APIService for every group version that this server serves itself.
//! - `follow` watches APIServices, Services and EndpointSlices, and keeps the table of
//!   [`crate::extension_servers`] in step; for every extension server it runs `availability`, which
//!   writes the condition `Available`, and `documents`, which fetches what the server says about
//!   itself. Both take their time in the background: one that hangs delays no other.
//! - `proxy` passes requests on.
//! - `merged_discovery` and `merged_openapi` put what was fetched into our own documents.
//! - `trust` publishes how extension servers recognize users and this server.

mod availability;
mod discovery;
mod documents;
mod fetch;
mod follow;
mod merged_discovery;
mod merged_openapi;
mod openapi;
mod priorities;
mod proxy;
mod registration;
mod resolve;
mod trust;

pub(crate) use follow::follow;
pub(crate) use merged_discovery::{merge_aggregated, merge_group, merge_groups, paths};
pub(crate) use merged_openapi::{v2 as merged_v2, v3_index as merged_v3_index};
pub(crate) use proxy::{Destination, forward, route};
pub(crate) use registration::{Registrar, register};
pub(crate) use trust::{keep as keep_trust, publish as publish_trust};
