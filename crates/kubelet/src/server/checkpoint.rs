//! `/checkpoint`: asks the runtime to write a running container to a file. Whether it can is the
//! runtime's to say.

use std::sync::Arc;

use cri::v1;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Backend, Refusal, query};
use crate::{pod_spec, runtime::observe};

pub async fn make(
    backend: &Arc<Backend>,
    namespace: &str,
    name: &str,
    container: &str,
    query: &str,
) -> Result<Value, Refusal> {
    let pod = backend
        .pods
        .find(namespace, name)
        .ok_or_else(|| not_found("pod does not exist".to_owned()))?;
    if pod_spec::find(&pod, container).is_none() {
        return Err(not_found(format!("container {container} does not exist")));
    }
    let mut timeout = 0;
    for (_, value) in query::pairs(query)
        .iter()
        .filter(|(key, _)| key == "timeout")
    {
        timeout = value
            .parse()
            .map_err(|_| not_found("cannot parse value of timeout parameter".to_owned()))?;
    }
    let failed = |why: String| Refusal {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        message: format!("checkpointing of {namespace}/{name}/{container} failed ({why})"),
    };
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let observed = observe::pod(&backend.cri, &uid)
        .await
        .map_err(|status| failed(crate::runtime::rpc_error(&status)))?;
    let record = observed
        .latest(container)
        .filter(|record| record.running())
        .ok_or_else(|| failed(format!("container \"{container}\" not found")))?;
    let directory = backend.volumes.pods_root().with_file_name("checkpoints");
    tokio::fs::create_dir_all(&directory)
        .await
        .map_err(|error| failed(error.to_string()))?;
    let now = backend.environment.now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let file = directory.join(format!(
        "checkpoint-{name}_{namespace}-{container}-{now}.tar"
    ));
    let location = file.to_string_lossy().into_owned();
    let request = v1::CheckpointContainerRequest {
        container_id: record.id.clone(),
        location: location.clone(),
        timeout,
    };
    let mut runtime = backend.cri.runtime.clone();
    match runtime.checkpoint_container(request).await {
        Ok(_) => Ok(json!({"items": [location]})),
        Err(status) => Err(failed(crate::runtime::rpc_error(&status))),
    }
}

fn not_found(message: String) -> Refusal {
    Refusal {
        status: StatusCode::NOT_FOUND,
        message,
    }
}
