//! securityContext, pod's and container's, as CRI says it. Pure.

use cri::v1;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSecurityContext, SeccompProfile, SecurityContext,
};

use crate::{
    image::Image,
    pod_spec::{self, format_pod},
};

const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})"
    )]
    RunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})"
    )]
    ImageRunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \"{pod}\", container: {container})"
    )]
    ImageUserUnknown {
        user: String,
        pod: String,
        container: String,
    },
    #[error(
        "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-({LARGEST_ID})): must be between 0 and {LARGEST_ID}, inclusive (pod: \"{pod}\", container: {container})"
    )]
    ImageUserInvalid {
        uid: i64,
        pod: String,
        container: String,
    },
    #[error(
        "{field}: Invalid value: {id}: must be between 0 and {LARGEST_ID}, inclusive (pod: \"{pod}\", container: {container})"
    )]
    OutOfRange {
        field: &'static str,
        id: i64,
        pod: String,
        container: String,
    },
}

/// The largest user and group id; some programs take larger ones for negative numbers.
const LARGEST_ID: i64 = i32::MAX as i64;

/// The part of a sandbox's configuration that is about security.
pub fn sandbox(pod: &Pod) -> v1::LinuxSandboxSecurityContext {
    let context = pod_context(pod);
    let privileged = pod.spec.iter().any(|spec| {
        spec.containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .filter_map(|container| container.security_context.as_ref())
            .any(|context| context.privileged == Some(true))
    });
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod)),
        run_as_user: context.run_as_user.map(int64),
        run_as_group: context.run_as_user.and(context.run_as_group).map(int64),
        supplemental_groups: groups(&context),
        supplemental_groups_policy: groups_policy(&context),
        privileged,
        // The sandbox's own process is ours: the default profile, regardless of that of the containers.
        seccomp: Some(v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::RuntimeDefault as i32,
            localhost_ref: String::new(),
        }),
        ..Default::default()
    }
}

/// A container's security, checked against `runAsNonRoot`.
pub fn container(
    pod: &Pod,
    container: &Container,
    image: &Image,
    seccomp_default: bool,
) -> Result<v1::LinuxContainerSecurityContext, Error> {
    let shared = pod_context(pod);
    let own = container.security_context.clone().unwrap_or_default();
    let privileged = own.privileged == Some(true);
    let user = own.run_as_user.or(shared.run_as_user);
    let group = own.run_as_group.or(shared.run_as_group);
    if own.run_as_non_root.or(shared.run_as_non_root) == Some(true) {
        verify_non_root(pod, container, user, image)?;
    }
    verify_range(pod, container, user.or(image.uid), group)?;
    let (mut run_as_user, mut run_as_username) = (user.map(int64), String::new());
    if user.is_none() {
        run_as_user = image.uid.map(int64);
        run_as_username = image.username.clone();
    }
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |paths: &[&str]| -> Vec<String> {
        let hidden = !privileged && !unmasked;
        let shown = if hidden { paths } else { &[] };
        shown.iter().map(|path| (*path).to_owned()).collect()
    };
    Ok(v1::LinuxContainerSecurityContext {
        capabilities: own
            .capabilities
            .as_ref()
            .map(|capabilities| v1::Capability {
                add_capabilities: capabilities.add.clone().unwrap_or_default(),
                drop_capabilities: capabilities.drop.clone().unwrap_or_default(),
                add_ambient_capabilities: Vec::new(),
            }),
        privileged,
        namespace_options: Some(namespaces(pod)),
        run_as_user,
        run_as_group: group.map(int64),
        run_as_username,
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups(&shared),
        supplemental_groups_policy: groups_policy(&shared),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(seccomp(
            own.seccomp_profile
                .as_ref()
                .or(shared.seccomp_profile.as_ref()),
            // A privileged container stays unconfined.
            seccomp_default && !privileged,
        )),
        apparmor: own
            .app_armor_profile
            .as_ref()
            .or(shared.app_armor_profile.as_ref())
            .map(apparmor),
        selinux_options: selinux(&own, &shared),
        ..Default::default()
    })
}

pub fn namespaces(pod: &Pod) -> v1::NamespaceOption {
    let spec = pod_spec::spec(pod);
    let host_or = |host: Option<bool>, otherwise: v1::NamespaceMode| {
        if host == Some(true) {
            v1::NamespaceMode::Node as i32
        } else {
            otherwise as i32
        }
    };
    let pid = if spec.share_process_namespace == Some(true) {
        v1::NamespaceMode::Pod
    } else {
        v1::NamespaceMode::Container
    };
    v1::NamespaceOption {
        network: host_or(spec.host_network, v1::NamespaceMode::Pod),
        ipc: host_or(spec.host_ipc, v1::NamespaceMode::Pod),
        pid: host_or(spec.host_pid, pid),
        ..Default::default()
    }
}

pub fn fs_group(pod: &Pod) -> Option<i64> {
    pod_context(pod).fs_group
}

fn verify_non_root(
    pod: &Pod,
    container: &Container,
    user: Option<i64>,
    image: &Image,
) -> Result<(), Error> {
    let pod_name = format_pod(pod);
    let container = container.name.clone();
    match (user, image.uid) {
        (Some(0), _) => Err(Error::RunsAsRoot {
            pod: pod_name,
            container,
        }),
        (Some(_), _) => Ok(()),
        (None, Some(uid)) if !(0..=LARGEST_ID).contains(&uid) => Err(Error::ImageUserInvalid {
            uid,
            pod: pod_name,
            container,
        }),
        (None, Some(uid)) if uid != 0 => Ok(()),
        (None, None) if !image.username.is_empty() => Err(Error::ImageUserUnknown {
            user: image.username.clone(),
            pod: pod_name,
            container,
        }),
        (None, _) => Err(Error::ImageRunsAsRoot {
            pod: pod_name,
            container,
        }),
    }
}

/// The API server refuses such ids; static pods and images do not pass it.
fn verify_range(
    pod: &Pod,
    container: &Container,
    user: Option<i64>,
    group: Option<i64>,
) -> Result<(), Error> {
    let shared = pod_context(pod);
    let supplemental = shared.supplemental_groups.iter().flatten().copied();
    let named = [
        ("runAsUser", user),
        ("runAsGroup", group),
        ("fsGroup", shared.fs_group),
    ];
    let wrong = named
        .into_iter()
        .filter_map(|(field, id)| Some((field, id?)))
        .chain(supplemental.map(|id| ("supplementalGroups", id)))
        .find(|(_, id)| !(0..=LARGEST_ID).contains(id));
    match wrong {
        None => Ok(()),
        Some((field, id)) => Err(Error::OutOfRange {
            field,
            id,
            pod: format_pod(pod),
            container: container.name.clone(),
        }),
    }
}

fn pod_context(pod: &Pod) -> PodSecurityContext {
    let context = pod_spec::spec(pod).security_context.clone();
    context.unwrap_or_default()
}

fn groups(context: &PodSecurityContext) -> Vec<i64> {
    let mut groups = context.supplemental_groups.clone().unwrap_or_default();
    groups.extend(context.fs_group);
    groups
}

fn groups_policy(context: &PodSecurityContext) -> i32 {
    match context.supplemental_groups_policy.as_deref() {
        Some("Strict") => v1::SupplementalGroupsPolicy::Strict as i32,
        _ => v1::SupplementalGroupsPolicy::Merge as i32,
    }
}

/// Without a profile a container is unconfined, unless the kubelet is configured otherwise.
fn seccomp(profile: Option<&SeccompProfile>, default: bool) -> v1::SecurityProfile {
    use v1::security_profile::ProfileType;
    let (profile_type, localhost_ref) = match profile {
        None if default => (ProfileType::RuntimeDefault, String::new()),
        Some(profile) if profile.type_ == "RuntimeDefault" => {
            (ProfileType::RuntimeDefault, String::new())
        }
        Some(profile) if profile.type_ == "Localhost" => (
            ProfileType::Localhost,
            profile.localhost_profile.clone().unwrap_or_default(),
        ),
        _ => (ProfileType::Unconfined, String::new()),
    };
    v1::SecurityProfile {
        profile_type: profile_type as i32,
        localhost_ref,
    }
}

fn apparmor(profile: &AppArmorProfile) -> v1::SecurityProfile {
    use v1::security_profile::ProfileType;
    let profile_type = match profile.type_.as_str() {
        "Unconfined" => ProfileType::Unconfined,
        "Localhost" => ProfileType::Localhost,
        _ => ProfileType::RuntimeDefault,
    };
    v1::SecurityProfile {
        profile_type: profile_type as i32,
        localhost_ref: profile.localhost_profile.clone().unwrap_or_default(),
    }
}

fn selinux(own: &SecurityContext, shared: &PodSecurityContext) -> Option<v1::SeLinuxOption> {
    let options = own
        .se_linux_options
        .as_ref()
        .or(shared.se_linux_options.as_ref())?;
    Some(v1::SeLinuxOption {
        user: options.user.clone().unwrap_or_default(),
        role: options.role.clone().unwrap_or_default(),
        r#type: options.type_.clone().unwrap_or_default(),
        level: options.level.clone().unwrap_or_default(),
    })
}

fn int64(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(pod_context: serde_json::Value, context: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
            "spec": {"securityContext": pod_context, "containers": [{"name": "c", "securityContext": context}]},
        }))
        .expect("a pod")
    }

    fn convert(pod: &Pod, image: &Image) -> Result<v1::LinuxContainerSecurityContext, Error> {
        let spec = pod.spec.as_ref().expect("spec");
        container(pod, &spec.containers[0], image, false)
    }

    #[test]
    fn a_container_overrides_its_pod() {
        let pod = pod(
            json!({"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]}),
            json!({"runAsUser": 7, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}),
        );
        let context = convert(&pod, &Image::default()).expect("a context");
        assert_eq!(context.run_as_user.expect("user").value, 7);
        assert_eq!(context.run_as_group.expect("group").value, 2);
        assert_eq!(context.supplemental_groups, [4, 3]);
        assert!(context.no_new_privs && context.readonly_rootfs);
        assert_eq!(
            context.capabilities.expect("caps").drop_capabilities,
            ["ALL"]
        );
        assert_eq!(context.seccomp.expect("seccomp").profile_type, 0);
        assert!(!context.masked_paths.is_empty());
    }

    #[test]
    fn the_kubelet_may_confine_by_default() {
        let profile = |context: serde_json::Value, default: bool| {
            let pod = pod(json!({}), context);
            let spec = pod.spec.as_ref().expect("spec");
            let found = container(&pod, &spec.containers[0], &Image::default(), default);
            found
                .expect("a context")
                .seccomp
                .expect("seccomp")
                .profile_type
        };
        use v1::security_profile::ProfileType;
        let (confined, free) = (
            ProfileType::RuntimeDefault as i32,
            ProfileType::Unconfined as i32,
        );
        assert_eq!(profile(json!({}), false), free);
        assert_eq!(profile(json!({}), true), confined);
        assert_eq!(profile(json!({"privileged": true}), true), free);
        let own = json!({"seccompProfile": {"type": "Unconfined"}});
        assert_eq!(profile(own, true), free);
    }

    #[test]
    fn non_root_is_verified() {
        let pod = pod(json!({"runAsNonRoot": true}), json!({}));
        let image = |uid, username: &str| Image {
            uid,
            username: username.to_owned(),
            ..Image::default()
        };
        assert!(convert(&pod, &image(Some(1000), "")).is_ok());
        assert_eq!(
            convert(&pod, &image(Some(0), ""))
                .expect_err("root")
                .to_string(),
            "container has runAsNonRoot and image will run as root (pod: \"web_shop(u1)\", container: c)"
        );
        assert!(matches!(
            convert(&pod, &image(None, "www")),
            Err(Error::ImageUserUnknown { .. })
        ));
    }

    #[test]
    fn an_image_with_an_id_that_no_user_can_have_does_not_run() {
        let image = |uid| Image {
            uid: Some(uid),
            ..Image::default()
        };
        let non_root = pod(json!({"runAsNonRoot": true}), json!({}));
        for uid in [-1, 1 << 31, 4_294_967_295, 4_294_967_296] {
            let error = convert(&non_root, &image(uid)).expect_err("refused");
            assert_eq!(
                error.to_string(),
                format!(
                    "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive (pod: \"web_shop(u1)\", container: c)"
                )
            );
            let any = pod(json!({}), json!({}));
            assert!(matches!(
                convert(&any, &image(uid)),
                Err(Error::OutOfRange { .. })
            ));
        }
        assert!(convert(&non_root, &image(LARGEST_ID)).is_ok());
    }

    #[test]
    fn ids_out_of_range_are_refused_wherever_a_pod_names_them() {
        for context in [
            json!({"runAsUser": 4_294_967_295_i64}),
            json!({"runAsUser": -1}),
            json!({"runAsUser": 1, "runAsGroup": 1_i64 << 31}),
            json!({"fsGroup": 4_294_967_295_i64}),
            json!({"supplementalGroups": [1, -1]}),
        ] {
            let refused = convert(&pod(context.clone(), json!({})), &Image::default());
            assert!(
                matches!(refused, Err(Error::OutOfRange { .. })),
                "{context}: {refused:?}"
            );
        }
    }
}
