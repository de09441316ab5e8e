//! PersistentVolumeClaimResize: a claim grows only when it is bound and its class allows that.

use api::quota::claims::class;
use api::resources::quantity;
use api::{Status, Value};

use super::{Admitted, Operation};

pub(super) async fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    let (Operation::Update, Some(old)) = (admitted.operation, admitted.old) else {
        return Ok(());
    };
    if !admitted.is_whole("", "PersistentVolumeClaim") {
        return Ok(());
    }
    let size = |claim: &Value| {
        let asked = claim.at(&["spec", "resources", "requests", "storage"]);
        asked.and_then(quantity).unwrap_or_default()
    };
    if size(admitted.object) <= size(old) {
        return Ok(());
    }
    if old.str_at(&["status", "phase"]) != "Bound" {
        return Err(admitted.forbidden("Only bound persistent volume claims can be expanded"));
    }
    let (new_class, old_class) = (class(admitted.object), class(old));
    let allowed = new_class == old_class
        && !new_class.is_empty()
        && admitted
            .one("storage.k8s.io", "storageclasses", "", new_class)
            .await?
            .is_some_and(|class| class.bool_at(&["allowVolumeExpansion"]));
    match allowed {
        true => Ok(()),
        false => Err(admitted.forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        )),
    }
}
