//! A node with fewer addresses than pods: the last pod waits with upstream's event, the others are not
//! disturbed, and it gets the first address that is released.

use crate::cluster::{Cluster, eventually};

/// Six addresses, of which the node itself has one. Reserved for tests like this one (RFC 2544);
/// a concurrent run on the same machine uses others.
fn range() -> String {
    let number = std::process::id();
    let [high, low] = [number >> 5 & 0xff, (number & 0x1f) << 3];
    format!("198.19.{high}.{low}/29")
}

const POD_ADDRESSES: usize = 5;

#[test]
fn a_pod_waits_for_a_free_address() {
    let cluster = Cluster::prepared();
    let range = range();
    cluster.up(&["--pod-range", &range]);
    let pods = |count: usize| -> String {
        (0..count)
            .map(|number| {
                format!(
                    "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {{name: c, image: 'coracle-test:1', command: [sleep, '3600']}}\n"
                )
            })
            .collect()
    };
    cluster.apply(&pods(POD_ADDRESSES));
    for number in 0..POD_ADDRESSES {
        cluster.wait_ready(&format!("p{number}"));
    }
    cluster.apply(&pods(POD_ADDRESSES + 1));
    let last = format!("p{POD_ADDRESSES}");
    eventually("the event", || {
        let of = format!("involvedObject.name={last}");
        let events = cluster.kubectl(&["get", "events", "--field-selector", &of]);
        let told = events.contains("FailedCreatePodSandBox")
            && events.contains("Failed to create pod sandbox: ")
            && events.contains(&format!("no free address in {range}"));
        told.then_some(())
    });
    eventually("the pod to wait", || {
        let waiting = cluster.object("pod", &last);
        let state = &waiting["status"]["containerStatuses"][0]["state"];
        (state["waiting"]["reason"] == "ContainerCreating").then_some(())
    });
    for number in 0..POD_ADDRESSES {
        let other = cluster.object("pod", &format!("p{number}"));
        let status = &other["status"]["containerStatuses"][0];
        assert_eq!(status["ready"], true, "{other}");
        assert_eq!(status["restartCount"], 0, "{other}");
    }

    let freed = cluster.object("pod", "p0")["status"]["podIP"].clone();
    cluster.kubectl(&["delete", "pod", "p0", "--timeout=120s"]);
    cluster.wait_ready(&last);
    assert_eq!(cluster.object("pod", &last)["status"]["podIP"], freed);
}
