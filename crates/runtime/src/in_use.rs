//! The images and layers that existing containers use, read from their records: for commands that
//! run whether or not a server does.

use std::{collections::BTreeSet, io, path::Path};

use crate::records::{ContainerRecord, Directory};

/// Images and layers that must not be removed.
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
