//! A cluster in which each object belongs to a few others: number 7 of each kind goes with number 7
//! of the others. All that can be is in one namespace.

use serde_json::{Value, json};

/// Which kinds have objects, and how many of each.
#[derive(Clone)]
pub struct World {
    pub size: usize,
    /// By plural.
    pub kinds: &'static [&'static str],
}

const CREATED: &str = "2026-01-01T00:00:00Z";

impl World {
    pub fn objects(&self, plural: &str) -> Vec<Value> {
        let few = match plural {
            "namespaces" => vec![json!({
                "metadata": meta_of("", "default", "namespace"),
                "spec": {"finalizers": ["kubernetes"]},
            })],
            "storageclasses" => vec![json!({
                "metadata": meta_of("", "local-path", "class"), "provisioner": "example.com/disks",
            })],
            "servicecidrs" => vec![json!({
                "metadata": with(meta_of("", "kubernetes", "cidr"),
                    json!({"finalizers": ["networking.k8s.io/service-cidr-finalizer"]})),
                "spec": {"cidrs": ["10.96.0.0/12"]},
            })],
            "resourcequotas" => vec![json!({
                "metadata": meta_of("default", "quota", "quota"),
                "spec": {"hard": {"pods": "100000", "services": "100000"}},
            })],
            _ => Vec::new(),
        };
        if !few.is_empty() && self.kinds.contains(&plural) {
            return few;
        }
        match self.kinds.contains(&plural) {
            true => (0..self.size)
                .filter_map(|n| object(plural, n))
                .map(|object| self.without_missing_owners(object))
                .collect(),
            false => Vec::new(),
        }
    }

    /// An owner of a kind that this world has not got would have the object collected.
    fn without_missing_owners(&self, mut object: Value) -> Value {
        let kind = object["metadata"]["ownerReferences"][0]["kind"].as_str();
        let plural = kind.map(|kind| format!("{}s", kind.to_lowercase()));
        if plural.is_some_and(|plural| !self.kinds.contains(&plural.as_str()))
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.remove("ownerReferences");
        }
        object
    }

    /// What is served, in the form of aggregated discovery.
    pub fn discovery(&self, root: &str) -> Value {
        let groups: &[(&str, &[(&str, &str, bool)])] = match root {
            "api" => &[(
                "",
                &[
                    ("pods", "Pod", true),
                    ("services", "Service", true),
                    ("nodes", "Node", false),
                    ("configmaps", "ConfigMap", true),
                    ("namespaces", "Namespace", false),
                ],
            )],
            _ => &[
                (
                    "apps",
                    &[
                        ("replicasets", "ReplicaSet", true),
                        ("deployments", "Deployment", true),
                        ("statefulsets", "StatefulSet", true),
                        ("daemonsets", "DaemonSet", true),
                    ],
                ),
                (
                    "batch",
                    &[("jobs", "Job", true), ("cronjobs", "CronJob", true)],
                ),
            ],
        };
        let items = groups.iter().map(|(group, kinds)| {
            let resources: Vec<Value> = kinds
                .iter()
                .map(|(plural, kind, namespaced)| {
                    json!({"resource": plural, "responseKind": {"kind": kind},
                        "scope": if *namespaced { "Namespaced" } else { "Cluster" },
                        "verbs": ["get", "list", "watch", "delete", "create", "update"]})
                })
                .collect();
            json!({"metadata": {"name": group},
                "versions": [{"version": "v1", "resources": resources}]})
        });
        json!({"items": items.collect::<Vec<_>>()})
    }

    /// The kinds of one group, as discovery of one group has them.
    pub fn resources(&self, path: &[&str]) -> Value {
        let version = path[1..].join("/");
        json!({"groupVersion": version, "resources": [
            {"name": "deployments", "singularName": "deployment", "namespaced": true,
                "kind": "Deployment", "verbs": ["get", "list", "update"]},
            {"name": "deployments/scale", "singularName": "", "namespaced": true,
                "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["get", "update"]},
        ]})
    }

    /// What `scale` of a Deployment says.
    pub fn scale(&self, name: &str) -> Value {
        let number = name.rsplit('-').next().unwrap_or_default();
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": 1},
            "status": {"replicas": 1, "selector": format!("app=shop,part=part-{number}")}})
    }
}

fn meta_of(namespace: &str, name: &str, uid: &str) -> Value {
    let mut meta = json!({"name": name, "uid": uid, "resourceVersion": "1", "generation": 1,
        "creationTimestamp": CREATED});
    if !namespace.is_empty() {
        meta["namespace"] = json!(namespace);
    }
    meta
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut object, more) {
        fields.extend(more);
    }
    object
}

/// All share one label, as the objects of one application do; another tells them apart.
pub fn labels(n: usize) -> Value {
    json!({"app": "shop", "part": format!("part-{n}")})
}

pub fn node_name(n: usize) -> String {
    format!("node-{n}")
}

/// The name of the object with that number.
pub fn name(plural: &str, n: usize) -> String {
    match plural {
        "nodes" | "leases" => node_name(n),
        "ipaddresses" => address(n),
        plural => format!("{}-{n}", plural.trim_end_matches('s')),
    }
}

fn address(n: usize) -> String {
    format!("10.96.{}.{}", 1 + n / 250, 1 + n % 250)
}

fn owned(kind: &str, api_version: &str, plural: &str, n: usize) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name(plural, n),
        "uid": format!("{plural}-{n}"), "controller": true, "blockOwnerDeletion": true}])
}

fn template(n: usize) -> Value {
    json!({"metadata": {"labels": labels(n)},
        "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}],
            "restartPolicy": "Always"}})
}

/// An object of a kind, which belongs to those with the same number of other kinds.
pub fn object(plural: &str, n: usize) -> Option<Value> {
    let namespaced = !matches!(
        plural,
        "nodes" | "persistentvolumes" | "clusterroles" | "ipaddresses"
    );
    let namespace = match plural {
        "leases" => "kube-node-lease",
        _ if namespaced => "default",
        _ => "",
    };
    let meta = meta_of(namespace, &name(plural, n), &format!("{plural}-{n}"));
    let labelled = with(meta.clone(), json!({"labels": labels(n)}));
    let selector = json!({"matchLabels": labels(n)});
    Some(match plural {
        "nodes" => json!({
            "metadata": with(meta, json!({"labels": {
                "kubernetes.io/hostname": node_name(n), "only": node_name(n),
                "topology.kubernetes.io/zone": format!("zone-{}", n % 3)}})),
            "spec": {"podCIDR": format!("10.{}.{}.0/24", 128 + n / 256, n % 256)},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True",
                    "lastHeartbeatTime": CREATED, "lastTransitionTime": CREATED}]},
        }),
        "leases" => json!({"metadata": meta, "spec": {"holderIdentity": node_name(n),
            "renewTime": "2026-01-01T00:00:00.000000Z"}}),
        "pods" => json!({
            "metadata": with(labelled,
                json!({"ownerReferences": owned("ReplicaSet", "apps/v1", "replicasets", n)})),
            "spec": {"nodeName": node_name(n), "schedulerName": "default-scheduler",
                "containers": [{"name": "c", "image": "example.com/c:1",
                    "resources": {"requests": {"cpu": "100m"}}}],
                "volumes": [{"name": "data", "persistentVolumeClaim":
                    {"claimName": name("persistentvolumeclaims", n)}}]},
            "status": {"phase": "Running",
                "podIP": format!("10.{}.{}.7", 128 + n / 256, n % 256),
                "podIPs": [{"ip": format!("10.{}.{}.7", 128 + n / 256, n % 256)}],
                "conditions": [{"type": "Ready", "status": "True",
                    "lastTransitionTime": CREATED}]},
        }),
        "replicasets" => json!({
            "metadata": with(labelled, json!({
                "ownerReferences": owned("Deployment", "apps/v1", "deployments", n)})),
            "spec": {"replicas": 1, "selector": selector, "template": template(n)},
            "status": {"replicas": 1, "fullyLabeledReplicas": 1, "readyReplicas": 1,
                "availableReplicas": 1, "observedGeneration": 1},
        }),
        "deployments" => json!({
            "metadata": with(labelled, json!({
                "annotations": {"deployment.kubernetes.io/revision": "1"}})),
            "spec": {"replicas": 1, "selector": selector, "template": template(n),
                "strategy": {"type": "RollingUpdate"}},
        }),
        "replicationcontrollers" | "statefulsets" => json!({
            "metadata": labelled,
            "spec": {"replicas": 0, "serviceName": "none", "template": template(n),
                "selector": if plural == "statefulsets" { selector } else { labels(n) }},
            "status": {"replicas": 0, "observedGeneration": 1},
        }),
        "daemonsets" => {
            let mut template = template(n);
            template["spec"]["nodeSelector"] = json!({"only": "no-such-node"});
            json!({"metadata": labelled, "spec": {"selector": selector, "template": template},
                "status": {"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
                    "numberMisscheduled": 0, "numberReady": 0, "observedGeneration": 1}})
        }
        "jobs" => json!({
            "metadata": with(labelled, json!({
                "ownerReferences": owned("CronJob", "batch/v1", "cronjobs", n)})),
            "spec": {"suspend": true, "parallelism": 1, "completions": 1, "template": template(n),
                "selector": {"matchLabels": {"job": format!("job-{n}")}}},
        }),
        "cronjobs" => json!({
            "metadata": labelled,
            "spec": {"schedule": "0 0 1 1 *", "suspend": true,
                "jobTemplate": {"spec": {"template": template(n)}}},
        }),
        "services" => json!({
            "metadata": labelled,
            "spec": {"selector": labels(n), "clusterIP": address(n), "ipFamilies": ["IPv4"],
                "ports": [{"port": 80, "protocol": "TCP"}]},
        }),
        "ipaddresses" => json!({
            "metadata": with(meta, json!({"labels":
                {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}})),
            "spec": {"parentRef": {"resource": "services", "namespace": "default",
                "name": name("services", n)}},
        }),
        "poddisruptionbudgets" => json!({
            "metadata": labelled, "spec": {"selector": selector, "maxUnavailable": 1},
        }),
        "horizontalpodautoscalers" => json!({
            "metadata": labelled,
            "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1",
                "kind": "Deployment", "name": name("deployments", n)}, "metrics": []},
        }),
        "persistentvolumeclaims" => json!({
            "metadata": with(meta, json!({"finalizers": ["kubernetes.io/pvc-protection"],
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"}})),
            "spec": {"storageClassName": "local-path", "accessModes": ["ReadWriteOnce"],
                "volumeName": name("persistentvolumes", n)},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"]},
        }),
        "persistentvolumes" => json!({
            "metadata": with(meta, json!({"finalizers": ["kubernetes.io/pv-protection"]})),
            "spec": {"storageClassName": "local-path", "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "default",
                    "name": name("persistentvolumeclaims", n),
                    "uid": format!("persistentvolumeclaims-{n}")}},
            "status": {"phase": "Bound"},
        }),
        "clusterroles" => json!({
            "metadata": labelled,
            "aggregationRule": {"clusterRoleSelectors": [
                {"matchLabels": {"aggregate-to": format!("role-{n}")}}]},
            "rules": [],
        }),
        "serviceaccounts" => json!({"metadata": meta,
            "secrets": [{"name": name("secrets", n)}]}),
        "secrets" => json!({
            "metadata": with(meta, json!({"annotations": {
                "kubernetes.io/service-account.name": name("serviceaccounts", n),
                "kubernetes.io/service-account.uid": format!("serviceaccounts-{n}")}})),
            "type": "kubernetes.io/service-account-token",
            "data": {"token": "dA==", "ca.crt": "Y2E=", "namespace": "ZGVmYXVsdA=="},
        }),
        _ => return None,
    })
}
