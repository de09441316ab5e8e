//! The cluster's certificates and keys: one authority, and a second one for front proxies, which may
//! speak for users; ECDSA throughout, files of mode 0600.
//!
//! Leaf certificates are renewed at start when they are missing, expire soon or are for other
//! addresses. The certificate authority and the ServiceAccount key stay.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use environment::Environment;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use serde::{Deserialize, Serialize};

use crate::layout::{private_dir, write_private};

const AUTHORITY_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;
/// The API server calculates the time of issue of a certificate from this.
const BACKDATE_SECONDS: i64 = 300;
/// Certificate and key of a joined node's kubelet.
const SERVING: &str = "kubelet-server.pem";
/// A leaf is renewed at start when it has fewer days than this left.
const RENEW_DAYS: i64 = 60;

/// A certificate with its key, both PEM.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// The certificates and keys of a server and its components.
pub struct Pki {
    pub authority: String,
    /// The key that signs CertificateSigningRequests.
    pub authority_key: String,
    pub service_account_key: String,
    pub server: Identity,
    pub kubelet_server: Identity,
    pub kubelet_client: Identity,
    pub admin: Identity,
    pub node: Identity,
    /// The identity of a node's service proxy and DNS.
    pub proxy: Identity,
    /// The identity of the node's side of local-path volumes.
    pub local_path: Identity,
    /// Signs for those who may say who the user of a request is.
    pub front_proxy_authority: String,
    /// By this, extension API servers recognize the API server.
    pub front_proxy_client: Identity,
}

/// The common name of the certificate that the API server shows to extension API servers.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// The names and addresses in the certificates.
pub struct Names<'a> {
    pub node_name: &'a str,
    pub addresses: &'a [IpAddr],
    pub cluster_domain: &'a str,
}

impl Pki {
    /// Reads the files in `dir` and creates those that are missing or outdated.
    pub fn load_or_create(dir: &Path, names: &Names<'_>, environment: &Environment) -> Result<Pki> {
        private_dir(dir)?;
        let files = CertificateFiles {
            dir,
            today: environment.now(),
        };
        let authority = files.authority("ca", "coracle-ca")?;
        let front_proxy = files.authority("front-proxy-ca", "front-proxy-ca")?;
        let authority_pem = authority.certificate.clone();
        let issuer = issuer(&authority)?;

        let mut server_names: Vec<SanType> = Vec::new();
        for name in [
            "localhost".to_string(),
            names.node_name.to_string(),
            "kubernetes".to_string(),
            "kubernetes.default".to_string(),
            "kubernetes.default.svc".to_string(),
            format!("kubernetes.default.svc.{}", names.cluster_domain),
        ] {
            server_names.push(SanType::DnsName(name.try_into()?));
        }
        server_names.extend(
            names
                .addresses
                .iter()
                .map(|address| SanType::IpAddress(*address)),
        );
        let kubelet_names = server_names.clone();

        Ok(Pki {
            service_account_key: files.key("service-account")?,
            server: files.leaf(&issuer, "server", "kube-apiserver", &[], server_names)?,
            kubelet_server: files.leaf(
                &issuer,
                "kubelet-server",
                &format!("system:node:{}", names.node_name),
                &["system:nodes"],
                kubelet_names,
            )?,
            kubelet_client: files.leaf(
                &issuer,
                "kubelet-client",
                // It has no groups: its only permissions are those of the role
                // `system:kubelet-api-admin`.
                "kube-apiserver-kubelet-client",
                &[],
                Vec::new(),
            )?,
            admin: files.leaf(
                &issuer,
                "admin",
                "kubernetes-admin",
                &["system:masters"],
                Vec::new(),
            )?,
            node: files.leaf(
                &issuer,
                "node",
                &format!("system:node:{}", names.node_name),
                &["system:nodes"],
                Vec::new(),
            )?,
            proxy: files.leaf(&issuer, "proxy", "system:kube-proxy", &[], Vec::new())?,
            local_path: files.local_path(&issuer, names.node_name)?,
            front_proxy_client: files.leaf(
                &self::issuer(&front_proxy)?,
                "front-proxy-client",
                FRONT_PROXY_CLIENT,
                &[],
                Vec::new(),
            )?,
            front_proxy_authority: front_proxy.certificate,
            authority: authority_pem,
            authority_key: authority.key,
        })
    }

    /// TLS for a server that also accepts client certificates of this authority.
    pub fn server_tls(&self, identity: &Identity) -> Result<Arc<rustls::ServerConfig>> {
        server_tls(&self.authority, identity)
    }

    /// TLS for the API server, which also accepts front proxies.
    pub fn api_server_tls(&self) -> Result<Arc<rustls::ServerConfig>> {
        let authorities = format!("{}{}", self.authority, self.front_proxy_authority);
        server_tls(&authorities, &self.server)
    }
}

fn client_verifier(authority: &str) -> Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate?)?;
    }
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
    Ok(verifier.allow_unauthenticated().build()?)
}

fn server_tls(authority: &str, identity: &Identity) -> Result<Arc<rustls::ServerConfig>> {
    let verifier = client_verifier(authority)?;
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let mut config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Signs tokens for Secrets that an API server with the same key accepts.
pub fn token_signer(key_pem: &str) -> Result<controllers::TokenSigner> {
    let signer = apiserver::TokenSigner::from_pem(key_pem)?;
    Ok(controllers::TokenSigner::new(move |claims| {
        signer.sign(claims)
    }))
}

/// The certificates of a node on another machine.
pub struct NodeIdentities {
    pub authority: String,
    pub node: Identity,
    pub kubelet_server: Identity,
    pub proxy: Identity,
    pub local_path: Identity,
}

/// Creates the certificates of a node that may join, valid for `valid_for`; `dir` is the server's.
/// They are not stored.
pub fn invite(
    dir: &Path,
    node_name: &str,
    addresses: &[IpAddr],
    valid_for: Duration,
    environment: &Environment,
) -> Result<NodeIdentities> {
    let today = environment.now();
    let authority = CertificateFiles { dir, today }.authority("ca", "coracle-ca")?;
    let issuer = issuer(&authority)?;
    let fresh = |user: &str, groups: &[String], names: Vec<SanType>| {
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let (key, mut parameters) = leaf_parameters(user, &groups, names)?;
        let second = |second: i64| {
            let second = u64::try_from(second).unwrap_or_default();
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(second)
        };
        let now = today.as_second();
        parameters.not_before = second(now - BACKDATE_SECONDS);
        parameters.not_after = second(now + valid_for.as_secs() as i64);
        anyhow::Ok(Identity {
            certificate: parameters.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
        })
    };
    let mut names = vec![SanType::DnsName(node_name.to_string().try_into()?)];
    names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
    let user = format!("system:node:{node_name}");
    let groups = ["system:nodes".to_string()];
    let (proxy, proxy_groups) = proxy_of(node_name);
    let (local_path, local_path_groups) = local_path_of(node_name);
    Ok(NodeIdentities {
        node: fresh(&user, &groups, Vec::new())?,
        kubelet_server: fresh(&user, &groups, names)?,
        proxy: fresh(&proxy, &proxy_groups, Vec::new())?,
        local_path: fresh(&local_path, &local_path_groups, Vec::new())?,
        authority: authority.certificate,
    })
}

/// User and groups of a joined node's service proxy. The group contains the node's name, so that the
/// certificate is revoked with its node.
pub fn proxy_of(node_name: &str) -> (String, Vec<String>) {
    let group = format!("system:coracle:node:{node_name}");
    ("system:kube-proxy".to_string(), vec![group])
}

/// User and groups of a node's side of local-path volumes.
pub fn local_path_of(node_name: &str) -> (String, Vec<String>) {
    let group = "system:coracle:local-path-nodes".to_string();
    (
        format!("system:coracle:local-path:{node_name}"),
        vec![group],
    )
}

/// Writes the authority and the serving certificate of a joined node's kubelet.
pub fn save_joined(dir: &Path, authority: &str, kubelet_server: &Identity) -> Result<()> {
    write_private(&dir.join("ca.crt"), authority.as_bytes())?;
    save_serving(dir, kubelet_server)
}

/// Writes certificate and key to one file, so that a crash cannot leave only one of them.
pub fn save_serving(dir: &Path, identity: &Identity) -> Result<()> {
    let both = format!("{}{}", identity.certificate, identity.key);
    write_private(&dir.join(SERVING), both.as_bytes())
}

/// The serving certificate of a joined node's kubelet.
pub fn serving_identity(dir: &Path) -> Result<Identity> {
    let read = |name: &str| {
        let path = dir.join(name);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    if dir.join(SERVING).exists() {
        let both = read(SERVING)?;
        return Ok(Identity {
            certificate: both.clone(),
            key: both,
        });
    }
    // Nodes that joined with an earlier version have two files.
    Ok(Identity {
        certificate: read("kubelet-server.crt")?,
        key: read("kubelet-server.key")?,
    })
}

/// A serving certificate for a kubelet whose cluster provides none.
pub fn self_signed(
    node_name: &str,
    addresses: &[IpAddr],
    environment: &Environment,
) -> Result<Identity> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(vec![node_name.to_string()])?;
    parameters.distinguished_name = subject(&format!("system:node:{node_name}"), &["system:nodes"]);
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters
        .subject_alt_names
        .extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
    let files = CertificateFiles {
        dir: Path::new(""),
        today: environment.now(),
    };
    files.set_validity(&mut parameters, LEAF_DAYS);
    Ok(Identity {
        certificate: parameters.self_signed(&key)?.pem(),
        key: key.serialize_pem(),
    })
}

/// TLS of a joined node's kubelet, whose certificate may be replaced.
pub fn joined_tls(
    dir: &Path,
    certificate: Arc<dyn ResolvesServerCert>,
) -> Result<Arc<rustls::ServerConfig>> {
    let path = dir.join("ca.crt");
    let authority =
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let builder =
        rustls::ServerConfig::builder().with_client_cert_verifier(client_verifier(&authority)?);
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn issuer(authority: &Identity) -> Result<Issuer<'static, KeyPair>> {
    let key = KeyPair::from_pem(&authority.key)
        .context("reading the key of the certificate authority")?;
    Issuer::from_ca_cert_pem(&authority.certificate, key)
        .context("reading the certificate of the certificate authority")
}

/// Keys and certificates in one directory, created at one time.
struct CertificateFiles<'a> {
    dir: &'a Path,
    today: jiff::Timestamp,
}

impl CertificateFiles<'_> {
    /// An authority of this common name; `file` is the name of its files.
    fn authority(&self, file: &str, name: &str) -> Result<Identity> {
        let (certificate_file, key_file) = self.pair(file);
        if let (Ok(certificate), Ok(key)) = (
            fs::read_to_string(&certificate_file),
            fs::read_to_string(&key_file),
        ) {
            return Ok(Identity { certificate, key });
        }
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = subject(name, &[]);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        self.set_validity(&mut parameters, AUTHORITY_DAYS);
        let identity = Identity {
            certificate: parameters.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        };
        write_private(&key_file, identity.key.as_bytes())?;
        write_private(&certificate_file, identity.certificate.as_bytes())?;
        Ok(identity)
    }

    /// A key pair without a certificate, PKCS#8.
    fn key(&self, name: &str) -> Result<String> {
        let path = self.dir.join(format!("{name}.key"));
        if let Ok(key) = fs::read_to_string(&path) {
            return Ok(key);
        }
        let key = KeyPair::generate()?.serialize_pem();
        write_private(&path, key.as_bytes())?;
        Ok(key)
    }

    /// The identity of a node's side of local-path volumes.
    fn local_path(&self, issuer: &Issuer<'_, KeyPair>, node_name: &str) -> Result<Identity> {
        let (user, groups) = local_path_of(node_name);
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        self.leaf(issuer, "local-path", &user, &groups, Vec::new())
    }

    /// A certificate for clients and, if it has names, for servers. The file `<name>.for` records
    /// its names and its expiry.
    fn leaf(
        &self,
        issuer: &Issuer<'_, KeyPair>,
        name: &str,
        user: &str,
        groups: &[&str],
        names: Vec<SanType>,
    ) -> Result<Identity> {
        let (certificate_file, key_file) = self.pair(name);
        let purpose_file = self.dir.join(format!("{name}.for"));
        let purpose = format!("{user} {groups:?} {names:?}");
        if let (Ok(certificate), Ok(key), Ok(made_for)) = (
            fs::read_to_string(&certificate_file),
            fs::read_to_string(&key_file),
            fs::read_to_string(&purpose_file),
        ) && let Some((until, made_for)) = made_for.split_once(' ')
            && made_for == purpose
            && until.parse::<i64>().unwrap_or(0) > self.today.as_second() + RENEW_DAYS * 86_400
        {
            return Ok(Identity { certificate, key });
        }
        let (key, mut parameters) = leaf_parameters(user, groups, names)?;
        self.set_validity(&mut parameters, LEAF_DAYS);
        let identity = Identity {
            certificate: parameters.signed_by(&key, issuer)?.pem(),
            key: key.serialize_pem(),
        };
        write_private(&key_file, identity.key.as_bytes())?;
        write_private(&certificate_file, identity.certificate.as_bytes())?;
        let until = self.today.as_second() + LEAF_DAYS * 86_400;
        write_private(&purpose_file, format!("{until} {purpose}").as_bytes())?;
        Ok(identity)
    }

    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        (
            self.dir.join(format!("{name}.crt")),
            self.dir.join(format!("{name}.key")),
        )
    }

    /// Certificates are valid from yesterday on, so that clocks that are behind accept them too.
    fn set_validity(&self, parameters: &mut CertificateParams, days: i64) {
        let date = |offset: i64| {
            let day = jiff::Timestamp::from_second(self.today.as_second() + offset * 86_400)
                .unwrap_or(self.today)
                .to_zoned(jiff::tz::TimeZone::UTC)
                .date();
            rcgen::date_time_ymd(day.year().into(), day.month() as u8, day.day() as u8)
        };
        parameters.not_before = date(-1);
        parameters.not_after = date(days);
    }
}

/// A key and the contents of a certificate for it, without its validity.
fn leaf_parameters(
    user: &str,
    groups: &[&str],
    names: Vec<SanType>,
) -> Result<(KeyPair, CertificateParams)> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = subject(user, groups);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if !names.is_empty() {
        parameters
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    parameters.subject_alt_names = names;
    Ok((KeyPair::generate()?, parameters))
}

pub fn subject(common_name: &str, organizations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for organization in organizations {
        name.push(DnType::OrganizationName, *organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

#[cfg(test)]
mod tests {
    use api::certificate::Subject;

    use super::*;

    fn subject_of(identity: &Identity) -> Subject {
        let der = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
        Subject::of_certificate(&der).unwrap()
    }

    #[test]
    fn an_older_kubelet_client_certificate_is_replaced_by_one_without_groups() {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment::simulated(1, 1_800_000_000_000_000);
        let files = CertificateFiles {
            dir: directory.path(),
            today: environment.now(),
        };
        let authority = files.authority("ca", "coracle-ca").unwrap();
        let before = files.leaf(
            &issuer(&authority).unwrap(),
            "kubelet-client",
            "kube-apiserver-kubelet-client",
            &["system:masters"],
            Vec::new(),
        );
        assert_eq!(
            subject_of(&before.unwrap()).organizations,
            ["system:masters"]
        );
        let names = Names {
            node_name: "n",
            addresses: &[],
            cluster_domain: "cluster.local",
        };
        let pki = Pki::load_or_create(directory.path(), &names, &environment).unwrap();
        let subject = subject_of(&pki.kubelet_client);
        assert_eq!(subject.common_name, "kube-apiserver-kubelet-client");
        assert!(subject.organizations.is_empty());
        let again = Pki::load_or_create(directory.path(), &names, &environment).unwrap();
        let (first, second) = (pki.kubelet_client, again.kubelet_client);
        assert_eq!(first.certificate, second.certificate);
    }

    #[test]
    fn front_proxies_have_an_authority_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment::simulated(1, 1_800_000_000_000_000);
        let names = Names {
            node_name: "n",
            addresses: &[],
            cluster_domain: "cluster.local",
        };
        let pki = Pki::load_or_create(directory.path(), &names, &environment).unwrap();
        assert_ne!(pki.front_proxy_authority, pki.authority);
        let subject = subject_of(&pki.front_proxy_client);
        assert_eq!(subject.common_name, FRONT_PROXY_CLIENT);
        assert!(subject.organizations.is_empty());
        let again = Pki::load_or_create(directory.path(), &names, &environment).unwrap();
        assert_eq!(again.front_proxy_authority, pki.front_proxy_authority);
    }
}
