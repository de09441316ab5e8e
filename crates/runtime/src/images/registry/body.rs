//! Bodies of answers that are read whole: manifests, configurations, tokens and errors.

use reqwest::Response;

use super::{Error, LARGEST_DOCUMENT};

/// A body that must be small, no matter what its header says.
pub async fn small_body(mut response: Response, host: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|source| Error::Transport {
        host: host.into(),
        source: source.without_url(),
    })? {
        if bytes.len() as u64 + chunk.len() as u64 > LARGEST_DOCUMENT {
            return Err(Error::Nonsense {
                host: host.into(),
                why: "a document that is too large".into(),
            });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
