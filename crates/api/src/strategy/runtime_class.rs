//! RuntimeClasses.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{self, Rules, all_invalid, names};
use crate::repeats::repeats;
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::canonical_quantities;
use crate::strategy::checks::immutable_text;
use crate::strategy::pod::resources::{self, PodClaims};
use crate::strategy::pod::tolerations;

pub struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn namespaced(&self) -> bool {
        false
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    /// Upstream checks it without the rules of the core group.
    fn metadata_rules(&self) -> Rules {
        Rules {
            known_finalizers: false,
            ..Rules::new(self.namespaced(), self.name_rule())
        }
    }

    fn default(&self, object: &mut Value) {
        canonical_quantities(object, &["overhead", "podFixed"]);
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let handler = object.str_at(&["handler"]);
        let path = Path::new("handler");
        let mut errors = match handler {
            "" => vec![FieldError::required(&path, "")],
            _ => all_invalid(&path, handler, names::dns_label(handler)),
        };
        if let Some(fixed) = object.at(&["overhead", "podFixed"]) {
            let mut limits = Value::object();
            limits.set(&["limits"], fixed.clone());
            errors.extend(resources::validate(
                &limits,
                &PodClaims::none(),
                &Path::new("overhead"),
            ));
        }
        let path = Path::new("scheduling");
        let selector = object.at(&["scheduling", "nodeSelector"]);
        errors.extend(metadata::labels(selector, &path.child("nodeSelector")));
        let list = object.list_at(&["scheduling", "tolerations"]);
        let path = path.child("tolerations");
        tolerations::validate(list, &path, &mut errors);
        let keys = |one: &Value| -> [String; 4] {
            ["key", "operator", "value", "effect"].map(|key| one.str_at(&[key]).to_string())
        };
        let keys: Vec<[String; 4]> = list.iter().map(keys).collect();
        for index in repeats(&keys) {
            let error = FieldError::duplicate(&path.index(index), Value::Null);
            errors.push(error.showing(&shown(&list[index])));
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        let (new, old) = (new.str_at(&["handler"]), old.str_at(&["handler"]));
        errors.extend(immutable_text(new, old, &Path::new("handler")));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["handler"]).into(),
            object_age(object, now).into(),
        ]
    }
}

/// A toleration as Go shows its internal form.
fn shown(toleration: &Value) -> [(&'static str, Value); 5] {
    let text = |name: &str| Value::from(toleration.str_at(&[name]));
    let seconds = toleration.get("tolerationSeconds").cloned();
    [
        ("Key", text("key")),
        ("Operator", text("operator")),
        ("Value", text("value")),
        ("Effect", text("effect")),
        ("TolerationSeconds", seconds.unwrap_or_default()),
    ]
}
