//! `/runningpods/`: the pods that the runtime runs, no matter what the API says, in the API's form.

use std::collections::BTreeMap;

use cri::v1;
use serde_json::{Value, json};

use crate::runtime::label;

pub async fn list(cri: &cri::Client) -> Result<Value, tonic::Status> {
    let (mut runtime, mut other) = (cri.runtime.clone(), cri.runtime.clone());
    let (sandboxes, containers) = tokio::try_join!(
        runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }),
        other.list_containers(v1::ListContainersRequest { filter: None })
    )?;
    Ok(build(
        sandboxes.into_inner().items,
        containers.into_inner().containers,
    ))
}

fn build(sandboxes: Vec<v1::PodSandbox>, containers: Vec<v1::Container>) -> Value {
    let mut pods: BTreeMap<String, Value> = BTreeMap::new();
    let mut uids: BTreeMap<String, String> = BTreeMap::new();
    let ready = v1::PodSandboxState::SandboxReady as i32;
    for sandbox in sandboxes.into_iter().filter(|one| one.state == ready) {
        let metadata = sandbox.metadata.unwrap_or_default();
        uids.insert(sandbox.id, metadata.uid.clone());
        let pod = json!({
            "metadata": {"name": metadata.name, "namespace": metadata.namespace,
                "uid": metadata.uid, "creationTimestamp": null},
            "spec": {"containers": []}, "status": {},
        });
        pods.insert(metadata.uid, pod);
    }
    let running = v1::ContainerState::ContainerRunning as i32;
    for container in containers.into_iter().filter(|one| one.state == running) {
        let pod = uids.get(&container.pod_sandbox_id);
        let pod = pod.and_then(|uid| pods.get_mut(uid));
        let list = pod.and_then(|pod| pod["spec"]["containers"].as_array_mut());
        if let Some(list) = list {
            let image = container.image.unwrap_or_default();
            list.push(json!({
                "name": container.labels.get(label::CONTAINER_NAME), "image": image.image,
                "resources": {},
            }));
        }
    }
    let items: Vec<Value> = pods.into_values().collect();
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_sandboxes_and_containers_are_listed() {
        let sandbox = |id: &str, state: v1::PodSandboxState| v1::PodSandbox {
            id: id.to_owned(),
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("pod-{id}"),
                uid: format!("uid-{id}"),
                namespace: "n".to_owned(),
                attempt: 0,
            }),
            state: state as i32,
            ..Default::default()
        };
        let container = v1::Container {
            pod_sandbox_id: "a".to_owned(),
            state: v1::ContainerState::ContainerRunning as i32,
            labels: [(label::CONTAINER_NAME.to_owned(), "c".to_owned())].into(),
            ..Default::default()
        };
        let list = build(
            vec![
                sandbox("a", v1::PodSandboxState::SandboxReady),
                sandbox("b", v1::PodSandboxState::SandboxNotready),
            ],
            vec![container],
        );
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
        assert_eq!(list["items"][0]["metadata"]["name"], "pod-a");
        assert_eq!(list["items"][0]["spec"]["containers"][0]["name"], "c");
    }
}
