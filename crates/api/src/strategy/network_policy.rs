//! NetworkPolicies.

use crate::addresses;
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::repeats::Seen;
use crate::resource::Strategy;
use crate::strategy::checks::invalid_number;
use crate::strategy::checks::label_selector;
use crate::strategy::workload;

/// The rules of a direction, and where its peers are.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

pub struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        for (direction, _) in DIRECTIONS {
            for rule in object.list_at_mut(&["spec", direction]) {
                for port in rule.list_at_mut(&["ports"]) {
                    if !port.has(&["protocol"]) {
                        port.set(&["protocol"], "TCP");
                    }
                }
            }
        }
        if object.list_at(&["spec", "policyTypes"]).is_empty() {
            let mut types: Vec<Value> = vec!["Ingress".into()];
            if !object.list_at(&["spec", "egress"]).is_empty() {
                types.push("Egress".into());
            }
            object.set(&["spec", "policyTypes"], types);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        validate(object, &Seen::new())
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        // CIDRs that were accepted before stay valid.
        let mut known = Vec::new();
        for_each_block(old, |block, _| {
            known.extend(block.get("cidr").cloned());
            known.extend(block.list_at(&["except"]).iter().cloned());
        });
        validate(new, &addresses::existing(&known))
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let mut selecting = Value::object();
        if let Some(selector) = object.at(&["spec", "podSelector"]) {
            selecting.set(&["spec", "selector"], selector.clone());
        }
        vec![
            object.str_at(&["metadata", "name"]).into(),
            workload::selector_cell(&selecting),
            object_age(object, now).into(),
        ]
    }
}

fn for_each_block(object: &Value, mut visit: impl FnMut(&Value, &Path)) {
    for (direction, peers) in DIRECTIONS {
        for (index, rule) in object.list_at(&["spec", direction]).iter().enumerate() {
            let at = Path::new("spec").child(direction).index(index);
            for (index, peer) in rule.list_at(&[peers]).iter().enumerate() {
                if let Some(block) = peer.get("ipBlock").filter(|block| !block.is_null()) {
                    visit(block, &at.child(peers).index(index).child("ipBlock"));
                }
            }
        }
    }
}

fn validate(object: &Value, known: &Seen<String>) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    if let Some(selector) = object.at(&["spec", "podSelector"]) {
        errors.extend(label_selector::validate(
            selector,
            &path.child("podSelector"),
        ));
    }
    for (direction, peers) in DIRECTIONS {
        for (index, rule) in object.list_at(&["spec", direction]).iter().enumerate() {
            let at = path.child(direction).index(index);
            for (index, one) in rule.list_at(&["ports"]).iter().enumerate() {
                port(one, &at.child("ports").index(index), &mut errors);
            }
            for (index, one) in rule.list_at(&[peers]).iter().enumerate() {
                peer(one, known, &at.child(peers).index(index), &mut errors);
            }
        }
    }
    let types = object.list_at(&["spec", "policyTypes"]);
    let at = path.child("policyTypes");
    if types.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid(&at, types.to_vec(), detail));
        return errors;
    }
    for (index, one) in types.iter().enumerate() {
        let name = one.as_str().unwrap_or_default();
        if !matches!(name, "Ingress" | "Egress") {
            let supported = ["Ingress", "Egress"];
            errors.push(FieldError::not_supported(
                &at.index(index),
                name,
                &supported,
            ));
        }
    }
    errors
}

fn port(one: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if one.has(&["protocol"]) {
        let protocol = one.str_at(&["protocol"]);
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            let at = path.child("protocol");
            let supported = ["TCP", "UDP", "SCTP"];
            errors.push(FieldError::not_supported(&at, protocol, &supported));
        }
    }
    let at = path.child("endPort");
    let end = one.i64_at(&["endPort"]);
    match one.get("port") {
        Some(Value::Integer(number)) => {
            let wrong = names::port_number(*number);
            errors.extend(invalid_number(&path.child("port"), *number, wrong));
            if let Some(end) = end {
                if end < *number {
                    let detail = "must be greater than or equal to `port`";
                    errors.push(FieldError::invalid(&at, *number, detail));
                }
                errors.extend(invalid_number(&at, end, names::port_number(end)));
            }
        }
        Some(Value::String(name)) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                errors.push(FieldError::invalid(&at, end, detail));
            }
            let wrong = names::port_name(name);
            errors.extend(all_invalid(&path.child("port"), name, wrong));
        }
        _ => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is not specified";
                errors.push(FieldError::invalid(&at, end, detail));
            }
        }
    }
}

fn peer(peer: &Value, known: &Seen<String>, path: &Path, errors: &mut Vec<FieldError>) {
    let mut found = 0;
    for name in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = peer.get(name).filter(|value| !value.is_null()) {
            found += 1;
            errors.extend(label_selector::validate(selector, &path.child(name)));
        }
    }
    let block = peer.get("ipBlock").filter(|value| !value.is_null());
    if let Some(block) = block {
        found += 1;
        ip_block(block, known, &path.child("ipBlock"), errors);
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    } else if found > 1 && block.is_some() {
        let detail = "may not specify both ipBlock and another peer";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn ip_block(block: &Value, known: &Seen<String>, path: &Path, errors: &mut Vec<FieldError>) {
    let cidr = block.str_at(&["cidr"]);
    let at = path.child("cidr");
    if cidr.is_empty() {
        errors.push(FieldError::required(&at, ""));
        return;
    }
    errors.extend(addresses::old_range(cidr, known, &at));
    let Some(outer) = addresses::parse_range(cidr) else {
        return;
    };
    for (index, except) in block.list_at(&["except"]).iter().enumerate() {
        let at = path.child("except").index(index);
        let text = except.as_str().unwrap_or_default();
        errors.extend(addresses::old_range(text, known, &at));
        let Some(inner) = addresses::parse_range(text) else {
            continue;
        };
        let inside = outer.contains(inner.masked().address) && outer.bits < inner.bits;
        if !inside {
            let detail = "must be a strict subset of `cidr`";
            errors.push(FieldError::invalid(&at, text, detail));
        }
    }
}
