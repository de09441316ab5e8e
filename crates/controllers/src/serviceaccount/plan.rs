//! What a namespace lacks of its default ServiceAccount and the cluster's root certificate. Pure.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub const ROOT_CA: &str = "kube-root-ca.crt";
pub const DEFAULT: &str = "default";

const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
);

/// The objects to write.
#[derive(Debug, Default, PartialEq)]
pub struct Missing {
    /// To be created.
    pub account: Option<ServiceAccount>,
    /// To be created, or to replace one with other content.
    pub root_ca: Option<ConfigMap>,
}

pub fn missing(
    namespace: &Namespace,
    account: Option<&ServiceAccount>,
    published: Option<&ConfigMap>,
    root_ca_pem: &str,
) -> Missing {
    if namespace.metadata.deletion_timestamp.is_some() {
        return Missing::default();
    }
    let current = published.and_then(|map| map.data.as_ref()?.get("ca.crt"));
    let is_current = current.is_some_and(|current| current == root_ca_pem);
    Missing {
        account: account.is_none().then(default_account),
        root_ca: (!is_current).then(|| root_ca(root_ca_pem)),
    }
}

fn default_account() -> ServiceAccount {
    ServiceAccount {
        metadata: ObjectMeta {
            name: Some(DEFAULT.to_string()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    }
}

fn root_ca(pem: &str) -> ConfigMap {
    let (key, description) = DESCRIPTION;
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(ROOT_CA.to_string()),
            annotations: Some([(key.to_string(), description.to_string())].into()),
            ..ObjectMeta::default()
        },
        data: Some([("ca.crt".to_string(), pem.to_string())].into()),
        ..ConfigMap::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_gets_what_it_lacks_until_it_is_deleted() {
        let mut namespace = Namespace::default();
        let new = missing(&namespace, None, None, "pem");
        let (account, map) = (new.account.unwrap(), new.root_ca.unwrap());
        assert_eq!(account.metadata.name.as_deref(), Some("default"));
        assert_eq!(map.data.as_ref().unwrap()["ca.crt"], "pem");
        let none = missing(&namespace, Some(&account), Some(&map), "pem");
        assert_eq!(none, Missing::default());
        let renewed = missing(&namespace, Some(&account), Some(&map), "other");
        assert!(renewed.account.is_none() && renewed.root_ca.is_some());
        namespace.metadata.deletion_timestamp =
            serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).unwrap();
        let leaving = missing(&namespace, None, None, "pem");
        assert_eq!(leaving, Missing::default());
    }
}
