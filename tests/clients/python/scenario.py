"""The scenario of ../README.md with the official Python client."""

import os
import subprocess
import threading
import time

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

NAMESPACE = os.environ["NAMESPACE"]
config.load_kube_config()
core = client.CoreV1Api()


def with_content_type(content_type):
    """A second API object whose patches are sent in one of the patch types."""
    api = client.ApiClient()
    api.select_header_content_type = lambda *arguments: content_type
    return client.CoreV1Api(api)


def create():
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "settings"}, "data": {"color": "red"}})
    pod = {
        "metadata": {"name": "hello"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": os.environ["IMAGE"],
                "command": ["sh", "-c", f"echo hello from {NAMESPACE}; exec sleep 1000"],
            }],
        },
    }
    for _ in range(200):
        try:
            core.create_namespaced_pod(NAMESPACE, pod)
            break
        except ApiException as error:
            # The ServiceAccount is made by a controller a moment after the namespace.
            if error.status != 403:
                raise
            time.sleep(0.05)
    for event in watch.Watch().stream(core.list_namespaced_pod, NAMESPACE, timeout_seconds=60):
        conditions = event["object"].status.conditions or []
        if any(c.type == "Ready" and c.status == "True" for c in conditions):
            return
    raise TimeoutError("the pod did not become Ready")


def patch():
    for content_type, body, color in [
        ("application/merge-patch+json", {"data": {"color": "green"}}, "green"),
        ("application/strategic-merge-patch+json", {"data": {"color": "blue"}}, "blue"),
        ("application/json-patch+json", [{"op": "replace", "path": "/data/color", "value": "white"}], "white"),
    ]:
        changed = with_content_type(content_type).patch_namespaced_config_map("settings", NAMESPACE, body)
        assert changed.data["color"] == color, changed.data


def paint(color):
    merge = with_content_type("application/merge-patch+json")
    merge.patch_namespaced_config_map("settings", NAMESPACE, {"data": {"color": color}})


def apply():
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"color": "black"}}
    try:
        with_content_type("application/apply-patch+yaml").patch_namespaced_config_map(
            "settings", NAMESPACE, settings, field_manager="python", force=True)
    except ApiException as error:
        if error.status != 415:
            raise
        print("server-side apply is not served yet")
        paint("black")


def restart():
    seen = threading.Event()
    began = threading.Event()

    def follow():
        version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
        while not seen.is_set():
            stream = watch.Watch()
            began.set()
            try:
                for event in stream.stream(core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=60):
                    version = event["object"].metadata.resource_version
                    if (event["object"].data or {}).get("color") == "gold":
                        seen.set()
                        return
            except Exception:
                # The connection went with the server: watch again from the last version seen.
                time.sleep(0.1)

    threading.Thread(target=follow, daemon=True).start()
    began.wait(10)
    subprocess.run(["bash", "-c", os.environ["RESTART"]], check=True, stdout=subprocess.DEVNULL)
    paint("gold")
    assert seen.wait(60), "gold did not come through the watch"


def logs():
    text = core.read_namespaced_pod_log("hello", NAMESPACE)
    assert f"hello from {NAMESPACE}" in text, text


def delete():
    core.delete_namespaced_pod("hello", NAMESPACE)
    for _ in range(600):
        try:
            core.read_namespaced_pod("hello", NAMESPACE)
        except ApiException as error:
            assert error.status == 404
            break
        time.sleep(0.1)
    else:
        raise TimeoutError("the pod did not go")
    core.delete_namespace(NAMESPACE)


for done, step in [
    ("created, and Ready", create),
    ("patched in three ways", patch),
    ("applied", apply),
    ("watched through a restart", restart),
    ("read the log", logs),
    ("deleted", delete),
]:
    step()
    print(done, flush=True)
