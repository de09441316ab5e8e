//! YAML in and out, as kubectl reads and prints it.

use crate::document::Value;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("error converting YAML to JSON: yaml: {0}")]
    Syntax(String),
}

/// Reads all documents of a YAML (or JSON) stream; empty ones are left out.
pub fn parse_documents(text: &[u8]) -> Result<Vec<Value>, Error> {
    let text = std::str::from_utf8(text).map_err(|error| Error::Syntax(error.to_string()))?;
    serde_saphyr::from_multiple(text).map_err(|error| Error::Syntax(error.to_string()))
}

/// Writes a document in block style with sorted keys.
pub fn to_yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_default()
}
