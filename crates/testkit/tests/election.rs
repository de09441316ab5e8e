//! Leader election against a real API server: one leads at a time; an orderly hand-over takes
//! seconds, a lost leader is replaced when its Lease has run out, and not before it has stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use client::election::Election;
use parking_lot::Mutex;
use testkit::Cluster;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct Observed {
    leading: AtomicI32,
    most: AtomicI32,
    leader: Mutex<Option<&'static str>>,
}

impl Observed {
    async fn lead(self: Arc<Observed>, name: &'static str, term: CancellationToken) {
        let now = self.leading.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        *self.leader.lock() = Some(name);
        term.cancelled().await;
        self.leading.fetch_sub(1, Ordering::SeqCst);
    }

    async fn wait_for(&self, name: &str) -> Duration {
        let began = Instant::now();
        while *self.leader.lock() != Some(name) || self.leading.load(Ordering::SeqCst) == 0 {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{name} never leads"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }
}

fn candidate(
    cluster: &Cluster,
    client: kube::Client,
    observed: &Arc<Observed>,
    name: &'static str,
) -> (JoinHandle<()>, CancellationToken) {
    let shutdown = CancellationToken::new();
    let election = Election {
        client,
        environment: cluster.environment().clone(),
        namespace: "kube-system".into(),
        name: "test".into(),
        holder: name.into(),
    };
    let observed = observed.clone();
    let lead = move |term| observed.clone().lead(name, term);
    (tokio::spawn(election.run(lead, shutdown.clone())), shutdown)
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_at_a_time_and_another_takes_over() {
    let cluster = Cluster::builder()
        .simulated(7)
        .start()
        .await
        .expect("start");
    let observed = Arc::new(Observed::default());
    let (first, stop_first) = candidate(&cluster, cluster.client(), &observed, "first");
    observed.wait_for("first").await;
    let (second, _stop) = candidate(&cluster, cluster.client(), &observed, "second");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(*observed.leader.lock(), Some("first"));

    stop_first.cancel();
    first.await.expect("an orderly end");
    let handed_over = observed.wait_for("second").await;
    assert!(handed_over < Duration::from_secs(5), "{handed_over:?}");

    // A leader that dies without a word: its Lease has to run out.
    second.abort();
    observed.leading.store(0, Ordering::SeqCst);
    let (_third, _stop) = candidate(&cluster, cluster.client(), &observed, "third");
    let taken_over = observed.wait_for("third").await;
    assert!(taken_over > Duration::from_secs(10), "{taken_over:?}");
    assert!(taken_over < Duration::from_secs(25), "{taken_over:?}");
    assert_eq!(observed.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_starts() {
    let mut cluster = Cluster::builder()
        .simulated(8)
        .start()
        .await
        .expect("start");
    let observed = Arc::new(Observed::default());
    let (_first, _stop) = candidate(&cluster, cluster.client(), &observed, "first");
    observed.wait_for("first").await;
    cluster.stop_server().await.expect("stop");
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(observed.leading.load(Ordering::SeqCst), 0, "it went on");
    cluster.start_server().await.expect("start again");
    let back = observed.wait_for("first").await;
    assert!(back < Duration::from_secs(5), "{back:?}");
}
