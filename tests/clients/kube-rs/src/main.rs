//! The scenario of ../README.md with kube-rs.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DeleteParams, LogParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

struct Scenario {
    client: kube::Client,
    namespace: String,
    settings: Api<ConfigMap>,
    pods: Api<Pod>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = kube::Client::try_default().await?;
    let namespace = std::env::var("NAMESPACE")?;
    let scenario = Scenario {
        settings: Api::namespaced(client.clone(), &namespace),
        pods: Api::namespaced(client.clone(), &namespace),
        client,
        namespace,
    };
    scenario.create().await.context("creating")?;
    println!("created, and Ready");
    scenario.patch().await.context("patching")?;
    println!("patched in three ways");
    scenario.apply().await.context("applying")?;
    println!("applied");
    scenario.restart().await.context("watching")?;
    println!("watched through a restart");
    scenario.logs().await.context("reading the log")?;
    println!("read the log");
    scenario.delete().await.context("deleting")?;
    println!("deleted");
    Ok(())
}

impl Scenario {
    async fn create(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let parameters = PostParams::default();
        let namespace = serde_json::from_value(json!({"metadata": {"name": self.namespace}}))?;
        namespaces.create(&parameters, &namespace).await?;
        let settings = json!({"metadata": {"name": "settings"}, "data": {"color": "red"}});
        self.settings.create(&parameters, &serde_json::from_value(settings)?).await?;
        let command = format!("echo hello from {}; exec sleep 1000", self.namespace);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "hello"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main",
                    "image": std::env::var("IMAGE")?,
                    "command": ["sh", "-c", command],
                }],
            },
        }))?;
        // The ServiceAccount is made by a controller a moment after the namespace.
        let mut attempts = 0;
        loop {
            match self.pods.create(&parameters, &pod).await {
                Err(kube::Error::Api(status)) if status.code == 403 && attempts < 200 => attempts += 1,
                other => break other.map(drop)?,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let running = await_condition(self.pods.clone(), "hello", conditions::is_pod_running());
        tokio::time::timeout(Duration::from_secs(60), running).await??;
        Ok(())
    }

    async fn patch(&self) -> Result<()> {
        let operations = serde_json::from_value(json!([{"op": "replace", "path": "/data/color", "value": "white"}]))?;
        let green = Patch::Merge(json!({"data": {"color": "green"}}));
        let blue = Patch::Strategic(json!({"data": {"color": "blue"}}));
        for (patch, color) in [(green, "green"), (blue, "blue"), (Patch::Json::<serde_json::Value>(operations), "white")] {
            let changed = self.settings.patch("settings", &PatchParams::default(), &patch).await?;
            let data = changed.data.unwrap_or_default();
            ensure!(data.get("color").map(String::as_str) == Some(color), "{patch:?} gave {data:?}");
        }
        Ok(())
    }

    async fn paint(&self, color: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"data": {"color": color}}));
        self.settings.patch("settings", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn apply(&self) -> Result<()> {
        let settings = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings"}, "data": {"color": "black"},
        });
        let parameters = PatchParams::apply("kube-rs").force();
        match self.settings.patch("settings", &parameters, &Patch::Apply(settings)).await {
            Err(kube::Error::Api(status)) if status.code == 415 => {
                println!("server-side apply is not served yet");
                self.paint("black").await
            }
            other => Ok(other.map(drop)?),
        }
    }

    async fn restart(&self) -> Result<()> {
        let changes = watcher(self.settings.clone(), watcher::Config::default())
            .default_backoff()
            .applied_objects()
            // A failed watch is an item of the stream; the watcher goes on after it.
            .filter_map(async |result| result.ok());
        let mut changes = Box::pin(changes);
        changes.next().await.context("the watch ended")?;
        let command = std::env::var("RESTART")?;
        let output = tokio::process::Command::new("bash").args(["-c", &command]).output().await?;
        ensure!(output.status.success(), "restarting: {output:?}");
        self.paint("gold").await?;
        let gold = async {
            while let Some(settings) = changes.next().await {
                if settings.data.is_some_and(|data| data.get("color").is_some_and(|color| color == "gold")) {
                    return Ok(());
                }
            }
            bail!("the watch ended")
        };
        tokio::time::timeout(Duration::from_secs(60), gold).await?
    }

    async fn logs(&self) -> Result<()> {
        let text = self.pods.logs("hello", &LogParams::default()).await?;
        ensure!(text.contains(&format!("hello from {}", self.namespace)), "the log says {text:?}");
        Ok(())
    }

    async fn delete(&self) -> Result<()> {
        self.pods.delete("hello", &DeleteParams::default()).await?;
        let mut events = Box::pin(watcher(self.pods.clone(), watcher::Config::default()).default_backoff());
        let gone = async {
            loop {
                if self.pods.get_opt("hello").await?.is_none() {
                    return anyhow::Ok(());
                }
                events.try_next().await?;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await??;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}
