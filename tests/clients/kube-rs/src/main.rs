//! The scenario of ../README.md with kube-rs.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams, DeleteParams, LogParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

struct Scenario {
    client: kube::Client,
    namespace: String,
    settings: Api<ConfigMap>,
    pods: Api<Pod>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let client = kube::Client::try_default().await?;
    let namespace = std::env::var("NAMESPACE")?;
    let scenario = Scenario {
        settings: Api::namespaced(client.clone(), &namespace),
        pods: Api::namespaced(client.clone(), &namespace),
        client,
        namespace,
    };
    scenario.create().await.context("not created")?;
    println!("created, and Ready");
    scenario.patch().await.context("not patched")?;
    println!("patched in three ways");
    scenario.apply().await.context("not applied")?;
    println!("applied, refused a conflict, applied by force");
    scenario.restart().await.context("not watched through a restart")?;
    println!("watched through a restart");
    scenario.logs().await.context("not read the log")?;
    println!("read the log");
    scenario.execute().await.context("not executed commands in the pod")?;
    println!("executed commands in the pod over WebSocket");
    scenario.forward().await.context("not forwarded a port")?;
    println!("forwarded a port over WebSocket");
    scenario.delete().await.context("not deleted")?;
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
        let command = format!("httpd -p 8080 -h /www; echo hello from {}; exec sleep 1000", self.namespace);
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
        timeout(Duration::from_secs(60), running).await??;
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

    /// Applies `settings` on the server's side.
    async fn put(&self, color: &str, parameters: PatchParams) -> kube::Result<ConfigMap> {
        let settings = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings"}, "data": {"color": color},
        });
        self.settings.patch("settings", &parameters, &Patch::Apply(settings)).await
    }

    async fn apply(&self) -> Result<()> {
        let is = |settings: &ConfigMap, color| settings.data.as_ref().is_some_and(|data| data["color"] == color);
        let first = self.put("black", PatchParams::apply("first").force()).await?;
        ensure!(is(&first, "black"), "the first manager's apply gave {:?}", first.data);
        match self.put("grey", PatchParams::apply("second")).await {
            Err(kube::Error::Api(status)) => {
                ensure!(status.code == 409 && status.reason == "Conflict", "a conflicting apply was answered with {status:?}");
                let message = r#"Apply failed with 1 conflict: conflict with "first": .data.color"#;
                ensure!(status.message == message, "a conflicting apply was answered with {status:?}");
            }
            other => bail!("a conflicting apply gave {other:?}"),
        }
        let second = self.put("grey", PatchParams::apply("second").force()).await?;
        ensure!(is(&second, "grey"), "the forced apply gave {:?}", second.data);
        Ok(())
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
        timeout(Duration::from_secs(60), gold).await?
    }

    async fn logs(&self) -> Result<()> {
        let text = self.pods.logs("hello", &LogParams::default()).await?;
        ensure!(text.contains(&format!("hello from {}", self.namespace)), "the log says {text:?}");
        Ok(())
    }

    async fn execute(&self) -> Result<()> {
        let both = "echo to stdout; echo to stderr >&2; exit 3";
        let (stdout, stderr, status) = self.run(&["sh", "-c", both], None).await?;
        ensure!(stdout == "to stdout\n" && stderr == "to stderr\n", "stdout is {stdout:?}, stderr is {stderr:?}");
        let causes = status.details.clone().and_then(|details| details.causes).unwrap_or_default();
        let code = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
        let three = code.is_some_and(|cause| cause.message.as_deref() == Some("3"));
        ensure!(three, "a command that ends with 3 was reported as {status:?}");
        let input = "line one\nline two\n";
        let (stdout, stderr, status) = self.run(&["cat"], Some(input)).await?;
        ensure!(stdout == input && stderr.is_empty(), "of {input:?} came back {stdout:?}, and on stderr {stderr:?}");
        ensure!(status.status.as_deref() == Some("Success"), "echoing stdin ended with {status:?}");
        Ok(())
    }

    /// Runs a command in the pod and returns its standard output, its standard error and how it ended.
    async fn run(&self, command: &[&str], input: Option<&str>) -> Result<(String, String, Status)> {
        let parameters = AttachParams::default().stdin(input.is_some());
        let mut process = self.pods.exec("hello", command.iter().copied(), &parameters).await?;
        let status = process.take_status().context("no status")?;
        let mut stdout = process.stdout().context("no stdout")?;
        let mut stderr = process.stderr().context("no stderr")?;
        let stdin = process.stdin();
        let streams = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                stdin.write_all(input.as_bytes()).await?;
                stdin.shutdown().await?;
            }
            let (mut out, mut err) = (String::new(), String::new());
            tokio::try_join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err))?;
            let status = status.await.context("the connection ended without a status")?;
            anyhow::Ok((out, err, status))
        };
        let ended = timeout(Duration::from_secs(30), streams).await.context("the command did not end")??;
        process.join().await?;
        Ok(ended)
    }

    async fn forward(&self) -> Result<()> {
        let mut forwarder = self.pods.portforward("hello", &[8080]).await?;
        let mut stream = forwarder.take_stream(8080).context("no stream")?;
        let problem = forwarder.take_error(8080).context("no error channel")?;
        stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        let read = timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await;
        read.with_context(|| format!("the answer did not end: {answer:?}"))??;
        // The server has closed the connection; joining would answer that with an error of the client's.
        forwarder.abort();
        let problem = problem.await;
        ensure!(answer.contains("Coracle carries you across."), "the pod answered {answer:?}; error: {problem:?}");
        ensure!(problem.is_none(), "the port has an error: {problem:?}");
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
        timeout(Duration::from_secs(60), gone).await??;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}
