//! What expressions of policies see of a request. Each part is made when an expression reads it.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use api::expressions::admission::AdmissionInput;
use api::expressions::policy::{MatchConditions, Matched, Uses, Variables};
use api::{Resource, Status, Value};
use cel::libraries::authorizer::Authorizer;
use tokio::time::Instant;

use crate::admission::webhooks::{Objects, Request};
use crate::admission_hooks::{Excluded, Phase, RequestAuthorizer};
use crate::cache::CachedObject;

/// The fields of a namespace's metadata that expressions see.
const NAMESPACE_METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
];

/// A request in one version of its resource.
pub(super) struct View<'a> {
    request: &'a Request<'a>,
    pub resource: Arc<Resource>,
    object: Option<Cow<'a, Value>>,
    old_object: Option<Cow<'a, Value>>,
    /// The `AdmissionRequest`.
    document: OnceLock<Value>,
    /// The same for match conditions, which are told the resource that was requested.
    of_conditions: OnceLock<Value>,
}

/// What is the same in all versions.
pub(super) struct Surroundings {
    pub authorizer: Arc<dyn Authorizer>,
    namespace: Option<Arc<CachedObject>>,
    namespace_object: OnceLock<Value>,
}

impl Surroundings {
    /// The namespace of the request must be there, whether an expression reads it or not.
    pub async fn of(request: &Request<'_>) -> Result<Surroundings, Status> {
        let server = &request.context.server;
        let about_namespace = (&*request.requested.group, &*request.requested.kind);
        let namespace = match about_namespace == ("", "Namespace") || request.namespace.is_empty() {
            true => None,
            false => {
                let namespaces = server.cache.resource("", "namespaces");
                let found = server.objects.find(&namespaces, "", &request.namespace);
                Some(found.await?)
            }
        };
        Ok(Surroundings {
            authorizer: Arc::new(RequestAuthorizer {
                authorizer: server.authorizer.clone(),
                identity: request.context.identity.clone(),
            }),
            namespace,
            namespace_object: OnceLock::new(),
        })
    }

    /// `namespaceObject`.
    fn namespace(&self) -> Option<&Value> {
        let entry = self.namespace.as_ref()?;
        Some(
            self.namespace_object
                .get_or_init(|| shown_namespace(entry).unwrap_or_default()),
        )
    }
}

impl<'a> View<'a> {
    pub async fn new(
        request: &'a Request<'a>,
        resource: Arc<Resource>,
        objects: Objects<'a>,
    ) -> Result<Self, Status> {
        let [object, old_object] = request.both_shown(&resource, objects).await?;
        Ok(View {
            request,
            resource,
            object,
            old_object,
            document: OnceLock::new(),
            of_conditions: OnceLock::new(),
        })
    }

    /// What expressions are given.
    pub fn input<'v>(
        &'v self,
        uses: Uses,
        surroundings: &'v Surroundings,
        params: Option<&'v Value>,
    ) -> AdmissionInput<'v> {
        AdmissionInput {
            object: self.object.as_deref(),
            old_object: self.old_object.as_deref(),
            request: match uses.request {
                true => self.document(),
                false => &Value::Null,
            },
            namespace: match uses.namespace {
                true => surroundings.namespace(),
                false => None,
            },
            params,
            authorizer: Some(surroundings.authorizer.clone()),
        }
    }

    /// Whether the match conditions of a policy hold, counted under the policy's name.
    pub fn conditions_hold(
        &self,
        conditions: (&MatchConditions, &Variables),
        policy: &str,
        input: &AdmissionInput<'_>,
        phase: Phase,
    ) -> Matched {
        let (conditions, variables) = conditions;
        if conditions.is_empty() {
            return Matched::Yes;
        }
        let began = Instant::now();
        let matched = conditions.evaluate(
            variables,
            &AdmissionInput {
                namespace: None,
                request: match input.request.is_null() {
                    true => input.request,
                    false => self.document_of_conditions(),
                },
                ..input.clone()
            },
        );
        let context = self.request.context;
        context.server.hooks.metrics.policy_evaluated(&Excluded {
            phase,
            hook: policy,
            operation: self.request.operation,
            took: began.elapsed(),
            errors: match &matched {
                Matched::Errors(errors) => errors.len(),
                _ => 0,
            },
            is_excluded: false,
        });
        matched
    }

    fn document(&self) -> &Value {
        self.document
            .get_or_init(|| self.request.document("", &self.resource))
    }

    fn document_of_conditions(&self) -> &Value {
        if self.resource == *self.request.requested {
            return self.document();
        }
        self.of_conditions.get_or_init(|| {
            let mut document = self.document().clone();
            let requested = document.get("requestResource").cloned();
            document.set(&["resource"], requested.unwrap_or_default());
            document
        })
    }
}

/// A namespace without what expressions are not told.
fn shown_namespace(entry: &CachedObject) -> Result<Value, Status> {
    let stored = entry.object_with_version()?;
    let mut shown = Value::object();
    for field in ["spec", "status"] {
        let content = stored.get(field).cloned();
        shown.set(&[field], content.unwrap_or_else(Value::object));
    }
    for field in NAMESPACE_METADATA {
        if let Some(content) = stored.at(&["metadata", field]) {
            shown.set(&["metadata", field], content.clone());
        }
    }
    Ok(shown)
}
