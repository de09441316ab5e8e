//! The pause process of an ordinary sandbox, started by the shim itself: a new process in new
//! namespaces that runs our own program, with no rights and nothing mounted but its root. It comes
//! from the same bundle that OCI runtimes get. The pause process of a sandbox with a user namespace, or
//! of another OCI runtime, is started by the OCI runtime.

use std::{
    collections::BTreeMap,
    ffi::CString,
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns},
    sys::wait::waitpid,
    unistd::{ForkResult, Gid, Uid},
};
use serde::Deserialize;

use crate::{cgroups::Hierarchies, sys};

/// The controllers that account for the process; in the others it stays where the shim is.
const CONTROLLERS: [&str; 4] = ["memory", "cpu", "cpuacct", "pids"];

/// What is read of a bundle's `config.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    root: Root,
    process: Process,
    #[serde(default)]
    hostname: String,
    linux: Linux,
}

#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    args: Vec<String>,
    user: User,
    #[serde(default)]
    oom_score_adj: Option<i64>,
}

#[derive(Deserialize)]
struct User {
    uid: u32,
    gid: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Linux {
    cgroups_path: String,
    namespaces: Vec<Namespace>,
    #[serde(default)]
    sysctl: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: String,
    path: Option<PathBuf>,
}

/// The process as it shall be, with all that can be looked up from outside.
pub struct Pause {
    document: Document,
    /// New ones.
    namespaces: CloneFlags,
    /// One that is there already.
    network: Option<File>,
}

impl Pause {
    /// `None` means that the OCI runtime starts this one: the bundle contains something that is not
    /// done here.
    pub fn read(bundle: &Path) -> io::Result<Option<Pause>> {
        let bytes = fs::read(bundle.join("config.json"))?;
        let document: Document = serde_json::from_slice(&bytes)?;
        let (mut namespaces, mut network) = (CloneFlags::empty(), None);
        for namespace in &document.linux.namespaces {
            match (namespace.kind.as_str(), &namespace.path) {
                ("mount", None) => namespaces |= CloneFlags::CLONE_NEWNS,
                ("pid", None) => namespaces |= CloneFlags::CLONE_NEWPID,
                ("ipc", None) => namespaces |= CloneFlags::CLONE_NEWIPC,
                ("uts", None) => namespaces |= CloneFlags::CLONE_NEWUTS,
                ("network", Some(path)) => network = Some(File::open(path)?),
                _ => return Ok(None),
            }
        }
        Ok(Some(Pause {
            document,
            namespaces,
            network,
        }))
    }

    /// Starts it and returns its pid once it runs its own program.
    pub fn start(&self, hierarchies: &Hierarchies) -> io::Result<i32> {
        let (mut told, tell) = io::pipe()?;
        // SAFETY: this process has one thread.
        match unsafe { sys::fork_into(self.namespaces)? } {
            ForkResult::Child => {
                let mut tell = tell;
                let Err((step, error)) = self.become_pause(hierarchies);
                let _ = write!(tell, "{step}: {error}");
                // SAFETY: ends this process without running what the parent registered.
                unsafe { libc::_exit(1) }
            }
            ForkResult::Parent { child } => {
                drop(tell);
                let mut complaint = String::new();
                // Ends with the descriptor, which closes when the program is run.
                told.read_to_string(&mut complaint)?;
                if complaint.is_empty() {
                    return Ok(child.as_raw());
                }
                let _ = waitpid(child, None);
                let _ = hierarchies.remove(&self.document.linux.cgroups_path);
                Err(io::Error::other(complaint))
            }
        }
    }

    /// In the new process. From the outside in: groups and score, network, name and settings, the
    /// root, and last the rights, without which nothing of the rest can be done.
    fn become_pause(
        &self,
        hierarchies: &Hierarchies,
    ) -> Result<std::convert::Infallible, (&'static str, io::Error)> {
        let document = &self.document;
        let group = &document.linux.cgroups_path;
        let at = |step| move |error: io::Error| (step, error);
        let of = |step| move |errno: nix::Error| (step, io::Error::from(errno));
        hierarchies
            .join(group, &CONTROLLERS)
            .map_err(at("joining the cgroup"))?;
        hierarchies.give_least_cpu(group);
        if let Some(score) = document.process.oom_score_adj {
            fs::write("/proc/self/oom_score_adj", score.to_string())
                .map_err(at("setting the OOM score"))?;
        }
        nix::unistd::setsid().map_err(of("making a session"))?;
        if let Some(network) = &self.network {
            setns(network.as_fd(), CloneFlags::CLONE_NEWNET).map_err(of("entering the network"))?;
        }
        if !document.hostname.is_empty() && self.namespaces.contains(CloneFlags::CLONE_NEWUTS) {
            nix::unistd::sethostname(&document.hostname).map_err(of("setting the host name"))?;
        }
        for (name, value) in &document.linux.sysctl {
            let path = Path::new("/proc/sys").join(name.replace('.', "/"));
            fs::write(&path, value).map_err(|error| {
                let error = io::Error::new(error.kind(), format!("{name}: {error}"));
                ("setting a sysctl", error)
            })?;
        }
        self.enter_root().map_err(of("entering the root"))?;
        silence().map_err(at("closing the standard streams"))?;
        give_up_rights(&document.process.user).map_err(at("giving up rights"))?;
        let arguments: Vec<CString> = document
            .process
            .args
            .iter()
            .filter_map(|argument| CString::new(argument.as_bytes()).ok())
            .collect();
        let program = arguments.first().cloned().unwrap_or_default();
        nix::unistd::execve(&program, &arguments, &[c"PATH=/"])
            .map_err(of("running the pause program"))
    }

    /// Its root is the only thing it can see, and cannot be changed.
    fn enter_root(&self) -> nix::Result<()> {
        const NOTHING: Option<&str> = None;
        let root = self.document.root.path.as_path();
        mount(
            NOTHING,
            "/",
            NOTHING,
            MsFlags::MS_REC | MsFlags::MS_SLAVE,
            NOTHING,
        )?;
        mount(Some(root), root, NOTHING, MsFlags::MS_BIND, NOTHING)?;
        let fixed = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let again = MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
        mount(NOTHING, root, NOTHING, again | fixed, NOTHING)?;
        nix::unistd::chdir(root)?;
        // The old root comes to lie over the new one, and is taken off.
        nix::unistd::pivot_root(".", ".")?;
        umount2(".", MntFlags::MNT_DETACH)?;
        nix::unistd::chdir("/")
    }
}

/// Nothing of the shim's stays open but the pipe for reporting a failure, which closes on exec. Its
/// standard input is `/dev/null`.
fn silence() -> io::Result<()> {
    for copy in [1, 2] {
        // SAFETY: both are descriptors of this process; dup2 leaves the copy open on exec.
        if unsafe { libc::dup2(0, copy) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: marks descriptors of this process; an old kernel refuses, and ours close on exec
    // anyhow.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    Ok(())
}

fn give_up_rights(user: &User) -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: integers; capabilities that the kernel does not know give an error.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            break;
        }
    }
    nix::sys::prctl::set_no_new_privs()?;
    nix::unistd::setgroups(&[])?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)?;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header {
        version: 0x2008_0522,
        pid: 0,
    };
    // Effective, permitted and inheritable, in two halves.
    let none = [0u32; 6];
    // SAFETY: both live through the call and have the layout of the version named.
    if unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
