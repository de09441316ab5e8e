//! AppArmor profiles, on kernels that have it: our own for RuntimeDefault, and those that the node
//! has loaded for Localhost.

mod profile;

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
    #[error("the default apparmor profile cannot be loaded: apparmor_parser is not installed")]
    NoParser,
    #[error("the default apparmor profile cannot be loaded: {0}")]
    Load(String),
}

/// The profile to run under, by the field or, without it, the older one.
pub fn profile(security: &LinuxContainerSecurityContext) -> Result<Option<String>, Error> {
    let enabled = fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "Y");
    let loaded = |name: &str| is_loaded(Path::new(PROFILES), name);
    decide(security, enabled, loaded, || profile::load(loaded))
}

/// The profile that a pod asks for.
enum RequestedProfile<'a> {
    Nothing,
    Default,
    Unconfined,
    Named(&'a str),
}

fn requested_profile(security: &LinuxContainerSecurityContext) -> RequestedProfile<'_> {
    if let Some(profile) = &security.apparmor {
        return match profile.profile_type() {
            ProfileType::Localhost => RequestedProfile::Named(&profile.localhost_ref),
            ProfileType::RuntimeDefault => RequestedProfile::Default,
            ProfileType::Unconfined => RequestedProfile::Unconfined,
        };
    }
    #[allow(deprecated, reason = "older kubelets know only this field")]
    match security.apparmor_profile.as_str() {
        "" => RequestedProfile::Nothing,
        "runtime/default" => RequestedProfile::Default,
        "unconfined" => RequestedProfile::Unconfined,
        other => RequestedProfile::Named(other),
    }
}

fn decide(
    security: &LinuxContainerSecurityContext,
    enabled: bool,
    is_loaded: impl FnOnce(&str) -> bool,
    load_default: impl FnOnce() -> Result<(), Error>,
) -> Result<Option<String>, Error> {
    if security.privileged {
        return Ok(None);
    }
    let name = match requested_profile(security) {
        RequestedProfile::Unconfined => return Ok(None),
        // A kernel without AppArmor has nothing to add to what it gives everybody.
        RequestedProfile::Nothing | RequestedProfile::Default if !enabled => return Ok(None),
        RequestedProfile::Default => {
            load_default()?;
            return Ok(Some(profile::NAME.to_owned()));
        }
        // As if it had been asked for, where that can be done.
        RequestedProfile::Nothing => {
            return Ok(load_default().is_ok().then(|| profile::NAME.to_owned()));
        }
        RequestedProfile::Named(name) => name.strip_prefix("localhost/").unwrap_or(name),
    };
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

    fn of(kind: ProfileType, name: &str) -> LinuxContainerSecurityContext {
        LinuxContainerSecurityContext {
            apparmor: Some(SecurityProfile {
                profile_type: kind.into(),
                localhost_ref: name.into(),
            }),
            ..Default::default()
        }
    }

    #[test]
    fn a_profile_is_applied_or_refused() {
        let loads = || Ok(());
        let own = of(ProfileType::Localhost, "localhost/mine");
        assert_eq!(decide(&own, true, |_| true, loads), Ok(Some("mine".into())));
        assert_eq!(
            decide(&own, true, |_| false, loads),
            Err(Error::NotLoaded("mine".into()))
        );
        assert_eq!(
            decide(&own, false, |_| true, loads),
            Err(Error::Missing("mine".into()))
        );
        let mut free = own;
        free.privileged = true;
        assert_eq!(decide(&free, false, |_| false, loads), Ok(None));
    }

    #[test]
    fn the_default_profile_is_ours_if_the_kernel_has_apparmor() {
        let (loads, fails) = (|| Ok(()), || Err(Error::NoParser));
        let ours = Some(profile::NAME.to_owned());
        let asked = of(ProfileType::RuntimeDefault, "");
        assert_eq!(decide(&asked, true, |_| true, loads), Ok(ours.clone()));
        assert_eq!(decide(&asked, true, |_| true, fails), Err(Error::NoParser));
        assert_eq!(decide(&asked, false, |_| true, fails), Ok(None));
        let silent = LinuxContainerSecurityContext::default();
        assert_eq!(decide(&silent, true, |_| true, loads), Ok(ours));
        assert_eq!(decide(&silent, true, |_| true, fails), Ok(None));
        let free = of(ProfileType::Unconfined, "");
        assert_eq!(decide(&free, true, |_| true, loads), Ok(None));
    }

    #[test]
    fn loaded_profiles_are_listed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "a b (enforce)\nc (complain)\n").unwrap();
        assert!(is_loaded(file.path(), "a b") && !is_loaded(file.path(), "a"));
    }
}
