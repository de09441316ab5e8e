//! DefaultStorageClass and DefaultIngressClass: what names no class gets the one marked as default.

use std::sync::Arc;

use api::{Status, Value};

use super::Admitted;
use crate::cache::CachedObject;

pub(super) fn storage(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    const OLD: &str = "volume.beta.kubernetes.io/storage-class";
    if !admitted.is_new("", "PersistentVolumeClaim")
        || admitted.object.has(&["metadata", "annotations", OLD])
        || admitted.object.has(&["spec", "storageClassName"])
    {
        return Ok(());
    }
    let marks = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    let classes = marked(admitted.all("storage.k8s.io", "storageclasses", ""), &marks)?;
    if let Some(class) = newest(&classes) {
        let name = class.str_at(&["metadata", "name"]).to_string();
        admitted.object.set(&["spec", "storageClassName"], name);
    }
    Ok(())
}

pub(super) fn ingress(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    const OLD: &str = "kubernetes.io/ingress.class";
    if !admitted.is_new("networking.k8s.io", "Ingress")
        || admitted.object.has(&["metadata", "annotations", OLD])
        || admitted.object.has(&["spec", "ingressClassName"])
    {
        return Ok(());
    }
    let marks = ["ingressclass.kubernetes.io/is-default-class"];
    let all = admitted.all("networking.k8s.io", "ingressclasses", "");
    let classes = marked(all, &marks)?;
    if let Some(class) = newest(&classes) {
        let name = class.str_at(&["metadata", "name"]).to_string();
        admitted.object.set(&["spec", "ingressClassName"], name);
    }
    Ok(())
}

/// The classes that one of the annotations marks as default.
fn marked(entries: Vec<Arc<CachedObject>>, marks: &[&str]) -> Result<Vec<Value>, Status> {
    let mut classes = Vec::new();
    for entry in entries {
        let class = entry.object()?;
        let is_marked = marks
            .iter()
            .any(|mark| class.str_at(&["metadata", "annotations", mark]) == "true");
        if is_marked {
            classes.push(class);
        }
    }
    Ok(classes)
}

/// Of several defaults the newest counts, among those as new the first by name.
fn newest(classes: &[Value]) -> Option<&Value> {
    let created = |class: &Value| class.str_at(&["metadata", "creationTimestamp"]).to_string();
    classes.iter().reduce(|best, class| {
        let name = |class: &Value| class.str_at(&["metadata", "name"]).to_string();
        match created(class).cmp(&created(best)) {
            std::cmp::Ordering::Greater => class,
            std::cmp::Ordering::Equal if name(class) < name(best) => class,
            _ => best,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_default_counts() {
        let class = |name: &str, created: &str| api::document!({"metadata": {"name": name, "creationTimestamp": created}});
        let classes = [
            class("old", "2020-01-01T00:00:00Z"),
            class("b", "2021-01-01T00:00:00Z"),
            class("a", "2021-01-01T00:00:00Z"),
        ];
        let found = newest(&classes).map(|class| class.str_at(&["metadata", "name"]));
        assert_eq!(found, Some("a"));
        assert!(newest(&[]).is_none());
    }
}
