//! Spreads endpoints over slices of bounded size with the fewest writes: what is in a slice stays
//! there, gaps are filled before new slices are made. Pure; used for pods and for mirroring.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The most endpoints in one slice.
pub const SLICE_SIZE: usize = 100;

#[derive(Debug, PartialEq)]
pub enum Action {
    Create(Box<EndpointSlice>),
    Replace(Box<EndpointSlice>),
    Delete { name: String },
}

/// Endpoints that share a family and port numbers, and so slices.
#[derive(Debug, Default)]
pub struct Group {
    pub address_type: String,
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
}

/// `template` is the metadata of a new slice; its labels and annotations are also those of old
/// ones. A group without endpoints gets a slice that says so.
pub fn pack(
    template: &ObjectMeta,
    groups: Vec<Group>,
    existing: &[Arc<EndpointSlice>],
) -> Vec<Action> {
    let mut free: Vec<&Arc<EndpointSlice>> = existing
        .iter()
        .filter(|slice| slice.metadata.deletion_timestamp.is_none())
        .collect();
    free.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut actions = Vec::new();
    let mut created: Vec<EndpointSlice> = Vec::new();
    let mut emptied: Vec<&Arc<EndpointSlice>> = Vec::new();
    for group in groups {
        let (own, others): (Vec<_>, Vec<_>) = free.into_iter().partition(|slice| {
            slice.address_type == group.address_type
                && slice.ports.as_deref().unwrap_or_default() == group.ports
        });
        free = others;
        let packed = pack_group(template, group, own);
        actions.extend(
            packed
                .replaced
                .into_iter()
                .map(Box::new)
                .map(Action::Replace),
        );
        created.extend(packed.created);
        emptied.extend(packed.emptied);
    }
    emptied.extend(free);
    // A slice that would go serves as one that would come, if it is of the same family.
    for slice in created {
        let reused = emptied
            .iter()
            .position(|old| old.address_type == slice.address_type);
        actions.push(match reused {
            Some(index) => {
                let old = emptied.remove(index);
                Action::Replace(Box::new(EndpointSlice {
                    metadata: labelled(&old.metadata, template),
                    ..slice
                }))
            }
            None => Action::Create(Box::new(slice)),
        });
    }
    actions.extend(emptied.into_iter().map(|slice| Action::Delete {
        name: slice.metadata.name.clone().unwrap_or_default(),
    }));
    actions
}

struct Packed<'a> {
    replaced: Vec<EndpointSlice>,
    created: Vec<EndpointSlice>,
    emptied: Vec<&'a Arc<EndpointSlice>>,
}

fn pack_group<'a>(
    template: &ObjectMeta,
    group: Group,
    own: Vec<&'a Arc<EndpointSlice>>,
) -> Packed<'a> {
    let wants_placeholder = group.endpoints.is_empty();
    let mut wanted: BTreeMap<String, Endpoint> = group
        .endpoints
        .into_iter()
        .map(|endpoint| (identity(&endpoint), endpoint))
        .collect();
    // Old slices with what stays in them; `true` once one must be written anyway.
    let mut kept: Vec<(&'a Arc<EndpointSlice>, Vec<Endpoint>, bool)> = own
        .into_iter()
        .map(|slice| {
            let before = slice.endpoints.as_deref().unwrap_or_default();
            let after: Vec<Endpoint> = before
                .iter()
                .filter_map(|endpoint| wanted.remove(&identity(endpoint)))
                .collect();
            let changed = after != before || labelled(&slice.metadata, template) != slice.metadata;
            (slice, after, changed)
        })
        .collect();
    let mut rest: Vec<Endpoint> = wanted.into_values().collect();
    for (_, endpoints, _) in kept.iter_mut().filter(|(_, _, changed)| *changed) {
        let room = SLICE_SIZE.saturating_sub(endpoints.len()).min(rest.len());
        endpoints.extend(rest.drain(..room));
    }
    let mut created = Vec::new();
    while rest.len() >= SLICE_SIZE {
        let full: Vec<Endpoint> = rest.drain(..SLICE_SIZE).collect();
        created.push(new_slice(template, &group.address_type, &group.ports, full));
    }
    if !rest.is_empty() {
        // The fullest slice that takes them all.
        let fitting = kept
            .iter_mut()
            .filter(|(_, endpoints, _)| endpoints.len() + rest.len() <= SLICE_SIZE)
            .max_by_key(|(_, endpoints, _)| endpoints.len());
        match fitting {
            Some((_, endpoints, changed)) => {
                endpoints.append(&mut rest);
                *changed = true;
            }
            None => created.push(new_slice(template, &group.address_type, &group.ports, rest)),
        }
    }
    let mut packed = Packed {
        replaced: Vec::new(),
        created,
        emptied: Vec::new(),
    };
    let mut placeholder = wants_placeholder;
    for (slice, endpoints, changed) in kept {
        if endpoints.is_empty() && !placeholder {
            packed.emptied.push(slice);
            continue;
        }
        placeholder &= !endpoints.is_empty();
        if changed {
            packed.replaced.push(EndpointSlice {
                metadata: labelled(&slice.metadata, template),
                endpoints: Some(endpoints),
                ..(**slice).clone()
            });
        }
    }
    if placeholder {
        let empty = new_slice(template, &group.address_type, &group.ports, Vec::new());
        packed.created.push(empty);
    }
    packed
}

fn new_slice(
    template: &ObjectMeta,
    address_type: &str,
    ports: &[EndpointPort],
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    EndpointSlice {
        metadata: template.clone(),
        address_type: address_type.to_string(),
        endpoints: Some(endpoints),
        ports: Some(ports.to_vec()),
    }
}

fn labelled(metadata: &ObjectMeta, template: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        labels: template.labels.clone(),
        annotations: template.annotations.clone(),
        ..metadata.clone()
    }
}

/// The identity of an endpoint: its addresses and its target.
fn identity(endpoint: &Endpoint) -> String {
    let target = endpoint.target_ref.as_ref();
    let uid = target.and_then(|target| target.uid.as_deref());
    format!(
        "{} {}",
        endpoint.addresses.join(","),
        uid.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(number: usize) -> Endpoint {
        Endpoint {
            addresses: vec![format!("10.0.{}.{}", number / 250, number % 250)],
            ..Endpoint::default()
        }
    }

    fn group(numbers: std::ops::Range<usize>) -> Vec<Group> {
        vec![Group {
            address_type: "IPv4".into(),
            ports: Vec::new(),
            endpoints: numbers.map(endpoint).collect(),
        }]
    }

    fn stored(actions: Vec<Action>) -> Vec<Arc<EndpointSlice>> {
        let slices = actions.into_iter().filter_map(|action| match action {
            Action::Create(slice) | Action::Replace(slice) => Some(*slice),
            Action::Delete { .. } => None,
        });
        slices
            .enumerate()
            .map(|(index, mut slice)| {
                slice.metadata.name.get_or_insert(format!("slice-{index}"));
                Arc::new(slice)
            })
            .collect()
    }

    #[test]
    fn slices_are_filled_and_stay_as_they_are() {
        let template = ObjectMeta::default();
        let first = stored(pack(&template, group(0..150), &[]));
        let sizes: Vec<usize> = first
            .iter()
            .map(|slice| slice.endpoints.as_ref().unwrap().len())
            .collect();
        assert_eq!(sizes, [100, 50]);
        assert_eq!(pack(&template, group(0..150), &first), []);
        // Three more fit into the half-full one; the full one is not written.
        let actions = pack(&template, group(0..153), &first);
        let [Action::Replace(slice)] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        assert_eq!(slice.endpoints.as_ref().unwrap().len(), 53);
    }

    #[test]
    fn an_emptied_slice_is_reused_or_deleted() {
        let template = ObjectMeta::default();
        let old = stored(pack(&template, group(0..1), &[]));
        let mut other = group(5..6);
        other[0].ports = vec![EndpointPort::default()];
        let actions = pack(&template, other, &old);
        let [Action::Replace(slice)] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        assert_eq!(slice.metadata.name.as_deref(), Some("slice-0"));
        let actions = pack(&template, Vec::new(), &old);
        assert!(matches!(actions.as_slice(), [Action::Delete { .. }]));
    }

    #[test]
    fn an_empty_slice_stays_when_there_are_no_endpoints() {
        let template = ObjectMeta::default();
        let old = stored(pack(&template, group(0..0), &[]));
        assert_eq!(old.len(), 1);
        assert_eq!(pack(&template, group(0..0), &old), []);
    }
}
