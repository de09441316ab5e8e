//! A container's `config.json`, and the `process` of an exec inside it.

use std::{collections::BTreeSet, fs, io, path::Path};

use cri::v1::{
    ContainerConfig, LinuxContainerResources, LinuxContainerSecurityContext, NamespaceMode,
    SupplementalGroupsPolicy, security_profile::ProfileType,
};
use serde_json::{Value, json};

use super::{
    Error, OCI_VERSION, apparmor, capabilities, cdi, devices, id_mappings,
    mounts::{self, Provided},
    oom_score_adj, resources, seccomp,
    user::{self, Identity},
};
use crate::{cgroups::Hierarchies, images::ImageRecord, sandbox::userns::Mapping};

const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub struct ContainerInput<'a> {
    pub config: &'a ContainerConfig,
    pub image: &'a ImageRecord,
    pub rootfs: &'a Path,
    pub provided: Provided<'a>,
    pub hostname: &'a str,
    pub cgroup: &'a str,
    /// The pause process, whose namespaces are shared.
    pub sandbox_pid: i32,
    pub netns: Option<&'a Path>,
    /// For namespace mode TARGET.
    pub target_pid: Option<i32>,
    pub hierarchies: &'a Hierarchies,
    /// The pod's own users and where their namespace is.
    pub users: Option<(Mapping, &'a Path)>,
    pub sandbox: &'a str,
}

/// Returns the document and the user of the process.
pub fn container(input: &ContainerInput<'_>) -> Result<(Value, Identity), Error> {
    let config = input.config;
    let linux = config.linux.clone().unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    let limits = linux.resources.unwrap_or_default();
    let held = capabilities::held();
    let identity = user::resolve(
        input.rootfs,
        &user::Request {
            user: user_text(&security, &input.image.process.user)?,
            supplemental: &security.supplemental_groups,
            strict: security.supplemental_groups_policy() == SupplementalGroupsPolicy::Strict,
        },
    )?;
    let chosen = capabilities::choose(security.capabilities.as_ref(), security.privileged, held)?;
    let ambient = ambient(&security, &chosen);
    let cwd = working_directory(config, input.image);
    if cwd != "/" {
        // Inside a volume it may exist only once mounted; then this is a harmless extra.
        let owner = input
            .users
            .map_or((0, 0), |(users, _)| (users.host_uid, users.host_gid));
        let _ = user::make_directory_inside(input.rootfs, Path::new(cwd), owner);
    }
    let mut process = json!({
        "terminal": config.tty,
        "user": {"uid": identity.uid, "gid": identity.gid, "additionalGids": identity.groups},
        "args": arguments(config, input.image)?,
        "env": environment(config, input.image, input.hostname),
        "cwd": cwd,
        "capabilities": {
            "bounding": chosen, "effective": chosen, "permitted": chosen,
            "inheritable": ambient, "ambient": ambient,
        },
        "oomScoreAdj": oom_score_adj(limits.oom_score_adj, held),
    });
    // Present only when true: libcontainer takes a present `false` for a decision about seccomp.
    if security.no_new_privs {
        process["noNewPrivileges"] = true.into();
    }
    let (mounts, propagation) = mounts::build(
        &config.mounts,
        &input.provided,
        security.privileged,
        security.readonly_rootfs,
        input.hierarchies,
        input.cgroup,
    )?;
    let (nodes, rules) = devices::build(&config.devices, security.privileged)?;
    let mut spec = json!({
        "ociVersion": OCI_VERSION,
        "root": {"path": input.rootfs, "readonly": security.readonly_rootfs},
        "process": process,
        "mounts": mounts,
        "annotations": config.annotations,
        "linux": {
            "cgroupsPath": input.cgroup,
            "namespaces": namespaces(input, &security),
            "resources": linux_resources(&limits, security.privileged, rules, input.hierarchies),
            "devices": nodes,
        },
    });
    if !security.privileged {
        spec["linux"]["maskedPaths"] = json!(security.masked_paths);
        spec["linux"]["readonlyPaths"] = json!(security.readonly_paths);
        if let Some(profile) = seccomp_profile(&security, &chosen)? {
            spec["linux"]["seccomp"] = profile;
        }
    }
    if let Some(propagation) = propagation {
        spec["linux"]["rootfsPropagation"] = propagation.into();
    }
    if let Some((users, path)) = input.users {
        id_mappings(&mut spec, users, path);
    }
    if let Some(profile) = apparmor::profile(&security)? {
        spec["process"]["apparmorProfile"] = profile.into();
    }
    let named = config.cdi_devices.iter().map(|device| device.name.clone());
    let devices = cdi::wanted(named, &config.annotations)?;
    cdi::apply(
        &mut spec,
        &devices,
        &cdi::DIRECTORIES.map(std::path::PathBuf::from),
    )?;
    // Runtimes that keep a pod in a machine of its own look for these.
    spec["annotations"]["io.kubernetes.cri.container-type"] = "container".into();
    spec["annotations"]["io.kubernetes.cri.sandbox-id"] = input.sandbox.into();
    Ok((spec, identity))
}

/// What a terminal of ours understands, unless the image or the pod knows better.
const TERM: &str = "TERM=xterm";

/// The container's own process with another command.
pub fn exec_process(spec: &Value, command: &[String], terminal: bool) -> Value {
    let mut process = spec["process"].clone();
    process["args"] = json!(command);
    process["terminal"] = terminal.into();
    if terminal && let Some(environment) = process["env"].as_array_mut() {
        let is_term = |pair: &Value| pair.as_str().is_some_and(|pair| pair.starts_with("TERM="));
        if !environment.iter().any(is_term) {
            environment.push(TERM.into());
        }
    }
    process
}

/// Where the process starts.
pub fn working_directory<'a>(config: &'a ContainerConfig, image: &'a ImageRecord) -> &'a str {
    [&config.working_dir, &image.process.working_dir]
        .into_iter()
        .find(|path| !path.is_empty())
        .map_or("/", String::as_str)
}

/// The user of the security context, else the image's.
fn user_text(security: &LinuxContainerSecurityContext, image: &str) -> Result<String, Error> {
    let group = security
        .run_as_group
        .as_ref()
        .map(|group| group.value.to_string());
    let user = match (&security.run_as_user, security.run_as_username.as_str()) {
        (Some(uid), _) => uid.value.to_string(),
        (None, "") => String::new(),
        (None, name) => name.to_owned(),
    };
    match (user.as_str(), group) {
        ("", Some(_)) => Err(user::Error::GroupWithoutUser.into()),
        ("", None) => Ok(image.to_owned()),
        (user, Some(group)) => Ok(format!("{user}:{group}")),
        (user, None) => Ok(user.to_owned()),
    }
}

/// Kubernetes' rule: a command replaces entrypoint and arguments, arguments alone keep the entrypoint.
fn arguments(config: &ContainerConfig, image: &ImageRecord) -> Result<Vec<String>, Error> {
    let (mut command, mut arguments) = (config.command.clone(), config.args.clone());
    if command.is_empty() {
        command.clone_from(&image.process.entrypoint);
        if arguments.is_empty() {
            arguments.clone_from(&image.process.cmd);
        }
    }
    command.append(&mut arguments);
    if command.is_empty() {
        return Err(Error::NoCommand);
    }
    Ok(command)
}

/// Later settings of a name replace earlier ones in place.
fn environment(config: &ContainerConfig, image: &ImageRecord, hostname: &str) -> Vec<String> {
    let mut pairs: Vec<String> = vec![DEFAULT_PATH.to_owned()];
    if config.tty {
        pairs.push(TERM.to_owned());
    }
    if !hostname.is_empty() {
        pairs.push(format!("HOSTNAME={hostname}"));
    }
    let wanted = config
        .envs
        .iter()
        .map(|pair| format!("{}={}", pair.key, String::from_utf8_lossy(&pair.value)));
    for pair in image.process.env.iter().cloned().chain(wanted) {
        let name = pair.split('=').next().unwrap_or_default();
        let same = |known: &&mut String| known.split('=').next() == Some(name);
        match pairs.iter_mut().find(same) {
            Some(known) => *known = pair,
            None => pairs.push(pair),
        }
    }
    pairs
}

fn ambient(security: &LinuxContainerSecurityContext, chosen: &BTreeSet<String>) -> Vec<String> {
    let wanted = security
        .capabilities
        .iter()
        .flat_map(|request| &request.add_ambient_capabilities);
    wanted
        .map(|name| name.to_ascii_uppercase())
        .map(|name| {
            if name.starts_with("CAP_") {
                name
            } else {
                format!("CAP_{name}")
            }
        })
        .filter(|name| chosen.contains(name))
        .collect()
}

fn namespaces(input: &ContainerInput<'_>, security: &LinuxContainerSecurityContext) -> Vec<Value> {
    let options = security.namespace_options.clone().unwrap_or_default();
    let of_sandbox = |kind: &str, file: &str| json!({"type": kind, "path": format!("/proc/{}/ns/{file}", input.sandbox_pid)});
    let mut namespaces = vec![json!({"type": "mount"})];
    if let Some(netns) = input.netns {
        namespaces.push(match input.users {
            None => json!({"type": "network", "path": netns}),
            // Its users cannot reach the file.
            Some(_) => of_sandbox("network", "net"),
        });
        namespaces.push(of_sandbox("uts", "uts"));
    }
    if options.ipc() != NamespaceMode::Node {
        namespaces.push(of_sandbox("ipc", "ipc"));
    }
    match (options.pid(), input.target_pid) {
        (NamespaceMode::Container, _) => namespaces.push(json!({"type": "pid"})),
        (NamespaceMode::Pod, _) => namespaces.push(of_sandbox("pid", "pid")),
        (NamespaceMode::Target, Some(pid)) => {
            namespaces.push(json!({"type": "pid", "path": format!("/proc/{pid}/ns/pid")}));
        }
        (NamespaceMode::Node | NamespaceMode::Target, _) => {}
    }
    if input.hierarchies.legacy.is_empty() && !security.privileged {
        namespaces.push(json!({"type": "cgroup"}));
    }
    namespaces
}

fn linux_resources(
    limits: &LinuxContainerResources,
    privileged: bool,
    rules: Vec<Value>,
    hierarchies: &Hierarchies,
) -> Value {
    let mut result = resources::to_oci(limits, privileged, hierarchies);
    if let Some(devices) = result["devices"].as_array_mut() {
        devices.extend(rules);
    }
    result
}

fn seccomp_profile(
    security: &LinuxContainerSecurityContext,
    chosen: &BTreeSet<String>,
) -> Result<Option<Value>, Error> {
    let Some(profile) = &security.seccomp else {
        return Ok(None);
    };
    match profile.profile_type() {
        ProfileType::Unconfined => Ok(None),
        ProfileType::RuntimeDefault => Ok(Some(seccomp::default_profile(chosen))),
        ProfileType::Localhost => {
            let path = &profile.localhost_ref;
            let failed = |error: io::Error| Error::SeccompProfile(path.clone(), error);
            let bytes = fs::read(path).map_err(failed)?;
            serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| failed(error.into()))
        }
    }
}
