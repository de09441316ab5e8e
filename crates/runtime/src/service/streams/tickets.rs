//! Sessions that have been requested over CRI and not begun: each has a token that can be used once
//! and for a minute.

use std::{collections::BTreeMap, net::SocketAddr, sync::OnceLock, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use streaming::remote_command::Options;
use tokio::time::Instant;

use crate::service::Error;

const LIFETIME: Duration = Duration::from_secs(60);
const MOST_TICKETS: usize = 1000;

/// The session that a client has requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRequest {
    /// Container, command, streams.
    Exec(String, Vec<String>, Options),
    /// Container, streams.
    Attach(String, Options),
    /// Sandbox, and the ports that the client named beforehand.
    PortForward(String, Vec<u16>),
}

impl SessionRequest {
    /// The first part of the URL's path.
    pub fn kind(&self) -> &'static str {
        match self {
            SessionRequest::Exec(..) => "exec",
            SessionRequest::Attach(..) => "attach",
            SessionRequest::PortForward(..) => "portforward",
        }
    }
}

#[derive(Default)]
pub struct Tickets {
    address: OnceLock<SocketAddr>,
    issued: Mutex<BTreeMap<String, (SessionRequest, Instant)>>,
}

impl Tickets {
    pub fn listen_at(&self, address: SocketAddr) {
        let _ = self.address.set(address);
    }

    /// The URL under which the session begins.
    pub fn issue(&self, request: SessionRequest, token: &[u8]) -> Result<String, Error> {
        let address = self
            .address
            .get()
            .ok_or_else(|| Error::Precondition("the streaming server is not there yet".into()))?;
        let token = URL_SAFE_NO_PAD.encode(token);
        let now = Instant::now();
        let mut issued = self.issued.lock();
        issued.retain(|_, (_, until)| *until > now);
        if issued.len() >= MOST_TICKETS {
            return Err(Error::Precondition(
                "maximum number of in-flight requests exceeded".into(),
            ));
        }
        let url = format!("http://{address}/{}/{token}", request.kind());
        issued.insert(token, (request, now + LIFETIME));
        Ok(url)
    }

    pub fn redeem(&self, token: &str) -> Option<SessionRequest> {
        let (request, until) = self.issued.lock().remove(token)?;
        (until > Instant::now()).then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_ticket_can_be_used_once_and_for_a_minute() {
        let tickets = Tickets::default();
        let request = SessionRequest::PortForward("sandbox".into(), vec![]);
        assert!(tickets.issue(request.clone(), &[1]).is_err());
        tickets.listen_at(([127, 0, 0, 1], 1).into());
        let url = tickets.issue(request.clone(), &[1]).unwrap();
        assert_eq!(url, "http://127.0.0.1:1/portforward/AQ");
        assert_eq!(tickets.redeem("AQ"), Some(request.clone()));
        assert_eq!(tickets.redeem("AQ"), None);
        tickets.issue(request, &[2]).unwrap();
        tokio::time::advance(LIFETIME).await;
        assert_eq!(tickets.redeem("Ag"), None);
    }
}
