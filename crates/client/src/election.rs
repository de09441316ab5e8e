//! Leader election by Lease: of several candidates one acts at a time.
//!
//! The holder renews every two seconds. A holder that cannot renew for ten seconds stops acting. A
//! candidate that sees no renewal for the fifteen seconds of the Lease takes over. It measures on its
//! own clock for how long the Lease has not changed, and never compares clocks of two machines. A
//! holder that shuts down releases the Lease, and one that restarts under its old name keeps it.

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
/// How long a former leader may take to stop. Together with the renew deadline it is less than the
/// duration of the Lease.
const STOPPING: Duration = Duration::from_secs(3);

/// A candidacy for one Lease.
#[derive(Clone)]
pub struct Election {
    pub client: kube::Client,
    pub environment: Environment,
    pub namespace: String,
    pub name: String,
    /// The identity of this candidate. It must be unique among candidates that may run at the same
    /// time, and should stay the same when the candidate restarts.
    pub holder: String,
}

/// The Lease of another holder as this candidate last saw it, and when it last changed by the
/// candidate's clock.
#[derive(Default)]
struct ObservedLease {
    record: Option<(LeaseSpec, Instant)>,
}

/// Whether a candidate may write its identity into a Lease.
#[derive(Debug, PartialEq)]
enum LeaseDecision {
    /// The Lease is this candidate's, or free, or has expired.
    Acquire,
    /// Another holder has the Lease for at least this long.
    Wait(Duration),
}

impl Election {
    /// Leads whenever elected, until `shutdown`. `lead` is called with a token that is cancelled
    /// when leadership ends. It must then return soon, or is dropped.
    pub async fn run<Lead, Work>(self, mut lead: Lead, shutdown: CancellationToken)
    where
        Lead: FnMut(CancellationToken) -> Work,
        Work: Future<Output = ()>,
    {
        let mut observed = ObservedLease::default();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.acquire(&mut observed) => {}
            }
            tracing::info!(lease = self.name, holder = self.holder, "Became the leader");
            let term = shutdown.child_token();
            let work = lead(term.clone());
            tokio::pin!(work);
            let ended = tokio::select! {
                biased;
                () = &mut work => true,
                () = shutdown.cancelled() => false,
                () = self.keep_renewing() => false,
            };
            term.cancel();
            if !ended && timeout(STOPPING, &mut work).await.is_err() {
                tracing::warn!(
                    lease = self.name,
                    "A component did not stop in time after it lost leadership"
                );
            }
            if ended || shutdown.is_cancelled() {
                self.release().await;
                return;
            }
            tracing::warn!(
                lease = self.name,
                "Lost leadership, because the Lease could not be renewed"
            );
        }
    }

    /// Returns when this candidate has acquired the Lease.
    async fn acquire(&self, observed: &mut ObservedLease) {
        loop {
            match self.attempt(observed).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(lease = self.name, %error, "acquiring"),
            }
            tokio::time::sleep(RETRY + jitter(&self.environment, RETRY / 5)).await;
        }
    }

    /// Renews the Lease. Returns when that has failed for too long.
    async fn keep_renewing(&self) {
        let mut renewed = Instant::now();
        let mut observed = ObservedLease::default();
        loop {
            tokio::time::sleep(RETRY).await;
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            match timeout(left, self.attempt(&mut observed)).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                // Another candidate has it.
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::debug!(lease = self.name, %error, "renewing"),
                Err(_) => {}
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return;
            }
        }
    }

    /// Tries once to acquire or renew the Lease.
    async fn attempt(&self, observed: &mut ObservedLease) -> kube::Result<bool> {
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
        if let LeaseDecision::Wait(_) = observed.decide(&current, &self.holder) {
            return Ok(false);
        }
        lease.spec = Some(next(current, fresh));
        won(leases
            .replace(&self.name, &PostParams::default(), &lease)
            .await)
    }

    /// Releases the Lease, so that the next candidate does not have to wait. Best effort.
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

impl ObservedLease {
    fn decide(&mut self, current: &LeaseSpec, holder: &str) -> LeaseDecision {
        let owner = current.holder_identity.as_deref().unwrap_or_default();
        if owner.is_empty() || owner == holder {
            self.record = None;
            return LeaseDecision::Acquire;
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
            Some(left) if !left.is_zero() => LeaseDecision::Wait(left),
            _ => LeaseDecision::Acquire,
        }
    }
}

/// The Lease after `current`: a renewal by the same holder, or a change of the holder.
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

/// Whether the write succeeded. A lost race for the Lease is not an error.
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
    async fn a_lease_is_acquired_when_it_is_free_own_or_expired() {
        let mut observed = ObservedLease::default();
        assert_eq!(observed.decide(&spec("", 0), "me"), LeaseDecision::Acquire);
        assert_eq!(
            observed.decide(&spec("me", 0), "me"),
            LeaseDecision::Acquire
        );
        let wait = |seconds| LeaseDecision::Wait(Duration::from_secs(seconds));
        assert_eq!(observed.decide(&spec("you", 0), "me"), wait(15));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(observed.decide(&spec("you", 0), "me"), wait(5));
        // A renewal restarts the wait, regardless of the holder's clock.
        assert_eq!(observed.decide(&spec("you", 1), "me"), wait(15));
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(
            observed.decide(&spec("you", 1), "me"),
            LeaseDecision::Acquire
        );
    }

    #[test]
    fn lease_transitions_count_changes_of_the_holder_and_not_renewals() {
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
