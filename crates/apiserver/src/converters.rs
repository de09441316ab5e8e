//! The webhooks that convert custom resources, one for each kind that names one.

use std::collections::HashMap;

use api::resource::CustomVersion;
use api::{Reason, Status, Value};
use environment::Environment;
use parking_lot::Mutex;

use crate::webhook_client::{ConversionHook, WebhookClient, convert};

/// The conversion webhooks that were asked, by the UID of their definition.
#[derive(Default)]
pub(crate) struct Converters {
    hooks: Mutex<HashMap<String, ConversionHook>>,
}

/// What asking a hook needs of the server.
pub(crate) struct Ways<'a> {
    pub webhooks: &'a WebhookClient,
    pub environment: &'a Environment,
}

impl Converters {
    /// The objects in another version, in the same order. `definition` is the stored definition, read
    /// only where its hook was not asked before.
    pub async fn ask(
        &self,
        ways: Ways<'_>,
        custom: &CustomVersion,
        api_version: &str,
        objects: Vec<Value>,
        definition: impl FnOnce() -> Result<Value, Status>,
    ) -> Result<Vec<Value>, Status> {
        let known = self.hooks.lock().get(&custom.kind.uid).cloned();
        let hook = match known {
            Some(hook) => hook,
            None => {
                let definition = definition()?;
                let webhook = definition.at(&["spec", "conversion", "webhook"]);
                let webhook = webhook.unwrap_or(&Value::Null);
                let hook = ConversionHook::of_document(ways.webhooks, webhook);
                let hook = hook.map_err(|problem| {
                    let problem = environment::chain(&problem);
                    Status::new(Reason::Unknown, problem.to_string())
                })?;
                let uid = custom.kind.uid.clone();
                self.hooks.lock().insert(uid, hook.clone());
                hook
            }
        };
        let uid = ways.environment.uuid();
        convert(&hook, &uid, api_version, objects).await
    }

    /// Forgets the hook of a definition that changed or went.
    pub fn forget(&self, uid: &str) {
        self.hooks.lock().remove(uid);
    }
}
