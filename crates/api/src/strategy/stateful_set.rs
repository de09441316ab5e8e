//! StatefulSets.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{NameRule, all_invalid, names};
use crate::repeats::Seen;
use crate::resource::Strategy;
use crate::selector::LabelSelector;
use crate::strategy::checks;
use crate::strategy::{claim_spec, int_or_percent, workload};

pub struct StatefulSet;

/// The error for fields that an update must not change.
const CHANGEABLE: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// Behind a gate that is closed by default: dropped unless it was there before.
const MAX_UNAVAILABLE: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];

impl Strategy for StatefulSet {
    /// Upstream's own type counts without a pointer, so there is a zero to be seen.
    fn fill_empty(&self, object: &mut Value) {
        object.set(&["spec", "replicas"], 0);
    }

    fn name_rule(&self) -> NameRule {
        NameRule::DnsLabel
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        object.set_default(&["spec", "podManagementPolicy"], "OrderedReady");
        let update = ["spec", "updateStrategy"];
        if object
            .str_at(&["spec", "updateStrategy", "type"])
            .is_empty()
        {
            object.set(&["spec", "updateStrategy", "type"], "RollingUpdate");
            object.set_default(
                &["spec", "updateStrategy", "rollingUpdate"],
                Value::object(),
            );
        }
        if object.str_at(&["spec", "updateStrategy", "type"]) == "RollingUpdate"
            && let Some(update) = object.at_mut(&update)
            && update.has(&["rollingUpdate"])
        {
            update.set_default(&["rollingUpdate", "partition"], 0);
        }
        for when in ["whenDeleted", "whenScaled"] {
            let at = ["spec", "persistentVolumeClaimRetentionPolicy", when];
            object.set_default(&at, "Retain");
        }
        object.set_default(&["spec", "replicas"], 1);
        object.set_default(&["spec", "revisionHistoryLimit"], 10);
        for claim in object.list_at_mut(&["spec", "volumeClaimTemplates"]) {
            claim.set_default(&["apiVersion"], "v1");
            claim.set_default(&["kind"], "PersistentVolumeClaim");
            if !claim.has(&["spec"]) {
                claim.set(&["spec"], Value::object());
            }
            if let Some(spec) = claim.get_mut("spec") {
                claim_spec::default(spec);
            }
            claim.set_default(&["status", "phase"], "Pending");
        }
        workload::default_template(object);
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.remove(&MAX_UNAVAILABLE);
        workload::drop_closed(object, None);
        object.set(&["status", "replicas"], 0);
        object.set(&["status", "availableReplicas"], 0);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, _: &str) {
        if !old.has(&MAX_UNAVAILABLE) {
            new.remove(&MAX_UNAVAILABLE);
        }
        workload::drop_closed(new, Some(old));
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = spec(object, true);
        let service = object.str_at(&["spec", "serviceName"]);
        if !service.is_empty() {
            let at = Path::new("spec").child("serviceName");
            errors.extend(all_invalid(&at, service, names::dns_label(service)));
        }
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            return status(new, old);
        }
        let mut errors = spec(new, false);
        let mut rest = new.get("spec").cloned().unwrap_or_default();
        for name in [
            "replicas",
            "template",
            "updateStrategy",
            "minReadySeconds",
            "ordinals",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
        ] {
            match old.at(&["spec", name]) {
                Some(value) => rest.set(&[name], value.clone()),
                None => drop(rest.remove(&[name])),
            }
        }
        if Some(&rest) != old.get("spec") {
            errors.push(FieldError::forbidden(&Path::new("spec"), CHANGEABLE));
        }
        errors
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let ready = object.i64_at(&["status", "readyReplicas"]).unwrap_or(0);
        let desired = object.i64_at(&["spec", "replicas"]).unwrap_or(0);
        let [containers, images] = workload::container_cells(object);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            format!("{ready}/{desired}").into(),
            object_age(object, now).into(),
            containers,
            images,
        ]
    }
}

fn spec(object: &Value, with_claims: bool) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let policy = object.str_at(&["spec", "podManagementPolicy"]);
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let at = path.child("podManagementPolicy");
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(match policy {
            "" => FieldError::required(&at, ""),
            _ => FieldError::invalid(&at, policy, detail),
        });
    }
    update_strategy(object, &path.child("updateStrategy"), &mut errors);
    for when in ["whenDeleted", "whenScaled"] {
        let policy = object.str_at(&["spec", "persistentVolumeClaimRetentionPolicy", when]);
        if !matches!(policy, "Retain" | "Delete") {
            let at = path
                .child("persistentVolumeClaimRetentionPolicy")
                .child(when);
            let supported = ["Retain", "Delete"];
            errors.push(FieldError::not_supported(&at, policy, &supported));
        }
    }
    let claims = object.list_at(&["spec", "volumeClaimTemplates"]);
    if with_claims {
        for (index, claim) in claims.iter().enumerate() {
            let at = path
                .child("volumeClaimTemplates")
                .index(index)
                .child("spec");
            let empty = Value::object();
            let claim = claim.get("spec").unwrap_or(&empty);
            errors.extend(claim_spec::validate(claim, &at, false));
        }
    }
    for name in ["replicas", "minReadySeconds"] {
        errors.extend(workload::not_negative(object, "spec", name));
    }
    if let Some(start) = object.i64_at(&["spec", "ordinals", "start"]) {
        errors.extend(checks::not_negative(start, &path.child("ordinals.start")));
    }
    errors.extend(workload::required_selector(object, "statefulset"));
    let null = Value::Null;
    let selector = object.at(&["spec", "selector"]).unwrap_or(&null);
    let empty = Value::object();
    let template = object.at(&["spec", "template"]).unwrap_or(&empty);
    let at = path.child("template");
    match LabelSelector::from_document(selector) {
        Ok(parsed) => {
            if !parsed.is_everything() {
                errors.extend(workload::unmatched_template(template, &parsed, &at));
            }
            let template = with_claim_volumes(template, claims);
            errors.extend(workload::pod_template(&template, &at));
            let labels = template.at(&["metadata", "labels"]);
            errors.extend(crate::metadata::labels(labels, &at.child("labels")));
            let annotations = template.at(&["metadata", "annotations"]);
            let annotations_path = at.child("annotations");
            errors.extend(crate::metadata::annotations(annotations, &annotations_path));
        }
        Err(_) => {
            let at = path.child("selector");
            errors.push(FieldError::invalid(&at, selector.clone(), ""));
        }
    }
    errors.extend(workload::always_restarting(template, &at, "StatefulSet"));
    errors
}

/// The template as its pods will have it: the claims are volumes, names come from the set.
fn with_claim_volumes(template: &Value, claims: &[Value]) -> Value {
    let mut template = template.clone();
    template.remove(&["spec", "subdomain"]);
    template.remove(&["spec", "hostname"]);
    if claims.is_empty() {
        return template;
    }
    let mut volumes: Vec<Value> = Vec::new();
    let mut claimed = Seen::new();
    for claim in claims {
        let name = claim.str_at(&["metadata", "name"]);
        if claimed.insert(name) {
            volumes.push(crate::document!({
                "name": name, "persistentVolumeClaim": {"claimName": name},
            }));
        }
    }
    for volume in template.list_at(&["spec", "volumes"]) {
        let name = volume.str_at(&["name"]);
        if !claimed.contains(name) {
            volumes.push(volume.clone());
        }
    }
    template.set(&["spec", "volumes"], volumes);
    template
}

fn update_strategy(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("rollingUpdate");
    let rolling = object.at(&["spec", "updateStrategy", "rollingUpdate"]);
    let rolling = rolling.filter(|value| !value.is_null());
    match (object.str_at(&["spec", "updateStrategy", "type"]), rolling) {
        ("", _) => errors.push(FieldError::required(path, "")),
        ("OnDelete", Some(rolling)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(FieldError::invalid(&at, rolling.clone(), detail));
        }
        ("OnDelete", None) | ("RollingUpdate", None) => {}
        ("RollingUpdate", Some(rolling)) => {
            let partition = rolling.i64_at(&["partition"]).unwrap_or(0);
            errors.extend(checks::not_negative(partition, &at.child("partition")));
            let at = at.child("maxUnavailable");
            if let Some(most) = rolling
                .get("maxUnavailable")
                .filter(|value| !value.is_null())
            {
                errors.extend(int_or_percent::validate(most, &at));
                if int_or_percent::amount(Some(most)) == 0 {
                    errors.push(FieldError::invalid(&at, most.clone(), "cannot be 0"));
                }
                errors.extend(int_or_percent::above_hundred(most, &at));
            }
        }
        _ => {
            let value = int_or_percent::shown_strategy(object.at(&["spec", "updateStrategy"]));
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid(path, value, detail));
        }
    }
}

fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let counters = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    let mut errors =
        workload::status_counters(new, &counters, &counters[1..5], "status.readyReplicas");
    errors.extend(workload::decremented_collisions(new, old));
    errors
}
