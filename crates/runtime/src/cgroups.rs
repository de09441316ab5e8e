//! Control groups as files: where a cgroup lies in each hierarchy (v1, v2 or both), joining it,
//! reading its numbers, killing its processes and removing it. The OCI runtime sets the limits when it
//! creates a container. Slices and scopes belong to systemd, which is asked to remove them.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use dbus::{
    slice::{self, Scope},
    systemd,
};
use files::mount_table::unescape;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{failpoint, sys};

/// How long killed processes may take to end.
const KILL_TIMEOUT_MILLIS: i64 = 20_000;

/// The v1 controllers in whose hierarchies every OCI command makes a group.
pub const LIMITING: [&str; 12] = [
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "devices",
    "freezer",
    "blkio",
    "pids",
    "hugetlb",
    "net_cls",
    "net_prio",
    "perf_event",
];

/// Where the hierarchies are mounted.
#[derive(Clone, Debug, Default)]
pub struct Hierarchies {
    /// v1: the controllers of each mount, and the mount point.
    pub legacy: Vec<(Vec<String>, PathBuf)>,
    pub unified: Option<PathBuf>,
}

impl Hierarchies {
    /// They were mounted when the machine started, so that one look does for a process and its
    /// children. What pods mounted since is left unread, unless a hierarchy is missing.
    pub fn detect() -> io::Result<Hierarchies> {
        static FOUND: OnceLock<Hierarchies> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Ok(found.clone());
        }
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let table = BufReader::new(File::open("/proc/self/mountinfo")?);
        let found = Hierarchies::find(&own, table)?;
        Ok(FOUND.get_or_init(|| found).clone())
    }

    /// `own` has a line for each hierarchy there is.
    fn find(own: &str, table: impl BufRead) -> io::Result<Hierarchies> {
        let mut found = Hierarchies::default();
        let all = own.lines().count();
        for line in table.lines() {
            found.add_mount(&line?);
            if found.legacy.len() + usize::from(found.unified.is_some()) == all {
                break;
            }
        }
        Ok(found)
    }

    /// Adds the hierarchy that one line of the mount table describes, if it describes one.
    fn add_mount(&mut self, line: &str) {
        let Some((left, right)) = line.split_once(" - ") else {
            return;
        };
        let Some(point) = left.split(' ').nth(4) else {
            return;
        };
        let mut right = right.split(' ');
        match (right.next(), right.nth(1)) {
            (Some("cgroup2"), _) => {
                self.unified
                    .get_or_insert_with(|| unescape(point.as_bytes()));
            }
            (Some("cgroup"), Some(options)) => {
                let controllers: Vec<String> = options
                    .split(',')
                    .filter(|option| !matches!(*option, "rw" | "ro" | "xattr" | "none"))
                    .map(str::to_owned)
                    .collect();
                if !self.legacy.iter().any(|(known, _)| *known == controllers) {
                    self.legacy.push((controllers, unescape(point.as_bytes())));
                }
            }
            _ => {}
        }
    }

    /// The v1 directory of `group` for `controller`.
    pub fn legacy_path(&self, controller: &str, group: &str) -> Option<PathBuf> {
        self.legacy
            .iter()
            .find(|(controllers, _)| controllers.iter().any(|known| known == controller))
            .map(|(_, point)| point.join(group.trim_start_matches('/')))
    }

    pub fn unified_path(&self, group: &str) -> Option<PathBuf> {
        self.unified
            .as_ref()
            .map(|point| point.join(group.trim_start_matches('/')))
    }

    fn points(&self) -> impl Iterator<Item = &PathBuf> {
        self.legacy
            .iter()
            .map(|(_, point)| point)
            .chain(self.unified.as_ref())
    }

    /// Moves this process into `group` for each of the `controllers`. Each move takes a system-wide
    /// lock, so controllers that are not needed should be left out.
    pub fn join(&self, group: &str, controllers: &[&str]) -> io::Result<()> {
        let mut directories: Vec<PathBuf> = controllers
            .iter()
            .filter_map(|controller| self.legacy_path(controller, group))
            .collect();
        if self.legacy.is_empty()
            && let Some(point) = &self.unified
        {
            enable_controllers(point, group, controllers);
            directories.extend(self.unified_path(group));
        }
        directories.dedup();
        for directory in directories {
            fs::create_dir_all(&directory)?;
            fs::write(directory.join("cgroup.procs"), "0")?;
        }
        Ok(())
    }

    /// Gives `group` the smallest share of CPU time, for processes that never run. Best effort: the
    /// controller may be off.
    pub fn give_least_cpu(&self, group: &str) {
        let legacy = self.legacy_path("cpu", group);
        let unified = self.unified_path(group);
        let files = [
            (legacy.map(|directory| directory.join("cpu.shares")), "2"),
            (unified.map(|directory| directory.join("cpu.weight")), "1"),
        ];
        for (file, value) in files {
            if let Some(file) = file.filter(|file| file.exists()) {
                let _ = fs::write(file, value);
            }
        }
    }

    /// Makes the next move of a process into a cgroup fast. The first move after a while waits until
    /// every processor has passed a quiet point (some ten milliseconds), and those soon after it do
    /// not. This moves the calling process to the cgroup that it is in, which changes nothing.
    pub fn make_ready_for_moves(&self) {
        let table = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = table.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, group) = (fields.next()?, fields.next()?);
            let point = match controllers {
                "" if self.legacy.is_empty() => self.unified_path(group),
                "" => None,
                some => self.legacy_path(some.split(',').next()?, group),
            };
            point.map(|point| point.join("cgroup.procs"))
        });
        if let Some(own) = own {
            let _ = fs::write(own, "0");
        }
    }

    /// How often the kernel killed something in `group` for want of memory, as far as that is known.
    pub fn oom_kills(&self, group: &str) -> u64 {
        self.known_oom_kills(group).unwrap_or(0)
    }

    /// The same, or `None` if it cannot be read.
    pub fn known_oom_kills(&self, group: &str) -> Option<u64> {
        let legacy = self
            .legacy_path("memory", group)
            .map(|directory| directory.join("memory.oom_control"));
        let unified = self
            .unified_path(group)
            .map(|directory| directory.join("memory.events"));
        legacy
            .into_iter()
            .chain(unified)
            .filter_map(|path| read_flat(&path, "oom_kill"))
            .max()
    }

    /// The same for the whole pod that the container `group` is one of. What was counted stays
    /// when a container's own group is gone.
    pub fn oom_kills_of_pod(&self, group: &str) -> u64 {
        group
            .rsplit_once('/')
            .map_or(0, |(pod, _)| self.oom_kills(pod))
    }

    /// Every process in `group` and below it.
    pub fn processes(&self, group: &str) -> Vec<i32> {
        let mut pids = Vec::new();
        for point in self.points() {
            collect_processes(&point.join(group.trim_start_matches('/')), &mut pids);
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// How many processes `group` has, or `None` if that cannot be read.
    pub fn count_processes(&self, group: &str) -> Option<u64> {
        let group = group.trim_start_matches('/');
        let mut points = self.points().map(|point| point.join(group));
        let is_readable =
            points.any(|point| fs::read_to_string(point.join("cgroup.procs")).is_ok());
        is_readable.then(|| self.processes(group).len() as u64)
    }

    /// Sends SIGKILL to everything in `group`. Returns how many there were.
    pub fn kill(&self, group: &str) -> usize {
        let pids = self.processes(group);
        for pid in &pids {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(*pid),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
        pids.len()
    }

    /// Whether `group` is there in any hierarchy.
    pub fn exists(&self, group: &str) -> bool {
        self.points()
            .any(|point| point.join(group.trim_start_matches('/')).is_dir())
    }

    /// Ends what is still in `group`, which takes its time under load, and removes it. Waits for
    /// systemd where the group is systemd's: not for async threads.
    pub fn end_and_remove(&self, group: &str) -> io::Result<()> {
        if !self.exists(group) {
            return Ok(());
        }
        let late = sys::monotonic_millis() + KILL_TIMEOUT_MILLIS;
        if is_systemds(group) {
            while !self.processes(group).is_empty() && sys::monotonic_millis() < late {
                self.end(group);
            }
            stop_unit(group)?;
        }
        loop {
            let found = self.end(group);
            match self.remove(group) {
                Err(error) if sys::monotonic_millis() > late => return Err(error),
                // No process is listed any more, but the kernel still removes them.
                Err(_) if found == 0 => {
                    let _ = poll(&mut [], PollTimeout::from(5u8));
                }
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Kills everything in `group` and waits a little for each to be gone. Returns how many there
    /// were.
    fn end(&self, group: &str) -> usize {
        // Opened before the signal, so that they name the processes that get it.
        let pids = self.processes(group);
        let ends: Vec<OwnedFd> = pids
            .iter()
            .filter_map(|pid| sys::pidfd_open(*pid).ok())
            .collect();
        self.kill(group);
        for end in &ends {
            let wait = PollTimeout::from(100u8);
            let _ = poll(&mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)], wait);
        }
        ends.len()
    }

    /// Removes `group` where it has no process and no cgroup below it. Below a slice of systemd, empty
    /// slices and scopes are removed too. It blocks.
    pub fn remove_if_empty(&self, group: &str) {
        if is_systemds(group) {
            if self.exists(group) && self.processes(group).is_empty() {
                let _ = stop_unit(group);
            }
            return;
        }
        for point in self.points() {
            let _ = fs::remove_dir(point.join(group.trim_start_matches('/')));
        }
    }

    /// Removes `group` with everything below it from every hierarchy. Groups with processes stay
    /// and give an error.
    pub fn remove(&self, group: &str) -> io::Result<()> {
        let mut result = Ok(());
        for point in self.points() {
            failpoint::reach("before a cgroup is removed");
            if let Err(error) = remove_tree(&point.join(group.trim_start_matches('/'))) {
                result = Err(error);
            }
        }
        result
    }
}

/// Whether systemd keeps `group`.
fn is_systemds(group: &str) -> bool {
    slice::is_slice(group) || Scope::at(group).is_some()
}

/// Has systemd end the unit that `group` is, with all that is in it.
fn stop_unit(group: &str) -> io::Result<()> {
    let unit = slice::unit(group);
    systemd::blocking(async |mut systemd| systemd.stop(unit).await).map_err(io::Error::other)
}

/// Enables the `controllers` for `group` in every group above it. Best effort: a limit of a controller
/// that could not be enabled fails where the limit is set.
fn enable_controllers(point: &Path, group: &str, controllers: &[&str]) {
    let mut above = point.to_owned();
    for part in group.split('/').filter(|part| !part.is_empty()) {
        let file = above.join("cgroup.subtree_control");
        let given = fs::read_to_string(&file).unwrap_or_default();
        for controller in controllers {
            if !given.split_whitespace().any(|known| known == *controller) {
                let _ = fs::write(&file, format!("+{controller}"));
            }
        }
        above.push(part);
        let _ = fs::create_dir(&above);
    }
}

fn collect_processes(directory: &Path, pids: &mut Vec<i32>) {
    if let Ok(text) = fs::read_to_string(directory.join("cgroup.procs")) {
        pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_processes(&entry.path(), pids);
        }
    }
}

fn remove_tree(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The value of `key` in a file of `key value` lines.
pub fn read_flat(path: &Path, key: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

/// A file that holds one number.
pub fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_mounts_are_distinguished() {
        let table = "30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                     31 24 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
                     32 24 0:28 / / rw - ext4 /dev/vda rw";
        let own = "2:cpu,cpuacct:/\n1:memory:/\n0::/";
        let found = Hierarchies::find(own, table.as_bytes()).unwrap();
        assert_eq!(
            found.legacy_path("cpuacct", "/a/b"),
            Some("/sys/fs/cgroup/cpu,cpuacct/a/b".into())
        );
        assert_eq!(
            found.unified_path("/a"),
            Some("/sys/fs/cgroup/unified/a".into())
        );
        assert_eq!(found.legacy_path("memory", "/a"), None);
    }

    #[test]
    fn nothing_is_read_after_the_last_hierarchy() {
        let table = b"31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\xff not text";
        let found = Hierarchies::find("0::/user", table.as_slice()).unwrap();
        assert_eq!(found.unified, Some("/sys/fs/cgroup".into()));
    }
}
