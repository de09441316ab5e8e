//! Renews the certificates of a joined node before they expire, without a restart.
//!
//! 1. New connections use the certificate in [`CertificateInUse`].
//! 2. When most of its lifetime is over, a new key is made and a certificate is requested through
//!    the API with the node's own identity; the cluster's controllers approve and sign it.
//! 3. The new certificate is written to disk, and then replaces the one in use.

mod certificate;
mod request;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use environment::Environment;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::kubeconfig::own;
use crate::layout::{Layout, Settings};
use crate::pki::{self, Identity};
pub use certificate::{CertificateInUse, Validity};
use request::{CertificateRequest, Requester};

const FIRST_BACKOFF: Duration = Duration::from_secs(5);
const LONGEST_BACKOFF: Duration = Duration::from_secs(600);

/// All certificates of a joined node.
#[derive(Clone)]
pub struct Certificates {
    pub node: Arc<CertificateInUse>,
    pub serving: Arc<CertificateInUse>,
    pub proxy: Arc<CertificateInUse>,
    pub local_path: Arc<CertificateInUse>,
}

impl Certificates {
    /// Reads them from the node's data directory.
    pub fn read(layout: &Layout) -> Result<Certificates> {
        let of_kubeconfig = |file: &std::path::Path| {
            CertificateInUse::new(own::identity(file)?)
                .with_context(|| format!("reading {}", file.display()))
        };
        Ok(Certificates {
            node: of_kubeconfig(&layout.node_kubeconfig())?,
            serving: CertificateInUse::new(pki::serving_identity(&layout.pki())?)?,
            proxy: of_kubeconfig(&layout.proxy_kubeconfig())?,
            local_path: of_kubeconfig(&layout.local_path_kubeconfig())?,
        })
    }

    /// Renews all of them until shutdown, each before it expires. `at_once` renews them now as well:
    /// they are a ticket's, which others may have seen.
    pub async fn keep_renewed(
        self,
        client: kube::Client,
        layout: Layout,
        settings: Settings,
        at_once: bool,
        environment: Environment,
        shutdown: CancellationToken,
    ) -> Result<()> {
        let requester = Requester::new(client, environment.clone());
        let node = settings.node_name.as_str();
        let address = crate::host::node_address(&settings)?;
        let keep = |in_use: Arc<CertificateInUse>, request: CertificateRequest, write: Write| {
            let renewal = Renewal {
                requester: requester.clone(),
                layout: layout.clone(),
                in_use,
                request,
                write,
            };
            renewal.keep(at_once, environment.clone(), shutdown.clone())
        };
        tokio::try_join!(
            keep(
                self.node,
                CertificateRequest::kubelet(node),
                |layout, identity| { own::replace_identity(&layout.node_kubeconfig(), identity) }
            ),
            keep(
                self.serving,
                CertificateRequest::serving(node, address),
                |layout, identity| { pki::save_serving(&layout.pki(), identity) }
            ),
            keep(
                self.proxy,
                CertificateRequest::proxy(node),
                |layout, identity| { own::replace_identity(&layout.proxy_kubeconfig(), identity) }
            ),
            keep(
                self.local_path,
                CertificateRequest::local_path(node),
                |layout, identity| {
                    own::replace_identity(&layout.local_path_kubeconfig(), identity)
                }
            ),
        )?;
        Ok(())
    }
}

type Write = fn(&Layout, &Identity) -> Result<()>;

/// The renewal of one certificate.
struct Renewal {
    requester: Requester,
    layout: Layout,
    in_use: Arc<CertificateInUse>,
    request: CertificateRequest,
    /// Writes the certificate to the place from which the next start reads it.
    write: Write,
}

impl Renewal {
    async fn keep(
        self,
        at_once: bool,
        environment: Environment,
        shutdown: CancellationToken,
    ) -> Result<()> {
        let first = self.in_use.validity()?;
        let renewal = &self;
        let renew = move || renewal.renew();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = keep_current(first, at_once, &environment, renew) => {}
        }
        Ok(())
    }

    async fn renew(&self) -> Result<Validity> {
        let identity = self.requester.request(&self.request).await?;
        let next = Validity::of(&identity.certificate)?;
        let (write, layout, written) = (self.write, self.layout.clone(), identity.clone());
        // The write is synced to disk, which takes its time.
        tokio::task::spawn_blocking(move || write(&layout, &written)).await??;
        self.in_use.replace(&identity)?;
        info!("Renewed a certificate of {}", self.request.user);
        Ok(next)
    }
}

/// Calls `renew` whenever most of a certificate's lifetime is over, for ever. After a failure it
/// tries again with a growing back-off.
async fn keep_current<Renewed: Future<Output = Result<Validity>>>(
    mut validity: Validity,
    at_once: bool,
    environment: &Environment,
    renew: impl Fn() -> Renewed,
) {
    let mut due = match at_once {
        true => environment.now().as_second(),
        false => validity.renewal(environment),
    };
    let mut backoff = FIRST_BACKOFF;
    loop {
        let wait = due - environment.now().as_second();
        tokio::time::sleep(Duration::from_secs(wait.max(0) as u64)).await;
        match renew().await {
            Ok(next) => {
                validity = next;
                due = validity.renewal(environment);
                backoff = FIRST_BACKOFF;
            }
            Err(error) => {
                let left = validity.until - environment.now().as_second();
                warn!(
                    "Cannot renew a certificate that expires in {left} s, and will try again in \
                     {} s: {}",
                    backoff.as_secs(),
                    environment::chain(error.as_ref())
                );
                due = environment.now().as_second() + backoff.as_secs() as i64;
                backoff = (backoff * 2).min(LONGEST_BACKOFF);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const DAY: i64 = 86_400;

    #[tokio::test(start_paused = true)]
    async fn certificates_are_renewed_before_they_expire_also_after_failures() {
        let environment = Environment::simulated(7, 1_767_225_600_000_000);
        let start = environment.now().as_second();
        let first = Validity {
            from: start,
            until: start + DAY,
        };
        let renewals = RefCell::new(vec![first]);
        let failures = RefCell::new(2);
        let (environment, renewals, failures) = (&environment, &renewals, &failures);
        let renew = move || async move {
            let now = environment.now().as_second();
            let last = *renewals.borrow().last().unwrap();
            assert!(now < last.until, "the certificate has expired");
            assert!(now >= last.from + DAY * 7 / 10, "renewed too early");
            if *failures.borrow() > 0 {
                *failures.borrow_mut() -= 1;
                anyhow::bail!("the server does not answer");
            }
            let next = Validity {
                from: now,
                until: now + DAY,
            };
            renewals.borrow_mut().push(next);
            Ok(next)
        };
        let keep = keep_current(first, false, environment, renew);
        let month = Duration::from_secs(30 * DAY as u64);
        assert!(tokio::time::timeout(month, keep).await.is_err());
        let count = renewals.borrow().len();
        assert!((33..=43).contains(&count), "{count}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_certificate_of_a_ticket_is_renewed_at_once() {
        let environment = Environment::simulated(7, 1_767_225_600_000_000);
        let start = environment.now().as_second();
        let validity = Validity {
            from: start,
            until: start + DAY,
        };
        let asked = RefCell::new(Vec::new());
        let (environment, asked) = (&environment, &asked);
        let renew = move || async move {
            asked.borrow_mut().push(environment.now().as_second());
            Ok(validity)
        };
        let keep = keep_current(validity, true, environment, renew);
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, keep).await.is_err());
        assert_eq!(*asked.borrow(), [start]);
    }
}
