//! What is checked and what is written: pure.

use api::Value;
use api::expressions::type_checking::{
    ExpressionWarning, KindName, KindSchema, ParamTypes, kinds_to_check, param_kind, warnings,
};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;

/// The kinds that a policy needs to be known for it to be checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Needed {
    pub kinds: Vec<KindName>,
    pub params: Option<KindName>,
}

/// Whether the status is about an older policy.
pub fn is_due(policy: &ValidatingAdmissionPolicy) -> bool {
    let observed = policy
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    policy.metadata.generation.unwrap_or_default() > observed.unwrap_or_default()
}

/// The group versions of resources that a policy names and that are no built-in ones; what they serve
/// has to be asked for.
pub fn unknown_group_versions(policy: &Value) -> Vec<(String, String)> {
    let mut unknown: Vec<(String, String)> = Vec::new();
    kinds_to_check(policy, |group, version, resource| {
        let kind = built_in_kind(group, version, resource);
        let group_version = (group.to_string(), version.to_string());
        if kind.is_none() && !unknown.contains(&group_version) {
            unknown.push(group_version);
        }
        kind
    });
    unknown
}

/// What has to be known. `kind_of` knows the kinds of resources that are not built in.
pub fn needed(policy: &Value, kind_of: impl Fn(&str, &str, &str) -> Option<String>) -> Needed {
    Needed {
        kinds: kinds_to_check(policy, |group, version, resource| {
            built_in_kind(group, version, resource).or_else(|| kind_of(group, version, resource))
        }),
        params: param_kind(policy),
    }
}

/// The schema of a built-in kind.
pub fn built_in(kind: &KindName) -> Option<KindSchema> {
    let resource = api::catalogue::built_in().find_kind(&kind.group, &kind.version, &kind.kind)?;
    match resource.definition.name() {
        "" => None,
        name => Some(KindSchema::BuiltIn(name)),
    }
}

/// The warnings about a policy. A kind whose schema is not found is left out.
pub fn check(
    policy: &Value,
    needed: Needed,
    schema: impl Fn(&KindName) -> Option<KindSchema>,
) -> Vec<ExpressionWarning> {
    let kinds = needed.kinds.into_iter();
    let kinds: Vec<(KindName, KindSchema)> = kinds
        .filter_map(|kind| {
            let schema = schema(&kind)?;
            Some((kind, schema))
        })
        .collect();
    let params = match needed.params {
        None => ParamTypes::Absent,
        Some(kind) => schema(&kind).map_or(ParamTypes::Unknown, ParamTypes::Known),
    };
    warnings(policy, &kinds, &params)
}

/// The configuration that is applied to the status.
pub fn status(name: &str, generation: i64, warnings: &[ExpressionWarning]) -> serde_json::Value {
    let warnings: Vec<serde_json::Value> = warnings
        .iter()
        .map(|warning| {
            serde_json::json!({"fieldRef": warning.field_ref, "warning": warning.warning})
        })
        .collect();
    let checking = match warnings.is_empty() {
        true => serde_json::json!({}),
        false => serde_json::json!({"expressionWarnings": warnings}),
    };
    serde_json::json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "status": {"observedGeneration": generation, "typeChecking": checking},
    })
}

/// The name of the schema of a kind in the OpenAPI document of its group version.
pub fn published_name(document: &Value, kind: &KindName) -> Option<String> {
    let mut schemas = document.fields_at(&["components", "schemas"]);
    let (name, _) = schemas.find(|(_, schema)| {
        let mut kinds = schema.list_at(&["x-kubernetes-group-version-kind"]).iter();
        kinds.any(|one| {
            one.str_at(&["group"]) == kind.group
                && one.str_at(&["version"]) == kind.version
                && one.str_at(&["kind"]) == kind.kind
        })
    })?;
    Some(name.to_string())
}

fn built_in_kind(group: &str, version: &str, resource: &str) -> Option<String> {
    let found = api::catalogue::built_in().find(group, version, resource)?;
    Some(found.kind.to_string())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyStatus;

    use super::*;

    fn policy() -> Value {
        api::document!({"spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["apps", "example.com"], "apiVersions": ["v1"],
                "resources": ["deployments", "widgets"],
            }]},
            "validations": [
                {"expression": "object.spec.replicas < int(params.data['most'])"},
                {"expression": "object.spec.size < 3"},
            ],
        }})
    }

    fn kind(group: &str, name: &str) -> KindName {
        KindName {
            group: group.to_string(),
            version: "v1".to_string(),
            kind: name.to_string(),
        }
    }

    #[test]
    fn a_policy_is_checked_once_for_each_generation() {
        let at = |generation: i64, status: Option<ValidatingAdmissionPolicyStatus>| {
            is_due(&ValidatingAdmissionPolicy {
                metadata: kube::api::ObjectMeta {
                    generation: Some(generation),
                    ..Default::default()
                },
                status,
                ..Default::default()
            })
        };
        let observed = |generation: Option<i64>| {
            Some(ValidatingAdmissionPolicyStatus {
                observed_generation: generation,
                ..Default::default()
            })
        };
        assert!(at(1, None));
        assert!(at(1, observed(None)));
        assert!(at(2, observed(Some(1))));
        assert!(!at(2, observed(Some(2))));
    }

    #[test]
    fn only_what_is_not_built_in_is_asked_for() {
        let unknown = unknown_group_versions(&policy());
        let expected = ["apps", "example.com"].map(|group| (group.to_string(), "v1".to_string()));
        assert_eq!(unknown, expected);
        let needed = needed(&policy(), |group, _, resource| {
            (group == "example.com" && resource == "widgets").then(|| "Widget".to_string())
        });
        assert_eq!(
            needed,
            Needed {
                kinds: vec![kind("apps", "Deployment"), kind("example.com", "Widget")],
                params: Some(kind("", "ConfigMap")),
            }
        );
    }

    #[test]
    fn kinds_without_a_schema_are_left_out() {
        let needed = needed(&policy(), |_, _, resource| {
            (resource == "widgets").then(|| "Widget".to_string())
        });
        let found = check(&policy(), needed, built_in);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].field_ref, "spec.validations[1].expression");
        assert!(found[0].warning.starts_with("apps/v1, Kind=Deployment: "));
    }

    #[test]
    fn the_schema_of_a_kind_is_found_by_its_name() {
        let document = api::document!({"components": {"schemas": {
            "a": {"type": "object"},
            "b": {"x-kubernetes-group-version-kind": [
                {"group": "example.com", "version": "v1", "kind": "Widget"},
            ]},
        }}});
        let widget = kind("example.com", "Widget");
        assert_eq!(published_name(&document, &widget).as_deref(), Some("b"));
        let other = kind("example.com", "Other");
        assert_eq!(published_name(&document, &other), None);
    }

    #[test]
    fn a_policy_without_warnings_has_an_empty_result() {
        let made = status("a", 3, &[]);
        assert_eq!(
            made["status"],
            serde_json::json!({"observedGeneration": 3, "typeChecking": {}})
        );
    }
}
