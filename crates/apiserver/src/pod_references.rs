//! Which other objects a pod's spec names: what its node must be able to read. Pure.

use std::collections::BTreeSet;

use api::Value;

/// Names of objects in the pod's own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodReferences {
    pub service_account: String,
    pub secrets: BTreeSet<String>,
    pub config_maps: BTreeSet<String>,
    pub claims: BTreeSet<String>,
    pub resource_claims: BTreeSet<String>,
}

impl PodReferences {
    pub fn of(pod: &Value) -> PodReferences {
        let mut found = PodReferences {
            service_account: pod.str_at(&["spec", "serviceAccountName"]).to_string(),
            ..PodReferences::default()
        };
        for secret in pod.list_at(&["spec", "imagePullSecrets"]) {
            insert(&mut found.secrets, secret, &["name"]);
        }
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for container in pod.list_at(&["spec", list]) {
                found.take_container(container);
            }
        }
        let pod_name = pod.str_at(&["metadata", "name"]);
        for volume in pod.list_at(&["spec", "volumes"]) {
            found.take_volume(volume, pod_name);
        }
        for claim in pod.list_at(&["spec", "resourceClaims"]) {
            insert(&mut found.resource_claims, claim, &["resourceClaimName"]);
        }
        for status in pod.list_at(&["status", "resourceClaimStatuses"]) {
            insert(&mut found.resource_claims, status, &["resourceClaimName"]);
        }
        let extended = ["status", "extendedResourceClaimStatus"];
        if let Some(status) = pod.at(&extended) {
            insert(&mut found.resource_claims, status, &["resourceClaimName"]);
        }
        found
    }

    fn take_container(&mut self, container: &Value) {
        for variable in container.list_at(&["env"]) {
            insert(
                &mut self.secrets,
                variable,
                &["valueFrom", "secretKeyRef", "name"],
            );
            insert(
                &mut self.config_maps,
                variable,
                &["valueFrom", "configMapKeyRef", "name"],
            );
        }
        for source in container.list_at(&["envFrom"]) {
            insert(&mut self.secrets, source, &["secretRef", "name"]);
            insert(&mut self.config_maps, source, &["configMapRef", "name"]);
        }
    }

    fn take_volume(&mut self, volume: &Value, pod_name: &str) {
        insert(&mut self.secrets, volume, &["secret", "secretName"]);
        insert(&mut self.config_maps, volume, &["configMap", "name"]);
        insert(
            &mut self.claims,
            volume,
            &["persistentVolumeClaim", "claimName"],
        );
        if volume.has(&["ephemeral"]) {
            self.claims
                .insert(format!("{pod_name}-{}", volume.str_at(&["name"])));
        }
        for source in volume.list_at(&["projected", "sources"]) {
            insert(&mut self.secrets, source, &["secret", "name"]);
            insert(&mut self.config_maps, source, &["configMap", "name"]);
        }
        insert(&mut self.secrets, volume, &["azureFile", "secretName"]);
        insert(
            &mut self.secrets,
            volume,
            &["csi", "nodePublishSecretRef", "name"],
        );
        for source in [
            "cephfs",
            "cinder",
            "flexVolume",
            "rbd",
            "scaleIO",
            "iscsi",
            "storageos",
        ] {
            insert(&mut self.secrets, volume, &[source, "secretRef", "name"]);
        }
    }
}

fn insert(names: &mut BTreeSet<String>, object: &Value, path: &[&str]) {
    let name = object.str_at(path);
    if !name.is_empty() {
        names.insert(name.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_a_spec_names_is_found() {
        let pod = api::document!({
            "metadata": {"name": "web"},
            "spec": {
                "serviceAccountName": "sailor",
                "imagePullSecrets": [{"name": "pull"}],
                "containers": [{
                    "env": [{"valueFrom": {"secretKeyRef": {"name": "key"}}}],
                    "envFrom": [{"configMapRef": {"name": "settings"}}],
                }],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "mounted"}},
                    {"name": "b", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "disk"}},
                    {"name": "d", "ephemeral": {}},
                ],
            },
        });
        let found = PodReferences::of(&pod);
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(found.service_account, "sailor");
        assert_eq!(names(&found.secrets), "key mounted pull");
        assert_eq!(names(&found.config_maps), "kube-root-ca.crt settings");
        assert_eq!(names(&found.claims), "disk web-d");
    }
}
