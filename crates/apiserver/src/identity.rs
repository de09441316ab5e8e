//! Who asks: a user with groups. Made by authentication, or by this process for its own
//! components; nothing in a network request can carry one.

use std::collections::BTreeMap;

/// A known caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    pub(crate) uid: String,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
    /// From when on the client certificate is valid, in seconds since 1970.
    pub(crate) issued: Option<i64>,
}

pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The extra that says which credential was used.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const NODES: &str = "system:nodes";
pub(crate) const MASTERS: &str = "system:masters";

impl Identity {
    /// A component of this process. `system:authenticated` is added.
    pub fn component(user: impl Into<String>, groups: &[&str]) -> Identity {
        let mut groups: Vec<String> = groups.iter().map(|group| group.to_string()).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_string());
        }
        Identity {
            user: user.into(),
            groups,
            ..Identity::default()
        }
    }

    /// A user with exactly these groups, as extension API servers see it.
    pub(crate) fn exactly(user: &str, groups: &[&str]) -> Identity {
        Identity {
            user: user.to_string(),
            groups: groups.iter().map(|group| group.to_string()).collect(),
            ..Identity::default()
        }
    }

    /// Who this is, as objects record it.
    pub(crate) fn requester(&self) -> api::resource::Requester<'_> {
        api::resource::Requester {
            user: &self.user,
            uid: &self.uid,
            groups: &self.groups,
            extra: &self.extra,
        }
    }

    /// Who this is, as reviews and webhooks show it.
    pub(crate) fn user_info(&self) -> api::Value {
        let mut info = api::document!({"username": self.user, "groups": self.groups});
        if !self.uid.is_empty() {
            info.set(&["uid"], self.uid.as_str());
        }
        if !self.extra.is_empty() {
            info.set(&["extra"], api::document!(self.extra));
        }
        info
    }

    /// The administrator: member of `system:masters`.
    pub fn administrator() -> Identity {
        Identity::component("system:admin", &[MASTERS])
    }

    /// The node `name`, as its client certificate would say.
    pub fn node(name: &str) -> Identity {
        Identity::component(format!("system:node:{name}"), &[NODES])
    }

    /// A ServiceAccount, as its token would say.
    pub fn service_account(namespace: &str, name: &str) -> Identity {
        let namespaced = format!("system:serviceaccounts:{namespace}");
        Identity::component(
            format!("system:serviceaccount:{namespace}:{name}"),
            &["system:serviceaccounts", &namespaced],
        )
    }

    pub(crate) fn anonymous() -> Identity {
        Identity {
            user: ANONYMOUS.to_string(),
            groups: vec![UNAUTHENTICATED.to_string()],
            ..Identity::default()
        }
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.groups.iter().any(|group| group == UNAUTHENTICATED)
    }

    pub fn user(&self) -> &str {
        &self.user
    }

    pub fn groups(&self) -> &[String] {
        &self.groups
    }
}
