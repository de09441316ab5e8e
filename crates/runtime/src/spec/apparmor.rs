//! AppArmor profiles, on kernels that have it. We bring no profile of our own: RuntimeDefault is
//! the kernel's default for us, Localhost names a profile that the node has loaded.

use std::{fs, path::Path};

use cri::v1::{LinuxContainerSecurityContext, security_profile::ProfileType};

const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
const PROFILES: &str = "/sys/kernel/security/apparmor/profiles";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("apparmor profile {0:?} cannot be applied: this kernel has no AppArmor")]
    Missing(String),
    #[error("apparmor profile not found {0:?}")]
    NotLoaded(String),
}

/// The profile to run under, by the field or, without it, the older one.
pub fn profile(security: &LinuxContainerSecurityContext) -> Result<Option<String>, Error> {
    let enabled = fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "Y");
    decide(security, enabled, |name| {
        is_loaded(Path::new(PROFILES), name)
    })
}

fn decide(
    security: &LinuxContainerSecurityContext,
    enabled: bool,
    is_loaded: impl FnOnce(&str) -> bool,
) -> Result<Option<String>, Error> {
    #[allow(deprecated, reason = "older kubelets know only this field")]
    let older = security.apparmor_profile.as_str();
    let named = match &security.apparmor {
        Some(profile) => match profile.profile_type() {
            ProfileType::Localhost => Some(profile.localhost_ref.as_str()),
            ProfileType::RuntimeDefault | ProfileType::Unconfined => None,
        },
        None => match older {
            "" | "runtime/default" | "unconfined" => None,
            other => Some(other),
        },
    };
    let Some(name) = named.filter(|_| !security.privileged) else {
        return Ok(None);
    };
    let name = name.strip_prefix("localhost/").unwrap_or(name);
    if !enabled {
        return Err(Error::Missing(name.to_owned()));
    }
    if !is_loaded(name) {
        return Err(Error::NotLoaded(name.to_owned()));
    }
    Ok(Some(name.to_owned()))
}

/// The kernel lists `name (mode)` per line.
fn is_loaded(list: &Path, name: &str) -> bool {
    fs::read_to_string(list).is_ok_and(|text| {
        text.lines().any(|line| {
            line.rsplit_once(" (")
                .is_some_and(|(known, _)| known == name)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cri::v1::SecurityProfile;

    fn localhost(name: &str) -> LinuxContainerSecurityContext {
        LinuxContainerSecurityContext {
            apparmor: Some(SecurityProfile {
                profile_type: ProfileType::Localhost.into(),
                localhost_ref: name.into(),
            }),
            ..Default::default()
        }
    }

    #[test]
    fn a_profile_is_applied_or_refused() {
        let own = localhost("localhost/mine");
        assert_eq!(decide(&own, true, |_| true), Ok(Some("mine".into())));
        assert_eq!(
            decide(&own, true, |_| false),
            Err(Error::NotLoaded("mine".into()))
        );
        assert_eq!(
            decide(&own, false, |_| true),
            Err(Error::Missing("mine".into()))
        );
        let default = LinuxContainerSecurityContext::default();
        assert_eq!(decide(&default, false, |_| false), Ok(None));
        let mut free = localhost("mine");
        free.privileged = true;
        assert_eq!(decide(&free, false, |_| false), Ok(None));
    }

    #[test]
    fn loaded_profiles_are_listed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "a b (enforce)\nc (complain)\n").unwrap();
        assert!(is_loaded(file.path(), "a b") && !is_loaded(file.path(), "a"));
    }
}
