//! Binds by posting to the pod's `binding` subresource.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Binding, ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    PodInfo,
    framework::{Bind, BindError, Plugin, Points},
};

pub struct DefaultBinder {
    client: kube::Client,
}

impl DefaultBinder {
    pub fn new(client: kube::Client) -> DefaultBinder {
        DefaultBinder { client }
    }
}

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            bind: Some(self),
            ..Points::default()
        }
    }
}

#[async_trait::async_trait]
impl Bind for DefaultBinder {
    async fn bind(&self, pod: &PodInfo, node: &str) -> Result<u64, BindError> {
        let (namespace, name) = (&pod.key.namespace, &pod.key.name);
        let binding = Binding {
            metadata: ObjectMeta {
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                // A pod recreated under the same name must not inherit this decision.
                uid: Some(pod.uid.clone()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let body = serde_json::to_vec(&binding).map_err(BindError::Encode)?;
        let bytes = body.len() as u64;
        let uri = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
        let request = http::Request::post(uri)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await?;
        Ok(bytes)
    }
}

/// Stands for the binder where profiles are only looked at.
pub(crate) struct NeverBinds;

impl Plugin for NeverBinds {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            bind: Some(self),
            ..Points::default()
        }
    }
}

#[async_trait::async_trait]
impl Bind for NeverBinds {
    fn binds(&self, _: &PodInfo) -> bool {
        false
    }

    async fn bind(&self, _: &PodInfo, _: &str) -> Result<u64, BindError> {
        Ok(0)
    }
}
