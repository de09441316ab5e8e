//! CSIDrivers.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::immutable;
use crate::repeats::Seen;
use crate::resource::{Strategy, generic};
use crate::strategy::checks::supported;

const TOKEN_WARNING: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";

pub struct CsiDriver;

impl Strategy for CsiDriver {
    fn namespaced(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        for (name, value) in [
            ("attachRequired", true),
            ("podInfoOnMount", false),
            ("storageCapacity", false),
            ("requiresRepublish", false),
            ("seLinuxMount", false),
        ] {
            if !object.has(&["spec", name]) {
                object.set(&["spec", name], value);
            }
        }
        if !object.has(&["spec", "fsGroupPolicy"]) {
            object.set(&["spec", "fsGroupPolicy"], "ReadWriteOnceWithFSType");
        }
        if object.list_at(&["spec", "volumeLifecycleModes"]).is_empty() {
            let modes: Vec<Value> = vec!["Persistent".into()];
            object.set(&["spec", "volumeLifecycleModes"], modes);
        }
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.remove(&["spec", "preventPodSchedulingIfMissing"]);
    }

    /// The generation is set by the first change, not at creation.
    fn prepare_update_content(&self, new: &mut Value, old: &Value, _: &str) {
        if !old.has(&["spec", "preventPodSchedulingIfMissing"]) {
            new.remove(&["spec", "preventPodSchedulingIfMissing"]);
        }
        if generic::desired_state_changed(new, old) {
            let generation = old.i64_at(&["metadata", "generation"]).unwrap_or(0);
            new.set(&["metadata", "generation"], generation + 1);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let mut errors = Vec::new();
        for (name, shown) in [
            ("attachRequired", "attachedRequired"),
            ("podInfoOnMount", "podInfoOnMount"),
            ("storageCapacity", "storageCapacity"),
        ] {
            if !object.has(&["spec", name]) {
                errors.push(FieldError::required(&path.child(shown), ""));
            }
        }
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        errors.extend(supported(
            object.str_at(&["spec", "fsGroupPolicy"]),
            &policies,
            &path.child("fsGroupPolicy"),
        ));
        token_requests(object, &path.child("tokenRequests"), &mut errors);
        for mode in object.list_at(&["spec", "volumeLifecycleModes"]) {
            let mode = mode.as_str().unwrap_or_default();
            let modes = ["Persistent", "Ephemeral"];
            errors.extend(supported(mode, &modes, &path.child("volumeLifecycleModes")));
        }
        let period = object.i64_at(&["spec", "nodeAllocatableUpdatePeriodSeconds"]);
        if let Some(period) = period.filter(|period| *period < 10) {
            let at = path.child("nodeAllocatableUpdatePeriodSeconds");
            let detail = "must be greater than or equal to 10 seconds";
            errors.push(FieldError::invalid(&at, period, detail));
        }
        let in_secrets = object.at(&["spec", "serviceAccountTokenInSecrets"]);
        if let Some(flag) = in_secrets.filter(|value| !value.is_null())
            && object.list_at(&["spec", "tokenRequests"]).is_empty()
        {
            let at = path.child("serviceAccountTokenInSecrets");
            let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
            errors.push(FieldError::invalid(&at, flag.clone(), detail));
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        for (name, shown) in [
            ("attachRequired", "attachedRequired"),
            ("volumeLifecycleModes", "volumeLifecycleModes"),
        ] {
            let at = ["spec", name];
            let path = Path::new("spec").child(shown);
            errors.extend(immutable(new.at(&at), old.at(&at), &path));
        }
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, _subresource: &str) -> Vec<String> {
        let requests = ["spec", "tokenRequests"];
        let changed = old.is_none_or(|old| old.list_at(&requests) != new.list_at(&requests));
        let undecided = !new.has(&["spec", "serviceAccountTokenInSecrets"]);
        match changed && undecided && !new.list_at(&requests).is_empty() {
            true => vec![TOKEN_WARNING.to_string()],
            false => Vec::new(),
        }
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let flag = |name: &str| object.bool_at(&["spec", name]);
        let attach = object.at(&["spec", "attachRequired"]) != Some(&Value::Bool(false));
        let texts = |list: Vec<&str>| list.join(",");
        let modes = object.list_at(&["spec", "volumeLifecycleModes"]);
        let modes = match modes.is_empty() {
            true => "<none>".to_string(),
            false => texts(modes.iter().filter_map(Value::as_str).collect()),
        };
        let requests = object.list_at(&["spec", "tokenRequests"]);
        let tokens = match object.has(&["spec", "tokenRequests"]) {
            true => texts(
                requests
                    .iter()
                    .map(|one| one.str_at(&["audience"]))
                    .collect(),
            ),
            false => "<unset>".to_string(),
        };
        vec![
            object.str_at(&["metadata", "name"]).into(),
            attach.into(),
            flag("podInfoOnMount").into(),
            flag("storageCapacity").into(),
            tokens.into(),
            flag("requiresRepublish").into(),
            modes.into(),
            object_age(object, now).into(),
        ]
    }
}

fn token_requests(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let mut audiences = Seen::new();
    let requests = object.list_at(&["spec", "tokenRequests"]);
    for (index, request) in requests.iter().enumerate() {
        let at = path.index(index);
        let audience = request.str_at(&["audience"]);
        if !audiences.insert(audience) {
            errors.push(FieldError::duplicate(&at.child("audience"), audience));
            continue;
        }
        let Some(seconds) = request.i64_at(&["expirationSeconds"]) else {
            continue;
        };
        let at = at.child("expirationSeconds");
        if seconds < 600 {
            let detail = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(&at, seconds, detail));
        }
        if seconds > 1 << 32 {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.push(FieldError::invalid(&at, seconds, detail));
        }
    }
}
