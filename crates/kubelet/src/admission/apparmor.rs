//! Whether the kernel can confine a pod as it asks. Pure, but for the look at the kernel.

use k8s_openapi::api::core::v1::{AppArmorProfile, Pod};

use super::Rejection;
use crate::pod_spec;

/// Looked at only when a pod asks for a profile.
pub(super) fn is_enabled() -> bool {
    let text = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    text.is_ok_and(|text| text.starts_with('Y'))
}

pub(super) fn check(pod: &Pod, is_enabled: impl Fn() -> bool) -> Vec<Rejection> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let shared = spec
        .security_context
        .as_ref()
        .and_then(|context| context.app_armor_profile.as_ref());
    let confines = |profile: &AppArmorProfile| profile.type_ != "Unconfined";
    let ephemeral = pod_spec::ephemeral(pod);
    let own = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .chain(&ephemeral)
        .filter_map(|one| one.security_context.as_ref()?.app_armor_profile.as_ref());
    if !shared.into_iter().chain(own).any(confines) || is_enabled() {
        return Vec::new();
    }
    vec![Rejection::new(
        "AppArmor",
        "Cannot enforce AppArmor: AppArmor is not enabled on the host",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apparmor_profile_needs_a_kernel_with_apparmor() {
        let pod = |type_: &str| -> Pod {
            serde_json::from_value(serde_json::json!({"spec": {"containers": [{"name": "c",
                "securityContext": {"appArmorProfile": {"type": type_}}}]}}))
            .expect("a pod")
        };
        assert!(check(&pod("RuntimeDefault"), || true).is_empty());
        assert!(check(&pod("Unconfined"), || false).is_empty());
        let refused = check(&pod("RuntimeDefault"), || false);
        assert_eq!(refused[0].reason, "AppArmor");
    }
}
