//! Pulls from a real registry, directly and through failing proxies, mirrors and authentication.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cri::v1::{AuthConfig, ImageSpec, PullImageRequest};
use runtime::images::{Credentials, Error, ImageStore, Puller, Settings, Stage, registry};

use super::{
    image::{Archive, Layer, busybox_layer},
    proxy::{Faults, Proxy},
    registry::{Authority, Demands, Registry, password_file},
    server::with_server,
};

/// Bytes of the layer that faults are tried on; compression does not shrink it.
const LARGE: usize = 600_000;

/// A directory with a registry that holds `team/box:v1`, and a store to pull into.
struct Place {
    directory: tempfile::TempDir,
    registry: Registry,
}

impl Place {
    async fn new() -> Result<Place> {
        let directory = tempfile::tempdir()?;
        let registry = Registry::start(directory.path(), Demands::default()).await?;
        let mut noise = Vec::with_capacity(LARGE);
        let mut state = 1_u64;
        while noise.len() < LARGE {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            noise.extend_from_slice(&state.to_be_bytes()[..4]);
        }
        let layers = vec![
            Layer::new().file("small", 0o644, b"small").finish(),
            Layer::new().file("large", 0o644, &noise).finish(),
            Layer::new().file("last", 0o644, b"last").finish(),
        ];
        let archive = Archive {
            layers,
            ..Archive::default()
        };
        registry.push(&archive.write(directory.path()), "team/box:v1")?;
        Ok(Place {
            directory,
            registry,
        })
    }

    fn store(&self, name: &str) -> Result<Arc<ImageStore>> {
        Ok(Arc::new(ImageStore::open(
            &self.directory.path().join(name),
        )?))
    }

    /// A directory with a `hosts.toml` for a registry.
    fn hosts(&self, registry: &str, text: &str) -> Result<PathBuf> {
        let directory = self.directory.path().join("hosts");
        std::fs::create_dir_all(directory.join(registry))?;
        std::fs::write(directory.join(registry).join("hosts.toml"), text)?;
        Ok(directory)
    }
}

fn block_on(test: impl Future<Output = Result<()>>) {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("tokio");
    if let Err(error) = tokio.block_on(test) {
        panic!("{error:?}");
    }
}

/// A host that says nothing for so long is given up: only for those that will say nothing.
fn impatient() -> Settings {
    Settings {
        idle_timeout: Duration::from_secs(2),
        ..Settings::default()
    }
}

fn patient() -> Settings {
    Settings {
        idle_timeout: Duration::from_secs(60),
        ..Settings::default()
    }
}

async fn pull(
    store: &Arc<ImageStore>,
    settings: &Settings,
    name: &str,
    credentials: Credentials,
) -> Result<(), Arc<Error>> {
    // A puller of its own each time, as after a restart.
    let pull = Puller::new(store.clone(), settings.clone()).begin(name, credentials)?;
    pull.done.clone().await.map(|_| ())
}

fn files_in(directory: &Path) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}

#[test]
fn interrupted_downloads_are_resumed() {
    block_on(async {
        let place = Place::new().await?;
        let proxy = Proxy::start(place.registry.port).await?;
        let name = format!("127.0.0.1:{}/team/box:v1", proxy.port);
        // Cut again and again, but each time a part arrives.
        let store = place.store("cut")?;
        proxy.set(Faults {
            cut_after: Some(150_000),
            ..Faults::default()
        });
        pull(&store, &patient(), &name, Credentials::Anonymous).await?;
        let parts: Vec<String> = proxy.ranges().into_iter().flatten().collect();
        ensure!(parts.len() >= 3, "{parts:?}");
        ensure!(
            parts.iter().all(|part| part.starts_with("bytes=")),
            "{parts:?}"
        );
        store.check(&store.find(&name)?.context("no image")?, true)?;
        ensure!(files_in(&store.directory().join("ingest")) == 0);
        ensure!(files_in(&store.directory().join("layers")) == 3);

        // A pull that fails keeps what it has; the next one asks for the rest only.
        let store = place.store("kept")?;
        proxy.set(Faults {
            stall_after: Some(200_000),
            ignore_range: true,
            ..Faults::default()
        });
        let kept = || -> Result<u64> {
            ensure!(
                store.collect(&Default::default())?,
                "and so does a collection"
            );
            let mut parts = std::fs::read_dir(store.directory().join("ingest"))?.flatten();
            let partial =
                parts.find(|entry| entry.file_name().to_string_lossy().starts_with("partial-"));
            Ok(partial.context("nothing was kept")?.metadata()?.len())
        };
        // A slow machine may have been given up before the registry, and its proxy, said anything.
        for _ in 0..10 {
            let failed = pull(&store, &impatient(), &name, Credentials::Anonymous).await;
            ensure!(failed.is_err());
            if kept().is_ok_and(|kept| kept == 200_000) {
                break;
            }
        }
        let kept = kept()?;
        ensure!(kept == 200_000, "{kept}");
        proxy.set(Faults::default());
        let begun = Puller::new(store.clone(), patient()).begin(&name, Credentials::Anonymous)?;
        begun.done.clone().await?;
        let progress = begun.progress.borrow().clone();
        ensure!(
            progress.len() == 3 && progress[1].resumed == kept,
            "{progress:?}"
        );
        ensure!(
            progress.iter().all(|layer| layer.stage == Stage::Done),
            "{progress:?}"
        );
        ensure!(proxy.ranges().contains(&Some(format!("bytes={kept}-"))));
        store.check(&store.find(&name)?.context("no image")?, true)?;

        // A host that answers another part than was asked for is not believed.
        let store = place.store("wrong")?;
        proxy.set(Faults {
            cut_after: Some(150_000),
            wrong_range: true,
            ..Faults::default()
        });
        ensure!(
            pull(&store, &patient(), &name, Credentials::Anonymous)
                .await
                .is_err()
        );
        // One that is busy for a while is asked again.
        let store = place.store("busy")?;
        proxy.set(Faults {
            unavailable: 2,
            ..Faults::default()
        });
        pull(&store, &patient(), &name, Credentials::Anonymous).await?;
        store.check(&store.find(&name)?.context("no image")?, true)?;
        Ok(())
    });
}

#[test]
fn wrong_content_of_a_registry_is_refused_and_leaves_nothing() {
    block_on(async {
        let place = Place::new().await?;
        let proxy = Proxy::start(place.registry.port).await?;
        let name = format!("127.0.0.1:{}/team/box:v1", proxy.port);
        let store = place.store("lies")?;
        proxy.set(Faults {
            lie: true,
            ..Faults::default()
        });
        let error = pull(&store, &patient(), &name, Credentials::Anonymous).await;
        let error = error.err().context("lies were believed")?;
        ensure!(matches!(*error, Error::Digest { .. }), "{error}");
        ensure!(store.find(&name)?.is_none());
        ensure!(files_in(&store.directory().join("layers")) == 0);
        // What a lying host left behind is replaced when an honest one answers.
        proxy.set(Faults {
            lie: true,
            stall_after: Some(400_000),
            ..Faults::default()
        });
        ensure!(
            pull(&store, &impatient(), &name, Credentials::Anonymous)
                .await
                .is_err()
        );
        proxy.set(Faults::default());
        pull(&store, &patient(), &name, Credentials::Anonymous).await?;
        store.check(&store.find(&name)?.context("no image")?, true)?;
        // A manifest without end is given up.
        proxy.set(Faults {
            endless_manifest: true,
            ..Faults::default()
        });
        let error = pull(&store, &patient(), &name, Credentials::Anonymous).await;
        let error = error.err().context("an endless manifest was read")?;
        let text = environment::chain(&error).to_string();
        ensure!(text.contains("too large"), "{text}");
        Ok(())
    });
}

#[test]
fn mirrors_are_tried_in_order() {
    block_on(async {
        let place = Place::new().await?;
        let (liar, honest) = (
            Proxy::start(place.registry.port).await?,
            Proxy::start(place.registry.port).await?,
        );
        let text = format!(
            "server = \"http://127.0.0.1:{}\"\n\
             [host.\"http://127.0.0.1:1\"]\n\
             [host.\"http://127.0.0.1:{}\"]\ncapabilities = [\"pull\"]\n\
             [host.\"http://127.0.0.1:{}\"]\ncapabilities = [\"pull\", \"resolve\"]\n\
             [host.\"http://127.0.0.1:{}\".header]\nx-odd = \"sent\"\n",
            place.registry.port, liar.port, honest.port, honest.port
        );
        let settings = Settings {
            directories: vec![place.hosts("registry.example", &text)?],
            ..patient()
        };
        liar.set(Faults {
            lie: true,
            ..Faults::default()
        });
        let name = "registry.example/team/box:v1";
        let store = place.store("mirrors")?;
        pull(&store, &settings, name, Credentials::Anonymous).await?;
        let record = store.find(name)?.context("no image")?;
        ensure!(record.tags.contains(name), "{record:?}");
        store.check(&record, true)?;
        let asked = honest.asked.lock().clone();
        ensure!(
            asked
                .iter()
                .all(|one| one.odd_header.as_deref() == Some("sent"))
        );
        ensure!(
            asked
                .iter()
                .all(|one| one.path.ends_with("?ns=registry.example")),
            "{asked:?}"
        );
        ensure!(
            asked.iter().any(|one| one.path.contains("/manifests/v1")),
            "{asked:?}"
        );
        let tags = liar
            .asked
            .lock()
            .iter()
            .filter(|one| one.path.contains("/manifests/v1"))
            .count();
        ensure!(
            tags == 0,
            "a mirror that may not resolve was asked for a tag"
        );
        ensure!(
            liar.asked
                .lock()
                .iter()
                .any(|one| one.path.contains("/blobs/"))
        );
        // All mirrors gone: the registry itself answers.
        let text = format!(
            "server = \"http://127.0.0.1:{}/v2\"\n[host.\"http://127.0.0.1:1/x\"]\noverride_path = true\n",
            place.registry.port
        );
        let settings = Settings {
            directories: vec![place.hosts("registry.example", &text)?],
            ..patient()
        };
        let store = place.store("server")?;
        pull(&store, &settings, name, Credentials::Anonymous).await?;
        // A file that cannot be read is an error, not a way around it.
        let settings = Settings {
            directories: vec![place.hosts("registry.example", "server = 5")?],
            ..patient()
        };
        let error = pull(&store, &settings, name, Credentials::Anonymous).await;
        let error = error
            .err()
            .map(|error| environment::chain(&error).to_string());
        let error = error.unwrap_or_default();
        ensure!(error.contains("registry.example"), "{error:?}");
        Ok(())
    });
}

#[test]
fn private_authorities_client_certificates_and_passwords_are_used() {
    block_on(async {
        let place = Place::new().await?;
        let directory = place.directory.path();
        let authority = Authority::new(directory)?;
        let demands = Demands {
            password_file: Some(password_file(directory)?),
            tls: Some(authority.issue("server")?),
            client_authority: None,
        };
        let guarded = Registry::start(directory, demands).await?;
        let name = guarded.name("team/box:v1");
        let host = format!("127.0.0.1:{}", guarded.port);
        let user = |password: &str| Credentials::Basic("tester".into(), password.into());
        let store = place.store("guarded")?;
        let settings = |text: &str| -> Result<Settings> {
            Ok(Settings {
                directories: vec![place.hosts(&host, text)?],
                ..patient()
            })
        };
        let server = format!("server = \"https://{host}\"\n");
        let trusting = settings(&format!(
            "{server}ca = \"{}\"\n",
            authority.certificate.display()
        ))?;
        for (credentials, why) in [
            (Credentials::Anonymous, "none"),
            (user("wrong"), "wrong"),
            (Credentials::Bearer("made-up".into()), "bearer"),
        ] {
            let error = pull(&store, &trusting, &name, credentials)
                .await
                .err()
                .context(why)?;
            let Error::Registry { source, .. } = error.as_ref() else {
                anyhow::bail!("{why}: {error}");
            };
            ensure!(
                matches!(**source, registry::Error::Unauthorized { .. }),
                "{why}: {source}"
            );
        }
        pull(&store, &trusting, &name, user("secret")).await?;
        let suspicious = settings(&server)?;
        let error = pull(&store, &suspicious, &name, user("secret")).await;
        ensure!(error.is_err(), "an unknown authority was believed");
        let careless = settings(&format!("{server}skip_verify = true\n"))?;
        pull(&store, &careless, &name, user("secret")).await?;

        let demands = Demands {
            password_file: None,
            tls: Some(authority.issue("server-two")?),
            client_authority: Some(authority.certificate.clone()),
        };
        let mutual = Registry::start(directory, demands).await?;
        let host = format!("127.0.0.1:{}", mutual.port);
        let (certificate, key) = authority.issue("client")?;
        let ca = format!(
            "server = \"https://{host}\"\nca = [\"{}\"]\n",
            authority.certificate.display()
        );
        let with = format!(
            "{ca}client = [[\"{}\", \"{}\"]]\n",
            certificate.display(),
            key.display()
        );
        for (text, accepted) in [(ca, false), (with, true)] {
            let settings = Settings {
                directories: vec![place.hosts(&host, &text)?],
                ..patient()
            };
            let name = mutual.name("team/box:v1");
            let result = pull(&store, &settings, &name, Credentials::Anonymous).await;
            ensure!(result.is_ok() == accepted, "{result:?}");
        }
        Ok(())
    });
}

#[test]
fn tokens_are_asked_for_and_secrets_stay_where_they_belong() {
    block_on(async {
        let place = Place::new().await?;
        let proxy = Proxy::start(place.registry.port).await?;
        let elsewhere = Proxy::start(place.registry.port).await?;
        let name = format!("127.0.0.1:{}/team/box:v1", proxy.port);
        let faults = Faults {
            token: Some("short-lived".into()),
            redirect_to: Some(elsewhere.port),
            ..Faults::default()
        };
        for (number, credentials, accepted) in [
            (
                0,
                Credentials::Basic("tester".into(), "secret".into()),
                true,
            ),
            (1, Credentials::Identity("long-lived".into()), true),
            (2, Credentials::Bearer("short-lived".into()), true),
            (3, Credentials::Anonymous, false),
            (
                4,
                Credentials::Basic("tester".into(), "wrong".into()),
                false,
            ),
        ] {
            proxy.set(faults.clone());
            elsewhere.set(Faults::default());
            let store = place.store(&format!("token{number}"))?;
            let result = pull(&store, &patient(), &name, credentials).await;
            ensure!(result.is_ok() == accepted, "{number}: {result:?}");
            let asked = elsewhere.asked.lock().clone();
            ensure!(asked.is_empty() != accepted, "{number}: {asked:?}");
            ensure!(
                asked.iter().all(|one| one.authorization.is_none()),
                "{asked:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn pull_secrets_come_through_cri() {
    with_server(&[], async |server| {
        let directory = server.directory.clone();
        let open = Registry::start(&directory, Demands::default()).await?;
        let archive = Archive {
            layers: vec![busybox_layer()],
            ..Archive::default()
        };
        open.push(
            &archive.write(&directory.join("archives")),
            "team/secret:v1",
        )?;
        let demands = Demands {
            password_file: Some(password_file(&directory)?),
            ..Demands::default()
        };
        let guarded = Registry::start(&directory, demands).await?;
        let auth = |username: &str, password: &str, auth: &str| AuthConfig {
            username: username.into(),
            password: password.into(),
            auth: auth.into(),
            ..AuthConfig::default()
        };
        for (auth, accepted) in [
            (None, false),
            (Some(auth("tester", "wrong", "")), false),
            (Some(auth("tester", "secret", "")), true),
            (Some(auth("", "", "dGVzdGVyOnNlY3JldA==")), true),
        ] {
            let request = PullImageRequest {
                image: Some(ImageSpec {
                    image: guarded.name("team/secret:v1"),
                    ..ImageSpec::default()
                }),
                auth,
                ..PullImageRequest::default()
            };
            let result = server.images.pull_image(request).await;
            match accepted {
                true => drop(result?),
                false => {
                    let status = result.err().context("pulled without a right")?;
                    ensure!(status.code() == tonic::Code::Unauthenticated, "{status:?}");
                }
            }
        }
        Ok(())
    });
}
