//! Kinds that are stored as Kubernetes stores them while nothing here acts on them. Whoever writes one
//! is warned of, so that no user relies on what is not there.

use crate::document::Value;
use crate::resource::Resource;

/// What there is to say about an object that is new or, with `old`, changed.
pub(super) fn check(resource: &Resource, object: &Value, old: Option<&Value>) -> Option<String> {
    let word = word(resource, object)?;
    let says_the_same = |old: &Value| {
        let content = |object: &Value| {
            let mut content = object.clone();
            for field in ["metadata", "status"] {
                content.remove(&[field]);
            }
            content
        };
        content(object) == content(old)
    };
    match old.is_some_and(says_the_same) {
        true => None,
        false => Some(format!("coracle: {word}")),
    }
}

fn word(resource: &Resource, object: &Value) -> Option<&'static str> {
    Some(match (&*resource.group, &*resource.kind) {
        ("networking.k8s.io", "NetworkPolicy") => {
            "this NetworkPolicy is stored but not enforced: no traffic is blocked"
        }
        ("networking.k8s.io", "Ingress") => {
            "this Ingress is stored but has no effect: no ingress controller is built in, install one"
        }
        ("networking.k8s.io", "IngressClass") => {
            "this IngressClass has no effect unless the ingress controller that it names is installed"
        }
        ("", "Service") if object.str_at(&["spec", "type"]) == "LoadBalancer" => {
            "this Service gets no load balancer address: none is built in; its node ports and cluster IP work"
        }
        ("flowcontrol.apiserver.k8s.io", _) => {
            "this object is stored but has no effect on this API server: requests are not queued by priority"
        }
        ("resource.k8s.io", _) => {
            "this object is stored but has no effect: devices are not allocated to pods"
        }
        ("storage.k8s.io", "CSIDriver" | "VolumeAttachment" | "VolumeAttributesClass") => {
            "this object is stored but has no effect: volumes of CSI drivers are not mounted"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn kinds_that_nothing_acts_on_get_a_warning() {
        let policies = catalogue::built_in()
            .find("networking.k8s.io", "v1", "networkpolicies")
            .unwrap();
        let policy = crate::document!({"metadata": {"name": "p"}, "spec": {"podSelector": {}}});
        let told = check(policies, &policy, None).unwrap();
        assert!(told.contains("not enforced"), "{told}");
        let mut labelled = policy.clone();
        labelled.set(&["metadata", "labels", "a"], "b");
        labelled.set(&["status"], Value::object());
        assert_eq!(check(policies, &labelled, Some(&policy)), None);
        let mut changed = policy.clone();
        changed.set(&["spec", "policyTypes"], crate::document!(["Egress"]));
        assert!(check(policies, &changed, Some(&policy)).is_some());
    }

    #[test]
    fn services_get_the_warning_only_as_load_balancers() {
        let services = catalogue::built_in().find("", "v1", "services").unwrap();
        let mut service = crate::document!({"spec": {"type": "ClusterIP"}});
        assert_eq!(check(services, &service, None), None);
        let old = service.clone();
        service.set(&["spec", "type"], "LoadBalancer");
        assert!(check(services, &service, Some(&old)).is_some());
    }
}
