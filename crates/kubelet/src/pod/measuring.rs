//! Counts and times the steps of a pod's life, for `/metrics`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::time::Instant;

use crate::{
    container::users,
    measures::{Counter, Histogram, Measures},
    pod_spec::{Role, role},
};

/// A sandbox being started.
pub struct SandboxStart<'a> {
    measures: &'a Measures,
    own_users: bool,
    handler: &'a str,
    began: Instant,
}

impl SandboxStart<'_> {
    pub fn begin<'a>(measures: &'a Measures, pod: &Pod, handler: &'a str) -> SandboxStart<'a> {
        let own_users = users::wanted(pod);
        measures.count(Counter::StartedPods, &[]);
        if own_users {
            measures.count(Counter::StartedUserNamespacedPods, &[]);
        }
        SandboxStart {
            measures,
            own_users,
            handler,
            began: Instant::now(),
        }
    }

    pub fn end(self, good: bool) {
        let measures = self.measures;
        let took = self.began.elapsed();
        measures.time(Histogram::RunPodSandboxDuration, &[self.handler], took);
        if good {
            return;
        }
        measures.count(Counter::RunPodSandboxErrors, &[self.handler]);
        measures.count(Counter::StartedPodsErrors, &[]);
        if self.own_users {
            measures.count(Counter::StartedUserNamespacedPodsErrors, &[]);
        }
    }
}

/// The part of a pod's start that does not count as the node's time. In microseconds since the epoch.
#[derive(Debug, Default)]
pub struct Startup {
    /// When images were pulled, from and to.
    pulls: Vec<(i64, i64)>,
    /// Recorded, or not to be recorded because it began under another kubelet.
    pub is_recorded: bool,
}

impl Startup {
    pub fn pulled(&mut self, from: i64, to: i64) {
        if !self.is_recorded {
            self.pulls.push((from, to));
        }
    }

    /// How long at least one pull was under way.
    fn pulling(&self) -> i64 {
        let mut pulls = self.pulls.clone();
        pulls.sort_unstable();
        let (mut total, mut end) = (0, i64::MIN);
        for (from, to) in pulls {
            total += (to - from.max(end)).max(0);
            end = end.max(to);
        }
        total
    }

    /// Records the start of a pod all of whose containers were reported to run.
    pub fn record(&mut self, measures: &Measures, pod: &Pod, status: &PodStatus, now: i64) {
        self.is_recorded = true;
        let created = pod.metadata.creation_timestamp.as_ref();
        let Some(created) = created.map(|time| time.0.as_microsecond()) else {
            return;
        };
        measures.span(Histogram::PodStartTotalDuration, &[], created, now);
        if !is_stateful(pod) {
            let apart = self.pulling() + initializing(status);
            measures.span(Histogram::PodStartSliDuration, &[], created, now - apart);
        }
        self.pulls = Vec::new();
    }
}

/// Whether every container runs.
pub fn has_started(pod: &Pod, status: &PodStatus) -> bool {
    let wanted = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let running = status.container_statuses.iter().flatten().filter(|one| {
        let running = one.state.as_ref().and_then(|state| state.running.as_ref());
        running.is_some_and(|running| running.started_at.is_some())
    });
    running.count() == wanted
}

/// How long the init containers that have ended ran, in microseconds.
fn initializing(status: &PodStatus) -> i64 {
    let all = status.init_container_statuses.iter().flatten();
    all.filter_map(|one| {
        let ended = one.state.as_ref()?.terminated.as_ref()?;
        let (from, to) = (ended.started_at.as_ref()?, ended.finished_at.as_ref()?);
        Some((to.0.as_microsecond() - from.0.as_microsecond()).max(0))
    })
    .sum()
}

/// Whether it has volumes that outlive it.
fn is_stateful(pod: &Pod) -> bool {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes.into_iter().any(|volume| {
        volume.secret.is_none()
            && volume.config_map.is_none()
            && volume.downward_api.is_none()
            && volume.empty_dir.is_none()
            && volume.projected.is_none()
    })
}

/// The name that `/metrics` gives to a container of this role.
pub fn container_kind(pod: &Pod, container: &str) -> &'static str {
    match role(pod, container) {
        Role::Init => "init_container",
        Role::App => "container",
        Role::Ephemeral => "ephemeral_container",
    }
}

/// A change of cgroups that took so long.
pub fn cgroups_changed(measures: &Measures, operation: &str, took: Duration) {
    measures.time(Histogram::CgroupManagerDuration, &[operation], took);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(histogram: Histogram, measures: &Measures) -> (u64, f64) {
        let families = measures.histograms();
        let series = &families[histogram as usize].series;
        (series[0].1.count(), series[0].1.sum)
    }

    #[test]
    fn pulls_and_init_containers_are_not_the_nodes_time() {
        let mut startup = Startup::default();
        let second = 1_000_000;
        startup.pulled(3 * second, 5 * second);
        startup.pulled(second, 4 * second);
        assert_eq!(startup.pulling(), 4 * second, "side by side counts once");
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:00:01Z"},
            "spec": {"containers": [{"name": "a"}], "volumes": [{"name": "e", "emptyDir": {}}]},
            "status": {
                "containerStatuses": [{"name": "a", "ready": true, "restartCount": 0, "image": "",
                    "imageID": "", "state": {"running": {"startedAt": "1970-01-01T00:00:09Z"}}}],
                "initContainerStatuses": [{"name": "i", "ready": true, "restartCount": 0,
                    "image": "", "imageID": "", "state": {"terminated": {"exitCode": 0,
                    "startedAt": "1970-01-01T00:00:05Z", "finishedAt": "1970-01-01T00:00:08Z"}}}],
            },
        }))
        .expect("a pod");
        let status = pod.status.clone().expect("a status");
        assert!(has_started(&pod, &status));
        assert!(!has_started(&pod, &PodStatus::default()));
        let measures = Measures::default();
        startup.record(&measures, &pod, &status, 11 * second);
        let total = read(Histogram::PodStartTotalDuration, &measures);
        assert_eq!(total, (1, 10.0));
        assert_eq!(read(Histogram::PodStartSliDuration, &measures), (1, 3.0));

        let volume = serde_json::json!({"name": "v", "hostPath": {"path": "/x"}});
        let volume = serde_json::from_value(volume).expect("a volume");
        let spec = pod.spec.as_mut().expect("a spec");
        spec.volumes.get_or_insert_default().push(volume);
        Startup::default().record(&measures, &pod, &status, 11 * second);
        assert_eq!(read(Histogram::PodStartTotalDuration, &measures).0, 2);
        let stateless = read(Histogram::PodStartSliDuration, &measures).0;
        assert_eq!(stateless, 1, "pods with state are not counted");
    }
}
