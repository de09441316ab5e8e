//! Create, start, state, kill and delete, by libcontainer except where its way is wrong or slow.

use std::{
    fs,
    path::{Path, PathBuf},
};

use libcontainer::{
    container::{Container, builder::ContainerBuilder},
    syscall::syscall::SyscallType,
};

use dbus::slice::Scope;
use oci_spec::runtime::Spec;

use super::{Error, Root, plain::Plain, process, scope};
use crate::{cgroups::Hierarchies, sys};

/// What the caller asks for in addition to the bundle.
#[derive(Clone, Copy)]
pub struct CreateOptions {
    /// systemd makes the cgroup.
    pub systemd: bool,
    pub container_root: Root,
}

pub fn create(
    root: &Path,
    id: &str,
    bundle: &Path,
    pid_file: Option<PathBuf>,
    console: Option<PathBuf>,
    options: CreateOptions,
) -> Result<Container, Error> {
    fs::create_dir_all(root).map_err(Error::system(root.display().to_string()))?;
    let bundle = fs::canonicalize(bundle).map_err(Error::system(bundle.display().to_string()))?;
    let spec: Spec = process::read_json(&bundle.join("config.json"), "config.json")?;
    if let Some(process) = spec.process() {
        process::check_user(process.user())?;
    }
    if options.container_root == Root::HostView
        && let Some(container_root) = spec.root()
    {
        sys::enter_container_view(container_root.path())
            .map_err(Error::system("preparing the root"))?;
    }
    if !options.systemd {
        return build(root, id, bundle, pid_file, console);
    }
    let scope = scope::ReservedScope::reserve(root, id, &bundle)?;
    let built = build(root, id, scope.bundle.clone(), pid_file, console);
    scope.release(built.is_ok());
    built
}

fn build(
    root: &Path,
    id: &str,
    bundle: PathBuf,
    pid_file: Option<PathBuf>,
    console: Option<PathBuf>,
) -> Result<Container, Error> {
    ContainerBuilder::new(id.to_owned(), SyscallType::default())
        .with_root_path(root)
        .and_then(|builder| builder.with_pid_file(pid_file))
        .map(|builder| builder.with_console_socket(console))
        .and_then(ContainerBuilder::validate_id)
        .and_then(|builder| {
            builder
                .as_init(bundle)
                .with_systemd(false)
                .with_detach(true)
                .build()
        })
        .map_err(Error::container)
}

pub fn run(
    root: &Path,
    id: &str,
    bundle: &Path,
    pid_file: Option<PathBuf>,
    console: Option<PathBuf>,
    options: CreateOptions,
) -> Result<(), Error> {
    if console.is_none()
        && !options.systemd
        && !id.contains('/')
        && let Some(plain) = Plain::read(bundle)?
    {
        return plain.run(root, id, bundle, pid_file, options.container_root);
    }
    let mut container = create(root, id, bundle, pid_file, console, options)?;
    container.start().map_err(|error| {
        let _ = delete(root, id, true);
        Error::container(error)
    })
}

pub fn start(root: &Path, id: &str) -> Result<(), Error> {
    load(root, id)?.start().map_err(Error::container)
}

pub fn state(root: &Path, id: &str) -> Result<(), Error> {
    let container = load(root, id)?;
    let state = serde_json::json!({
        "ociVersion": "1.0.2",
        "id": container.id(),
        "status": container.status().to_string().to_ascii_lowercase(),
        "pid": container.pid().map_or(0, |pid| pid.as_raw()),
        "bundle": container.bundle(),
        "annotations": container.state.annotations,
    });
    println!("{state}");
    Ok(())
}

/// By number, so that real-time signals and those libcontainer confuses (5 and 7) arrive as meant.
pub fn kill(root: &Path, id: &str, signal: i32, all: bool) -> Result<(), Error> {
    let container = load(root, id)?;
    let pids = if all {
        hierarchies()?.processes(&cgroup(&container)?)
    } else {
        container
            .pid()
            .map(|pid| pid.as_raw())
            .into_iter()
            .collect()
    };
    for pid in pids {
        // SAFETY: kill(2) takes two integers.
        if unsafe { libc::kill(pid, signal) } != 0 {
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ESRCH) {
                return Err(Error::system(format!("signal {signal} to {pid}"))(error));
            }
        }
    }
    Ok(())
}

pub fn delete(root: &Path, id: &str, force: bool) -> Result<(), Error> {
    let mut container = match load(root, id) {
        Ok(container) => container,
        Err(Error::NotFound(_)) if force => return Ok(()),
        Err(error) => return Err(error),
    };
    // A container whose creation failed has no settings.
    let settings = container.spec().ok();
    let cgroup = settings
        .as_ref()
        .map(|settings| settings.cgroup_path.to_string_lossy().into_owned());
    let scope = cgroup.as_deref().and_then(Scope::at);
    if force && let Some(cgroup) = &cgroup {
        let hierarchies = hierarchies()?;
        // Without a pid namespace of its own, the end of its first process ends no other.
        hierarchies.kill(cgroup);
        let plain = settings.is_some_and(|settings| settings.hooks.is_none())
            && container.intel_rdt_dir().is_none();
        // systemd must stop the unit while its cgroup exists.
        if scope.is_some() || plain {
            hierarchies
                .end_and_remove(cgroup)
                .map_err(Error::system(format!("removing {cgroup}")))?;
        }
        // Without hooks nothing else has to be done. libcontainer would read the mount table for each
        // controller to do the same.
        if scope.is_none() && plain {
            let directory = root.join(id);
            return fs::remove_dir_all(&directory)
                .map_err(Error::system(directory.display().to_string()));
        }
    }
    container.delete(force).map_err(Error::container)?;
    scope::remove_bundle(root, id);
    match &scope {
        Some(scope) if !force => scope::stop(scope),
        _ => Ok(()),
    }
}

pub fn load(root: &Path, id: &str) -> Result<Container, Error> {
    let directory = root.join(id);
    if id.contains('/') || !directory.join("state.json").exists() {
        return Err(Error::NotFound(id.into()));
    }
    Container::load(directory).map_err(Error::container)
}

/// The cgroup that the container was created in.
fn cgroup(container: &Container) -> Result<String, Error> {
    let config = container.spec().map_err(Error::container)?;
    Ok(config.cgroup_path.to_string_lossy().into_owned())
}

fn hierarchies() -> Result<Hierarchies, Error> {
    Hierarchies::detect().map_err(Error::system("reading the cgroup mounts"))
}
