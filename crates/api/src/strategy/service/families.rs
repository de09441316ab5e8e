//! The IP families of a Service in a cluster with IPv4 only. They are chosen before addresses are
//! allocated.

use super::{is_headless, validate};
use crate::addresses;
use crate::document::Value;
use crate::field::{FieldError, Path, most_showing};

const FAMILY: &str = "IPv4";

/// Fills in `ipFamilies` and `ipFamilyPolicy`, or says why that cannot be.
pub fn settle(service: &mut Value, old: Option<&Value>) -> Vec<FieldError> {
    if service.str_at(&["spec", "type"]) == "ExternalName" || unchanged_preference(service, old) {
        return Vec::new();
    }
    let selectorless = service.fields_at(&["spec", "selector"]).count() == 0;
    let headless = service.str_at(&["spec", "clusterIP"]) == "None" && selectorless;
    let policy_at = ["spec", "ipFamilyPolicy"];
    if !service.has(&policy_at) {
        let before = old.and_then(|old| old.at(&policy_at)).cloned();
        let default = match headless {
            true => "RequireDualStack",
            false => "SingleStack",
        };
        service.set(&policy_at, before.unwrap_or_else(|| default.into()));
    }
    let mut errors = validate::cluster_ips(service, old);
    if !errors.is_empty() {
        return errors;
    }
    let policy = service.str_at(&policy_at).to_string();
    let single = policy == "SingleStack";
    if let Some(old) = old {
        errors.extend(release(service, old, single, &policy));
    }
    if single {
        for (name, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if service.list_at(&["spec", name]).len() == 2 {
                let detail = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.push(about_policy(&policy, detail));
            }
        }
    }
    errors.extend(families_of_addresses(service));
    if !errors.is_empty() {
        return errors;
    }
    let at = ["spec", "ipFamilies"];
    if service.list_at(&at).is_empty() {
        service.set(&at, vec![Value::from(FAMILY)]);
    }
    if headless {
        // Nothing of ours sends packets to it: it may say that it has both.
        if !single && service.list_at(&at).len() < 2 {
            let other = match service.list_at(&at)[0].as_str() {
                Some("IPv4") => "IPv6",
                _ => "IPv4",
            };
            let mut families = service.list_at(&at).to_vec();
            families.push(other.into());
            service.set(&at, families);
        }
        return Vec::new();
    }
    if policy == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(about_policy(&policy, detail));
    }
    for (index, family) in service.list_at(&at).iter().enumerate() {
        if family.as_str() != Some(FAMILY) {
            let path = Path::new("spec").child("ipFamilies").index(index);
            let detail = "not configured on this cluster";
            errors.push(FieldError::invalid(&path, family.clone(), detail));
        }
    }
    errors
}

fn about_policy(policy: &str, detail: impl Into<String>) -> FieldError {
    FieldError::invalid(&Path::new("spec").child("ipFamilyPolicy"), policy, detail)
}

/// Giving up the second family takes the policy that says so.
fn release(service: &mut Value, old: &Value, single: bool, policy: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let at = ["spec", name];
        let (new, before) = (service.list_at(&at).to_vec(), old.list_at(&at));
        if single && new == before && new.len() > 1 {
            service.set(&at, new[..1].to_vec());
        } else if !single && !new.is_empty() && new.len() < before.len() {
            let detail = format!("must be 'SingleStack' to release the secondary {what}");
            errors.push(about_policy(policy, detail));
        }
    }
    errors
}

fn families_of_addresses(service: &mut Value) -> Vec<FieldError> {
    let list = service.list_at(&["spec", "clusterIPs"]).to_vec();
    let mut families = service.list_at(&["spec", "ipFamilies"]).to_vec();
    let mut errors = Vec::new();
    let most = service.at(&["spec", "clusterIPs"]).map_or(1, most_showing);
    for (index, one) in list.iter().enumerate().skip(families.len()) {
        let text = one.as_str().unwrap_or_default();
        if text == "None" {
            break;
        }
        match addresses::parse(text) {
            Some(address) if address.is_ipv4() => families.push(FAMILY.into()),
            _ if index >= most => break,
            _ => {
                let path = Path::new("spec").child("clusterIPs").index(index);
                let detail = "IPv6 is not configured on this cluster";
                errors.push(FieldError::invalid(&path, list.clone(), detail));
            }
        }
    }
    if !families.is_empty() {
        service.set(&["spec", "ipFamilies"], families);
    }
    errors
}

/// A Service that prefers both families stays unchanged until it is updated.
fn unchanged_preference(service: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else {
        return false;
    };
    let same = |path: &[&str]| service.at(path) == old.at(path);
    let policy = |object: &Value| object.str_at(&["spec", "ipFamilyPolicy"]).to_string();
    policy(service) == "PreferDualStack"
        && matches!(policy(old).as_str(), "" | "PreferDualStack")
        && same(&["spec", "type"])
        && same(&["spec", "clusterIPs"])
        && same(&["spec", "ipFamilies"])
        && !(is_headless(service) && service.list_at(&["spec", "ipFamilies"]).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    fn settled(spec: Value, old: Option<&Value>) -> (Value, Vec<String>) {
        let mut service = document!({"spec": spec});
        service.set(&["spec", "type"], "ClusterIP");
        let errors = settle(&mut service, old);
        let texts = errors.iter().map(FieldError::to_string).collect();
        (service, texts)
    }

    #[test]
    fn a_single_stack_cluster_gives_its_only_ip_family() {
        let (service, errors) = settled(document!({}), None);
        assert!(errors.is_empty());
        assert_eq!(service.str_at(&["spec", "ipFamilyPolicy"]), "SingleStack");
        assert_eq!(
            service.at(&["spec", "ipFamilies"]),
            Some(&document!(["IPv4"]))
        );
        let (_, errors) = settled(document!({"ipFamilyPolicy": "RequireDualStack"}), None);
        assert_eq!(
            errors,
            [
                r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#
            ]
        );
        let (_, errors) = settled(document!({"ipFamilies": ["IPv6"]}), None);
        assert_eq!(
            errors,
            [r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#]
        );
        let (_, errors) = settled(document!({"ipFamilies": ["IPv4", "IPv6"]}), None);
        assert_eq!(
            errors,
            [
                r#"spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"#
            ]
        );
    }

    #[test]
    fn a_headless_service_without_selector_may_have_both_ip_families() {
        let headless = document!({"clusterIP": "None", "clusterIPs": ["None"]});
        let (service, errors) = settled(headless, None);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(
            service.at(&["spec", "ipFamilies"]),
            Some(&document!(["IPv4", "IPv6"]))
        );
    }
}
