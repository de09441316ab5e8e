//! What an extension API server said about itself: its discovery and its OpenAPI documents, as they
//! are put into ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Value;
use bytes::Bytes;

/// What is known of the server of one group version.
#[derive(Default)]
pub(crate) struct Discovered {
    /// The group version as aggregated discovery has it, without its freshness; `None` while it is
    /// not known.
    pub version: Option<Arc<Value>>,
    /// The addresses of its OpenAPI v3 documents, by their path.
    pub v3: BTreeMap<String, String>,
    pub v2: Option<Arc<V2Part>>,
}

/// Its part of the OpenAPI v2 document, ready to be put in.
pub(crate) struct V2Part {
    /// Tells when it changed.
    pub etag: String,
    /// Name and schema, both JSON.
    pub definitions: Vec<(Bytes, Bytes)>,
    /// Path and item, both JSON.
    pub paths: Vec<(Bytes, Bytes)>,
    /// The same in the protobuf form, which is merged by appending it.
    pub protobuf: Bytes,
}
