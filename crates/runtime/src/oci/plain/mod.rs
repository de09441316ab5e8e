//! Starts ordinary containers without libcontainer: new mount and pid namespaces, the sandbox's
//! other namespaces, v1 control groups, private mounts. A bundle with anything else in it (a user
//! namespace, a terminal, hooks, shared mounts, cgroup v2) is left to libcontainer, which uses three
//! processes and reads the whole mount table for each controller. Both leave the same state behind, so
//! that every other command works on it.

mod document;
mod groups;
mod root;

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use libcontainer::{
    config::YoukiConfig,
    container::{Container, ContainerStatus},
};
use nix::{
    sched::{CloneFlags, setns},
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid},
};

use self::{document::Document, groups::Groups, root::Root};
use super::{Error, Root as ContainerRoot, process};
use crate::{cgroups::Hierarchies, sys};

/// A container that can be started here, with the opened files that lie outside its namespaces.
pub struct Plain {
    document: Document,
    hierarchies: Hierarchies,
    /// The namespaces that are made for the container.
    namespaces: CloneFlags,
    /// The sandbox's namespaces, which the container joins.
    shared: Vec<(File, CloneFlags)>,
}

impl Plain {
    /// Reads a bundle. `None` means that libcontainer starts this container.
    pub fn read(bundle: &Path) -> Result<Option<Plain>, Error> {
        let path = bundle.join("config.json");
        let bytes = fs::read(&path).map_err(Error::system(path.display().to_string()))?;
        let Some(document) = Document::parse(&bytes) else {
            return Ok(None);
        };
        let hierarchies =
            Hierarchies::detect().map_err(Error::system("reading the cgroup mounts"))?;
        if hierarchies.legacy.is_empty() || !root::kernel_can() {
            return Ok(None);
        }
        let mut namespaces = CloneFlags::CLONE_NEWNS;
        let mut shared = Vec::new();
        for namespace in &document.linux.namespaces {
            let flag = match (namespace.kind.as_str(), &namespace.path) {
                ("mount", None) => continue,
                ("pid", None) => {
                    namespaces |= CloneFlags::CLONE_NEWPID;
                    continue;
                }
                ("network", Some(_)) => CloneFlags::CLONE_NEWNET,
                ("ipc", Some(_)) => CloneFlags::CLONE_NEWIPC,
                ("uts", Some(_)) => CloneFlags::CLONE_NEWUTS,
                _ => return Ok(None),
            };
            if let Some(path) = &namespace.path {
                let file = File::open(path).map_err(Error::system(path.display().to_string()))?;
                shared.push((file, flag));
            }
        }
        Ok(Some(Plain {
            document,
            hierarchies,
            namespaces,
            shared,
        }))
    }

    /// Creates and starts the container. A failure removes everything again.
    pub fn run(
        &self,
        root: &Path,
        id: &str,
        bundle: &Path,
        pid_file: Option<PathBuf>,
        container_root: ContainerRoot,
    ) -> Result<(), Error> {
        let directory = root.join(id);
        fs::create_dir_all(root).map_err(Error::system(root.display().to_string()))?;
        fs::create_dir(&directory).map_err(Error::system(directory.display().to_string()))?;
        let groups = Groups::new(&self.hierarchies, &self.document.linux.cgroups_path);
        let started = self.start(&groups, container_root);
        let known = started.and_then(|pid| {
            self.record(id, pid, bundle, &directory, pid_file)
                .inspect_err(|_| {
                    let _ = kill(pid, Signal::SIGKILL);
                    let _ = waitpid(pid, None);
                })
        });
        known.inspect_err(|_| {
            let _ = self.hierarchies.remove(&self.document.linux.cgroups_path);
            let _ = fs::remove_dir_all(&directory);
        })
    }

    /// Writes the container's state in libcontainer's form, since libcontainer reads it for every other
    /// command.
    fn record(
        &self,
        id: &str,
        pid: Pid,
        bundle: &Path,
        directory: &Path,
        pid_file: Option<PathBuf>,
    ) -> Result<(), Error> {
        let settings = serde_json::json!({
            "hooks": null, "cgroup_path": self.document.linux.cgroups_path,
        });
        let settings: YoukiConfig =
            serde_json::from_value(settings).map_err(|source| Error::Json {
                what: "settings",
                source,
            })?;
        settings.save(directory).map_err(Error::step("settings"))?;
        let mut container = Container::new(id, ContainerStatus::Created, None, bundle, directory)
            .map_err(Error::container)?;
        container
            .set_annotations(Some(self.document.annotations.clone()))
            .set_creator(nix::unistd::geteuid().as_raw())
            .set_pid(pid.as_raw())
            .set_status(ContainerStatus::Created)
            .set_status(ContainerStatus::Running)
            .save()
            .map_err(Error::container)?;
        if let Some(path) = pid_file {
            fs::write(&path, pid.to_string()).map_err(Error::system(path.display().to_string()))?;
        }
        Ok(())
    }

    /// Returns when the new process runs its own program, or the reason why it does not.
    fn start(&self, groups: &Groups<'_>, container_root: ContainerRoot) -> Result<Pid, Error> {
        groups.create(&self.document.linux.resources)?;
        let (mut failures, failure_writer) =
            std::io::pipe().map_err(Error::system("making a pipe"))?;
        // SAFETY: this process has one thread.
        let forked = unsafe { sys::fork_into(self.namespaces) };
        match forked.map_err(Error::system("making a process"))? {
            ForkResult::Child => {
                drop(failures);
                let mut failure_writer = failure_writer;
                let Err(error) = self.become_container(groups, container_root);
                let _ = write!(failure_writer, "{}", environment::chain(&error));
                // SAFETY: ends this process without running what the parent registered.
                unsafe { libc::_exit(127) }
            }
            ForkResult::Parent { child: pid } => {
                drop(failure_writer);
                let mut failure = String::new();
                // The pipe ends when the program is run, which closes the child's end.
                failures
                    .read_to_string(&mut failure)
                    .map_err(Error::system("waiting for the container"))?;
                if failure.is_empty() {
                    return Ok(pid);
                }
                let _ = waitpid(pid, None);
                Err(Error::Container(failure))
            }
        }
    }

    /// Called in the new process: joins cgroups and namespaces, makes the root with all its mounts, and
    /// becomes the container's process.
    fn become_container(
        &self,
        groups: &Groups<'_>,
        container_root: ContainerRoot,
    ) -> Result<std::convert::Infallible, Error> {
        let document = &self.document;
        let process = &document.process;
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
        if let Some(adjustment) = process.oom_score_adj() {
            fs::write("/proc/self/oom_score_adj", adjustment.to_string())
                .map_err(Error::system("setting the OOM score"))?;
        }
        groups.join()?;
        let _ = nix::sys::prctl::set_dumpable(false);
        for (namespace, flag) in &self.shared {
            setns(namespace.as_fd(), *flag).map_err(Error::system("joining the sandbox"))?;
        }
        let root = Root::enter(&document.root.path)?;
        if container_root == ContainerRoot::HostView {
            sys::lift_host_view(&document.root.path)
                .map_err(Error::system("preparing the root"))?;
        }
        for point in &document.points {
            root.mount(point)?;
        }
        let null = root.populate_dev(&document.linux.devices)?;
        null.replace_streams()?;
        root.pivot()?;
        if document.root.readonly {
            root::make_read_only()?;
        }
        root::protect(&document.linux.readonly_paths)?;
        null.mask(&document.linux.masked_paths)?;
        process::become_process(process, document.linux.seccomp.as_ref(), None)
    }
}
