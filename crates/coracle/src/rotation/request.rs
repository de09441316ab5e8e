//! Requests a certificate from the cluster: creates a CertificateSigningRequest with the node's own
//! identity, and watches it until it is signed, denied or failed.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use client::{Informers, retry};
use environment::Environment;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use rcgen::{CertificateParams, KeyPair, SanType};

use crate::pki::{self, Identity};

/// The requested lifetime of certificates. A node that was off for longer must be invited again.
const LIFETIME_SECONDS: i32 = 90 * 86_400;
/// How long to wait for the signature, as upstream's kubelet does.
const SIGNATURE_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The contents of a certificate to request.
pub struct CertificateRequest {
    signer: &'static str,
    purpose: &'static str,
    pub user: String,
    groups: Vec<String>,
    names: Vec<SanType>,
}

impl CertificateRequest {
    pub fn kubelet(node: &str) -> CertificateRequest {
        CertificateRequest {
            signer: "kubernetes.io/kube-apiserver-client-kubelet",
            purpose: "client auth",
            user: format!("system:node:{node}"),
            groups: vec!["system:nodes".to_string()],
            names: Vec::new(),
        }
    }

    pub fn serving(node: &str, address: IpAddr) -> CertificateRequest {
        let name = node.to_string().try_into().map(SanType::DnsName);
        CertificateRequest {
            signer: "kubernetes.io/kubelet-serving",
            purpose: "server auth",
            names: name
                .into_iter()
                .chain([SanType::IpAddress(address)])
                .collect(),
            ..CertificateRequest::kubelet(node)
        }
    }

    pub fn proxy(node: &str) -> CertificateRequest {
        let (user, groups) = pki::proxy_of(node);
        CertificateRequest {
            signer: "kubernetes.io/kube-apiserver-client",
            user,
            groups,
            ..CertificateRequest::kubelet(node)
        }
    }

    pub fn local_path(node: &str) -> CertificateRequest {
        let (user, groups) = pki::local_path_of(node);
        CertificateRequest {
            signer: "kubernetes.io/kube-apiserver-client",
            user,
            groups,
            ..CertificateRequest::kubelet(node)
        }
    }
}

#[derive(Clone)]
pub struct Requester {
    client: kube::Client,
    environment: Environment,
}

impl Requester {
    pub fn new(client: kube::Client, environment: Environment) -> Requester {
        Requester {
            client,
            environment,
        }
    }

    /// Makes a new key and returns it with a certificate for it.
    pub async fn request(&self, wanted: &CertificateRequest) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        let groups: Vec<&str> = wanted.groups.iter().map(String::as_str).collect();
        parameters.distinguished_name = pki::subject(&wanted.user, &groups);
        parameters.subject_alt_names = wanted.names.clone();
        let request = parameters.serialize_request(&key)?.pem()?;
        let csr = CertificateSigningRequest {
            metadata: ObjectMeta {
                generate_name: Some("csr-".to_string()),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: wanted.signer.to_string(),
                usages: Some(vec![
                    "digital signature".to_string(),
                    wanted.purpose.to_string(),
                ]),
                expiration_seconds: Some(LIFETIME_SECONDS),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let made = api.create(&PostParams::default(), &csr).await;
        let made = made.map_err(|error| anyhow::anyhow!("{}", retry::sentence(&error)))?;
        let name = made.metadata.name.context("the request has no name")?;
        let signed = tokio::time::timeout(SIGNATURE_LIMIT, self.signed(&name)).await;
        Ok(Identity {
            certificate: signed.context("the certificate request was not signed in time")??,
            key: key.serialize_pem(),
        })
    }

    async fn signed(&self, name: &str) -> Result<String> {
        let selector = format!("metadata.name={name}");
        let informers = Informers::new(self.client.clone(), self.environment.clone());
        let requests = informers.with_selector::<CertificateSigningRequest>(&selector);
        let mut changes = requests.subscribe();
        loop {
            if let Some(csr) = requests.get("", name)
                && let Some(status) = &csr.status
            {
                if let Some(certificate) = status.certificate.as_ref().filter(|c| !c.0.is_empty()) {
                    return Ok(String::from_utf8(certificate.0.clone())?);
                }
                let refused = status.conditions.iter().flatten();
                for condition in refused {
                    if matches!(condition.type_.as_str(), "Denied" | "Failed") {
                        let why = condition.message.as_deref().unwrap_or_default();
                        bail!("the request was refused ({}): {why}", condition.type_);
                    }
                }
            }
            changes.next().await;
        }
    }
}
