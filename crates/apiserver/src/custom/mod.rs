//! CustomResourceDefinitions: which kinds they define, and their way from creation to the last of
//! their instances. The objects of the kinds take the same path as all others.
//!
//! One task follows the stored definitions ([`controller`]). For each it decides what its status
//! should say ([`conditions`], [`names`]), serves the kind ([`kind`]) and only then writes that status:
//! a client that reads that a kind is established finds it served. A definition that is being deleted has
//! its instances deleted first ([`cleanup`]). All of it can stop at any point and be taken up again
//! from what is stored.

mod cleanup;
mod conditions;
mod controller;
mod declared;
mod kind;
mod names;
mod strategy;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use api::catalogue::Catalogue;
use api::{Resource, Value};
use bytes::Bytes;

pub(crate) use controller::{Known, run};
pub(crate) use declared::StoredDeclarations;

/// What definitions were stored when the server started: their kinds, and what the controller needs
/// to know of them.
#[derive(Default)]
pub(crate) struct Initial {
    pub resources: Vec<Arc<Resource>>,
    /// The served versions alone, by kind.
    pub served: Vec<kind::Served>,
    pub known: Known,
}

impl Initial {
    /// Serves the kinds from the first request on.
    pub fn serve(&mut self, catalogue: &Catalogue) {
        for served in self.served.drain(..) {
            let kind::Served {
                group,
                plural,
                versions,
                ..
            } = served;
            if let Err(problem) = catalogue.replace(&group, &plural, versions) {
                tracing::error!(%problem, "a stored definition cannot be served");
            }
        }
    }
}

/// The kinds that stored definitions define.
pub(crate) fn initial(definitions: &[Bytes]) -> Initial {
    let mut initial = Initial::default();
    for bytes in definitions {
        let Ok(definition) = Value::from_json(bytes) else {
            continue;
        };
        if !kind::is_served(&definition) {
            continue;
        }
        match kind::of(&definition) {
            Ok(served) => {
                let name = definition.str_at(&["metadata", "name"]).to_string();
                initial
                    .known
                    .insert(name, served.identity.clone(), served.stored.clone());
                initial.resources.push(served.stored.clone());
                initial.served.push(served);
            }
            Err(problem) => {
                let name = definition.str_at(&["metadata", "name"]);
                tracing::error!(name, %problem, "a stored definition cannot be served");
            }
        }
    }
    initial
}
