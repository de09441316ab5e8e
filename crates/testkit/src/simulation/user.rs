//! The user of a simulation: applies, scales, changes, pauses, rolls back and deletes Deployments,
//! changes their strategies, and counts in a ConfigMap. It retries when a response is lost, and
//! records what must be true in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use client::retry;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use rand::{RngExt, rngs::StdRng};
use serde_json::json;

const STEPS: u32 = 25;
const NAMES: [&str; 4] = ["web", "api", "db", "queue"];
pub const COUNTER: &str = "counter";
/// The number of attempts of the user. Each waits a second, and no outage lasts that long.
pub const ATTEMPTS: u32 = 600;

/// The state that must be true in the end.
#[derive(Default)]
pub struct Promises {
    /// Deployments that were applied and not deleted.
    pub deployments: BTreeMap<&'static str, Desired>,
    /// Increments that were acknowledged, and those whose response was lost.
    pub counted: u64,
    pub unknown: u64,
    pub writes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    pub replicas: i32,
    pub image: String,
    pub strategy: Strategy,
    pub paused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Recreate,
    Rolling { surge: i32, unavailable: i32 },
}

impl Strategy {
    fn any(random: &mut StdRng) -> Strategy {
        if random.random_ratio(1, 5) {
            return Strategy::Recreate;
        }
        let unavailable = random.random_range(0..3);
        let surge = random.random_range(i32::from(unavailable == 0)..3);
        Strategy::Rolling { surge, unavailable }
    }

    fn to_json(self) -> serde_json::Value {
        match self {
            Strategy::Recreate => json!({"type": "Recreate", "rollingUpdate": null}),
            Strategy::Rolling { surge, unavailable } => json!({"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}),
        }
    }
}

pub async fn work(
    client: kube::Client,
    mut random: StdRng,
    promises: Arc<Mutex<Promises>>,
) -> Result<()> {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    for _ in 0..STEPS {
        let pause = random.random_range(0..4_000);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let name = NAMES[random.random_range(0..NAMES.len())];
        let current = promises.lock().deployments.get(name).cloned();
        let replicas = random.random_range(0..6);
        let image = format!("registry.test/{name}:v{}", random.random_range(0..3));
        promises.lock().writes += 1;
        let desired = match (current, random.random_range(0..10)) {
            (_, 0..2) => {
                count(&client, &promises).await.context("counting")?;
                continue;
            }
            (None, _) => {
                let desired = Desired {
                    replicas,
                    image,
                    strategy: Strategy::any(&mut random),
                    paused: false,
                };
                create(&deployments, name, &desired).await?;
                promises.lock().deployments.insert(name, desired);
                continue;
            }
            (Some(_), 2) => {
                delete(&deployments, name).await?;
                promises.lock().deployments.remove(name);
                continue;
            }
            (Some(current), 3..5) => Desired {
                replicas,
                ..current
            },
            (Some(current), 5) => Desired {
                strategy: Strategy::any(&mut random),
                ..current
            },
            (Some(current), 6) => Desired {
                paused: !current.paused,
                ..current
            },
            (Some(current), 7) => Desired {
                replicas,
                image,
                ..current
            },
            // One of three images: often the previous one, which is a rollback.
            (Some(current), _) => Desired { image, ..current },
        };
        change(&deployments, name, &desired).await?;
        promises.lock().deployments.insert(name, desired);
    }
    // A paused Deployment would never converge.
    let all = promises.lock().deployments.clone();
    for (name, current) in all {
        let desired = Desired {
            paused: false,
            ..current
        };
        change(&deployments, name, &desired).await?;
        promises.lock().deployments.insert(name, desired);
    }
    Ok(())
}

async fn create(api: &Api<Deployment>, name: &str, desired: &Desired) -> Result<()> {
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": desired.replicas,
            "strategy": desired.strategy.to_json(),
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": desired.image}],
                },
            },
        },
    }))?;
    for attempt in 0..ATTEMPTS {
        match api.create(&PostParams::default(), &deployment).await {
            Ok(_) => return Ok(()),
            // An earlier attempt whose response was lost took effect.
            Err(error) if attempt > 0 && retry::is_already_exists(&error) => return Ok(()),
            Err(error) => wait_out(error, "creating a Deployment").await?,
        }
    }
    bail!("creating {name} never succeeded")
}

async fn change(api: &Api<Deployment>, name: &str, desired: &Desired) -> Result<()> {
    let patch = Patch::Strategic(json!({"spec": {
        "replicas": desired.replicas,
        "strategy": desired.strategy.to_json(),
        "paused": desired.paused,
        "template": {"spec": {"containers": [{"name": "main", "image": desired.image}]}},
    }}));
    for _ in 0..ATTEMPTS {
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => return Ok(()),
            Err(error) => wait_out(error, "changing a Deployment").await?,
        }
    }
    bail!("changing {name} never succeeded")
}

async fn delete(api: &Api<Deployment>, name: &str) -> Result<()> {
    for attempt in 0..ATTEMPTS {
        match api.delete(name, &DeleteParams::background()).await {
            Ok(_) => return Ok(()),
            Err(error) if attempt > 0 && retry::is_not_found(&error) => return Ok(()),
            Err(error) => wait_out(error, "deleting a Deployment").await?,
        }
    }
    bail!("deleting {name} never succeeded")
}

/// Adds one to a number in a ConfigMap once, by optimistic concurrency. An increment whose response
/// is lost is not repeated but recorded as unknown.
async fn count(client: &kube::Client, promises: &Arc<Mutex<Promises>>) -> Result<()> {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for _ in 0..ATTEMPTS {
        let found = match api.get_opt(COUNTER).await {
            Ok(found) => found,
            Err(error) => {
                wait_out(error, "reading the counter").await?;
                continue;
            }
        };
        let value = found.as_ref().map_or(0, counter_value) + 1;
        let mut map = found.clone().unwrap_or_default();
        map.metadata.name = Some(COUNTER.to_owned());
        map.data = Some(BTreeMap::from([("value".into(), value.to_string())]));
        let written = match found {
            Some(_) => api.replace(COUNTER, &PostParams::default(), &map).await,
            None => api.create(&PostParams::default(), &map).await,
        };
        match written {
            Ok(written) => {
                anyhow::ensure!(counter_value(&written) == value, "another value came back");
                promises.lock().counted += 1;
                return Ok(());
            }
            // An earlier attempt with an unknown result took effect in between: read again.
            Err(error) if retry::is_conflict(&error) || retry::is_already_exists(&error) => {}
            Err(error) => {
                promises.lock().unknown += 1;
                return wait_out(error, "counting").await;
            }
        }
    }
    bail!("counting never succeeded")
}

pub fn counter_value(map: &ConfigMap) -> u64 {
    map.data
        .as_ref()
        .and_then(|data| data.get("value")?.parse().ok())
        .unwrap_or(0)
}

/// Waits after a broken connection or while the server is down. A rejection is a failure.
pub async fn wait_out(error: kube::Error, doing: &'static str) -> Result<()> {
    if let kube::Error::Api(status) = &error
        && (400..500).contains(&status.code)
        && !matches!(status.code, 409 | 429)
    {
        return Err(error).context(doing);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}
