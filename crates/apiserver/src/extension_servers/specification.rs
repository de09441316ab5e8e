//! What an APIService says about the server behind it.

use api::Value;
use api::strategy::api_service;

/// The kinds of this group are always served here, no matter what an APIService says: some server has
/// to be able to change that APIService.
const OWN_GROUP: &str = "apiregistration.k8s.io";

/// What an APIService says about the server behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Specification {
    pub service: ServiceReference,
    /// PEM.
    pub ca_bundle: Vec<u8>,
    pub skip_verification: bool,
    pub group: String,
    pub version: String,
    pub group_priority: i64,
    pub version_priority: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceReference {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

impl Specification {
    /// Reads an APIService; `None` for one that this server serves itself.
    pub fn of(object: &Value) -> Option<Specification> {
        let text = |path: &[&str]| object.str_at(path).to_string();
        let number = |name: &str| object.i64_at(&["spec", name]).unwrap_or(0);
        let group = text(&["spec", "group"]);
        if !api_service::is_remote(object) || group == OWN_GROUP {
            return None;
        }
        let port = object.i64_at(&["spec", "service", "port"]);
        Some(Specification {
            service: ServiceReference {
                namespace: text(&["spec", "service", "namespace"]),
                name: text(&["spec", "service", "name"]),
                port: port
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(443),
            },
            ca_bundle: api_service::ca_bundle(object),
            skip_verification: object.bool_at(&["spec", "insecureSkipTLSVerify"]),
            group,
            version: text(&["spec", "version"]),
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
        })
    }

    /// Version `v1` of the group `a.io`, behind the Service `s`.
    #[cfg(test)]
    pub fn example() -> Specification {
        Specification {
            service: ServiceReference {
                namespace: "n".to_string(),
                name: "s".to_string(),
                port: 443,
            },
            ca_bundle: Vec::new(),
            skip_verification: true,
            group: "a.io".to_string(),
            version: "v1".to_string(),
            group_priority: 1,
            version_priority: 1,
        }
    }

    /// Where the server describes what it serves.
    pub fn root(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}
