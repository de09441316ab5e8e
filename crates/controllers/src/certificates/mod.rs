//! Certificate requests: approves those of kubelets that may have them, signs approved ones with
//! the cluster's authority, and removes old ones.

mod own;
mod plan;
mod request;
mod signing;

use std::net::IpAddr;
use std::time::Duration;

use api::certificate::Request;
use client::controller::Reconciled;
use client::{Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio_util::sync::CancellationToken;

use crate::watching::{self, Reconciler, enqueue, own_key};
use crate::{Config, Error};
use plan::{has_condition, is_of_a_node, is_settled, seconds_left};
use signing::Signer;

pub use signing::Error as SigningError;

/// How soon a node's request that was not approved is looked at again.
const UNDECIDED_SECONDS: i64 = 10;

pub async fn run(config: Config, shutdown: CancellationToken) {
    let requests = config.informers.of::<CertificateSigningRequest>();
    let signer = config.authority.as_ref().and_then(|authority| {
        Signer::new(authority)
            .inspect_err(|error| tracing::warn!(%error, "certificate requests stay unsigned"))
            .ok()
    });
    let queue = WorkQueue::new();
    let feed = enqueue(&requests, &queue, own_key);
    let controller = Controller {
        nodes: config.informers.of::<Node>(),
        endpoints: config.informers.of::<EndpointSlice>(),
        config,
        requests,
        signer,
    };
    watching::run("certificates", 2, queue, feed, controller, shutdown).await;
}

struct Controller {
    config: Config,
    requests: Informer<CertificateSigningRequest>,
    nodes: Informer<Node>,
    endpoints: Informer<EndpointSlice>,
    signer: Option<Signer>,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        let name = key.name.as_str();
        let Some(csr) = self.requests.get("", name) else {
            return Ok(Reconciled::Done);
        };
        let api: Api<CertificateSigningRequest> = Api::all(self.config.client.clone());
        let left = seconds_left(&csr, self.config.environment.now().as_second());
        if left <= 0 {
            match api.delete(name, &DeleteParams::default()).await {
                Err(error) if !retry::is_not_found(&error) => return Err(error.into()),
                _ => return Ok(Reconciled::Done),
            }
        }
        if !is_settled(&csr) {
            let approved = has_condition(&csr, "Approved");
            match approved {
                false => self.approve(&api, &csr, name).await?,
                true => self.sign(&api, &csr, name).await?,
            }
        }
        // The Node may come into our cache later than its request.
        let again = match is_of_a_node(&csr) && !is_settled(&csr) {
            true => left.min(UNDECIDED_SECONDS),
            false => left,
        };
        Ok(Reconciled::After(Duration::from_secs(again as u64)))
    }
}

impl Controller {
    /// Kubelets may have a certificate of their own, if a role says so.
    async fn approve(
        &self,
        api: &Api<CertificateSigningRequest>,
        csr: &CertificateSigningRequest,
        name: &str,
    ) -> Result<(), Error> {
        let Ok(parsed) = Request::parse(&csr.spec.request.0) else {
            return Ok(());
        };
        let usages = csr.spec.usages.clone().unwrap_or_default();
        let asked = own::Asked {
            user: csr.spec.username.as_deref().unwrap_or_default(),
            groups: csr.spec.groups.as_deref().unwrap_or_default(),
            signer: &csr.spec.signer_name,
            usages: &usages,
            request: &parsed,
        };
        if let Some(node) = own::node_of(&asked) {
            let Some(message) = own::approval(&asked, &self.addresses(node)) else {
                return Ok(());
            };
            return self.write_approval(api, csr, name, message).await;
        }
        if csr.spec.signer_name != request::KUBELET_CLIENT {
            return Ok(());
        }
        if request::check(&parsed, request::KUBELET_CLIENT, &usages).is_err() {
            return Ok(());
        }
        let own = csr.spec.username.as_deref() == Some(&parsed.subject.common_name);
        let tries = [
            (
                own,
                "selfnodeclient",
                "Auto approving self kubelet client certificate after SubjectAccessReview.",
            ),
            (
                true,
                "nodeclient",
                "Auto approving kubelet client certificate after SubjectAccessReview.",
            ),
        ];
        for (applies, subresource, message) in tries {
            if applies && self.may(csr, subresource).await? {
                return self.write_approval(api, csr, name, message).await;
            }
        }
        Ok(())
    }

    async fn write_approval(
        &self,
        api: &Api<CertificateSigningRequest>,
        csr: &CertificateSigningRequest,
        name: &str,
        message: &str,
    ) -> Result<(), Error> {
        let mut updated = csr.clone();
        self.add_condition(&mut updated, "Approved", "AutoApproved", message);
        let parameters = PostParams::default();
        api.replace_subresource("approval", name, &parameters, &updated)
            .await?;
        Ok(())
    }

    /// The addresses of a node, and those of other nodes and of API servers.
    fn addresses(&self, node: &str) -> own::Addresses {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for found in self.nodes.list() {
            let is_own = found.metadata.name.as_deref() == Some(node);
            let addresses = found
                .status
                .iter()
                .flat_map(|status| status.addresses.iter());
            let addresses = addresses
                .flatten()
                .filter_map(|address| address.address.parse::<IpAddr>().ok());
            match is_own {
                true => own.extend(addresses),
                false => others.extend(addresses),
            }
        }
        for slice in self.endpoints.list_in("default") {
            let labels = slice.metadata.labels.as_ref();
            let service = labels.and_then(|labels| labels.get("kubernetes.io/service-name"));
            if service.is_some_and(|service| service == "kubernetes") {
                let endpoints = slice.endpoints.iter().flatten();
                let addresses = endpoints.flat_map(|endpoint| &endpoint.addresses);
                others.extend(addresses.filter_map(|address| address.parse::<IpAddr>().ok()));
            }
        }
        own::Addresses { own, others }
    }

    async fn may(&self, csr: &CertificateSigningRequest, subresource: &str) -> Result<bool, Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: csr.spec.username.clone(),
                uid: csr.spec.uid.clone(),
                groups: csr.spec.groups.clone(),
                extra: csr.spec.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("certificates.k8s.io".to_string()),
                    resource: Some("certificatesigningrequests".to_string()),
                    subresource: Some(subresource.to_string()),
                    verb: Some("create".to_string()),
                    version: Some("*".to_string()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.config.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    async fn sign(
        &self,
        api: &Api<CertificateSigningRequest>,
        csr: &CertificateSigningRequest,
        name: &str,
    ) -> Result<(), Error> {
        let ours = [
            request::API_CLIENT,
            request::KUBELET_CLIENT,
            request::KUBELET_SERVING,
            request::LEGACY,
        ];
        let Some(signer) = &self.signer else {
            return Ok(());
        };
        if !ours.contains(&csr.spec.signer_name.as_str()) {
            return Ok(());
        }
        let usages = csr.spec.usages.clone().unwrap_or_default();
        let mut updated = csr.clone();
        // A request that was stored before such requests were rejected fails here; its status says
        // why.
        let checked = Request::parse(&csr.spec.request.0)
            .map_err(|error| error.to_string())
            .and_then(|parsed| {
                let checked = request::check(&parsed, &csr.spec.signer_name, &usages);
                checked.map_err(|violation| violation.to_string())?;
                Ok(parsed)
            });
        match checked {
            Err(problem) => {
                self.add_condition(&mut updated, "Failed", "SignerValidationFailure", &problem);
            }
            Ok(parsed) => {
                let environment = &self.config.environment;
                let pem = signer
                    .sign(&parsed, &usages, csr.spec.expiration_seconds, environment)
                    .map_err(Error::Sign)?;
                updated.status.get_or_insert_default().certificate =
                    Some(ByteString(pem.into_bytes()));
            }
        }
        let parameters = PostParams::default();
        api.replace_status(name, &parameters, &updated).await?;
        Ok(())
    }

    fn add_condition(
        &self,
        csr: &mut CertificateSigningRequest,
        kind: &str,
        reason: &str,
        message: &str,
    ) {
        let now = Time(self.config.environment.now());
        let status = csr.status.get_or_insert_default();
        let conditions = status.conditions.get_or_insert_default();
        conditions.push(CertificateSigningRequestCondition {
            type_: kind.to_string(),
            status: "True".to_string(),
            reason: Some(reason.to_string()),
            message: Some(message.to_string()),
            last_update_time: Some(now.clone()),
            last_transition_time: Some(now),
        });
    }
}
