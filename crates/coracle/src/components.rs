//! `coracle scheduler` and `coracle controllers`: these components alone, for the API server of a
//! kubeconfig, Coracle's or upstream's. `coracle server` has the same components inside.
//!
//! The scheduler acts as the kubeconfig's user. The controllers read as that user, and each writes
//! as the ServiceAccount in `kube-system` that upstream gives it, with a token that it requests. The
//! kubeconfig's user therefore needs the permissions of `system:kube-controller-manager`.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use api::features::FeatureGates;
use base64::Engine;
use clap::Args;
use client::election::Election;
use client::service_account::ServiceAccounts;
use client::{Informers, connect};
use environment::Environment;
use tokio_util::sync::CancellationToken;
use trace::Recorder;

use crate::flags;
use crate::host;
use crate::pki;
use crate::process;

#[derive(Args)]
pub struct SchedulerArguments {
    #[command(flatten)]
    component: ComponentArguments,
}

#[derive(Args)]
pub struct ControllersArguments {
    #[command(flatten)]
    component: ComponentArguments,
    /// Certificate authority to publish in every namespace as ConfigMap kube-root-ca.crt [default: that of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    root_ca: Option<PathBuf>,
    /// Certificate with which approved CertificateSigningRequests are signed [default: they are not signed]
    #[arg(long, value_name = "FILE", requires = "signing_key")]
    signing_certificate: Option<PathBuf>,
    /// Private key of --signing-certificate
    #[arg(long, value_name = "FILE", requires = "signing_certificate")]
    signing_key: Option<PathBuf>,
    /// Private key (PKCS#8, ECDSA P-256) that signs the tokens in ServiceAccount token Secrets [default: these Secrets get no token]
    #[arg(long, value_name = "FILE")]
    service_account_key: Option<PathBuf>,
    /// Address range from which nodes get their pod CIDRs [default: no pod CIDRs are assigned]
    #[arg(long, value_name = "CIDR", value_parser = flags::pod_range)]
    pod_range: Option<String>,
    /// Kubernetes' feature gates to switch on or off, such as StorageVersionMigrator=true
    #[arg(long, value_name = "GATE=BOOL,...", default_value = "", hide_default_value = true, value_parser = FeatureGates::parse)]
    feature_gates: FeatureGates,
    /// Controllers that should not run, such as local-path,node-ipam
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = controllers::NAMES.to_vec())]
    without: Vec<String>,
}

/// The flags that both commands have.
#[derive(Args)]
struct ComponentArguments {
    /// Kubeconfig with the API server's address and the component's user
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Run without leader election
    #[arg(long)]
    no_election: bool,
    /// Log filter, such as info, debug or scheduler=debug,info
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = flags::log_filter)]
    log: String,
    /// Write log lines as JSON
    #[arg(long)]
    log_json: bool,
}

pub fn run_scheduler(arguments: SchedulerArguments) -> Result<ExitCode> {
    let component = arguments.component;
    component.run(async |environment, shutdown| {
        let client = connect::from_kubeconfig_as(&component.kubeconfig, "kube-scheduler").await?;
        let informers = Informers::new(client.clone(), environment.clone());
        let lead = |term| {
            scheduler::run(
                client.clone(),
                informers.with_empty_caches(),
                environment.clone(),
                Recorder::off(),
                term,
            )
        };
        match component.candidate(&environment)? {
            None => lead(shutdown).await,
            Some(holder) => {
                let election = Election {
                    client: client.clone(),
                    environment: environment.clone(),
                    namespace: "kube-system".to_owned(),
                    name: "kube-scheduler".to_owned(),
                    holder,
                };
                election.run(lead, shutdown).await;
            }
        }
        Ok(())
    })
}

pub fn run_controllers(arguments: ControllersArguments) -> Result<ExitCode> {
    let component = arguments.component;
    component.run(async |environment, shutdown| {
        let connection =
            connect::configuration(&component.kubeconfig, "kube-controller-manager").await?;
        let root_ca_pem = match &arguments.root_ca {
            Some(file) => read(file)?,
            None => authorities(&connection),
        };
        let authority = match (&arguments.signing_certificate, &arguments.signing_key) {
            (Some(certificate), Some(key)) => Some(controllers::Authority {
                certificate_pem: read(certificate)?,
                key_pem: read(key)?,
            }),
            _ => None,
        };
        let accounts = ServiceAccounts::new(connection.clone(), "kube-system")?;
        let client = connect::from_config(connection)?;
        let config = controllers::Config {
            informers: Informers::new(client.clone(), environment.clone()),
            client,
            accounts: controllers::Accounts::new(move |name| accounts.client(name)),
            candidate: component.candidate(&environment)?,
            environment,
            recorder: Recorder::off(),
            root_ca_pem,
            authority,
            token_signer: match &arguments.service_account_key {
                Some(file) => Some(pki::token_signer(&read(file)?)?),
                None => None,
            },
            namespace_grace: controllers::NAMESPACE_GRACE,
            pod_range: arguments.pod_range.clone(),
            reserved_pod_ranges: None,
            feature_gates: arguments.feature_gates.clone(),
            without: arguments.without.clone(),
        };
        controllers::run(config, shutdown).await;
        Ok(())
    })
}

impl ComponentArguments {
    /// Runs `work` until it ends, or until SIGTERM or SIGINT stops it.
    fn run<Work>(
        &self,
        work: impl FnOnce(Environment, CancellationToken) -> Work,
    ) -> Result<ExitCode>
    where
        Work: Future<Output = Result<()>>,
    {
        process::start_logging(&self.log, self.log_json)?;
        process::run_on_all_cores(async {
            let shutdown = CancellationToken::new();
            let work = work(Environment::system(), shutdown.clone());
            tokio::pin!(work);
            tokio::select! {
                result = &mut work => return result,
                signal = process::wait_for_shutdown(&shutdown) => signal?,
            }
            shutdown.cancel();
            work.await
        })
    }

    /// The name under which this process takes part in leader elections; no other process has it.
    fn candidate(&self, environment: &Environment) -> Result<Option<String>> {
        if self.no_election {
            return Ok(None);
        }
        let host = host::host_name()?;
        Ok(Some(format!("{host}_{}", environment.uuid())))
    }
}

fn read(file: &PathBuf) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// The certificate authorities of a kubeconfig, as PEM.
fn authorities(config: &kube::Config) -> String {
    let mut pem = String::new();
    for certificate in config.root_cert.iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in encoded.as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}
