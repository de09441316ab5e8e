//! `coracle scheduler` and `coracle controllers`: these parts alone, against any Kubernetes API
//! server that a kubeconfig leads to, ours or upstream's. The server has the same parts inside.
//!
//! The scheduler acts as whoever the kubeconfig says. The controllers read as that user, and act
//! each as the ServiceAccount in `kube-system` that upstream gives it, with tokens that they ask
//! for; the kubeconfig's user therefore needs what `system:kube-controller-manager` may do.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use base64::Engine;
use clap::Args;
use client::election::Election;
use client::service_account::ServiceAccounts;
use client::{Informers, connect};
use environment::Environment;
use tokio_util::sync::CancellationToken;
use trace::Recorder;

use crate::server;

#[derive(Args)]
pub struct SchedulerArguments {
    #[command(flatten)]
    component: ComponentArguments,
}

#[derive(Args)]
pub struct ControllersArguments {
    #[command(flatten)]
    component: ComponentArguments,
    /// Authority to publish to every namespace [default: the kubeconfig's]
    #[arg(long, value_name = "FILE")]
    root_ca: Option<PathBuf>,
    /// Certificate to sign requests with; without it they stay unsigned
    #[arg(long, value_name = "FILE", requires = "signing_key")]
    signing_certificate: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "signing_certificate")]
    signing_key: Option<PathBuf>,
    /// Key to sign the tokens in Secrets with (PKCS#8, ECDSA P-256); without it they stay empty
    #[arg(long, value_name = "FILE")]
    service_account_key: Option<PathBuf>,
    /// Range to give nodes their pod ranges from [default: nodes bring their own]
    #[arg(long, value_name = "CIDR", value_parser = crate::flags::pod_range)]
    pod_range: Option<String>,
    /// Controllers to leave out, e.g. local-path,node-ipam
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = controllers::NAMES.to_vec())]
    without: Vec<String>,
}

/// What both have.
#[derive(Args)]
struct ComponentArguments {
    /// The API server, and who to be
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Run without asking whether another one leads
    #[arg(long)]
    no_election: bool,
    /// Log filter, e.g. info or debug
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = crate::flags::log_filter)]
    log: String,
    /// Write logs as JSON lines
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
                informers.anew(),
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
                Some(file) => Some(token_signer(&read(file)?)?),
                None => None,
            },
            namespace_grace: controllers::NAMESPACE_GRACE,
            pod_range: arguments.pod_range.clone(),
            reserved_pod_ranges: None,
            without: arguments.without.clone(),
        };
        controllers::run(config, shutdown).await;
        Ok(())
    })
}

impl ComponentArguments {
    /// Runs `work` until it ends or a signal comes.
    fn run<Work>(
        &self,
        work: impl FnOnce(Environment, CancellationToken) -> Work,
    ) -> Result<ExitCode>
    where
        Work: Future<Output = Result<()>>,
    {
        server::start_logging(&self.log, self.log_json)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let result = runtime.block_on(async {
            let shutdown = CancellationToken::new();
            let work = work(Environment::system(), shutdown.clone());
            tokio::pin!(work);
            tokio::select! {
                result = &mut work => return result,
                signal = server::wait_for_shutdown(&shutdown) => signal?,
            }
            shutdown.cancel();
            work.await
        });
        runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        result.map(|()| ExitCode::SUCCESS)
    }

    /// The name to stand for election under: no other process has it.
    fn candidate(&self, environment: &Environment) -> Result<Option<String>> {
        if self.no_election {
            return Ok(None);
        }
        let host = server::host_name()?;
        Ok(Some(format!("{host}_{}", environment.uuid())))
    }
}

/// Signs tokens for Secrets as the API server with this key believes them.
pub fn token_signer(key_pem: &str) -> Result<controllers::TokenSigner> {
    let signer = apiserver::TokenSigner::from_pem(key_pem)?;
    Ok(controllers::TokenSigner::new(move |claims| {
        signer.sign(claims)
    }))
}

fn read(file: &PathBuf) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| file.display().to_string())
}

/// The authorities by which a kubeconfig's server is known, as PEM.
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
