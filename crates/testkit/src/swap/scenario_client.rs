//! The scenario's client: plain requests to an API server, and waiting until a condition is met.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use super::condition;

/// The limit of every wait, on a machine that is busy with other things.
pub const WAIT_LIMIT: Duration = Duration::from_secs(300);
/// The pause between two checks of a condition.
pub const PAUSE: Duration = Duration::from_millis(250);

#[derive(Clone)]
pub struct ScenarioClient {
    client: kube::Client,
}

impl ScenarioClient {
    pub fn new(client: kube::Client) -> ScenarioClient {
        ScenarioClient { client }
    }

    /// Sends a request and returns the response's code and body, also those of a failure.
    pub async fn send(&self, method: Method, path: &str, body: &Value) -> Result<(u16, Value)> {
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .body(Body::from(bytes))?;
        let response = self.client.send(request).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok((code, value))
    }

    /// Like [`ScenarioClient::send`], for requests that must succeed.
    async fn send_successfully(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let doing = format!("{method} {path}");
        let (code, answer) = self.send(method, path, body).await.context(doing.clone())?;
        if !(200..300).contains(&code) {
            bail!("{doing}: {code}: {}", answer["message"]);
        }
        Ok(answer)
    }

    /// Creates an object in a collection such as `/apis/apps/v1/namespaces/swap/deployments`.
    pub async fn create(&self, collection: &str, object: Value) -> Result<()> {
        self.send_successfully(Method::POST, collection, &object)
            .await?;
        Ok(())
    }

    pub async fn patch(&self, path: &str, patch: Value) -> Result<()> {
        self.send_successfully(Method::PATCH, path, &patch).await?;
        Ok(())
    }

    pub async fn delete(&self, path: &str, propagation: &str) -> Result<()> {
        let options = json!({"propagationPolicy": propagation});
        self.send_successfully(Method::DELETE, path, &options)
            .await?;
        Ok(())
    }

    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        let (code, answer) = self.send(Method::GET, path, &Value::Null).await?;
        match code {
            200 => Ok(Some(answer)),
            404 => Ok(None),
            _ => bail!("GET {path}: {code}: {}", answer["message"]),
        }
    }

    pub async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut answer = self
            .send_successfully(Method::GET, path, &Value::Null)
            .await?;
        match answer["items"].take() {
            Value::Array(items) => Ok(items),
            _ => bail!("GET {path}: not a list"),
        }
    }

    /// Waits until `is_true` returns true.
    pub async fn until<Check, Answer>(&self, what: &str, is_true: Check) -> Result<()>
    where
        Check: Fn() -> Answer,
        Answer: Future<Output = Result<bool>>,
    {
        let deadline = tokio::time::Instant::now() + WAIT_LIMIT;
        loop {
            let answer = is_true().await;
            if let Ok(true) = answer {
                println!("  {what}");
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return match answer {
                    Err(error) => Err(error.context(format!("waiting until {what}"))),
                    Ok(_) => bail!("waited {WAIT_LIMIT:?} in vain until {what}"),
                };
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until an object exists and `is_right` returns true for it. The error contains the
    /// object.
    pub async fn until_object(
        &self,
        path: &str,
        what: &str,
        is_right: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let right = &is_right;
        let waited = self
            .until(what, || async move {
                Ok(self.get(path).await?.is_some_and(|object| right(&object)))
            })
            .await;
        match waited {
            Ok(()) => Ok(()),
            Err(error) => {
                let found = self.get(path).await?.map_or(Value::Null, |mut object| {
                    object["metadata"]["managedFields"] = Value::Null;
                    object
                });
                Err(error.context(format!("{path} is {found:#}")))
            }
        }
    }

    pub async fn until_gone(&self, path: &str) -> Result<()> {
        self.until(&format!("{path} is gone"), || async {
            Ok(self.get(path).await?.is_none())
        })
        .await
    }

    pub async fn nodes_are_ready(&self, count: usize) -> Result<()> {
        self.until(&format!("{count} nodes are ready"), || async {
            let nodes = self.list("/api/v1/nodes").await?;
            let ready = nodes
                .iter()
                .filter(|node| condition(node, "Ready") == "True" && !has_taints(node));
            Ok(ready.count() == count)
        })
        .await
    }
}

fn has_taints(node: &Value) -> bool {
    node["spec"]["taints"]
        .as_array()
        .is_some_and(|taints| !taints.is_empty())
}
