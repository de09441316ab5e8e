//! An image on this node, as containers are created from it.

use std::collections::BTreeMap;

/// An image that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The reference that CreateContainer gets.
    pub reference: String,
    /// The user the image wants, by number or by name.
    pub uid: Option<i64>,
    pub username: String,
    /// The images that the container mounts as volumes, by volume name, as the runtime knows them.
    pub volumes: BTreeMap<String, String>,
    /// From when until when it was pulled, in microseconds, if it had to be.
    pub pulled: Option<(i64, i64)>,
}
