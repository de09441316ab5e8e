//! DenyServiceExternalIPs: nobody may give a Service new `externalIPs`, with which it could take
//! the traffic of any address. Off unless it is enabled by name, as upstream.

use api::{Status, Value};

use super::{Admitted, Operation};
use crate::admission_config::DENY_EXTERNAL_IPS;

pub(super) fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    if !admitted.context.server.admission.enables(DENY_EXTERNAL_IPS)
        || !admitted.is_whole("", "Service")
        || admitted.operation == Operation::Delete
    {
        return Ok(());
    }
    match adds_none(admitted.object, admitted.old) {
        true => Ok(()),
        false => Err(admitted.forbidden("Use of external IPs is denied by admission control")),
    }
}

/// Whether every external address of `new` is one that the Service had before.
fn adds_none(new: &Value, old: Option<&Value>) -> bool {
    let path = ["spec", "externalIPs"];
    let had = old.map(|old| old.list_at(&path)).unwrap_or_default();
    let had: std::collections::HashSet<&str> = had.iter().filter_map(Value::as_str).collect();
    let mut now = new.list_at(&path).iter();
    now.all(|address| {
        address
            .as_str()
            .is_some_and(|address| had.contains(address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_removed_but_not_added() {
        let service = |addresses: &[&str]| {
            let list: Vec<Value> = addresses
                .iter()
                .map(|address| Value::from(*address))
                .collect();
            let mut service = Value::object();
            service.set(&["spec", "externalIPs"], list);
            service
        };
        let (none, one, two) = (
            service(&[]),
            service(&["192.0.2.1"]),
            service(&["192.0.2.1", "192.0.2.2"]),
        );
        assert!(adds_none(&none, None) && !adds_none(&one, None));
        assert!(adds_none(&one, Some(&two)) && adds_none(&two, Some(&two)));
        assert!(!adds_none(&two, Some(&one)) && !adds_none(&one, Some(&none)));
    }
}
