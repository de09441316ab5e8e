"""The scenario of ../README.md with the official Python client."""

import json
import os
import subprocess
import threading
import time

from kubernetes import client, config, stream, watch
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
                "command": ["sh", "-c", f"httpd -p 8080 -h /www; echo hello from {NAMESPACE}; exec sleep 1000"],
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
    api = with_content_type("application/apply-patch+yaml")

    def put(manager, color, **options):
        settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"color": color}}
        changed = api.patch_namespaced_config_map("settings", NAMESPACE, settings, field_manager=manager, **options)
        assert changed.data["color"] == color, changed.data

    put("first", "black", force=True)
    try:
        put("second", "grey")
    except ApiException as error:
        status = json.loads(error.body)
        assert (error.status, status["reason"]) == (409, "Conflict"), error
        assert status["message"] == 'Apply failed with 1 conflict: conflict with "first": .data.color', status
        assert status["details"]["causes"][0]["reason"] == "FieldManagerConflict", status
    else:
        raise AssertionError("a conflicting apply was accepted")
    put("second", "grey", force=True)


def restart():
    seen = threading.Event()
    began = threading.Event()
    problems = []

    def look(settings):
        if (settings.data or {}).get("color") == "gold":
            seen.set()

    def follow():
        version = None
        while not seen.is_set():
            try:
                if version is None:
                    settings = core.list_namespaced_config_map(NAMESPACE)
                    version = settings.metadata.resource_version
                    for item in settings.items:
                        look(item)
                began.set()
                for event in watch.Watch().stream(
                        core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=60):
                    version = event["object"].metadata.resource_version
                    look(event["object"])
                    if seen.is_set():
                        return
            except Exception as error:
                # The connection went with the server: watch again from the last version seen, or list
                # again when that is too long ago.
                problems.append(str(error))
                if isinstance(error, ApiException) and error.status == 410:
                    version = None
                time.sleep(0.1)

    threading.Thread(target=follow, daemon=True).start()
    assert began.wait(10), f"the watch did not begin: {problems}"
    subprocess.run(["bash", "-c", os.environ["RESTART"]], check=True, stdout=subprocess.DEVNULL)
    paint("gold")
    assert seen.wait(60), f"gold did not come through the watch: {problems[-3:]}"


def logs():
    text = core.read_namespaced_pod_log("hello", NAMESPACE)
    assert f"hello from {NAMESPACE}" in text, text


def execute():
    def start(*command, stdin):
        return stream.stream(
            core.connect_get_namespaced_pod_exec, "hello", NAMESPACE, command=list(command),
            stdin=stdin, stdout=True, stderr=True, tty=False, _preload_content=False)

    def finish(process):
        process.run_forever(timeout=30)
        assert not process.is_open(), "the command did not end within 30 seconds"
        return process.read_stdout(), process.read_stderr(), process.returncode

    ended = finish(start("sh", "-c", "echo to stdout; echo to stderr >&2; exit 3", stdin=False))
    assert ended == ("to stdout\n", "to stderr\n", 3), ended
    echo = start("cat", stdin=True)
    echo.write_stdin("line one\n")
    echo.write_stdin("line two\n")
    echo.close_channel(0)
    ended = finish(echo)
    assert ended == ("line one\nline two\n", "", 0), ended


def forward():
    forwarded = stream.portforward(core.connect_get_namespaced_pod_portforward, "hello", NAMESPACE, ports="8080")
    connection = forwarded.socket(8080)
    connection.settimeout(10)
    connection.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
    answer = b""
    while data := connection.recv(4096):
        answer += data
    assert b"Coracle carries you across." in answer, (answer, forwarded.error(8080))
    assert forwarded.error(8080) is None, forwarded.error(8080)
    forwarded.close()


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
    ("applied, refused a conflict, applied by force", apply),
    ("watched through a restart", restart),
    ("read the log", logs),
    ("executed commands in the pod over WebSocket", execute),
    ("forwarded a port over WebSocket", forward),
    ("deleted", delete),
]:
    try:
        step()
    except Exception as error:
        raise SystemExit(f"not {done}: {type(error).__name__}: {error}") from error
    print(done, flush=True)
