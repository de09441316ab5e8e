//! The network side: who is connected, and the way of their requests to the filters. Limits on
//! time and connections are `serving`'s.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serving::Connected;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::authentication::{Peer, Remembered};
use crate::filters::{self, Caller};
use crate::server::Server;

const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let ledger = server.connections.clone();
    let closing = shutdown.clone();
    let connected = move |connected: Connected<'_>| {
        let certificates = &server.authenticator.certificates;
        let peer = certificates.judge(connected.certificates);
        let slot = connected.slot.clone();
        let user = match &peer {
            Peer::Known(identity) => Some(identity.user()),
            // Its connections carry the requests of many users.
            Peer::FrontProxy(_) => Some("front-proxy"),
            Peer::NoCertificate | Peer::Refused => None,
        };
        if let Some(user) = user {
            // Without a place as a user the connection stays a stranger's until its first request
            // is refused.
            let _ = slot.authenticated(user);
        }
        let (server, closing) = (server.clone(), closing.clone());
        let remembered = Remembered::default();
        move |request: Request<Incoming>| {
            let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
            let caller = Caller::Network {
                peer: peer.clone(),
                remembered: remembered.clone(),
                closing: closing.clone(),
                slot: slot.clone(),
            };
            filters::handle(server.clone(), request, caller)
        }
    };
    let connections = serving::serve(listener, tls, ledger, shutdown, connected).await;
    if tokio::time::timeout(DRAIN_TIMEOUT, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not end in time");
    }
    Ok(())
}
