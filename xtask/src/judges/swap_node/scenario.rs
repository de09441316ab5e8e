//! The workload that both nodes run, and everything that is shown of it.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::Which;
use super::stage::{MACHINE, PORT, Stage};
use crate::judges::command::{output, run, succeeds, wait_for};

const WORKLOAD: &str = include_str!("workload.yaml");

impl Stage<'_> {
    pub fn scenario(&mut self) -> Result<()> {
        self.node_is_ready()?;
        self.apply_workload()?;
        let pod = self.print(&[
            "get",
            "pods",
            "-l",
            "app=web",
            "-o",
            "jsonpath={.items[0].metadata.name}",
        ])?;
        self.volumes_and_environment(&pod)?;
        self.streams_and_services(&pod)?;
        self.changes(&pod)?;
        self.survives_a_kill(&pod)?;
        self.goes_without_a_trace(&pod)
    }

    fn node_is_ready(&self) -> Result<()> {
        let name = self.which.name();
        wait_for("the node registers", 180, || {
            succeeds(&mut self.kubectl(&["get", "node", name]))
        })?;
        let node = format!("node/{name}");
        self.check(&["wait", &node, "--for=condition=Ready", "--timeout=120s"])?;
        let node = self.print(&[
            "get", "node", name, "-o",
            "jsonpath=node {.metadata.name} is ready: kubelet {.status.nodeInfo.kubeletVersion}, {.status.nodeInfo.containerRuntimeVersion}",
        ])?;
        let version: serde_json::Value =
            serde_json::from_str(&self.print(&["version", "-o", "json"])?)?;
        let version = version["serverVersion"]["gitVersion"]
            .as_str()
            .unwrap_or_default();
        self.say(&format!("{node} of {version}"));
        let refused = Command::new(self.programs.upstream.join("kubectl"))
            .args([
                "--kubeconfig",
                &self.file("node.kubeconfig"),
                "get",
                "secrets",
                "-A",
            ])
            .output()?;
        ensure!(!refused.status.success(), "a node sees every secret");
        let errors = String::from_utf8_lossy(&refused.stderr);
        let last: String = errors
            .lines()
            .last()
            .unwrap_or_default()
            .chars()
            .take(100)
            .collect();
        self.say(&format!("the node may not see every secret: {last}"));
        Ok(())
    }

    fn apply_workload(&self) -> Result<()> {
        let mut apply = self
            .kubectl(&["apply", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let mut input = apply.stdin.take().context("input")?;
        input.write_all(WORKLOAD.as_bytes())?;
        drop(input);
        ensure!(apply.wait()?.success(), "the workload cannot be applied");
        self.check(&["rollout", "status", "deployment/web", "--timeout=150s"])?;
        self.say("a Deployment of two pods is ready (startup, readiness and liveness probes by TCP, HTTP and exec)");
        Ok(())
    }

    fn volumes_and_environment(&self, pod: &str) -> Result<()> {
        let inside = |command: &'static str| self.exec(pod, command);
        self.same(
            "exec, and a ConfigMap as environment",
            "hello",
            inside("echo $GREETING"),
        )?;
        self.same(
            "ConfigMap volume",
            "hello",
            inside("cat /settings/greeting"),
        )?;
        self.same("Secret volume", "boat", inside("cat /word/word"))?;
        self.same(
            "emptyDir filled by the init container",
            "made before",
            inside("cat /shared/index.html"),
        )?;
        self.same("projected downward API", pod, inside("cat /all/name"))?;
        let token = output(&mut self.exec(pod, "cat /all/token")())?;
        self.same(
            "projected token is that of",
            "system:serviceaccount:default:default",
            || {
                let mut kubectl = Command::new(self.programs.upstream.join("kubectl"));
                kubectl
                    .args(["--server", &format!("https://{MACHINE}:{PORT}")])
                    .args(["--certificate-authority", &self.file("pki/ca.crt")])
                    .args([
                        "--kubeconfig",
                        "/dev/null",
                        "--token",
                        &token,
                        "auth",
                        "whoami",
                    ])
                    .args(["-o", "jsonpath={.status.userInfo.username}"]);
                kubectl
            },
        )
    }

    fn streams_and_services(&mut self, pod: &str) -> Result<()> {
        let greeting = format!("hello from {pod}");
        self.same("log", &greeting, || {
            self.kubectl(&["logs", pod, "-c", "web"])
        })?;
        let kubectl = self.programs.upstream.join("kubectl").display().to_string();
        let kubeconfig = self.file("admin.kubeconfig");
        let name = self.which.name();
        let bash = |script: String| {
            move || {
                let mut bash = Command::new("bash");
                bash.args(["-c", &script]);
                bash
            }
        };
        self.same("interactive exec", "heard: ahoy", bash(format!(
            "echo ahoy | timeout 60 '{kubectl}' --kubeconfig '{kubeconfig}' exec -i {pod} -c web -- sh -c 'read word; echo heard: $word'"
        )))?;
        self.same("Service, through the API server", "made before", || {
            self.kubectl(&[
                "get",
                "--raw",
                "/api/v1/namespaces/default/services/web:80/proxy/index.html",
            ])
        })?;
        if self.which == Which::Ours {
            self.same(
                "Service, by its name from a pod",
                "made before",
                self.exec(pod, "wget -qO- http://web/index.html"),
            )?;
        }
        let mut forward = self.kubectl(&["port-forward", pod, "18080:8080"]);
        let mut forward = self.start("forward", &mut forward)?;
        self.same("port-forward", "made before", || {
            let mut curl = Command::new("curl");
            curl.args(["-fs", "http://127.0.0.1:18080/index.html"]);
            curl
        })?;
        forward.kill()?;
        forward.wait()?;
        self.same("Job", "1", || {
            self.kubectl(&["get", "job", "once", "-o", "jsonpath={.status.succeeded}"])
        })?;
        self.same("log of the ended pod", "done", || {
            self.kubectl(&["logs", "job/once"])
        })?;
        self.same("requests and figures of the node: pods in /stats/summary", "true", bash(format!(
            "timeout 60 '{kubectl}' --kubeconfig '{kubeconfig}' get --raw /api/v1/nodes/{name}/proxy/stats/summary | jq '.pods | length >= 2'"
        )))?;
        let selector = format!("involvedObject.name={pod},reason=Started");
        self.same("events of the pod", "Started", || {
            self.kubectl(&[
                "get",
                "events",
                "--field-selector",
                &selector,
                "-o",
                "jsonpath={.items[0].reason}",
            ])
        })
    }

    fn changes(&self, pod: &str) -> Result<()> {
        self.check(&[
            "patch",
            "configmap",
            "settings",
            "-p",
            r#"{"data":{"greeting":"ahoy"}}"#,
        ])?;
        self.same(
            "a changed ConfigMap reaches its volume",
            "ahoy",
            self.exec(pod, "cat /settings/greeting"),
        )?;
        run(&mut self.exec(pod, "rm /shared/alive")())?;
        self.same(
            "a failing liveness probe restarts its container, count",
            "1",
            || {
                self.kubectl(&[
                    "get",
                    "pod",
                    pod,
                    "-o",
                    "jsonpath={.status.containerStatuses[0].restartCount}",
                ])
            },
        )?;
        let greeting = format!("hello from {pod}");
        self.same("log of the container before", &greeting, || {
            self.kubectl(&["logs", pod, "-c", "web", "--previous"])
        })?;
        run(&mut self.exec(pod, "touch /shared/alive")())?;
        self.check(&[
            "wait",
            &format!("pod/{pod}"),
            "--for=condition=Ready",
            "--timeout=120s",
        ])
    }

    fn survives_a_kill(&mut self, pod: &str) -> Result<()> {
        let state = [
            "get",
            "pods",
            "-l",
            "app=web",
            "-o",
            "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].containerID}{\"\\n\"}{end}",
        ];
        let before = self.print(&state)?;
        let mut node = self.node.take().context("a node")?;
        node.kill()?;
        node.wait()?;
        self.start_node(&[])?;
        self.check(&["annotate", "pods", "-l", "app=web", "seen=again"])?;
        let name = self.which.name();
        self.same("the node after a kill -9 of its kubelet", "True", || {
            self.kubectl(&[
                "get",
                "node",
                name,
                "-o",
                r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#,
            ])
        })?;
        self.same(
            "exec after it, the environment being that of the restart",
            "ahoy",
            self.exec(pod, "echo $GREETING"),
        )?;
        let after = self.print(&state)?;
        ensure!(
            before == after,
            "containers changed over the restart of the kubelet: {before} / {after}"
        );
        self.say("its containers are the same as before");
        Ok(())
    }

    fn goes_without_a_trace(&self, pod: &str) -> Result<()> {
        self.check(&["delete", "pod", pod, "--timeout=120s"])?;
        self.check(&["rollout", "status", "deployment/web", "--timeout=120s"])?;
        self.say("a deleted pod goes and is replaced");
        self.check(&[
            "delete",
            "deployment,service,job",
            "--all",
            "--timeout=120s",
        ])?;
        self.check(&["delete", "configmap/settings", "secret/word"])?;
        wait_for("nothing is left of the pods", 120, || self.is_empty())?;
        let pods = self.print(&["get", "pods", "-o", "name"])?;
        ensure!(pods.is_empty(), "pods are left: {pods}");
        self.say("all pods are gone, and nothing of them is left on the node");
        Ok(())
    }

    /// A shell command inside the pod.
    fn exec<'a>(&'a self, pod: &'a str, command: &'a str) -> impl Fn() -> Command + 'a {
        move || self.kubectl(&["exec", pod, "-c", "web", "--", "sh", "-c", command])
    }

    /// What kubectl prints.
    fn print(&self, arguments: &[&str]) -> Result<String> {
        output(&mut self.kubectl(arguments))
    }

    /// A kubectl command that must succeed.
    fn check(&self, arguments: &[&str]) -> Result<()> {
        run(&mut self.kubectl(arguments))
    }

    /// Within two minutes, the command prints what is expected.
    fn same(&self, what: &str, expected: &str, command: impl Fn() -> Command) -> Result<()> {
        let mut answer = String::new();
        let came = wait_for(what, 120, || {
            let Ok(done) = command().stdin(Stdio::null()).output() else {
                return false;
            };
            answer = printed(&done.stdout, &done.stderr);
            done.status.success() && answer == expected
        });
        match came {
            Ok(()) => self.say(&format!("{what}: {answer}")),
            Err(_) => bail!("{what}: '{answer}' instead of '{expected}'"),
        }
        Ok(())
    }
}

/// Output and errors without the last line breaks.
fn printed(output: &[u8], errors: &[u8]) -> String {
    let text = [output, errors].concat();
    String::from_utf8_lossy(&text).trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_is_not_changed_by_quoting() {
        assert!(WORKLOAD.contains("hello from $(hostname)"));
        assert_eq!(WORKLOAD.matches("\n---\n").count(), 4);
    }

    #[test]
    fn answers_are_compared_without_the_last_line_break() {
        assert_eq!(printed(b"hello\n", b""), "hello");
    }
}
