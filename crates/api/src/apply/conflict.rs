//! Fields that an applier would change and others own, and the error about it.

use super::element;
use super::entries::{Entry, Operation};
use super::field_set::FieldSet;
use crate::field::quote;
use crate::status::{Cause, Details, Reason, Status};

/// One field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    /// The owner as messages name it.
    pub owner: String,
    /// Written elements.
    pub path: Vec<String>,
}

impl Conflict {
    /// All fields of `owner` among the changed ones.
    pub fn between(owner: &Entry, changed: &FieldSet) -> Vec<Conflict> {
        if !owner.fields.intersects(changed) {
            return Vec::new();
        }
        let shared = owner.fields.intersection(changed);
        shared
            .paths()
            .into_iter()
            .map(|path| Conflict {
                owner: describe(owner),
                path: path.into_iter().map(str::to_string).collect(),
            })
            .collect()
    }
}

fn describe(owner: &Entry) -> String {
    let mut text = quote(&owner.manager);
    if !owner.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", quote(&owner.subresource)));
    }
    if owner.operation == Operation::Update {
        text.push_str(&format!(" using {}", owner.api_version));
    }
    text
}

/// The 409 with all conflicts, by owner.
pub(super) fn answer(mut conflicts: Vec<Conflict>) -> Status {
    conflicts.sort_by(|a, b| a.owner.cmp(&b.owner));
    let message = match conflicts.as_slice() {
        [only] => format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.owner,
            element::display(&only.path)
        ),
        several => {
            let mut lines = Vec::new();
            let mut owner = "";
            for conflict in several {
                if owner != conflict.owner {
                    owner = &conflict.owner;
                    lines.push(format!("conflicts with {owner}:"));
                }
                lines.push(format!("- {}", element::display(&conflict.path)));
            }
            let count = several.len();
            format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
        }
    };
    let causes = conflicts
        .iter()
        .map(|conflict| Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict with {}", conflict.owner),
            field: element::display(&conflict.path),
        })
        .collect();
    Status::new(Reason::Conflict, message).with_details(Details {
        causes,
        ..Details::default()
    })
}
