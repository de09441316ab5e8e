//! What the expressions of a policy can read, so that what none of them reads is not made.

/// What some expression mentions. A word in a text that is not the variable counts as well: then it is
/// made for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// `request`, or the check of what is requested.
    pub request: bool,
    /// `namespaceObject`.
    pub namespace: bool,
    /// `params`.
    pub params: bool,
}

impl Uses {
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Uses {
        let mut uses = Uses::default();
        for text in texts {
            uses.request |= text.contains("request");
            uses.namespace |= text.contains("namespaceObject");
            uses.params |= text.contains("params");
        }
        uses
    }
}
