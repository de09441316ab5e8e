//! Leader election by Lease: of several candidates one acts at a time.
//!
//! The holder renews every two seconds. Who cannot renew for ten stops acting; who sees no renewal
//! for the fifteen that the Lease promises takes over. Clocks of other machines are never compared
//! with ours: a candidate measures on its own clock for how long the record has not changed. A
//! candidate that stops in order lets go, and one that comes back under its old name goes on.

use std::future::Future;
use std::time::Duration;

use environment::Environment;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{backoff::jitter, retry};

const LEASE: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// How long a deposed leader may take to stop; with the deadline still less than the Lease.
const STOPPING: Duration = Duration::from_secs(3);

/// A candidacy for one Lease.
#[derive(Clone)]
pub struct Election {
    pub client: kube::Client,
    pub environment: Environment,
    pub namespace: String,
    pub name: String,
    /// Who we are. It must be unique among candidates that may run at the same time, and should
    /// stay the same when one restarts.
    pub holder: String,
}

/// What a candidate saw of somebody else's Lease, and when it last changed on our clock.
#[derive(Default)]
struct Observed {
    record: Option<(LeaseSpec, Instant)>,
}

/// What to do about a Lease.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// It is ours, or free, or was not renewed for long enough.
    Take,
    /// Somebody else holds it for at least this long.
    Wait(Duration),
}

impl Election {
    /// Leads whenever elected, until `shutdown`: `lead` is called with a token that is cancelled
    /// when leadership ends, and must then return soon; it is dropped if it does not.
    pub async fn run<Lead, Work>(self, mut lead: Lead, shutdown: CancellationToken)
    where
        Lead: FnMut(CancellationToken) -> Work,
        Work: Future<Output = ()>,
    {
        let mut observed = Observed::default();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.acquire(&mut observed) => {}
            }
            tracing::info!(lease = self.name, holder = self.holder, "leading");
            let term = shutdown.child_token();
            let work = lead(term.clone());
            tokio::pin!(work);
            let ended = tokio::select! {
                biased;
                () = &mut work => true,
                () = shutdown.cancelled() => false,
                () = self.keep() => false,
            };
            term.cancel();
            if !ended && timeout(STOPPING, &mut work).await.is_err() {
                tracing::warn!(lease = self.name, "a deposed leader did not stop in time");
            }
            if ended || shutdown.is_cancelled() {
                self.release().await;
                return;
            }
            tracing::warn!(lease = self.name, "no longer leading");
        }
    }

    /// Returns when the Lease is ours.
    async fn acquire(&self, observed: &mut Observed) {
        loop {
            match self.attempt(observed).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(lease = self.name, %error, "acquiring"),
            }
            tokio::time::sleep(RETRY + jitter(&self.environment, RETRY / 5)).await;
        }
    }

    /// Renews until that has failed for too long.
    async fn keep(&self) {
        let mut renewed = Instant::now();
        let mut observed = Observed::default();
        loop {
            tokio::time::sleep(RETRY).await;
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            match timeout(left, self.attempt(&mut observed)).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                // Somebody else has it: there is nothing to wait for.
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::debug!(lease = self.name, %error, "renewing"),
                Err(_) => {}
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return;
            }
        }
    }

    /// One try to take or renew the Lease.
    async fn attempt(&self, observed: &mut Observed) -> kube::Result<bool> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let now = MicroTime(self.environment.now());
        let fresh = LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(LEASE.as_secs() as i32),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        let Some(mut lease) = leases.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    namespace: Some(self.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(fresh),
            };
            return won(leases.create(&PostParams::default(), &lease).await);
        };
        let current = lease.spec.take().unwrap_or_default();
        if let Verdict::Wait(_) = observed.judge(&current, &self.holder) {
            return Ok(false);
        }
        lease.spec = Some(next(current, fresh));
        won(leases
            .replace(&self.name, &PostParams::default(), &lease)
            .await)
    }

    /// Lets go, so that the next candidate need not wait. Best effort.
    async fn release(&self) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let release = async {
            let Some(mut lease) = leases.get_opt(&self.name).await? else {
                return Ok(());
            };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.holder) {
                return Ok(());
            }
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            leases
                .replace(&self.name, &PostParams::default(), &lease)
                .await
                .map(drop)
        };
        match timeout(Duration::from_secs(1), release).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(lease = self.name, %error, "releasing"),
            Err(_) => tracing::debug!(lease = self.name, "releasing took too long"),
        }
    }
}

impl Observed {
    fn judge(&mut self, current: &LeaseSpec, holder: &str) -> Verdict {
        let owner = current.holder_identity.as_deref().unwrap_or_default();
        if owner.is_empty() || owner == holder {
            self.record = None;
            return Verdict::Take;
        }
        let promised = current
            .lease_duration_seconds
            .unwrap_or(LEASE.as_secs() as i32);
        let promised = Duration::from_secs(promised.max(1) as u64);
        let since = match &self.record {
            Some((seen, since)) if seen == current => *since,
            _ => {
                let now = Instant::now();
                self.record = Some((current.clone(), now));
                now
            }
        };
        match promised.checked_sub(since.elapsed()) {
            Some(left) if !left.is_zero() => Verdict::Wait(left),
            _ => Verdict::Take,
        }
    }
}

/// The record that follows `current`: a renewal by the same holder, or a change of hands.
fn next(current: LeaseSpec, fresh: LeaseSpec) -> LeaseSpec {
    let same = current.holder_identity == fresh.holder_identity;
    let transitions = current.lease_transitions.unwrap_or(0);
    LeaseSpec {
        acquire_time: match same {
            true => current.acquire_time.or(fresh.acquire_time),
            false => fresh.acquire_time,
        },
        lease_transitions: Some(transitions + i32::from(!same)),
        holder_identity: fresh.holder_identity,
        lease_duration_seconds: fresh.lease_duration_seconds,
        renew_time: fresh.renew_time,
        ..current
    }
}

/// Losing a race for the Lease is an answer, not an error.
fn won(result: kube::Result<Lease>) -> kube::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if retry::is_conflict(&error) || retry::is_already_exists(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()).filter(|holder| !holder.is_empty()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(
                k8s_openapi::jiff::Timestamp::from_second(renewed).unwrap(),
            )),
            ..LeaseSpec::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_free_ours_or_not_renewed_as_promised() {
        let mut observed = Observed::default();
        assert_eq!(observed.judge(&spec("", 0), "me"), Verdict::Take);
        assert_eq!(observed.judge(&spec("me", 0), "me"), Verdict::Take);
        let wait = |seconds| Verdict::Wait(Duration::from_secs(seconds));
        assert_eq!(observed.judge(&spec("you", 0), "me"), wait(15));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(observed.judge(&spec("you", 0), "me"), wait(5));
        // A renewal, whatever the other's clock says, starts the wait again.
        assert_eq!(observed.judge(&spec("you", 1), "me"), wait(15));
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(observed.judge(&spec("you", 1), "me"), Verdict::Take);
    }

    #[test]
    fn changes_of_hands_are_counted_and_renewals_are_not() {
        let mut first = spec("me", 0);
        first.acquire_time = Some(MicroTime(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        let renewed = next(first.clone(), spec("me", 5));
        assert_eq!(renewed.acquire_time, first.acquire_time);
        assert_eq!(renewed.lease_transitions, Some(0));
        let taken = next(renewed, spec("you", 9));
        assert_eq!(taken.lease_transitions, Some(1));
        assert_eq!(taken.holder_identity.as_deref(), Some("you"));
    }
}
