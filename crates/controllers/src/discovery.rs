//! What the API server serves right now, CRDs and aggregated groups included, as controllers that
//! handle every kind need it: one entry per kind, in its preferred version.

use http::header::ACCEPT;
use kube::Api;
use kube::core::discovery::ApiResource;
use kube::core::{DynamicObject, PartialObjectMeta};
use serde::Deserialize;

use crate::Error;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The metadata of an object of any kind.
pub type Metadata = PartialObjectMeta<DynamicObject>;

/// A kind in one of its versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    /// Whether this is the version that clients should use.
    pub preferred: bool,
}

impl Served {
    pub fn api_version(&self) -> String {
        api::resource::api_version(&self.group, &self.version)
    }

    /// `/v1` or `apps/v1`, as Go writes it in messages.
    pub fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// `pods` or `deployments.apps`.
    pub fn qualified(&self) -> String {
        match self.group.as_str() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Where all objects of the kind are listed.
    pub fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}/{}", self.version, self.plural),
            group => format!("/apis/{group}/{}/{}", self.version, self.plural),
        }
    }

    pub fn allows(&self, verbs: &[&str]) -> bool {
        verbs
            .iter()
            .all(|verb| self.verbs.iter().any(|known| known == verb))
    }

    /// `namespace` is ignored for cluster-wide kinds.
    pub fn metadata_api(&self, client: &kube::Client, namespace: &str) -> Api<DynamicObject> {
        match self.namespaced {
            true => Api::namespaced_with(client.clone(), namespace, &self.api_resource()),
            false => self.everywhere(client),
        }
    }

    /// The objects of all namespaces.
    pub fn everywhere(&self, client: &kube::Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.api_resource())
    }

    fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }
}

/// The result of discovery.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Every served kind in every version, the core group first.
    pub kinds: Vec<Served>,
    /// Groups with their versions, like `metrics.k8s.io/v1beta1`, whose server does not answer now:
    /// what they serve is not known.
    pub stale: Vec<String>,
}

impl Discovered {
    /// The groups that could not be discovered, in upstream's words.
    pub fn failure(&self) -> Option<String> {
        let mut stale = self.stale.clone();
        stale.sort();
        let each: Vec<String> = stale
            .iter()
            .map(|version| format!("{version}: stale GroupVersion discovery: {version}"))
            .collect();
        (!each.is_empty()).then(|| {
            format!(
                "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
                each.len(),
                each.join(", ")
            )
        })
    }
}

/// Asks the API server what it serves.
pub async fn discover(client: &kube::Client) -> Result<Discovered, Error> {
    let mut all = Discovered::default();
    for path in ["/api", "/apis"] {
        let request = http::Request::get(path)
            .header(ACCEPT, AGGREGATED)
            .body(Vec::new())?;
        let groups: Groups = client.request(request).await?;
        groups.flatten(&mut all);
    }
    Ok(all)
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupMetadata,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
struct GroupMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    #[serde(default)]
    response_kind: Option<Kind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: String,
}

impl Groups {
    fn flatten(self, all: &mut Discovered) {
        for group in self.items {
            // The first version that has a resource is the preferred one.
            let mut seen: Vec<String> = Vec::new();
            for version in group.versions {
                if version.freshness == "Stale" {
                    let name = &group.metadata.name;
                    let stale = api::resource::api_version(name, &version.version);
                    all.stale.push(stale);
                    continue;
                }
                for resource in version.resources {
                    let preferred = !seen.contains(&resource.resource);
                    if preferred {
                        seen.push(resource.resource.clone());
                    }
                    all.kinds.push(Served {
                        group: group.metadata.name.clone(),
                        version: version.version.clone(),
                        kind: resource
                            .response_kind
                            .map(|kind| kind.kind)
                            .unwrap_or_default(),
                        plural: resource.resource,
                        namespaced: resource.scope == "Namespaced",
                        verbs: resource.verbs,
                        preferred,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_of_a_resource_is_preferred() {
        let groups: Groups = serde_json::from_value(serde_json::json!({"items": [{
            "metadata": {"name": "autoscaling"},
            "versions": [
                {"version": "v2", "resources": [{"resource": "hpas", "scope": "Namespaced",
                    "responseKind": {"kind": "HPA"}, "verbs": ["list"]}]},
                {"version": "v1", "resources": [
                    {"resource": "hpas", "scope": "Namespaced", "verbs": []},
                    {"resource": "olds", "scope": "Cluster", "verbs": []}]},
            ],
        }]}))
        .unwrap();
        let mut all = Discovered::default();
        groups.flatten(&mut all);
        assert_eq!(all.failure(), None);
        let preferred: Vec<(String, String)> = all
            .kinds
            .into_iter()
            .filter(|served| served.preferred)
            .map(|served| (served.path(), served.kind))
            .collect();
        let path = |path: &str| format!("/apis/autoscaling/{path}");
        assert_eq!(
            preferred,
            [
                (path("v2/hpas"), "HPA".to_string()),
                (path("v1/olds"), String::new())
            ]
        );
    }
    #[test]
    fn what_a_stale_group_serves_is_not_known() {
        let groups: Groups = serde_json::from_value(serde_json::json!({"items": [{
            "metadata": {"name": "metrics.k8s.io"},
            "versions": [
                {"version": "v1", "freshness": "Stale", "resources": [{"resource": "pods"}]},
                {"version": "v1beta1", "freshness": "Current", "resources": [{"resource": "pods"}]},
            ],
        }]}))
        .unwrap();
        let mut all = Discovered::default();
        groups.flatten(&mut all);
        assert_eq!(all.stale, ["metrics.k8s.io/v1"]);
        assert_eq!(
            all.failure().as_deref(),
            Some(
                "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1: stale GroupVersion discovery: metrics.k8s.io/v1"
            )
        );
        let kinds: Vec<&str> = all.kinds.iter().map(|kind| kind.version.as_str()).collect();
        assert_eq!(kinds, ["v1beta1"]);
        assert!(all.kinds[0].preferred);
    }
}
