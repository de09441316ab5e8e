//! Ownership by writes that are not applied.

use super::*;
use crate::document;

/// An update by `manager`; the new state with its owners.
fn updated(plural: &str, live: Option<&Value>, new: &Value, manager: &str, at: u32) -> Value {
    written(plural, "", live, new, manager, at)
}

fn written(
    plural: &str,
    subresource: &str,
    live: Option<&Value>,
    new: &Value,
    manager: &str,
    at: u32,
) -> Value {
    let write = Write::new(resource(plural), subresource, manager, time(at));
    let definition = schema::table()
        .definition(resource(plural).definition.name())
        .unwrap();
    let mut new = schema::conform(definition, new.clone()).unwrap().0;
    match update(&write, live, &mut new) {
        Some(owners) => new.set(&MANAGED_FIELDS, owners),
        None => drop(new.remove(&MANAGED_FIELDS)),
    }
    new
}

#[test]
fn the_creator_owns_what_it_set_and_the_defaults() {
    let mut new = document!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "n", "uid": "u", "labels": {"app": "web"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "a", "image": "i"}]}}},
        "status": {"replicas": 3},
    });
    new = updated("deployments", None, &new, "kubectl-create", 1);
    assert_eq!(
        fields_of(&new, "kubectl-create"),
        document!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:replicas": {}, "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {"f:containers": {"k:{\"name\":\"a\"}":
                        {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}}},
                },
            },
        })
    );
}

#[test]
fn an_update_takes_what_it_changes() {
    let map = |data: Value| document!({"metadata": {"name": "a", "uid": "u"}, "data": data});
    let live = updated(
        "configmaps",
        None,
        &map(document!({"a": "1", "b": "1"})),
        "one",
        1,
    );
    let next = map(document!({"a": "2", "c": "1"}));
    let next = updated("configmaps", Some(&live), &next, "two", 2);
    assert_eq!(fields_of(&next, "one"), document!({"f:data": {}}));
    assert_eq!(
        fields_of(&next, "two"),
        document!({"f:data": {"f:a": {}, "f:c": {}}})
    );
    // The same manager writes again: one entry, the later time.
    let mut again = next.clone();
    again.set(&["data", "d"], "1");
    let again = updated("configmaps", Some(&next), &again, "two", 3);
    let entries = again.list_at(&MANAGED_FIELDS);
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1].str_at(&["time"]), time(3));
    // What changes nothing takes nothing, not even the time.
    let same = updated("configmaps", Some(&again), &again, "three", 4);
    assert_eq!(same, again);
}

#[test]
fn owners_can_be_left_out_forgotten_and_set() {
    let map = document!({"metadata": {"name": "a", "uid": "u"}, "data": {"a": "1"}});
    let live = updated("configmaps", None, &map, "one", 1);
    // A client that does not know of owners does not remove them.
    let kept = updated("configmaps", Some(&live), &map, "two", 2);
    assert_eq!(kept.at(&MANAGED_FIELDS), live.at(&MANAGED_FIELDS));
    for wish in [document!([]), document!([{}])] {
        let mut forgotten = map.clone();
        forgotten.set(&MANAGED_FIELDS, wish);
        let forgotten = updated("configmaps", Some(&live), &forgotten, "two", 2);
        assert_eq!(forgotten.at(&MANAGED_FIELDS), None);
        // From then on nobody is tracked until somebody applies.
        let mut next = forgotten.clone();
        next.set(&["data", "b"], "1");
        let next = updated("configmaps", Some(&forgotten), &next, "two", 3);
        assert_eq!(next.at(&MANAGED_FIELDS), None);
    }
    let mut renamed = live.clone();
    let entry = &mut renamed.list_at_mut(&MANAGED_FIELDS)[0];
    entry.set(&["manager"], "other");
    let renamed = updated("configmaps", Some(&live), &renamed, "two", 2);
    assert!(!fields_of(&renamed, "other").is_null());
    // A subresource cannot.
    let mut status = live.clone();
    status.set(&MANAGED_FIELDS, Vec::new());
    let status = written("configmaps", "status", Some(&live), &status, "two", 2);
    assert_eq!(status.at(&MANAGED_FIELDS), live.at(&MANAGED_FIELDS));
}

#[test]
fn a_status_write_owns_status_only() {
    let pod = document!({"metadata": {"name": "a", "uid": "u"},
        "spec": {"containers": [{"name": "a"}]}, "status": {}});
    let live = updated("pods", None, &pod, "one", 1);
    let mut next = live.clone();
    next.set(&["spec", "nodeName"], "n");
    next.set(&["status", "phase"], "Running");
    let condition = document!({"type": "Ready", "status": "True"});
    next.set(&["status", "conditions"], vec![condition]);
    let next = written("pods", "status", Some(&live), &next, "kubelet", 2);
    let entry = next.list_at(&MANAGED_FIELDS).last().unwrap();
    assert_eq!(entry.str_at(&["subresource"]), "status");
    assert_eq!(
        fields_of(&next, "kubelet"),
        document!({"f:status": {"f:phase": {}, "f:conditions": {
            ".": {}, "k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {},
                // Go writes these as null.
                "f:lastProbeTime": {}, "f:lastTransitionTime": {}}}}})
    );
}

#[test]
fn old_updaters_are_put_together() {
    let map = document!({"metadata": {"name": "a", "uid": "u"}, "data": {"first": "1"}});
    let mut live = updated("configmaps", None, &map, "creator", 0);
    for index in 0..13u32 {
        let mut next = live.clone();
        next.set(&["data", &format!("k{index:02}")], "1");
        let manager = format!("m{index:02}");
        live = updated("configmaps", Some(&live), &next, &manager, index + 1);
    }
    let entries = live.list_at(&MANAGED_FIELDS);
    assert_eq!(entries.len(), 10);
    let ancient = fields_of(&live, "ancient-changes");
    assert!(ancient.at(&["f:data", "f:k00"]).is_some(), "{ancient}");
    assert!(fields_of(&live, "m12").at(&["f:data", "f:k12"]).is_some());
}

#[test]
fn the_manager_that_scales_owns_the_replicas() {
    let mut live = document!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "uid": "u"}, "spec": {"replicas": 1, "paused": true}});
    live = updated("deployments", None, &live, "one", 1);
    let scale = |replicas: i64| {
        document!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "web", "uid": "u"}, "spec": {"replicas": replicas}, "status": {}})
    };
    let scaled = || Scaled::new(resource("deployments"), &live, "hpa", time(2));
    let owners = scaled().update(&scale(1), &mut scale(5)).unwrap();
    let mut after = live.clone();
    after.set(&MANAGED_FIELDS, owners);
    assert_eq!(
        fields_of(&after, "hpa"),
        document!({"f:spec": {"f:replicas": {}}})
    );
    assert_eq!(fields_of(&after, "one").at(&["f:spec", "f:replicas"]), None);
    let entries = after.list_at(&MANAGED_FIELDS);
    let hpa = entries
        .iter()
        .find(|entry| entry.str_at(&["manager"]) == "hpa");
    assert_eq!(hpa.unwrap().str_at(&["subresource"]), "scale");
    assert_eq!(hpa.unwrap().str_at(&["apiVersion"]), "apps/v1");
    // Applying another number conflicts with whoever set it.
    let configuration = document!({"apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "web"}, "spec": {"replicas": 7}});
    let status = scaled()
        .apply(&scale(1), &configuration, false)
        .unwrap_err();
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"one\" using autoscaling/v1: .spec.replicas"
    );
}

#[test]
fn what_objects_say_of_their_owners_is_checked() {
    let object = document!({"metadata": {"managedFields": [
        {"operation": "Delete", "fieldsType": "FieldsV2", "manager": "a\nb"},
    ]}});
    let errors: Vec<String> = crate::metadata::managed_fields::validate(&object)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        errors,
        [
            "metadata.managedFields[0].operation: Invalid value: \"Delete\": must be `Apply` or `Update`",
            "metadata.managedFields[0].fieldsType: Invalid value: \"FieldsV2\": must be `FieldsV1`",
            "metadata.managedFields[0].manager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)",
        ]
    );
}

#[test]
fn items_without_a_key_end_the_tracking() {
    let account = document!({"metadata": {"name": "a", "uid": "u"}, "secrets": [{"name": "s"}]});
    let live = updated("serviceaccounts", None, &account, "one", 1);
    assert!(live.at(&MANAGED_FIELDS).is_some());
    let mut next = account;
    next.set(&["secrets"], document!([{"name": "s"}, {}]));
    let next = updated("serviceaccounts", Some(&live), &next, "two", 2);
    assert_eq!(next.at(&MANAGED_FIELDS), None);
}
