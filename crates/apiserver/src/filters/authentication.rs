//! Finds out who sent a request. What makes a credential valid is [`crate::authentication`]'s.

use std::sync::Arc;

use api::{Details, Reason, Status};
use http::HeaderMap;
use serving::Slot;
use tokio_util::sync::CancellationToken;

use crate::authentication::{Peer, Remembered};
use crate::identity::Identity;
use crate::server::Server;

/// Who sent a request, before authentication.
pub(crate) enum Caller {
    /// A component of this process, which needs no credential.
    InProcess(Arc<Identity>),
    Network {
        peer: Peer,
        remembered: Remembered,
        /// Ends what lasts when the listener shuts down.
        closing: CancellationToken,
        slot: Slot,
    },
}

impl Caller {
    pub fn is_in_process(&self) -> bool {
        matches!(self, Caller::InProcess(_))
    }
}

/// The identity of the caller, and what ends its long requests.
pub(super) fn authenticate(
    server: &Server,
    caller: Caller,
    headers: &HeaderMap,
) -> (Result<Arc<Identity>, Status>, CancellationToken) {
    match caller {
        Caller::InProcess(identity) => (Ok(identity), CancellationToken::new()),
        Caller::Network {
            peer,
            remembered,
            closing,
            slot,
        } => {
            let authenticator = &server.authenticator;
            let authenticated = authenticator.authenticate(&peer, &remembered, headers);
            let noted = authenticated.and_then(|identity| {
                note_user(&slot, &identity)?;
                Ok(identity)
            });
            (noted, closing)
        }
    }
}

/// Notes whose connection this is, once a credential has been believed.
fn note_user(slot: &Slot, identity: &Identity) -> Result<(), Status> {
    if identity.is_anonymous() {
        return Ok(());
    }
    slot.authenticated(identity.user()).map_err(|_| {
        Status::new(
            Reason::TooManyRequests,
            "this user has too many open connections to the server",
        )
        .with_details(Details {
            retry_after_seconds: 1,
            ..Details::default()
        })
    })
}
