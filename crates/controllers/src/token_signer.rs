//! Signs tokens with a key that the controllers do not see.

use std::sync::Arc;

type Sign = dyn Fn(&api::Value) -> Option<String> + Send + Sync;

/// Makes a token of claims. Cheap to clone.
#[derive(Clone)]
pub struct TokenSigner {
    sign: Arc<Sign>,
}

impl TokenSigner {
    pub fn new(
        sign: impl Fn(&api::Value) -> Option<String> + Send + Sync + 'static,
    ) -> TokenSigner {
        TokenSigner {
            sign: Arc::new(sign),
        }
    }

    pub fn sign(&self, claims: &api::Value) -> Option<String> {
        (self.sign)(claims)
    }
}
