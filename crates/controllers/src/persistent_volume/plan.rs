//! What to do next about a claim or a volume. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::matching;
use crate::meta::annotation;

pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// An Event about the object at hand.
#[derive(Debug, PartialEq)]
pub struct Notice {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Debug, PartialEq)]
pub enum ClaimStep {
    /// Nothing can be done now; say why.
    Wait(Option<Notice>),
    /// Bind to this volume, or finish doing so.
    Bind(Arc<PersistentVolume>),
    /// It named no class: give it the default one.
    UseClass(String),
    /// An external provisioner is to make a volume.
    Provision { provisioner: String },
    /// Its volume is gone or bound to another claim.
    Lost(Notice),
}

pub fn plan_claim(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    classes: &[Arc<StorageClass>],
    waiting_pods: &[String],
) -> ClaimStep {
    let named = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.as_deref())
        .unwrap_or_default();
    let volume = volumes
        .iter()
        .find(|volume| volume.metadata.name.as_deref() == Some(named));
    if annotation(&claim.metadata, BIND_COMPLETED).is_some() {
        return plan_bound(claim, named, volume);
    }
    if named.is_empty() {
        return plan_unbound(claim, volumes, classes, waiting_pods);
    }
    let Some(volume) = volume else {
        return ClaimStep::Wait(None);
    };
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    if reference.is_none() {
        return match matching::mismatch(volume, claim) {
            Some(problem) => ClaimStep::Wait(Some(Notice {
                warning: true,
                reason: "VolumeMismatch",
                message: format!("Cannot bind to requested volume {named:?}: {problem}"),
            })),
            None => ClaimStep::Bind(volume.clone()),
        };
    }
    match semantics::volume::is_bound_to(volume, claim) {
        true => ClaimStep::Bind(volume.clone()),
        false => ClaimStep::Wait(Some(Notice {
            warning: true,
            reason: "FailedBinding",
            message: format!("volume {named:?} already bound to a different claim."),
        })),
    }
}

/// What a bound claim that asks for more than it has gets as message: the provisioner of the volume may be able
/// to expand it, we are not.
pub fn expansion(claim: &PersistentVolumeClaim) -> Option<Notice> {
    let storage = |amounts: Option<&BTreeMap<String, Text>>| {
        Quantity::parse(&amounts?.get("storage")?.0).ok()
    };
    let wanted = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref();
    let status = claim.status.as_ref()?;
    let is_bound = status.phase.as_deref() == Some("Bound");
    let more = storage(wanted)? > storage(status.capacity.as_ref())?;
    (is_bound && more).then(|| Notice {
        warning: false,
        reason: "ExternalExpanding",
        message: "Ignoring the PVC: didn't find a plugin capable of expanding the volume; waiting \
                  for an external controller to process this PVC."
            .to_owned(),
    })
}

fn plan_bound(
    claim: &PersistentVolumeClaim,
    named: &str,
    volume: Option<&Arc<PersistentVolume>>,
) -> ClaimStep {
    let lost = |reason, message: &str| {
        ClaimStep::Lost(Notice {
            warning: true,
            reason,
            message: message.to_string(),
        })
    };
    if named.is_empty() {
        return lost(
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        );
    }
    let Some(volume) = volume else {
        return lost(
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        );
    };
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    match reference {
        Some(reference) if reference.uid != claim.metadata.uid => lost(
            "ClaimMisbound",
            "Two claims are bound to the same volume, this one is bound incorrectly",
        ),
        _ => ClaimStep::Bind(volume.clone()),
    }
}

fn plan_unbound(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    classes: &[Arc<StorageClass>],
    waiting_pods: &[String],
) -> ClaimStep {
    let class_name = semantics::volume::claim_class(claim);
    let class = classes
        .iter()
        .find(|class| class.metadata.name.as_deref() == Some(class_name));
    let delayed = class
        .is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    if let Some(volume) = matching::best_match(claim, volumes, delayed) {
        return ClaimStep::Bind(volume.clone());
    }
    if semantics::volume::stated_class(claim).is_none()
        && let Some(default) = default_class(classes)
    {
        return ClaimStep::UseClass(default);
    }
    if delayed && annotation(&claim.metadata, SELECTED_NODE).is_none() {
        return ClaimStep::Wait(Some(waiting_notice(waiting_pods)));
    }
    if class_name.is_empty() {
        return ClaimStep::Wait(Some(Notice {
            warning: false,
            reason: "FailedBinding",
            message: "no persistent volumes available for this claim and no storage class is set"
                .to_string(),
        }));
    }
    let failed = |message: String| {
        ClaimStep::Wait(Some(Notice {
            warning: true,
            reason: "ProvisioningFailed",
            message,
        }))
    };
    match class {
        None => failed(format!(
            "storageclass.storage.k8s.io {class_name:?} not found"
        )),
        Some(class) if class.provisioner == "kubernetes.io/no-provisioner" => failed(format!(
            "no volume plugin matched name: {}",
            class.provisioner
        )),
        Some(class) => ClaimStep::Provision {
            provisioner: class.provisioner.clone(),
        },
    }
}

fn waiting_notice(pods: &[String]) -> Notice {
    let (reason, message) = match pods {
        [] => (
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding".to_string(),
        ),
        [pod] => (
            "WaitForPodScheduled",
            format!("waiting for pod {pod} to be scheduled"),
        ),
        pods => (
            "WaitForPodScheduled",
            format!("waiting for pods {} to be scheduled", pods.join(",")),
        ),
    };
    Notice {
        warning: false,
        reason,
        message,
    }
}

/// The newest of the classes marked as default.
fn default_class(classes: &[Arc<StorageClass>]) -> Option<String> {
    let marked = classes.iter().filter(|class| {
        [DEFAULT_CLASS, BETA_DEFAULT_CLASS]
            .iter()
            .any(|name| annotation(&class.metadata, name) == Some("true"))
    });
    let created = |class: &&Arc<StorageClass>| {
        let time = class.metadata.creation_timestamp.as_ref();
        (
            time.map(|time| time.0),
            std::cmp::Reverse(class.metadata.name.clone()),
        )
    };
    marked.max_by_key(created)?.metadata.name.clone()
}

#[derive(Debug, PartialEq)]
pub enum VolumeStep {
    Phase(&'static str),
    /// The claim it is reserved for is there but does not know it yet.
    PokeClaim,
    /// The claim is gone.
    Release(Reclaim),
    /// The claim took another volume: forget it.
    Unbind,
    Mismatch {
        claim: String,
    },
}

#[derive(Debug, PartialEq)]
pub enum Reclaim {
    /// It stays as it is; an administrator reclaims it.
    Retain,
    /// Its provisioner deletes it.
    ByProvisioner,
    /// No provisioner can reclaim it.
    Fail {
        reason: &'static str,
        message: String,
    },
}

/// `claim` is what is known under the name the volume refers to.
pub fn plan_volume(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> VolumeStep {
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    let Some(uid) = reference.and_then(|reference| reference.uid.as_deref()) else {
        return VolumeStep::Phase("Available");
    };
    if uid.is_empty() {
        return VolumeStep::Phase("Available");
    }
    let Some(claim) = claim.filter(|claim| claim.metadata.uid.as_deref() == Some(uid)) else {
        return VolumeStep::Release(reclaim(volume));
    };
    let named = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.as_deref())
        .unwrap_or_default();
    if named.is_empty() {
        return match semantics::volume::has_wanted_mode(volume, claim) {
            true => VolumeStep::PokeClaim,
            false => VolumeStep::Mismatch {
                claim: claim.metadata.name.clone().unwrap_or_default(),
            },
        };
    }
    if volume.metadata.name.as_deref() == Some(named) {
        return VolumeStep::Phase("Bound");
    }
    let dynamic = annotation(&volume.metadata, PROVISIONED_BY).is_some();
    let policy = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    match dynamic && policy == Some("Delete") {
        true => VolumeStep::Release(reclaim(volume)),
        false => VolumeStep::Unbind,
    }
}

fn reclaim(volume: &PersistentVolume) -> Reclaim {
    let spec = volume.spec.as_ref();
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    match policy.unwrap_or("Retain") {
        "Retain" => Reclaim::Retain,
        "Delete" if annotation(&volume.metadata, PROVISIONED_BY).is_some() => {
            Reclaim::ByProvisioner
        }
        "Delete" => Reclaim::Fail {
            reason: "VolumeFailedDelete",
            message: format!(
                "error getting deleter volume plugin for volume {name:?}: no {}volume plugin matched",
                if knows_source(volume) {
                    "deletable "
                } else {
                    ""
                }
            ),
        },
        "Recycle" => Reclaim::Fail {
            reason: "VolumeFailedRecycle",
            message: "No recycler plugin found for the volume!".to_string(),
        },
        _ => Reclaim::Fail {
            reason: "VolumeUnknownReclaimPolicy",
            message: "Volume has unrecognized PersistentVolumeReclaimPolicy".to_string(),
        },
    }
}

/// Sources that controllers know; others are the kubelet's alone.
fn knows_source(volume: &PersistentVolume) -> bool {
    let spec = volume.spec.as_ref();
    spec.is_some_and(|spec| spec.nfs.is_some() || spec.csi.is_some() || spec.host_path.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(metadata: serde_json::Value, spec: serde_json::Value) -> PersistentVolumeClaim {
        let mut value = serde_json::json!({
            "metadata": {"name": "data", "namespace": "default", "uid": "c"}, "spec": spec,
        });
        for (key, new) in metadata.as_object().unwrap() {
            value["metadata"][key] = new.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    fn volume(spec: serde_json::Value) -> Arc<PersistentVolume> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "v"}, "spec": spec, "status": {"phase": "Available"},
            }))
            .unwrap(),
        )
    }

    fn class(name: &str, mode: &str, default: bool) -> Arc<StorageClass> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "annotations": {DEFAULT_CLASS: default.to_string()}},
                "provisioner": "example.com/disk", "volumeBindingMode": mode,
            }))
            .unwrap(),
        )
    }

    fn wait_reason(step: ClaimStep) -> &'static str {
        match step {
            ClaimStep::Wait(Some(notice)) => notice.reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_claim_waits_for_its_consumer_then_for_its_volume() {
        let none = serde_json::json!({});
        let classes = [class("slow", "WaitForFirstConsumer", false)];
        let spec = serde_json::json!({"storageClassName": "slow"});
        let waiting = claim(none, spec.clone());
        let plan = |claim: &PersistentVolumeClaim, pods: &[&str]| {
            let pods: Vec<String> = pods.iter().map(|pod| pod.to_string()).collect();
            plan_claim(claim, &[], &classes, &pods)
        };
        assert_eq!(wait_reason(plan(&waiting, &[])), "WaitForFirstConsumer");
        assert_eq!(wait_reason(plan(&waiting, &["p"])), "WaitForPodScheduled");
        let placed = claim(
            serde_json::json!({"annotations": {SELECTED_NODE: "n"}}),
            spec,
        );
        assert_eq!(
            plan(&placed, &[]),
            ClaimStep::Provision {
                provisioner: "example.com/disk".into()
            }
        );
    }

    #[test]
    fn classes_are_defaulted_and_must_exist() {
        let none = serde_json::json!({});
        let classes = [class("fast", "Immediate", true)];
        let step = plan_claim(&claim(none.clone(), none.clone()), &[], &classes, &[]);
        assert_eq!(step, ClaimStep::UseClass("fast".into()));
        let without = claim(none.clone(), serde_json::json!({"storageClassName": ""}));
        let step = plan_claim(&without, &[], &classes, &[]);
        assert_eq!(wait_reason(step), "FailedBinding");
        let unknown = claim(none, serde_json::json!({"storageClassName": "gone"}));
        let step = plan_claim(&unknown, &[], &classes, &[]);
        assert_eq!(wait_reason(step), "ProvisioningFailed");
    }

    #[test]
    fn a_bound_claim_can_lose_its_volume() {
        let bound = serde_json::json!({"annotations": {BIND_COMPLETED: "yes"}});
        let spec = serde_json::json!({"volumeName": "v"});
        let reason = |volumes: &[Arc<PersistentVolume>]| match plan_claim(
            &claim(bound.clone(), spec.clone()),
            volumes,
            &[],
            &[],
        ) {
            ClaimStep::Lost(notice) => Some(notice.reason),
            ClaimStep::Bind(_) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(&[]), Some("ClaimLost"));
        let other = volume(
            serde_json::json!({"claimRef": {"uid": "d", "name": "data", "namespace": "default"}}),
        );
        assert_eq!(reason(&[other]), Some("ClaimMisbound"));
        let own = volume(
            serde_json::json!({"claimRef": {"uid": "c", "name": "data", "namespace": "default"}}),
        );
        assert_eq!(reason(&[own]), None);
    }

    #[test]
    fn volumes_follow_their_claims() {
        let reference = serde_json::json!({"uid": "c", "name": "data", "namespace": "default"});
        let held = volume(serde_json::json!({"claimRef": reference}));
        let none = serde_json::json!({});
        let named = |name: &str| claim(none.clone(), serde_json::json!({"volumeName": name}));
        assert_eq!(
            plan_volume(&volume(none.clone()), None),
            VolumeStep::Phase("Available")
        );
        assert_eq!(
            plan_volume(&held, Some(&named("v"))),
            VolumeStep::Phase("Bound")
        );
        assert_eq!(plan_volume(&held, Some(&named(""))), VolumeStep::PokeClaim);
        assert_eq!(plan_volume(&held, Some(&named("w"))), VolumeStep::Unbind);
        assert_eq!(
            plan_volume(&held, None),
            VolumeStep::Release(Reclaim::Retain)
        );
        let mut dynamic = (*held).clone();
        let spec = dynamic.spec.as_mut().unwrap();
        spec.persistent_volume_reclaim_policy = Some("Delete".into());
        assert!(matches!(
            plan_volume(&dynamic, None),
            VolumeStep::Release(Reclaim::Fail { .. })
        ));
        dynamic.metadata.annotations = Some([(PROVISIONED_BY.into(), "x".into())].into());
        assert_eq!(
            plan_volume(&dynamic, None),
            VolumeStep::Release(Reclaim::ByProvisioner)
        );
    }

    #[test]
    fn a_claim_that_wants_more_than_its_volume_has_is_reported() {
        let check = |wanted: &str, phase: &str, told: bool| {
            let claim: PersistentVolumeClaim = serde_json::from_value(serde_json::json!({
                "spec": {"resources": {"requests": {"storage": wanted}}},
                "status": {"phase": phase, "capacity": {"storage": "1Gi"}},
            }))
            .unwrap();
            assert_eq!(expansion(&claim).is_some(), told, "{wanted} {phase}");
        };
        check("2Gi", "Bound", true);
        check("1024Mi", "Bound", false);
        check("1Mi", "Bound", false);
        check("2Gi", "Lost", false);
    }
}
