//! The identities of controllers: each acts as a ServiceAccount of `kube-system` and may do only
//! what that account's role allows.

use std::sync::Arc;

type Connect = dyn Fn(&str) -> kube::Client + Send + Sync;

/// Makes a client for an account of `kube-system`. Cheap to clone.
#[derive(Clone)]
pub struct Accounts {
    connect: Arc<Connect>,
}

impl Accounts {
    pub fn new(connect: impl Fn(&str) -> kube::Client + Send + Sync + 'static) -> Accounts {
        Accounts {
            connect: Arc::new(connect),
        }
    }

    /// A client that acts as the account `name`.
    pub fn client(&self, name: &str) -> kube::Client {
        (self.connect)(name)
    }
}
