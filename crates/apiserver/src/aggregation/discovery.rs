//! What an extension API server serves, in the form of aggregated discovery: as it says itself, or
//! made of the older form.

use std::net::SocketAddr;
use std::time::Duration;

use api::Value;
use http::header::CONTENT_TYPE;

use super::fetch::{self, Answer, FetchError, Question};
use crate::extension_servers::{Backend, Specification};
use crate::identity::MASTERS;

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const TIMEOUT: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 16 << 20;
const USER: &str = "system:kube-aggregator";

#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("service returned non-success response code: {0}")]
    Unavailable(u16),
    #[error("failed to download legacy discovery for {path}: code {code}")]
    Legacy { path: String, code: u16 },
    #[error("the description cannot be read")]
    Syntax(#[source] serde_json::Error),
}

/// The group version as aggregated discovery has it, without its freshness.
pub(super) async fn fetch(
    backend: &Backend,
    address: SocketAddr,
    specification: &Specification,
) -> Result<Value, DiscoveryError> {
    let mut question = Question {
        path: "/apis",
        accept: ACCEPT,
        etag: None,
        user: USER,
        groups: &[MASTERS],
        timeout: TIMEOUT,
        most_bytes: MOST_BYTES,
    };
    let answer = fetch::get(backend, address, &question).await?;
    if answer.code == 503 {
        return Err(DiscoveryError::Unavailable(answer.code));
    }
    if answer.code == 200 && is_aggregated(&answer) {
        let document = Value::from_json(&answer.body).map_err(DiscoveryError::Syntax)?;
        return Ok(of_aggregated(&document, specification));
    }
    let path = specification.root();
    question.path = &path;
    question.accept = "application/json";
    question.groups = &[];
    let answer = fetch::get(backend, address, &question).await?;
    if answer.code != 200 {
        let code = answer.code;
        return Err(DiscoveryError::Legacy { path, code });
    }
    let document = Value::from_json(&answer.body).map_err(DiscoveryError::Syntax)?;
    Ok(of_legacy(&document, &specification.version))
}

/// Whether the server answered in the form that was asked for.
fn is_aggregated(answer: &Answer) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut parts = kind.split(';').map(str::trim);
    parts.next() == Some("application/json")
        && ["g=apidiscovery.k8s.io", "as=APIGroupDiscoveryList"]
            .iter()
            .all(|wanted| kind.split(';').any(|part| part.trim() == *wanted))
}

/// The group version in a server's document; one without resources if it is not in there.
fn of_aggregated(document: &Value, specification: &Specification) -> Value {
    let groups = document.list_at(&["items"]).iter();
    let mut versions = groups
        .filter(|group| group.str_at(&["metadata", "name"]) == specification.group)
        .flat_map(|group| group.list_at(&["versions"]));
    let found = versions.find(|known| known.str_at(&["version"]) == specification.version);
    let mut version = api::document!({"version": specification.version.as_str()});
    let resources = found.map_or(&[][..], |found| found.list_at(&["resources"]));
    if resources.is_empty() {
        return version;
    }
    let mut resources = resources.to_vec();
    // Some clients cannot do without.
    for resource in &mut resources {
        resource.set_missing(&["responseKind"], no_kind());
        for below in resource.list_at_mut(&["subresources"]) {
            below.set_missing(&["responseKind"], no_kind());
        }
    }
    version.set(&["resources"], resources);
    version
}

fn no_kind() -> Value {
    api::document!({"group": "", "version": "", "kind": ""})
}

/// The same from an `APIResourceList`.
fn of_legacy(document: &Value, version: &str) -> Value {
    let mut resources: Vec<Value> = Vec::new();
    for known in document.list_at(&["resources"]) {
        let name = known.str_at(&["name"]);
        let kind = api::document!({
            "group": known.str_at(&["group"]), "version": known.str_at(&["version"]),
            "kind": known.str_at(&["kind"]),
        });
        let scope = match known.bool_at(&["namespaced"]) {
            true => "Namespaced",
            false => "Cluster",
        };
        let (parent, below) = match name.split_once('/') {
            Some((parent, below)) => (parent, Some(below)),
            None => (name, None),
        };
        let place = resources
            .iter()
            .position(|resource| resource.str_at(&["resource"]) == parent);
        let place = place.unwrap_or_else(|| {
            resources.push(api::document!({
                "resource": parent, "scope": scope, "responseKind": no_kind(),
                "singularResource": "", "verbs": [],
            }));
            resources.len() - 1
        });
        let resource = &mut resources[place];
        let verbs = known.list_at(&["verbs"]).to_vec();
        match below {
            Some(below) => {
                let mut all = resource.list_at(&["subresources"]).to_vec();
                all.push(api::document!({
                    "subresource": below, "responseKind": kind, "verbs": verbs,
                }));
                resource.set(&["subresources"], all);
            }
            None => {
                resource.set(&["responseKind"], kind);
                resource.set(&["scope"], scope);
                resource.set(&["verbs"], verbs);
                resource.set(&["singularResource"], known.str_at(&["singularName"]));
                for field in ["shortNames", "categories"] {
                    if let Some(names) = known.get(field) {
                        resource.set(&[field], names.clone());
                    }
                }
            }
        }
    }
    let mut found = api::document!({"version": version});
    if !resources.is_empty() {
        found.set(&["resources"], resources);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_version_is_taken_from_the_document_of_a_server() {
        let document = api::document!({"items": [
            {"metadata": {"name": "b.io"}, "versions": [{"version": "v1", "resources": [{}]}]},
            {"metadata": {"name": "a.io"}, "versions": [
                {"version": "v2", "resources": [{}]},
                {"version": "v1", "freshness": "Current",
                    "resources": [{"resource": "flunders", "subresources": [{"subresource": "x"}]}]},
            ]},
        ]});
        let expected = api::document!({"version": "v1", "resources": [{
            "resource": "flunders", "responseKind": {"group": "", "version": "", "kind": ""},
            "subresources": [{"subresource": "x",
                "responseKind": {"group": "", "version": "", "kind": ""}}],
        }]});
        assert_eq!(
            of_aggregated(&document, &Specification::example()),
            expected
        );
        let nothing = of_aggregated(&api::document!({}), &Specification::example());
        assert_eq!(nothing, api::document!({"version": "v1"}));
    }

    #[test]
    fn the_older_form_is_understood_with_its_subresources() {
        let list = api::document!({"resources": [
            {"name": "flunders/status", "kind": "Flunder", "namespaced": true, "verbs": ["get"]},
            {"name": "flunders", "singularName": "flunder", "kind": "Flunder", "namespaced": true,
                "verbs": ["get", "list"], "shortNames": ["fl"]},
        ]});
        let kind = api::document!({"group": "", "version": "", "kind": "Flunder"});
        let expected = api::document!({"version": "v1", "resources": [{
            "resource": "flunders", "singularResource": "flunder", "scope": "Namespaced",
            "responseKind": kind.clone(), "verbs": ["get", "list"], "shortNames": ["fl"],
            "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}],
        }]});
        assert_eq!(of_legacy(&list, "v1"), expected);
    }
}
