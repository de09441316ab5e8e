//! The last steps of every process that runs in a container, whether it is the first one or one more:
//! a session, limits, privileges given up, seccomp, execute.

use std::{
    fs,
    os::{fd::IntoRawFd, unix::net::UnixStream},
    path::Path,
};

use libcontainer::syscall::syscall::create_syscall;
use oci_spec::runtime::{LinuxSeccomp, Process, User};

use super::Error;
use crate::spec::id;

/// Called in the child: gives up every privilege that the process must not have, then becomes it.
pub fn become_process(
    process: &Process,
    seccomp: Option<&LinuxSeccomp>,
    console: Option<UnixStream>,
) -> Result<std::convert::Infallible, Error> {
    check_user(process.user())?;
    nix::unistd::setsid().map_err(Error::system("starting a session"))?;
    if let Some(console) = console {
        // Made in the container's own devpts, so that its name means something inside.
        libcontainer::tty::setup_console(create_syscall().as_ref(), console.into_raw_fd(), false)
            .map_err(Error::step("terminal"))?;
    }
    for limit in process.rlimits().iter().flatten() {
        let value = libc::rlimit {
            rlim_cur: limit.soft(),
            rlim_max: limit.hard(),
        };
        let resource = rlimit_number(&limit.typ().to_string());
        // SAFETY: the structure lives through the call. A refusal is no reason to fail.
        unsafe { libc::setrlimit(resource, &raw const value) };
    }
    let no_new_privileges = process.no_new_privileges().unwrap_or(false);
    if no_new_privileges {
        nix::sys::prctl::set_no_new_privs().map_err(Error::system("no_new_privs"))?;
    }
    if let Some(profile) = process.apparmor_profile() {
        libcontainer::apparmor::apply_profile(profile).map_err(Error::step("apparmor"))?;
    }
    let filter = |seccomp: &LinuxSeccomp| {
        libcontainer::seccomp::initialize_seccomp(seccomp)
            .map(|_| ())
            .map_err(Error::step("seccomp"))
    };
    let home = home_of(process.user().uid());
    let cwd = process.cwd();
    let early = nix::unistd::chdir(cwd);
    // SAFETY: marks every descriptor but the standard streams close-on-exec.
    unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) };
    if !no_new_privileges && let Some(seccomp) = seccomp {
        filter(seccomp)?;
    }
    shed_privileges(process)?;
    if early.is_err() {
        nix::unistd::chdir(cwd).map_err(Error::system(cwd.display().to_string()))?;
    }
    // A path may lead through a descriptor of ours to a directory of the host.
    nix::unistd::getcwd().map_err(Error::system("the working directory"))?;
    if no_new_privileges && let Some(seccomp) = seccomp {
        filter(seccomp)?;
    }
    execute(process, home)
}

/// The kernel takes the largest id for "leave it as it is", and would leave us root.
pub fn check_user(user: &User) -> Result<(), Error> {
    let groups = user.additional_gids().iter().flatten().copied();
    match [user.uid(), user.gid()]
        .into_iter()
        .chain(groups)
        .find(|id| *id > id::LARGEST)
    {
        None => Ok(()),
        Some(id) => Err(Error::Container(format!(
            "invalid user or group {id}: uids and gids must be in range 0-{}",
            id::LARGEST
        ))),
    }
}

/// Bounding set, groups, user, then the remaining capabilities.
fn shed_privileges(process: &Process) -> Result<(), Error> {
    let user = process.user();
    let groups = user.additional_gids().clone().unwrap_or_default();
    // SAFETY: the list is valid for its length, the other calls take integers. The raw calls act
    // on this thread, which is the only one.
    unsafe {
        let checked = |what: &str, result: libc::c_long| match result {
            0 => Ok(()),
            _ => Err(Error::system(what)(std::io::Error::last_os_error())),
        };
        checked(
            "keepcaps",
            libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0).into(),
        )?;
        checked(
            "setgroups",
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()),
        )?;
        let (uid, gid) = (user.uid(), user.gid());
        checked("setgid", libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        checked("setuid", libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
        checked(
            "keepcaps",
            libc::prctl(libc::PR_SET_KEEPCAPS, 0, 0, 0, 0).into(),
        )?;
    }
    let syscall = create_syscall();
    libcontainer::capabilities::reset_effective(syscall.as_ref())
        .map_err(Error::step("capabilities"))?;
    if let Some(capabilities) = process.capabilities() {
        libcontainer::capabilities::drop_privileges(capabilities, syscall.as_ref())
            .map_err(Error::step("capabilities"))?;
    }
    Ok(())
}

/// Looks the program up in the process's own `PATH`.
fn execute(process: &Process, home: Option<String>) -> Result<std::convert::Infallible, Error> {
    use std::ffi::CString;
    let c_string = |text: &str| {
        CString::new(text).map_err(|_| Error::Container("a NUL in an argument".into()))
    };
    let arguments = process
        .args()
        .as_ref()
        .filter(|arguments| !arguments.is_empty());
    let arguments = arguments.ok_or_else(|| Error::Container("no command given".into()))?;
    let mut environment = process.env().clone().unwrap_or_default();
    if !environment.iter().any(|pair| pair.starts_with("HOME=")) {
        environment.push(format!("HOME={}", home.unwrap_or_else(|| "/".into())));
    }
    let path = environment
        .iter()
        .find_map(|pair| pair.strip_prefix("PATH="))
        .unwrap_or("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .to_owned();
    let arguments_c = arguments
        .iter()
        .map(|text| c_string(text))
        .collect::<Result<Vec<_>, _>>()?;
    let environment_c = environment
        .iter()
        .map(|text| c_string(text))
        .collect::<Result<Vec<_>, _>>()?;
    let program = &arguments[0];
    let candidates: Vec<String> = if program.contains('/') {
        vec![program.clone()]
    } else {
        path.split(':')
            .map(|directory| format!("{directory}/{program}"))
            .collect()
    };
    let mut failure = nix::errno::Errno::ENOENT;
    for candidate in candidates {
        let Err(errno) = nix::unistd::execve(&c_string(&candidate)?, &arguments_c, &environment_c);
        if !matches!(
            errno,
            nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR
        ) {
            failure = errno;
        }
    }
    Err(Error::system(format!("exec: {program:?}"))(failure))
}

/// From the container's own `/etc/passwd`, which we already see.
fn home_of(uid: u32) -> Option<String> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let uid = uid.to_string();
    // The container may have put a pipe there to hold us up.
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/etc/passwd")
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(1 << 20).read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.len() > 5 && fields[2] == uid).then(|| fields[5].to_owned())
    })
}

fn rlimit_number(name: &str) -> libc::__rlimit_resource_t {
    match name {
        "RLIMIT_CPU" => libc::RLIMIT_CPU,
        "RLIMIT_FSIZE" => libc::RLIMIT_FSIZE,
        "RLIMIT_DATA" => libc::RLIMIT_DATA,
        "RLIMIT_STACK" => libc::RLIMIT_STACK,
        "RLIMIT_CORE" => libc::RLIMIT_CORE,
        "RLIMIT_RSS" => libc::RLIMIT_RSS,
        "RLIMIT_NPROC" => libc::RLIMIT_NPROC,
        "RLIMIT_MEMLOCK" => libc::RLIMIT_MEMLOCK,
        "RLIMIT_AS" => libc::RLIMIT_AS,
        "RLIMIT_LOCKS" => libc::RLIMIT_LOCKS,
        "RLIMIT_SIGPENDING" => libc::RLIMIT_SIGPENDING,
        "RLIMIT_MSGQUEUE" => libc::RLIMIT_MSGQUEUE,
        "RLIMIT_NICE" => libc::RLIMIT_NICE,
        "RLIMIT_RTPRIO" => libc::RLIMIT_RTPRIO,
        "RLIMIT_RTTIME" => libc::RLIMIT_RTTIME,
        _ => libc::RLIMIT_NOFILE,
    }
}

/// Reads a JSON file of a bundle; `what` names it in errors.
pub fn read_json<T: serde::de::DeserializeOwned>(
    path: &Path,
    what: &'static str,
) -> Result<T, Error> {
    let bytes = fs::read(path).map_err(Error::system(path.display().to_string()))?;
    serde_json::from_slice(&bytes).map_err(|source| Error::Json { what, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_the_kernel_would_ignore_are_refused() {
        let check = |uid: u32, gid: u32, groups: &[u32]| {
            let user = serde_json::json!({"uid": uid, "gid": gid, "additionalGids": groups});
            check_user(&serde_json::from_value(user).expect("a user"))
        };
        assert!(check(1000, 1000, &[7]).is_ok());
        assert!(check(id::LARGEST, id::LARGEST, &[id::LARGEST]).is_ok());
        for (uid, gid, groups) in [
            (u32::MAX, 0, &[][..]),
            (0, u32::MAX, &[]),
            (0, 0, &[5, u32::MAX]),
            (id::LARGEST + 1, 0, &[]),
        ] {
            assert!(check(uid, gid, groups).is_err(), "{uid} {gid} {groups:?}");
        }
    }
}
