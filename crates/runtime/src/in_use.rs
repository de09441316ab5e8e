//! What existing containers stand on, read from their records: for commands beside a server that
//! may or may not be running.

use std::{collections::BTreeSet, io, path::Path};

use crate::records::{ContainerRecord, Directory};

/// Images and layers that must not go.
#[derive(Debug, Default)]
pub struct InUse {
    pub images: BTreeSet<String>,
    pub layers: BTreeSet<String>,
}

/// Of the runtime whose persistent directory is `root`.
pub fn in_use(root: &Path) -> io::Result<InUse> {
    let (records, _) = Directory::of_containers(root).load::<ContainerRecord>()?;
    let mut found = InUse::default();
    for record in records {
        found.images.insert(record.image_id);
        found.layers.extend(record.layers);
    }
    Ok(found)
}
