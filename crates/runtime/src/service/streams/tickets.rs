//! Sessions that have been asked for: each is named by a token that is good once and for a minute.

use std::{collections::BTreeMap, net::SocketAddr, sync::OnceLock, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use streaming::remote_command::Options;
use tokio::time::Instant;

use crate::service::Error;

const LIFE: Duration = Duration::from_secs(60);
const MOST: usize = 1000;

/// What a session shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Container, command, streams.
    Exec(String, Vec<String>, Options),
    /// Container, streams.
    Attach(String, Options),
    /// Sandbox, ports named beforehand.
    Forward(String, Vec<u16>),
}

impl Wish {
    /// The first part of the URL's path.
    pub fn kind(&self) -> &'static str {
        match self {
            Wish::Exec(..) => "exec",
            Wish::Attach(..) => "attach",
            Wish::Forward(..) => "portforward",
        }
    }
}

#[derive(Default)]
pub struct Tickets {
    address: OnceLock<SocketAddr>,
    issued: Mutex<BTreeMap<String, (Wish, Instant)>>,
}

impl Tickets {
    pub fn listen_at(&self, address: SocketAddr) {
        let _ = self.address.set(address);
    }

    /// The URL under which the wish is fulfilled.
    pub fn issue(&self, wish: Wish, token: &[u8]) -> Result<String, Error> {
        let address = self
            .address
            .get()
            .ok_or_else(|| Error::Precondition("the streaming server is not there yet".into()))?;
        let token = URL_SAFE_NO_PAD.encode(token);
        let now = Instant::now();
        let mut issued = self.issued.lock();
        issued.retain(|_, (_, until)| *until > now);
        if issued.len() >= MOST {
            return Err(Error::Precondition(
                "maximum number of in-flight requests exceeded".into(),
            ));
        }
        let url = format!("http://{address}/{}/{token}", wish.kind());
        issued.insert(token, (wish, now + LIFE));
        Ok(url)
    }

    pub fn redeem(&self, token: &str) -> Option<Wish> {
        let (wish, until) = self.issued.lock().remove(token)?;
        (until > Instant::now()).then_some(wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_ticket_is_good_once_and_for_a_minute() {
        let tickets = Tickets::default();
        let wish = Wish::Forward("sandbox".into(), vec![]);
        assert!(tickets.issue(wish.clone(), &[1]).is_err());
        tickets.listen_at(([127, 0, 0, 1], 1).into());
        let url = tickets.issue(wish.clone(), &[1]).unwrap();
        assert_eq!(url, "http://127.0.0.1:1/portforward/AQ");
        assert_eq!(tickets.redeem("AQ"), Some(wish.clone()));
        assert_eq!(tickets.redeem("AQ"), None);
        tickets.issue(wish, &[2]).unwrap();
        tokio::time::advance(LIFE).await;
        assert_eq!(tickets.redeem("Ag"), None);
    }
}
