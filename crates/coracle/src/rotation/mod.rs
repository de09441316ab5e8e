//! A joined node's certificates: in use, on disk, and renewed before they end, without a restart.
//!
//! 1. Each is held where new connections take it from.
//! 2. When most of its time is over, a new key is made and a certificate requested through the API,
//!    with the node's own identity; the cluster's controllers approve and sign it.
//! 3. It is written down, then put in the place of the old one.

mod held;
mod request;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use environment::Environment;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::layout::{Layout, Settings};
use crate::pki::{self, Identity};
pub use held::{Held, Validity};
use request::{Requester, Wanted};

const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LAST_PAUSE: Duration = Duration::from_secs(600);

/// Everything a joined node proves its identity with.
#[derive(Clone)]
pub struct Certificates {
    pub node: Arc<Held>,
    pub serving: Arc<Held>,
    pub proxy: Arc<Held>,
    pub local_path: Arc<Held>,
}

impl Certificates {
    /// As they lie in the node's data directory.
    pub fn read(layout: &Layout) -> Result<Certificates> {
        let of_kubeconfig = |file: &std::path::Path| {
            Held::new(pki::identity_in(file)?).with_context(|| file.display().to_string())
        };
        Ok(Certificates {
            node: of_kubeconfig(&layout.node_kubeconfig())?,
            serving: Held::new(pki::serving_identity(&layout.pki())?)?,
            proxy: of_kubeconfig(&layout.proxy_kubeconfig())?,
            local_path: of_kubeconfig(&layout.local_path_kubeconfig())?,
        })
    }

    /// Renews all of them in time. `at_once`: they are a ticket's, which others may have seen.
    pub async fn keep(
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
        let address = crate::server::node_address(&settings)?;
        let keep = |held: Arc<Held>, wanted: Wanted, write: Write| {
            let renewal = Renewal {
                requester: requester.clone(),
                layout: layout.clone(),
                held,
                wanted,
                write,
            };
            renewal.keep(at_once, environment.clone(), shutdown.clone())
        };
        tokio::try_join!(
            keep(self.node, Wanted::kubelet(node), |layout, identity| {
                pki::replace_identity(&layout.node_kubeconfig(), identity)
            }),
            keep(
                self.serving,
                Wanted::serving(node, address),
                |layout, identity| { pki::save_serving(&layout.pki(), identity) }
            ),
            keep(self.proxy, Wanted::proxy(node), |layout, identity| {
                pki::replace_identity(&layout.proxy_kubeconfig(), identity)
            }),
            keep(
                self.local_path,
                Wanted::local_path(node),
                |layout, identity| {
                    pki::replace_identity(&layout.local_path_kubeconfig(), identity)
                }
            ),
        )?;
        Ok(())
    }
}

type Write = fn(&Layout, &Identity) -> Result<()>;

/// How one of them is renewed.
struct Renewal {
    requester: Requester,
    layout: Layout,
    held: Arc<Held>,
    wanted: Wanted,
    /// Puts it where the next start finds it.
    write: Write,
}

impl Renewal {
    async fn keep(
        self,
        at_once: bool,
        environment: Environment,
        shutdown: CancellationToken,
    ) -> Result<()> {
        let first = self.held.validity()?;
        let renewal = &self;
        let renew = move || renewal.renew();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = keep_current(first, at_once, &environment, renew) => {}
        }
        Ok(())
    }

    async fn renew(&self) -> Result<Validity> {
        let identity = self.requester.request(&self.wanted).await?;
        let next = Validity::of(&identity.certificate)?;
        (self.write)(&self.layout, &identity)?;
        self.held.replace(&identity)?;
        info!("a certificate of {} was renewed", self.wanted.user);
        Ok(next)
    }
}

/// Calls `renew` whenever most of a certificate's time is over, for ever; a failure is repeated
/// after a pause that grows.
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
    let mut pause = FIRST_PAUSE;
    loop {
        let wait = due - environment.now().as_second();
        tokio::time::sleep(Duration::from_secs(wait.max(0) as u64)).await;
        match renew().await {
            Ok(next) => {
                validity = next;
                due = validity.renewal(environment);
                pause = FIRST_PAUSE;
            }
            Err(error) => {
                let left = validity.until - environment.now().as_second();
                warn!("a certificate that ends in {left} s could not be renewed yet: {error:#}");
                due = environment.now().as_second() + pause.as_secs() as i64;
                pause = (pause * 2).min(LAST_PAUSE);
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
    async fn a_certificate_is_renewed_again_and_again_before_it_ends() {
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
            assert!(now < last.until, "it has ended");
            assert!(now >= last.from + DAY * 7 / 10, "it has hardly begun");
            if *failures.borrow() > 0 {
                *failures.borrow_mut() -= 1;
                anyhow::bail!("the server is away");
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
    async fn a_tickets_certificate_is_replaced_at_once() {
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
