//! What is known about tokens in Secrets without believing one: who issues them, and that they are
//! used.

use tokio::sync::mpsc;

pub(super) const ISSUER: &str = "kubernetes/serviceaccount";
/// The label of a Secret with the day on which its token was last used.
pub(crate) const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Uses that wait to be written down; one that finds no room is recorded by the next use.
const WAITING: usize = 64;

/// A Secret whose token was used on a day that it does not show yet.
pub(crate) struct Use {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub day: String,
}

pub(super) fn uses() -> (mpsc::Sender<Use>, mpsc::Receiver<Use>) {
    mpsc::channel(WAITING)
}
