//! The QoS hierarchy `<root>/kubepods[/burstable|/besteffort]/pod<uid>` on cgroup v1 (each
//! controller) and v2: made before a pod's sandbox, limited as the pod says, removed at its end.
//! With the systemd driver each of them is a slice, which systemd makes, keeps and ends.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use dbus::{
    slice,
    systemd::{self, INFINITY, Limits},
};
use environment::chain;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use crate::{
    configuration::{CgroupDriver, Configuration},
    resources::{self, CPU_PERIOD, PodLimits, QosClass},
};

/// No pod of ours needs more; one that forks without end must not take the node with it.
const PIDS_PER_POD: i64 = 16_384;
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// How long the kernel may take until a cgroup whose last process has ended can be removed.
const REMOVAL_TRIES: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
#[error("cgroup {path}")]
pub struct Error {
    path: PathBuf,
    #[source]
    source: io::Error,
}

#[derive(Clone)]
pub struct Cgroups {
    shared: Arc<Shared>,
}

struct Shared {
    mount: PathBuf,
    /// e.g. `coracle-1a2b3c`
    root: String,
    driver: CgroupDriver,
    unified: bool,
    /// cgroup v1 counts swap, and there is some.
    counts_swap: bool,
    /// Processes one pod may have.
    pids: i64,
    /// How CPU limits are enforced, in microseconds; `None` if they are not.
    quota_period: Option<i64>,
    /// Milli-CPU requested by each burstable pod: their sum is the class's share.
    burstable: Mutex<BTreeMap<String, i64>>,
}

impl Cgroups {
    pub fn new(root: &str, configuration: &Configuration, driver: CgroupDriver) -> Cgroups {
        Cgroups::at(Path::new("/sys/fs/cgroup"), root, configuration, driver)
    }

    fn at(
        mount: &Path,
        root: &str,
        configuration: &Configuration,
        driver: CgroupDriver,
    ) -> Cgroups {
        let pids = configuration.pod_pids_limit;
        Cgroups {
            shared: Arc::new(Shared {
                mount: mount.to_path_buf(),
                root: root.trim_matches('/').to_owned(),
                driver,
                unified: mount.join("cgroup.controllers").exists(),
                counts_swap: mount.join("memory/memory.memsw.limit_in_bytes").exists()
                    // Where that cannot be read there may be some.
                    && fs::read_to_string("/proc/meminfo").map_or(true, |text| has_swap(&text)),
                pids: if pids > 0 { pids } else { PIDS_PER_POD },
                quota_period: configuration.cpu_quota_period(),
                burstable: Mutex::default(),
            }),
        }
    }

    /// The kernel's: 1 or 2.
    pub fn version(&self) -> u8 {
        if self.shared.unified { 2 } else { 1 }
    }

    /// The pod's cgroup in the form that the runtime gets.
    pub fn pod_path(&self, pod: &Pod) -> String {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.pod_group(resources::qos_class(pod), uid)
    }

    /// Makes the pod's cgroup with its limits. Blocking.
    pub fn create(&self, pod: &Pod) -> Result<(), Error> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let class = resources::qos_class(pod);
        let limits = self.limits_of(pod);
        let path = self.pod_path(pod);
        let parents = [
            self.group(&[]),
            self.group(&["kubepods"]),
            self.class_path(class),
        ];
        for parent in &parents {
            self.make(parent)?;
        }
        self.make(&path)?;
        if class == QosClass::BestEffort {
            self.set_shares(&self.class_path(class), 2);
        }
        if class == QosClass::Burstable {
            let request = (limits.cpu_shares * 1000 / 1024) as i64;
            self.shared.burstable.lock().insert(uid, request);
            self.update_burstable();
        }
        self.limit(&path, &limits);
        Ok(())
    }

    /// Raises the limits of a pod's cgroup to what the pod now has, where they are lower: its
    /// containers grow first, the rest follows with `create`. Blocking.
    pub fn widen(&self, pod: &Pod) {
        let limits = self.limits_of(pod);
        let path = self.pod_path(pod);
        let (quota_file, memory_file) = if self.shared.unified {
            ("cpu.max", "memory.max")
        } else {
            ("cpu.cfs_quota_us", "memory.limit_in_bytes")
        };
        let present = |controller: &str, file: &str| {
            let text = self.read(&path, controller, file)?;
            text.split_whitespace().next()?.parse::<i64>().ok()
        };
        let raise = |controller: &str, file: &str, wanted: Option<i64>| match wanted {
            None if self.shared.unified => self.write(&path, controller, file, "max"),
            None => self.write(&path, controller, file, "-1"),
            Some(wanted) => {
                if present(controller, file).is_some_and(|has| has >= 0 && has < wanted) {
                    self.write(&path, controller, file, &wanted.to_string());
                }
            }
        };
        self.set_in_systemd(&path, || Limits {
            cpu_quota: match limits.cpu_quota {
                Some(wanted) if present("cpu", quota_file).is_none_or(|has| has >= wanted) => None,
                wanted => Some(wanted.unwrap_or(-1)),
            },
            memory: match limits.memory {
                Some(wanted) if present("memory", memory_file).is_none_or(|has| has >= wanted) => {
                    None
                }
                wanted => Some(wanted.map_or(INFINITY, i64::cast_unsigned)),
            },
            ..Limits::default()
        });
        raise("cpu", quota_file, limits.cpu_quota);
        raise("memory", memory_file, limits.memory);
    }

    /// Keeps all pods together within what the machine leaves them: `memory` bytes and `milli_cpu`.
    /// Blocking.
    pub fn enforce_allocatable(&self, memory: i64, milli_cpu: i64) {
        let path = self.group(&["kubepods"]);
        for made in [self.group(&[]), path.clone()] {
            if let Err(error) = self.make(&made) {
                tracing::warn!(error = %chain(&error), "the pods' cgroup could not be made");
                return;
            }
        }
        self.set_shares(&path, resources::cpu_shares(milli_cpu));
        let file = match self.shared.unified {
            true => "memory.max",
            false => "memory.limit_in_bytes",
        };
        if memory > 0 {
            self.set_in_systemd(&path, || Limits {
                memory: Some(memory.cast_unsigned()),
                ..Limits::default()
            });
            self.write(&path, "memory", file, &memory.to_string());
        }
    }

    /// No pod swaps: one limit above all of them, where the hierarchy has such a one. Blocking.
    pub fn forbid_swap(&self) {
        if !self.shared.unified {
            return;
        }
        let path = self.group(&["kubepods"]);
        for made in [self.group(&[]), path.clone()] {
            if let Err(error) = self.make(&made) {
                tracing::warn!(error = %chain(&error), "the pods' cgroup could not be made");
                return;
            }
        }
        self.set_in_systemd(&path, || Limits {
            swap: Some(0),
            ..Limits::default()
        });
        self.write(&path, "memory", "memory.swap.max", "0");
    }

    /// Whether each container needs a limit of its own not to swap: cgroup v1 counts memory and swap
    /// together, and only if the kernel is set to.
    pub fn limits_swap_of_containers(&self) -> bool {
        self.shared.counts_swap
    }

    /// The memory that pods use and that cannot simply be dropped, in bytes. Blocking.
    pub fn working_set(&self) -> Option<i64> {
        let path = self.group(&["kubepods"]);
        let (usage, inactive) = match self.shared.unified {
            true => ("memory.current", "inactive_file "),
            false => ("memory.usage_in_bytes", "total_inactive_file "),
        };
        let used: i64 = self.read(&path, "memory", usage)?.trim().parse().ok()?;
        let stat = self.read(&path, "memory", "memory.stat")?;
        let inactive: i64 = stat
            .lines()
            .find_map(|line| line.strip_prefix(inactive)?.trim().parse().ok())?;
        Some((used - inactive).max(0))
    }

    /// Nanoseconds of CPU time that all pods together have used. Blocking.
    pub fn cpu_total(&self) -> Option<u64> {
        let path = self.group(&["kubepods"]);
        if !self.shared.unified {
            let text = self.read(&path, "cpuacct", "cpuacct.usage")?;
            return text.trim().parse().ok();
        }
        let stat = self.read(&path, "cpu", "cpu.stat")?;
        let used = stat
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        Some(used?.trim().parse::<u64>().ok()?.saturating_mul(1000))
    }

    fn read(&self, path: &str, controller: &str, file: &str) -> Option<String> {
        let relative = path.trim_start_matches('/');
        let directory = if self.shared.unified {
            self.shared.mount.join(relative)
        } else {
            self.shared.mount.join(controller).join(relative)
        };
        fs::read_to_string(directory.join(file)).ok()
    }

    /// Removes the pod's cgroup wherever it is, containers' cgroups included.
    pub async fn remove(&self, uid: &str) {
        let was_burstable = self.shared.burstable.lock().remove(uid).is_some();
        for attempt in 0..REMOVAL_TRIES {
            let (cgroups, uid) = (self.clone(), uid.to_owned());
            let gone = tokio::task::spawn_blocking(move || cgroups.try_remove(&uid));
            match gone.await {
                Ok(Ok(())) => break,
                Ok(Err(error)) if attempt + 1 == REMOVAL_TRIES => {
                    tracing::warn!(%error, "a pod's cgroup could not be removed");
                }
                _ => tokio::time::sleep(REMOVAL_PAUSE).await,
            }
        }
        if was_burstable {
            let cgroups = self.clone();
            let _ = tokio::task::spawn_blocking(move || cgroups.update_burstable()).await;
        }
    }

    /// UIDs that have a cgroup here, to find what was left behind. Blocking.
    pub fn known_uids(&self) -> Vec<String> {
        let classes = [
            QosClass::Guaranteed,
            QosClass::Burstable,
            QosClass::BestEffort,
        ];
        let places = classes
            .into_iter()
            .flat_map(|class| self.directories(&self.class_path(class)));
        let mut uids: Vec<String> = places
            .flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten())
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| self.uid_of(&entry.file_name().to_string_lossy()))
            .collect();
        uids.sort();
        uids.dedup();
        uids
    }

    /// The UID in the name of a pod's cgroup.
    fn uid_of(&self, name: &str) -> Option<String> {
        let uid = match self.shared.driver {
            CgroupDriver::Cgroupfs => name.strip_prefix("pod")?.to_owned(),
            CgroupDriver::Systemd => {
                let last = name.strip_suffix(".slice")?.rsplit('-').next()?;
                last.strip_prefix("pod")?.replace('_', "-")
            }
        };
        (!uid.is_empty()).then_some(uid)
    }

    fn try_remove(&self, uid: &str) -> Result<(), Error> {
        let classes = [
            QosClass::Guaranteed,
            QosClass::Burstable,
            QosClass::BestEffort,
        ];
        for hierarchy in self.hierarchies() {
            for class in classes {
                let group = self.pod_group(class, uid);
                let path = hierarchy.join(group.trim_start_matches('/'));
                if !path.is_dir() {
                    continue;
                }
                if self.shared.driver == CgroupDriver::Systemd {
                    // Scopes that are still in it end with it.
                    let unit = slice::unit(&group);
                    systemd::blocking(async |mut systemd| systemd.stop(unit).await).map_err(
                        |error| Error {
                            path: path.clone(),
                            source: io::Error::other(error),
                        },
                    )?;
                }
                if path.is_dir() {
                    remove_tree(&path).map_err(|source| Error { path, source })?;
                }
            }
        }
        Ok(())
    }

    fn class_path(&self, class: QosClass) -> String {
        self.group(class_names(class))
    }

    fn pod_group(&self, class: QosClass, uid: &str) -> String {
        let pod = format!("pod{uid}");
        let mut names = class_names(class).to_vec();
        names.push(&pod);
        self.group(&names)
    }

    /// The cgroup with these names below the root.
    fn group(&self, names: &[&str]) -> String {
        let mut all = vec![self.shared.root.as_str()];
        all.extend(names);
        match self.shared.driver {
            CgroupDriver::Cgroupfs => format!("/{}", all.join("/")),
            CgroupDriver::Systemd => slice::path(&slice::name(&all)).unwrap_or_default(),
        }
    }

    fn make(&self, path: &str) -> Result<(), Error> {
        if self.shared.driver == CgroupDriver::Systemd {
            let directory = self.shared.mount.join(path.trim_start_matches('/'));
            if directory.is_dir() {
                return Ok(());
            }
            let unit = slice::unit(path);
            return systemd::blocking(async |mut systemd| {
                systemd.ensure_slice(unit, Vec::new()).await
            })
            .map_err(|error| Error {
                path: directory,
                source: io::Error::other(error),
            });
        }
        for directory in self.directories(path) {
            match fs::create_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => {
                    return Err(Error {
                        path: directory,
                        source,
                    });
                }
                Ok(()) => {}
            }
            if self.shared.unified {
                // Children can be limited only where the parent hands the controllers on.
                for controller in ["cpu", "memory", "pids", "cpuset", "io"] {
                    let file = directory.join("cgroup.subtree_control");
                    let _ = fs::write(file, format!("+{controller}"));
                }
            }
        }
        Ok(())
    }

    fn limits_of(&self, pod: &Pod) -> PodLimits {
        let limits = resources::pod_limits(pod);
        PodLimits {
            cpu_quota: limits
                .cpu_quota
                .zip(self.shared.quota_period)
                .map(|(quota, period)| resources::quota_in(quota, period)),
            ..limits
        }
    }

    fn limit(&self, path: &str, limits: &PodLimits) {
        let period = self.shared.quota_period.unwrap_or(CPU_PERIOD);
        self.set_in_systemd(path, || Limits {
            cpu_weight: Some(cpu_weight(limits.cpu_shares)),
            cpu_quota: limits.cpu_quota,
            cpu_period: limits.cpu_quota.map(|_| period.cast_unsigned()),
            memory: limits.memory.map(i64::cast_unsigned),
            processes: Some(self.shared.pids.cast_unsigned()),
            ..Limits::default()
        });
        self.write_shares(path, limits.cpu_shares);
        let pids = self.shared.pids.to_string();
        self.write(path, "pids", "pids.max", &pids);
        if self.shared.unified {
            if let Some(quota) = limits.cpu_quota {
                self.write(path, "cpu", "cpu.max", &format!("{quota} {period}"));
            }
            if let Some(memory) = limits.memory {
                self.write(path, "memory", "memory.max", &memory.to_string());
            }
        } else {
            if let Some(quota) = limits.cpu_quota {
                self.write(path, "cpu", "cpu.cfs_period_us", &period.to_string());
                self.write(path, "cpu", "cpu.cfs_quota_us", &quota.to_string());
            }
            if let Some(memory) = limits.memory {
                self.write(path, "memory", "memory.limit_in_bytes", &memory.to_string());
            }
        }
    }

    /// systemd keeps the limits that it was given, also when it reads everything again. The files are
    /// written besides, so that limits apply at once.
    fn set_in_systemd(&self, path: &str, limits: impl FnOnce() -> Limits) {
        if self.shared.driver != CgroupDriver::Systemd {
            return;
        }
        let (unit, properties) = (slice::unit(path), limits().properties());
        if let Err(error) =
            systemd::blocking(async |mut systemd| systemd.set(unit, properties).await)
        {
            tracing::debug!(unit, %error, "systemd did not get a cgroup's limits");
        }
    }

    fn set_shares(&self, path: &str, shares: u64) {
        self.set_in_systemd(path, || Limits {
            cpu_weight: Some(cpu_weight(shares)),
            ..Limits::default()
        });
        self.write_shares(path, shares);
    }

    fn write_shares(&self, path: &str, shares: u64) {
        if self.shared.unified {
            let weight = cpu_weight(shares).to_string();
            self.write(path, "cpu", "cpu.weight", &weight);
        } else {
            self.write(path, "cpu", "cpu.shares", &shares.to_string());
        }
    }

    fn update_burstable(&self) {
        let requested: i64 = self.shared.burstable.lock().values().sum();
        let path = self.class_path(QosClass::Burstable);
        self.set_shares(&path, resources::cpu_shares(requested));
    }

    /// A limit the kernel refuses is reported, and the pod runs without it.
    fn write(&self, path: &str, controller: &str, file: &str, value: &str) {
        let base = if self.shared.unified {
            self.shared.mount.clone()
        } else {
            self.shared.mount.join(controller)
        };
        let file = base.join(path.trim_start_matches('/')).join(file);
        if let Err(error) = fs::write(&file, value) {
            tracing::debug!(file = %file.display(), value, %error, "a cgroup limit was not set");
        }
    }

    /// Where `path` is in the hierarchies that carry the pod's limits.
    fn directories(&self, path: &str) -> Vec<PathBuf> {
        let relative = path.trim_start_matches('/');
        if self.shared.unified {
            return vec![self.shared.mount.join(relative)];
        }
        CONTROLLERS
            .iter()
            .map(|controller| self.shared.mount.join(controller))
            .filter(|hierarchy| hierarchy.is_dir())
            .map(|hierarchy| hierarchy.join(relative))
            .collect()
    }

    /// Every hierarchy: the runtime makes cgroups also where we set no limits.
    fn hierarchies(&self) -> Vec<PathBuf> {
        if self.shared.unified {
            return vec![self.shared.mount.clone()];
        }
        let Ok(entries) = fs::read_dir(&self.shared.mount) else {
            return Vec::new();
        };
        entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect()
    }
}

fn has_swap(meminfo: &str) -> bool {
    let mut lines = meminfo.lines();
    let total = lines.find_map(|line| line.strip_prefix("SwapTotal:"));
    total.is_some_and(|total| !total.trim().starts_with("0 "))
}

fn class_names(class: QosClass) -> &'static [&'static str] {
    match class {
        QosClass::Guaranteed => &["kubepods"],
        QosClass::Burstable => &["kubepods", "burstable"],
        QosClass::BestEffort => &["kubepods", "besteffort"],
    }
}

/// v1's shares in v2's weights, as upstream's kubelet turns them.
fn cpu_weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// Removes a cgroup and those below it, the deepest first. Files in it go with it.
fn remove_tree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(resources: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"uid": "u1"},
            "spec": {"containers": [{"name": "c", "resources": resources}]},
        }))
        .expect("a pod")
    }

    #[test]
    fn with_systemd_a_pods_cgroup_is_a_slice() {
        let cgroups = Cgroups::new(
            "/coracle-1a2b3c",
            &Configuration::default(),
            CgroupDriver::Systemd,
        );
        let mut pod = pod(serde_json::json!({"requests": {"cpu": "250m"}}));
        pod.metadata.uid = Some("0a1b-2c3d".to_owned());
        assert_eq!(
            cgroups.pod_path(&pod),
            "/coracle_1a2b3c.slice/coracle_1a2b3c-kubepods.slice/\
             coracle_1a2b3c-kubepods-burstable.slice/\
             coracle_1a2b3c-kubepods-burstable-pod0a1b_2c3d.slice"
        );
        let uid = cgroups.uid_of("coracle_1a2b3c-kubepods-burstable-pod0a1b_2c3d.slice");
        assert_eq!(uid.as_deref(), Some("0a1b-2c3d"));
        assert_eq!(
            cgroups.uid_of("coracle_1a2b3c-kubepods-burstable.slice"),
            None
        );
    }

    #[test]
    fn a_pod_gets_its_cgroup() {
        // A plain directory stands in for a v1 hierarchy: same calls, no kernel.
        let mount = tempfile::tempdir().expect("a directory");
        for controller in CONTROLLERS {
            fs::create_dir(mount.path().join(controller)).expect("made");
        }
        let cgroups = Cgroups::at(
            mount.path(),
            "/coracle-x",
            &Configuration::default(),
            CgroupDriver::Cgroupfs,
        );
        let pod =
            pod(serde_json::json!({"limits": {"memory": "64Mi"}, "requests": {"cpu": "250m"}}));
        assert_eq!(
            cgroups.pod_path(&pod),
            "/coracle-x/kubepods/burstable/podu1"
        );
        cgroups.create(&pod).expect("created");
        assert_eq!(cgroups.known_uids(), ["u1"]);
        let read = |file: &str| fs::read_to_string(mount.path().join(file)).expect(file);
        assert_eq!(
            read("memory/coracle-x/kubepods/burstable/podu1/memory.limit_in_bytes"),
            (64 << 20).to_string()
        );
        assert_eq!(
            read("cpu/coracle-x/kubepods/burstable/podu1/cpu.shares"),
            "256"
        );
        assert_eq!(read("cpu/coracle-x/kubepods/burstable/cpu.shares"), "256");
        let mut larger = pod.clone();
        let spec = larger.spec.as_mut().expect("spec");
        spec.containers[0].resources = serde_json::from_value(
            serde_json::json!({"limits": {"memory": "128Mi"}, "requests": {"cpu": "250m"}}),
        )
        .expect("resources");
        cgroups.widen(&larger);
        let memory = "memory/coracle-x/kubepods/burstable/podu1/memory.limit_in_bytes";
        assert_eq!(read(memory), (128 << 20).to_string());
        cgroups.widen(&pod);
        assert_eq!(read(memory), (128 << 20).to_string(), "never narrowed");
    }

    #[test]
    fn no_pod_swaps() {
        let mount = tempfile::tempdir().expect("a directory");
        fs::write(mount.path().join("cgroup.controllers"), "memory").expect("written");
        let cgroups = Cgroups::at(
            mount.path(),
            "/coracle-x",
            &Configuration::default(),
            CgroupDriver::Cgroupfs,
        );
        cgroups.forbid_swap();
        let file = mount.path().join("coracle-x/kubepods/memory.swap.max");
        assert_eq!(fs::read_to_string(file).expect("a limit"), "0");
        assert!(!has_swap("MemTotal: 9 kB\nSwapTotal:       0 kB\n"));
        assert!(has_swap("SwapTotal:     1024 kB\n"));
    }

    #[test]
    fn all_pods_together_are_limited_and_measured() {
        let mount = tempfile::tempdir().expect("a directory");
        for controller in CONTROLLERS {
            fs::create_dir(mount.path().join(controller)).expect("made");
        }
        let cgroups = Cgroups::at(
            mount.path(),
            "/coracle-x",
            &Configuration::default(),
            CgroupDriver::Cgroupfs,
        );
        assert_eq!(cgroups.working_set(), None);
        cgroups.enforce_allocatable(1 << 30, 1500);
        let memory = mount.path().join("memory/coracle-x/kubepods");
        let limit = fs::read_to_string(memory.join("memory.limit_in_bytes")).expect("a limit");
        assert_eq!(limit, (1 << 30).to_string());
        let shares = mount.path().join("cpu/coracle-x/kubepods/cpu.shares");
        assert_eq!(fs::read_to_string(shares).expect("shares"), "1536");
        fs::write(memory.join("memory.usage_in_bytes"), "5000\n").expect("written");
        fs::write(
            memory.join("memory.stat"),
            "cache 9\ntotal_inactive_file 1000\n",
        )
        .expect("written");
        assert_eq!(cgroups.working_set(), Some(4000));
    }
}
