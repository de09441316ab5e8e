//! Tests of what a Pod may be and may become.

use super::*;
use crate::document;

fn texts(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(FieldError::to_string).collect()
}

/// A valid Pod, with what a test changes in its spec.
fn pod(change: Value) -> Value {
    let spec = document!({"containers": [{"name": "c", "image": "i:1"}]});
    let mut pod = document!({"metadata": {"name": "p", "namespace": "n"}});
    pod.set(&["spec"], crate::patch::merge_patch(&spec, &change));
    Pod.default(&mut pod);
    Pod.prepare_create(&mut pod);
    pod
}

fn check(change: Value, expected: &[&str]) {
    let pod = pod(change);
    assert_eq!(texts(Pod.validate_create(&pod)), expected, "{pod}");
}

/// One container with these extra fields.
fn container(extra: Value) -> Value {
    let base = document!({"name": "c", "image": "i:1"});
    document!({"containers": [crate::patch::merge_patch(&base, &extra)]})
}

#[test]
fn a_new_pod_is_pending_and_has_a_qos_class() {
    let pod = pod(document!({}));
    assert_eq!(
        pod.get("status"),
        Some(&document!({"phase": "Pending", "qosClass": "BestEffort"}))
    );
    assert_eq!(pod.i64_at(&["metadata", "generation"]), Some(1));
}

#[test]
fn invalid_containers_are_rejected() {
    check(document!({}), &[]);
    check(
        document!({"containers": []}),
        &["spec.containers: Required value"],
    );
    check(
        document!({"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}),
        &[r#"spec.containers[1].name: Duplicate value: "a""#],
    );
    check(
        document!({"containers": [{"name": "A"}]}),
        &[
            r#"spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
            "spec.containers[0].image: Required value",
        ],
    );
    check(
        container(document!({"imagePullPolicy": "Sometimes"})),
        &[
            r#"spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never""#,
        ],
    );
    check(
        container(document!({"ports": [
            {"containerPort": 0}, {"containerPort": 70000},
            {"containerPort": 1, "name": "x", "protocol": "ICMP"}, {"containerPort": 2, "name": "x"},
        ]})),
        &[
            "spec.containers[0].ports[0].containerPort: Required value",
            "spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            r#"spec.containers[0].ports[2].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP""#,
            r#"spec.containers[0].ports[3].name: Duplicate value: "x""#,
        ],
    );
    check(
        document!({"initContainers": [
            {"name": "c", "image": "i", "livenessProbe": {"exec": {"command": ["x"]}}},
        ]}),
        &[
            r#"spec.initContainers[0].name: Duplicate value: "c""#,
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    );
    check(
        document!({"initContainers": [{
            "name": "side", "image": "i", "restartPolicy": "Always",
            "livenessProbe": {"exec": {"command": ["x"]}},
        }]}),
        &[],
    );
}

#[test]
fn invalid_environment_variables_are_rejected() {
    check(
        container(document!({"env": [
            {"name": ""}, {"name": "a=b"},
            {"name": "A", "valueFrom": {}},
            {"name": "B", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "spec.image"}}},
            {"name": "D", "valueFrom": {"secretKeyRef": {"name": "s", "key": ""}}},
            {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        ]})),
        &[
            "spec.containers[0].env[0].name: Required value",
            r#"spec.containers[0].env[1].name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
            r#"spec.containers[0].env[2].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"#,
            r#"spec.containers[0].env[3].valueFrom: Invalid value: "": may not be specified when `value` is not empty"#,
            r#"spec.containers[0].env[4].valueFrom.fieldRef.fieldPath: Invalid value: "spec.image": error converting fieldPath: field label not supported: spec.image"#,
            "spec.containers[0].env[5].valueFrom.secretKeyRef.key: Required value",
        ],
    );
    check(
        container(document!({"envFrom": [{"prefix": "A_"}]})),
        &[
            r#"spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`"#,
        ],
    );
}

#[test]
fn invalid_volumes_and_mounts_are_rejected() {
    check(
        container(document!({"volumeMounts": [{"name": "none", "mountPath": "/x"}]})),
        &[r#"spec.containers[0].volumeMounts[0].name: Not found: "none""#],
    );
    let mut change = container(document!({"volumeMounts": [
        {"name": "v", "mountPath": "/x", "subPath": "../y"}, {"name": "v", "mountPath": "/x"},
    ]}));
    change.set(&["volumes"], document!([{"name": "v"}]));
    check(
        change,
        &[
            r#"spec.containers[0].volumeMounts.subPath: Invalid value: "../y": must not contain '..'"#,
            r#"spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/x": must be unique"#,
        ],
    );
    check(
        document!({"volumes": [
            {"name": "a", "emptyDir": {}, "secret": {"secretName": "s"}},
            {"name": "b", "configMap": {"name": "", "defaultMode": 512}},
            {"name": "c", "hostPath": {"path": "/a/../b"}},
            {"name": "d"}, {"name": "d"},
            {"name": "e", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]}},
        ], "serviceAccountName": "x"}),
        &[
            "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
            "spec.volumes[1].configMap.name: Required value",
            "spec.volumes[1].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            r#"spec.volumes[2].hostPath.path: Invalid value: "/a/../b": must not contain '..'"#,
            r#"spec.volumes[4].name: Duplicate value: "d""#,
            "spec.volumes[5].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
        ],
    );
}

#[test]
fn invalid_probes_are_rejected() {
    check(
        container(document!({
            "livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2},
            "readinessProbe": {},
            "startupProbe": {"httpGet": {"port": "no_name"}, "timeoutSeconds": -1},
        })),
        &[
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            "spec.containers[0].readinessProbe: Required value: must specify a handler type",
            r#"spec.containers[0].startupProbe.httpGet.port: Invalid value: "no_name": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"#,
            "spec.containers[0].startupProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    check(
        container(document!({"livenessProbe": {
            "exec": {"command": ["x"]}, "tcpSocket": {"port": 1},
        }})),
        &[
            "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ],
    );
}

#[test]
fn other_invalid_fields_of_a_pod_spec_are_rejected() {
    check(
        document!({"restartPolicy": "Maybe", "dnsPolicy": "None"}),
        &[
            r#"spec.restartPolicy: Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never""#,
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ],
    );
    check(
        document!({"tolerations": [
            {"operator": "Equal"}, {"key": "a", "operator": "Exists", "value": "x"},
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}, {"key": "a", "effect": "Odd"},
        ]}),
        &[
            r#"spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#,
            r#"spec.tolerations[1].operator: Invalid value: "x": value must be empty when `operator` is 'Exists'"#,
            r#"spec.tolerations[2].effect: Invalid value: "NoSchedule": effect must be 'NoExecute' when `tolerationSeconds` is set"#,
            r#"spec.tolerations[3].effect: Unsupported value: "Odd": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
        ],
    );
    check(
        document!({"securityContext": {"runAsUser": -1}}),
        &[
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ],
    );
    check(
        document!({"ephemeralContainers": [{"name": "e", "image": "i"}]}),
        &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
    );
}

/// Updates a stored Pod with a merge patch of its spec.
fn updated(old: &Value, change: Value) -> Vec<String> {
    let mut old = old.clone();
    old.set(&["metadata", "resourceVersion"], "1");
    old.set(&["metadata", "uid"], "u");
    let mut new = crate::patch::merge_patch(&old, &document!({"spec": change}));
    Pod.default(&mut new);
    Pod.prepare_update(&mut new, &old, "");
    texts(Pod.validate_update(&new, &old, ""))
}

#[test]
fn only_some_fields_of_a_pod_spec_may_change() {
    let old = pod(document!({"tolerations": [{"key": "a", "operator": "Exists"}]}));
    let none: [&str; 0] = [];
    assert_eq!(updated(&old, document!({})), none);
    assert_eq!(
        updated(
            &old,
            container(document!({"image": "i:2", "imagePullPolicy": "IfNotPresent"}))
        ),
        none
    );
    assert_eq!(updated(&old, document!({"activeDeadlineSeconds": 5})), none);
    let added = document!({"tolerations": [
        {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"},
    ]});
    assert_eq!(updated(&old, added), none);
    assert_eq!(
        updated(&old, document!({"tolerations": []})),
        [
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
        ]
    );
    assert_eq!(
        updated(&old, document!({"containers": []})),
        [
            "spec.containers: Required value",
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ]
    );
    let changed = updated(&old, document!({"nodeName": "x", "hostname": "h"}));
    assert_eq!(changed.len(), 1);
    assert!(
        changed[0].starts_with("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"),
        "{changed:?}"
    );
    assert!(changed[0].contains("+ nodeName: \"x\""), "{changed:?}");
}

#[test]
fn a_spec_update_increases_the_generation_and_keeps_the_status() {
    let mut old = pod(document!({}));
    old.set(&["status", "phase"], "Running");
    let mut new = old.clone();
    new.set(&["spec", "activeDeadlineSeconds"], 5);
    new.set(&["status", "phase"], "Failed");
    Pod.prepare_update(&mut new, &old, "");
    assert_eq!(new.str_at(&["status", "phase"]), "Running");
    assert_eq!(new.i64_at(&["metadata", "generation"]), Some(2));

    let mut new = old.clone();
    new.set(&["spec", "nodeName"], "elsewhere");
    new.set(&["status"], document!({"phase": "Failed"}));
    Pod.prepare_update(&mut new, &old, "status");
    assert_eq!(new.at(&["spec", "nodeName"]), None);
    assert_eq!(new.str_at(&["status", "phase"]), "Failed");
    assert_eq!(new.str_at(&["status", "qosClass"]), "BestEffort");
    assert_eq!(new.i64_at(&["metadata", "generation"]), Some(1));
}

#[test]
fn a_pod_is_bound_once() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let binding = document!({"target": {"kind": "Node", "name": "n1"}});
    let mut pod = pod(document!({}));
    update::bind(&mut pod, &binding, now).unwrap();
    assert_eq!(pod.str_at(&["spec", "nodeName"]), "n1");
    let condition = &pod.list_at(&["status", "conditions"])[0];
    assert_eq!(condition.str_at(&["type"]), "PodScheduled");
    assert_eq!(
        update::bind(&mut pod, &binding, now)
            .unwrap_err()
            .to_string(),
        "pod p is already assigned to node \"n1\""
    );
    let wrong = document!({"target": {"kind": "Pod"}});
    assert_eq!(
        texts(update::validate_binding(&wrong)),
        [
            r#"target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>""#,
            "target.name: Required value",
        ]
    );
}

#[test]
fn the_grace_period_of_a_deletion_follows_upstreams_rules() {
    let check = |change: Value, status: &str, requested: Option<i64>, expected: i64| {
        let mut pod = pod(change);
        pod.set(&["status", "phase"], status);
        assert_eq!(Pod.graceful_delete(&pod, requested), Some(expected));
    };
    check(document!({"nodeName": "n"}), "Running", None, 30);
    check(document!({"nodeName": "n"}), "Running", Some(5), 5);
    check(document!({"nodeName": "n"}), "Running", Some(0), 0);
    check(document!({"nodeName": "n"}), "Succeeded", None, 0);
    check(document!({}), "Pending", None, 0);
    check(document!({"nodeName": "n"}), "Running", Some(-3), 1);
}

/// The validation errors of a Pod with these fields and one container.
fn wrong(change: Value) -> Vec<String> {
    texts(validate::pod(&pod(change)))
}

#[test]
fn invalid_affinity_tolerations_and_spread_constraints_are_rejected() {
    assert_eq!(
        wrong(document!({"affinity": {"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"matchLabelKeys": ["a"]}],
        }}})),
        [
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty",
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: \"\": name part must be non-empty",
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ]
    );
    assert_eq!(
        wrong(document!({"topologySpreadConstraints": [
            {"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 1},
        ]})),
        [
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].minDomains: Invalid value: 1: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
        ]
    );
}

#[test]
fn invalid_security_contexts_are_rejected() {
    assert_eq!(
        wrong(
            document!({"hostNetwork": true, "securityContext": {"sysctls": [
                {"name": "net.core.somaxconn"}, {"name": "Bad"},
            ]}})
        ),
        [
            "spec.securityContext.sysctls[0].name: Invalid value: \"net.core.somaxconn\": may not be specified when 'hostNetwork' is true",
            r#"spec.securityContext.sysctls[1].name: Invalid value: "Bad": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"#,
        ]
    );
    assert_eq!(
        wrong(document!({"os": {"name": "windows"}, "hostPID": true})),
        ["spec.hostPID: Forbidden: cannot be set for a windows pod"]
    );
    assert_eq!(
        wrong(document!({"hostUsers": false, "hostIPC": true})),
        ["spec.HostIPC: Forbidden: when `hostUsers` is false"]
    );
}

#[test]
fn invalid_volume_sources_are_rejected() {
    let check = |volume: Value, expected: &[&str]| {
        assert_eq!(
            wrong(document!({"volumes": [volume.clone()]})),
            expected,
            "{volume}"
        );
    };
    check(
        document!({"name": "v", "nfs": {"server": "s", "path": "p"}}),
        &[r#"spec.volumes[0].nfs.path: Invalid value: "p": must be an absolute path"#],
    );
    check(
        document!({"name": "v", "fc": {"targetWWNs": ["a"]}}),
        &["spec.volumes[0].fc.lun: Required value: lun is required if targetWWNs is specified"],
    );
    check(
        document!({"name": "v", "csi": {"driver": ""}}),
        &["spec.volumes[0].csi.driver: Required value"],
    );
    check(
        document!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
            "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"},
        }}}}),
        &[
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec: Invalid value: {}: must match dataSourceRef",
        ],
    );
    // Of an IPv6 address without its closing bracket, Go reads no host and port.
    check(
        document!({"name": "v", "quobyte": {"registry": "[::1]:80,[::1:80", "volume": "w"}}),
        &[
            r#"spec.volumes[0].quobyte.registry: Invalid value: "[::1]:80,[::1:80": must be a host:port pair or multiple pairs separated by commas"#,
        ],
    );
    check(
        document!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"],
        }}}}),
        &["spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value"],
    );
}

#[test]
fn pod_level_resources_are_defaulted_and_validated() {
    let object = pod(
        document!({"resources": {"limits": {"cpu": "2"}}, "containers": [
            {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}},
        ]}),
    );
    let request = object.str_at(&["spec", "resources", "requests", "cpu"]);
    assert_eq!(request, "1", "what the containers ask for");
    assert_eq!(
        wrong(
            document!({"resources": {"requests": {"cpu": "1"}}, "containers": [
                {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "2"}}},
            ]})
        ),
        [
            r#"spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2"#
        ]
    );
}

#[test]
fn a_resize_may_change_only_resources() {
    let resources = |cpu: &str| {
        document!({"containers": [{"name": "c", "image": "i:1", "resources": {
            "requests": {"cpu": cpu},
        }}]})
    };
    let old = pod(resources("1"));
    let resized = |mut new: Value| {
        new.set(&["metadata", "resourceVersion"], "1");
        Pod.prepare_update(&mut new, &old, "resize");
        let errors = texts(Pod.validate_update_content(&new, &old, "resize"));
        (new, errors)
    };
    let mut sent = pod(resources("2"));
    sent.set(&["spec", "nodeName"], "elsewhere");
    let (new, errors) = resized(sent);
    assert_eq!(errors, [""; 0]);
    assert_eq!(new.at(&["spec", "nodeName"]), None);
    assert_eq!(new.i64_at(&["metadata", "generation"]), Some(2));
    let (_, errors) = resized(pod(
        document!({"containers": [{"name": "c", "image": "i:1"}]}),
    ));
    assert_eq!(
        errors,
        [
            r#"spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing"#,
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ]
    );
}

#[test]
fn ephemeral_containers_can_only_be_added() {
    let old = pod(document!({}));
    let add = |names: &[&str], old: &Value| {
        let mut new = old.clone();
        let containers: Vec<Value> = names
            .iter()
            .map(|name| document!({"name": name, "image": "i:1"}))
            .collect();
        new.set(&["spec", "ephemeralContainers"], containers);
        Pod.default(&mut new);
        Pod.prepare_update(&mut new, old, "ephemeralcontainers");
        let errors = texts(Pod.validate_update_content(&new, old, "ephemeralcontainers"));
        (new, errors)
    };
    let (with_one, errors) = add(&["debug"], &old);
    assert_eq!(errors, [""; 0]);
    assert_eq!(with_one.i64_at(&["metadata", "generation"]), Some(2));
    let (_, errors) = add(&["other"], &with_one);
    assert_eq!(
        errors,
        [
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be removed\n"
        ]
    );
}
